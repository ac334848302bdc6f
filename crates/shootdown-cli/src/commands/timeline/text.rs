//! A shootdown in the terminal: one line per CPU, a letter per stretch of time, as wide as the terminal.

use super::lanes::{Kind, Lane, Role, View};
use crate::print::number;
use crate::print::terminal;

/// Most columns of a line.
const WIDEST: usize = 120;
/// Columns below which there is no room for times beside the lanes.
const TIMES_FROM: usize = 60;
/// Columns of the name of a CPU.
const NAME: usize = 10;
/// Columns of each time beside a lane.
const TIME: usize = 7;
/// Most lanes drawn.
const MOST_LANES: usize = 96;
/// With more lanes than this, CPUs without a part are counted instead of drawn.
const MOST_OTHERS: usize = 16;

fn letter(kind: Kind) -> char {
    match kind {
        Kind::Lazy => 'z',
        Kind::Flush => 'f',
        Kind::Choose => 'c',
        Kind::Post => 'p',
        Kind::Prepare => 'b',
        Kind::Broadcast => 'B',
        Kind::Meanwhile => 'm',
        Kind::Wait => '.',
        Kind::Collect => 'r',
        Kind::Finish => 'e',
        Kind::Sync => 's',
        Kind::Send => '>',
        Kind::Handler => 'h',
        Kind::Invalidate => 'I',
        Kind::Out => 'x',
    }
}

/// The activities of a CPU, in words.
pub fn describe(lane: &Lane, view: &View) -> String {
    let at = |time: f64| format!("+{}", number::time(time));
    let way = match lane.sent {
        Some(_) => "interrupted",
        None => "interrupted by the IPI of another request",
    };
    match (lane.role, lane.entered, lane.answered) {
        (Role::Sender, ..) => format!("flushes, done {}", at(view.duration)),
        (Role::Target, Some(entered), Some(answered)) => {
            format!("{way} {}, answers {}", at(entered), at(answered))
        }
        (Role::Target, None, Some(answered)) => format!("answers {}, while it waits itself", at(answered)),
        (Role::Target, ..) => "target, had answered already".to_string(),
        (Role::Lazy, ..) => "in lazy TLB mode: not interrupted, catches up before user code".to_string(),
        _ if view.broadcasts > 0 => "reached by broadcast".to_string(),
        _ => "not a target".to_string(),
    }
}

/// Whether a CPU is only counted: a skipped one, where there are many.
pub fn is_hidden(lane: &Lane, view: &View) -> bool {
    view.lanes.len() > MOST_OTHERS && matches!(lane.role, Role::Lazy | Role::Other)
}

/// The text about CPUs that are only counted.
pub fn others<'a>(hidden: impl Iterator<Item = &'a Lane> + Clone, view: &View) -> String {
    let what = match view.broadcasts {
        0 => "not targeted",
        _ => "reached by broadcast",
    };
    let ran = hidden.clone().filter(|lane| lane.role == Role::Other).count();
    let were = |count: usize| if count == 1 { "CPU was" } else { "CPUs were" };
    let mut parts = Vec::new();
    let lazy = hidden.count() - ran;
    if lazy > 0 {
        parts.push(format!("{lazy} {} skipped in lazy TLB mode", were(lazy)));
    }
    if ran > 0 {
        parts.push(format!("{ran} other {} {what}", were(ran)));
    }
    parts.join(", ")
}

/// The lanes, an axis below, and a legend, on a terminal of `width` columns.
pub fn draw(view: &View, width: usize) -> String {
    let width = width.min(WIDEST);
    let times = view.count(Role::Target) > 0 && width >= TIMES_FROM;
    let columns = width - NAME - 2 - if times { 4 * TIME } else { 0 };
    let (unit, length, digits) = if view.duration < 9_995.0 {
        ("ns", 1.0, 0)
    } else {
        ("µs", 1e3, 1)
    };
    let mut text = String::new();
    if times {
        let heads = ["posted", "sent", "taken", "answer"].map(|head| format!("{head:>TIME$}"));
        text.push_str(&format!("{:>1$}\n", heads.concat(), width));
    }
    let drawn = |lane: &&Lane| !is_hidden(lane, view);
    for lane in view.lanes.iter().filter(drawn).take(MOST_LANES) {
        let cell = |time: Option<f64>| match time {
            Some(time) => format!("{:>TIME$.digits$}", time / length),
            None => format!("{:>TIME$}", number::UNKNOWN),
        };
        let cells = [lane.posted, lane.sent, lane.entered, lane.answered].map(cell).concat();
        let cells = if times && lane.role == Role::Target {
            cells
        } else {
            String::new()
        };
        text.push_str(&format!("{}|{}|{cells}\n", name(lane), row(lane, view, columns)));
    }
    let hidden = view.lanes.iter().filter(drawn).count().saturating_sub(MOST_LANES);
    if hidden > 0 {
        text.push_str(&format!("and {hidden} more CPUs (--html and --json have all)\n"));
    }
    text.push_str(&axis(view, columns));
    let unseen = view.lanes.iter().filter(|lane| is_hidden(lane, view));
    if unseen.clone().next().is_some() {
        text.push_str(&wrapped(
            &format!("{} (--html and --json have them)", others(unseen, view)),
            width,
        ));
    }
    text.push('\n');
    text.push_str(&legend(view, width));
    if times {
        let about = format!(
            "Times in {unit} since the flush began. posted: the request is posted; \
             sent: the IPI is sent (– when another one was already on its way); \
             taken: the IPI is taken (– when the CPU answers while it waits itself); \
             answer: its TLB is flushed."
        );
        text.push_str(&wrapped(&about, width));
    }
    text
}

