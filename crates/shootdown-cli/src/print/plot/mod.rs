//! Plots as SVG text: lines over thread counts, and stacked shares. [`crate::comparison::report`] decides what they
//! show.

mod axis;

use plotters::prelude::*;

use crate::print::number;
use crate::print::page::escape;
use crate::print::style::{self, AXIS, GRID, Tone};
use axis::{Axis, labelled, log2, shortest, tick};

pub use axis::{decade_of_count, decade_of_time, ticks};

/// One line of a plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its colour.
    pub tone: Tone,
    /// (threads, value), drawn as a line with filled markers.
    pub points: Vec<(usize, f64)>,
    /// (threads, value), drawn as hollow markers.
    pub hollow: Vec<(usize, f64)>,
    /// (threads, lowest, highest), drawn as a stroke between them: the confidence interval.
    pub ranges: Vec<(usize, f64, f64)>,
}

/// Shares of one bar, from the bottom, each with its colour.
pub type Bar = (String, Vec<(Tone, f64)>);

const LABEL: (&str, i32) = ("sans-serif", 16);

/// Lines over thread counts (logarithmic axis), from 0 up.
pub fn lines(size: (u32, u32), unit: &str, lines: &[Line]) -> String {
    over(("threads", unit), size, lines)
}

/// [`lines`] over another quantity than threads; `titles` are those of the axes.
pub fn over(titles: (&str, &str), size: (u32, u32), lines: &[Line]) -> String {
    let top = values(lines).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.08 } else { 1.0 };
    let axis = Axis {
        range: 0.0..top,
        labelled: ticks(top),
    };
    draw(size, titles, lines, axis, Some, tick)
}

/// Times in ns over thread counts, both axes logarithmic; zero has no place and is left out.
pub fn times(size: (u32, u32), lines: &[Line]) -> String {
    log_log(size, ("threads", ""), lines, decade_of_time)
}

/// Both axes logarithmic, as [`times`]; `titles` are those of the axes, `decade` writes the power of ten of an
/// exponent.
pub fn log_log(size: (u32, u32), titles: (&str, &str), lines: &[Line], decade: fn(f64) -> String) -> String {
    let positive = || values(lines).filter(|value| *value > 0.0).map(f64::log10);
    let low = positive().fold(f64::INFINITY, f64::min).floor();
    let high = positive().fold(f64::NEG_INFINITY, f64::max).ceil();
    let (low, high) = if low < high {
        (low, high)
    } else if low.is_finite() {
        (low, low + 1.0)
    } else {
        (0.0, 1.0)
    };
    let axis = Axis {
        range: low..high,
        labelled: (low as i32..=high as i32).map(f64::from).collect(),
    };
    let place = |value: f64| (value > 0.0).then(|| value.log10());
    draw(size, titles, lines, axis, place, decade)
}

/// The finite values of all lines.
fn values(lines: &[Line]) -> impl Iterator<Item = f64> {
    let points = lines.iter().flat_map(|line| line.points.iter().chain(&line.hollow));
    points.map(|point| point.1).filter(|value| value.is_finite())
}

