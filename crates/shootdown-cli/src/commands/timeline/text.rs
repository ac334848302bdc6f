//! A shootdown in the terminal: one line per CPU, a letter per stretch of time.

use super::lanes::{Kind, Lane, Role, View};
use crate::print::number;

/// Columns of the time axis.
const COLUMNS: usize = 72;
/// Most lanes drawn.
const MOST_LANES: usize = 96;

fn letter(kind: Kind) -> char {
    match kind {
        Kind::Lazy => 'z',
        Kind::Flush => 'f',
        Kind::Wait => '.',
        Kind::Sync => 's',
        Kind::Send => '>',
        Kind::Handler => 'h',
        Kind::Invalidate => 'I',
    }
}

/// What a CPU did, in words.
pub fn told(lane: &Lane, view: &View) -> String {
    let at = |time: f64| format!("+{}", number::time(time));
    match (lane.role, lane.sent, lane.entered, lane.answered) {
        (Role::Sender, ..) => format!("flushes, done {}", at(view.duration)),
        (_, Some(_), Some(entered), Some(answered)) => {
            format!("interrupted {}, answers {}", at(entered), at(answered))
        }
        (_, Some(_), None, Some(answered)) => format!("answers {}, while it waits itself", at(answered)),
        (_, Some(sent), ..) => format!("sent {}, had answered already", at(sent)),
        (Role::Lazy, ..) => "lazy: not interrupted, catches up before user code".to_string(),
        _ if view.broadcasts > 0 => "reached by broadcast".to_string(),
        _ => "not asked".to_string(),
    }
}

/// The lanes, a legend, and an axis below.
pub fn draw(view: &View) -> String {
    let (from, to) = view.window;
    let column = |time: f64| (((time - from) / (to - from)) * COLUMNS as f64) as usize;
    let name = |lane: &Lane| {
        let mark = match lane.role {
            Role::Sender => '*',
            Role::Target => '<',
            Role::Lazy | Role::Other => ' ',
        };
        format!("CPU {:<4}{mark}", lane.cpu)
    };
    let mut text = String::new();
    for lane in view.lanes.iter().take(MOST_LANES) {
        let mut row = vec![' '; COLUMNS];
        for span in &lane.spans {
            let first = column(span.from).min(COLUMNS - 1);
            // However short, it is there.
            let last = column(span.to).clamp(first + 1, COLUMNS);
            row[first..last].fill(letter(span.kind));
        }
        let row: String = row.into_iter().collect();
        text.push_str(&format!("{} |{row}| {}\n", name(lane), told(lane, view)));
    }
    if view.lanes.len() > MOST_LANES {
        text.push_str(&format!(
            "and {} more CPUs (--html and --json have all)\n",
            view.lanes.len() - MOST_LANES
        ));
    }
    let mut axis = vec!['-'; COLUMNS];
    let mut labels = vec![' '; COLUMNS + 12];
    for quarter in 0..=4 {
        let time = view.duration * f64::from(quarter) / 4.0;
        let place = column(time).min(COLUMNS - 1);
        axis[place] = '+';
        for (offset, c) in number::time(time).chars().enumerate() {
            labels[place + offset] = c;
        }
    }
    let line = |cells: Vec<char>| cells.into_iter().collect::<String>();
    text.push_str(&format!("{:9} +{}+\n", "", line(axis)));
    text.push_str(format!("{:9}  {}", "", line(labels)).trim_end());
    text.push_str("\n\n");
    let shown = Kind::ALL.into_iter().filter(|kind| {
        view.lanes
            .iter()
            .any(|lane| lane.spans.iter().any(|span| span.kind == *kind))
    });
    let legend: Vec<String> = shown.map(|kind| format!("{} {}", letter(kind), kind.words())).collect();
    text.push_str(&format!("* requester  < interrupted  {}\n", legend.join("  ")));
    text
}

#[cfg(test)]
mod tests {
    use super::super::lanes;
    use super::*;

    #[test]
    fn each_cpu_is_a_line_that_says_what_it_did() {
        let text = draw(&lanes::tests::view());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("CPU 0   * |") && lines[0].contains(">>") && lines[0].contains(".."),
            "{text}"
        );
        assert!(
            lines[1].contains("hIIIIII") && lines[1].ends_with("interrupted +500 ns, answers +700 ns"),
            "{text}"
        );
        assert!(lines[2].ends_with("answers +950 ns, while it waits itself"), "{text}");
        assert!(
            lines[3].contains("zzzz") && lines[3].ends_with("catches up before user code"),
            "{text}"
        );
        assert!(lines[4].ends_with("not asked"), "{text}");
        assert!(
            lines[6].contains("0 ns") && lines[6].contains("500 ns") && lines[6].contains("1.00 µs"),
            "{text}"
        );
        assert!(text.contains("I invalidating its own TLB"), "{text}");
    }
}