fn name(lane: &Lane) -> String {
    let mark = match lane.role {
        Role::Sender => '*',
        Role::Target => '<',
        Role::Lazy | Role::Other => ' ',
    };
    format!("CPU {:<4}{mark} ", lane.cpu)
}

fn column(time: f64, view: &View, columns: usize) -> usize {
    let (from, to) = view.window;
    (((time - from) / (to - from)) * columns as f64) as usize
}

fn row(lane: &Lane, view: &View, columns: usize) -> String {
    let mut row = vec![' '; columns];
    for span in &lane.spans {
        let first = column(span.from, view, columns).min(columns - 1);
        // Even a very short one is drawn.
        let last = column(span.to, view, columns).clamp(first + 1, columns);
        row[first..last].fill(letter(span.kind));
    }
    row.into_iter().collect()
}

fn axis(view: &View, columns: usize) -> String {
    let mut axis = vec!['-'; columns];
    let mut labels = vec![' '; columns + 12];
    let step = match columns {
        60.. => 1,
        30..60 => 2,
        _ => 4,
    };
    for quarter in (0..=4).step_by(step) {
        let time = view.duration * quarter as f64 / 4.0;
        let place = column(time, view, columns).min(columns - 1);
        axis[place] = '+';
        let label = number::time(time);
        // None is wider than the axis.
        let start = place.min((columns + 1).saturating_sub(label.chars().count()));
        for (offset, c) in label.chars().enumerate() {
            labels[start + offset] = c;
        }
    }
    let line = |cells: Vec<char>| cells.into_iter().collect::<String>();
    let labels = format!("{:NAME$} {}", "", line(labels));
    format!("{:NAME$}+{}+\n{}\n", "", line(axis), labels.trim_end())
}

fn legend(view: &View, width: usize) -> String {
    let shown = Kind::ALL.into_iter().filter(|kind| {
        view.lanes
            .iter()
            .any(|lane| lane.spans.iter().any(|span| span.kind == *kind))
    });
    let mut legend = vec!["* requester".to_string()];
    if view.count(Role::Target) > 0 {
        legend.push("< target".to_string());
    }
    legend.extend(shown.map(|kind| format!("{} {}", letter(kind), kind.words())));
    let mut text = String::new();
    let mut used = 0;
    for item in legend {
        let length = item.chars().count();
        if used > 0 && used + 2 + length > width {
            text.push('\n');
            used = 0;
        }
        if used > 0 {
            text.push_str("  ");
            used += 2;
        }
        text.push_str(&item);
        used += length;
    }
    text + "\n"
}

/// `text` in lines of at most `width` columns.
pub fn wrapped(text: &str, width: usize) -> String {
    terminal::broken(text, width, 0).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::lanes::tests;
    use super::*;

    #[test]
    fn text_timeline_has_a_line_per_cpu_with_times() {
        let text = draw(&tests::view(), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("posted   sent  taken answer"), "{text}");
        assert!(
            lines[1].starts_with("CPU 0   * |") && lines[1].contains(">>") && lines[1].contains(".."),
            "{text}"
        );
        assert!(
            lines[2].contains("hhII") && lines[2].ends_with("|    100    150    500    700"),
            "{text}"
        );
        assert!(lines[3].ends_with("|    100    200      –    950"), "{text}");
        assert!(lines[4].contains("zzzz") && lines[4].ends_with("z|"), "{text}");
        assert!(lines[7].contains("0 ns") && lines[7].contains("1.00 µs"), "{text}");
        assert!(text.contains("I invalidating its own TLB"), "{text}");
        for width in [30, 60, 80, 120] {
            let text = draw(&tests::view(), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn many_uninvolved_cpus_are_only_counted() {
        let mut view = tests::view();
        let lane = view.lanes[4].clone();
        view.lanes.extend((5..40).map(|cpu| Lane { cpu, ..lane.clone() }));
        let text = draw(&view, 80);
        assert!(
            text.contains("1 CPU was skipped in lazy TLB mode, 36 other CPUs were not targeted"),
            "{text}"
        );
        assert!(!text.contains("CPU 39"), "{text}");
    }
}