/// Lines over thread counts; `place` returns the position of a value on `axis`, if any.
fn draw(
    size: (u32, u32),
    (x_title, unit): (&str, &str),
    lines: &[Line],
    axis: Axis,
    place: impl Fn(f64) -> Option<f64>,
    label: impl Fn(f64) -> String,
) -> String {
    let all = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().chain(&line.hollow))
            .filter(|point| point.1.is_finite())
    };
    let mut threads: Vec<usize> = all().map(|point| point.0.max(1)).collect();
    threads.sort_unstable();
    threads.dedup();
    let (first, last) = (
        log2(threads.first().copied().unwrap_or(1)),
        log2(threads.last().copied().unwrap_or(1)),
    );
    let margin = ((last - first) * 0.03).max(0.1);

    let axis_range = axis.range.clone();
    let mut svg = String::new();
    let mut titles = Vec::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let range = Axis {
            range: first - margin..last + margin,
            labelled: labelled(&threads),
        };
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(range, axis)
            .expect("the ranges are finite");
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .axis_style(AXIS.light)
            .label_style(LABEL)
            .axis_desc_style(LABEL)
            .x_desc(x_title)
            .y_desc(unit)
            .x_label_formatter(&|x| number::plain(x.exp2()))
            .y_label_formatter(&|y| label(*y))
            .draw()
            .expect("text takes every shape");
        for line in lines {
            let at = |point: &(usize, f64)| Some((log2(point.0), place(point.1)?));
            let finite = |points: &[(usize, f64)]| -> Vec<(f64, f64)> {
                points
                    .iter()
                    .filter(|point| point.1.is_finite())
                    .filter_map(at)
                    .collect()
            };
            let points = finite(&line.points);
            let color = line.tone.light;
            let name = style::name(line.tone).map_or(String::new(), |name| format!("{name}, "));
            let title = |&(x, y): &(f64, f64), what: &str| {
                let (x, y) = (number::plain(x.exp2()), label(y));
                let x_title = if x == "1" {
                    x_title.trim_end_matches('s')
                } else {
                    x_title
                };
                format!("{name}{x} {x_title}: {y} {unit}").trim_end().to_string() + what
            };
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))
                .expect("text takes every shape");
            titles.extend(points.iter().map(|point| title(point, "")));
            chart
                .draw_series(points.into_iter().map(|p| Circle::new(p, 3, color.filled())))
                .expect("text takes every shape");
            for &(threads, low, high) in &line.ranges {
                let (Some(low), Some(high)) = (place(low), place(high)) else {
                    continue;
                };
                let x = log2(threads);
                let within = |y: f64| y.clamp(axis_range.start, axis_range.end);
                let stroke = [(x, within(low)), (x, within(high))];
                chart
                    .draw_series(LineSeries::new(stroke, color.mix(0.6).stroke_width(5)))
                    .expect("text takes every shape");
            }
            let hollow = finite(&line.hollow);
            titles.extend(hollow.iter().map(|point| title(point, " (published)")));
            let hollow = hollow.into_iter().map(|p| Circle::new(p, 6, color.stroke_width(2)));
            chart.draw_series(hollow).expect("text takes every shape");
        }
        area.present().expect("text takes every shape");
    }
    titled(&svg, &titles)
}

/// Gives each marker of a plot its title, in the order in which they were drawn.
fn titled(svg: &str, titles: &[String]) -> String {
    let mut titles = titles.iter();
    let mut html = String::with_capacity(svg.len());
    for line in svg.split_inclusive('\n') {
        let marker = line
            .trim_end()
            .strip_suffix("/>")
            .filter(|line| line.starts_with("<circle "));
        match marker.and_then(|marker| Some((marker, titles.next()?))) {
            Some((marker, title)) => {
                html.push_str(&format!("{marker}><title>{}</title></circle>\n", escape(title)));
            }
            None => html.push_str(line),
        }
    }
    html
}

/// The points of a curve with a position on logarithmic axes.
pub fn placed(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let positive = curve.iter().filter(|point| point.0 > 0.0 && point.1 > 0.0);
    positive.copied().collect()
}

/// How many samples of a distribution lie above a value: both axes logarithmic. Each curve is (value in ns, share above
/// it), falling. Points at zero have no position; a curve without other points is left out, of the axes too.
pub fn tails(size: (u32, u32), curves: &[(Tone, Vec<(f64, f64)>)]) -> String {
    let curves: Vec<(Tone, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|(tone, curve)| (*tone, placed(curve)))
        .filter(|(_, curve)| curve.len() > 1)
        .collect();
    let all = || curves.iter().flat_map(|(_, curve)| curve);
    let decade = |value: f64| value.max(1e-12).log10();
    let bound = |of: fn(&(f64, f64)) -> f64, start: f64, pick: fn(f64, f64) -> f64| all().map(of).fold(start, pick);
    let left = decade(bound(|point| point.0, f64::INFINITY, f64::min)).floor();
    let right = decade(bound(|point| point.0, 10.0, f64::max)).ceil();
    let left = if left < right { left } else { right - 1.0 };
    let low = decade(bound(|point| point.1, 0.1, f64::min)).floor();
    let decades = |from: f64, to: f64| (from as i32..=to as i32).map(f64::from).collect::<Vec<_>>();

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let (x, y) = (
            Axis {
                range: left..right,
                labelled: decades(left, right),
            },
            Axis {
                range: low..0.0,
                labelled: decades(low, 0.0),
            },
        );
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(36)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)
            .expect("the ranges are finite");
        chart
            .configure_mesh()
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .axis_style(AXIS.light)
            .label_style(LABEL)
            .axis_desc_style(LABEL)
            .x_desc("longer than")
            .x_label_formatter(&|x| decade_of_time(*x))
            .y_label_formatter(&|y| format!("{}%", shortest(10_f64.powf(*y + 2.0), 6)))
            .draw()
            .expect("text takes every shape");
        for (tone, curve) in &curves {
            let points = curve.iter().map(|point| (decade(point.0), decade(point.1)));
            chart
                .draw_series(LineSeries::new(points, tone.light.stroke_width(2)))
                .expect("text takes every shape");
        }
        area.present().expect("text takes every shape");
    }
    svg
}

/// Stacked shares (0 to 1), one bar per label.
pub fn stacked(size: (u32, u32), x_title: &str, bars: &[Bar]) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let count = bars.len().max(1) as f64;
        let middles: Vec<f64> = (0..bars.len()).map(|index| index as f64 + 0.5).collect();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(if x_title.is_empty() { 26 } else { 42 })
            .y_label_area_size(52)
            .build_cartesian_2d(
                Axis {
                    range: 0.0..count,
                    labelled: middles,
                },
                0.0..1.0,
            )
            .expect("the ranges are finite");
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .axis_style(AXIS.light)
            .label_style(LABEL)
            .axis_desc_style(LABEL)
            .y_labels(5)
            .x_desc(x_title)
            .x_label_formatter(&|x| bars.get(*x as usize).map(|bar| bar.0.clone()).unwrap_or_default())
            .y_label_formatter(&|y| format!("{:.0}%", y * 100.0))
            .draw()
            .expect("text takes every shape");
        for (index, (_, shares)) in bars.iter().enumerate() {
            let left = index as f64;
            let mut bottom = 0.0;
            let boxes = shares
                .iter()
                .filter(|(_, share)| share.is_finite() && *share > 0.0)
                .map(|(tone, share)| {
                    let top = (bottom + share).min(1.0);
                    let part = Rectangle::new([(left + 0.12, bottom), (left + 0.88, top)], tone.light.filled());
                    bottom = top;
                    part
                });
            chart.draw_series(boxes).expect("text takes every shape");
        }
        area.present().expect("text takes every shape");
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::style;

    #[test]
    fn published_points_are_hollow_in_the_line_colour() {
        let tone = style::design("ipi");
        let line = Line {
            tone,
            points: vec![(1, 3.0), (16, 7.0)],
            hollow: vec![(4, 6.0)],
            ranges: vec![],
        };
        let svg = lines((600, 300), "loops/s", &[line]);
        let color = style::hex(tone.light);
        assert!(
            svg.contains(&format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{color}\"")),
            "{svg}"
        );
        let hollow = svg
            .lines()
            .filter(|line| line.contains("<circle") && line.contains("fill=\"none\""))
            .count();
        let filled = svg
            .lines()
            .filter(|line| line.contains("<circle") && line.contains(&format!("fill=\"{color}\"")))
            .count();
        assert_eq!((hollow, filled), (1, 2), "{svg}");
        for title in ["ipi, 1 thread: 3 loops/s", "ipi, 4 threads: 6 loops/s (published)"] {
            assert!(svg.contains(&format!("<title>{title}</title></circle>")), "{svg}");
        }
    }

    #[test]
    fn distribution_at_zero_does_not_stretch_the_axis() {
        let tone = style::design("ipi");
        let others = vec![(1000.0, 1.0), (5000.0, 0.1)];
        let svg = tails((540, 280), &[(tone, others), (tone, vec![(0.0, 1.0), (1e-12, 0.5)])]);
        assert_eq!(
            svg.matches("<polyline fill=\"none\" opacity=\"1\" stroke=\"#D55E00\"")
                .count(),
            1,
            "{svg}"
        );
        assert!(svg.contains("10 µs") && !svg.contains("\n0 ns\n"), "{svg}");
    }

    #[test]
    fn plots_of_invalid_values_do_not_panic() {
        let tone = style::design("ipi");
        for points in [
            vec![],
            vec![(1, 0.0)],
            vec![(1, f64::NAN), (2, f64::INFINITY)],
            vec![(0, 1.0)],
            vec![(5, 1e12)],
        ] {
            lines(
                (600, 300),
                "x",
                &[Line {
                    tone,
                    points,
                    hollow: vec![],
                    ranges: vec![],
                }],
            );
        }
        times((300, 200), &[]);
        for points in [
            vec![(1, 0.0)],
            vec![(1, 5.0), (2, f64::NAN)],
            vec![(1, 100.0), (2, 100.0)],
        ] {
            let hollow = vec![];
            times(
                (300, 200),
                &[Line {
                    tone,
                    points,
                    hollow,
                    ranges: vec![(1, 0.0, 9.0), (2, 1.0, f64::NAN)],
                }],
            );
        }
        tails((300, 200), &[]);
        tails(
            (300, 200),
            &[(tone, vec![]), (tone, vec![(0.0, 1.0), (5e9, 0.0), (f64::NAN, 0.5)])],
        );
        stacked((300, 200), "threads", &[]);
        stacked(
            (300, 200),
            "threads",
            &[("1".to_string(), vec![(tone, f64::NAN), (tone, 2.0), (tone, -1.0)])],
        );
    }
}
