use super::*;

fn at(columns: usize, legend: Legend) -> Tables {
    Tables::on(Terminal { columns, legend })
}

fn grid() -> Grid {
    let columns = vec![
        Column::number("threads", "simulated threads"),
        Column::words("design", "how other CPUs are reached"),
        Column::number("loops per second", "all threads together"),
        Column::number("interrupts taken per loop", "by all CPUs").optional(2),
        Column::number("CPU time in flushes", "of all CPU time").optional(1),
    ];
    let row = |threads: &str, design: &str| {
        let numbers = ["315k", "1.25", "40.1%"];
        [threads, design]
            .iter()
            .chain(&numbers)
            .map(ToString::to_string)
            .collect()
    };
    let group = |threads: &str| vec![row(threads, "ipi"), row("", "broadcast")];
    Grid::new(columns, vec![group("1"), group("16")])
}

fn fits(text: &str, columns: usize) -> bool {
    text.lines().all(|line| width(line) <= columns)
}

#[test]
fn wide_terminal_has_headings_in_one_line() {
    let text = grid().draw(120);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        " threads  design     loops per second  interrupts taken per loop  CPU time in flushes"
    );
    assert_eq!(
        lines[2],
        "       1  ipi                    315k                       1.25                40.1%"
    );
    assert_eq!(lines.len(), 1 + 1 + 2 + 1 + 2 + 1, "{text}");
}

#[test]
fn headings_wrap_at_80_columns_without_omission() {
    let text = grid().draw(80);
    assert!(fits(&text, 80) && !text.contains("not shown"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 1 + 2 + 1 + 2 + 1, "{text}");
    assert!(
        lines[0].ends_with("CPU time") && lines[1].starts_with(" threads  design"),
        "{text}"
    );
}

#[test]
fn narrow_terminal_drops_optional_columns_and_names_them() {
    let text = grid().draw(40);
    assert!(fits(&text, 40), "{text}");
    assert!(
        text.ends_with("not shown at 40 columns: interrupts\n    taken per loop\n"),
        "{text}"
    );
    assert!(text.contains("flushes") && text.contains("40.1%"), "{text}");
}

#[test]
fn too_wide_table_prints_one_cell_per_line() {
    let text = grid().draw(20);
    assert!(fits(&text, 20), "{text}");
    assert!(text.contains("threads: 16\ndesign: ipi\n"), "{text}");
    assert!(
        text.contains("threads: 16\ndesign: broadcast\n"),
        "a cell that is left empty repeats: {text}"
    );
    for cell in ["315k", "1.25", "40.1%"] {
        assert_eq!(text.matches(cell).count(), 4, "{text}");
    }
}

#[test]
fn text_cells_wrap_and_numbers_do_not() {
    let text = "shootdown requests that were queued to another CPU of this machine";
    let columns = vec![Column::words("what", ""), Column::number("count", "")];
    let rows = vec![vec![text.to_string(), "12,345,678".to_string()]];
    let drawn = Grid::new(columns, vec![rows]).draw(40);
    assert!(fits(&drawn, 40) && drawn.contains("12,345,678"), "{drawn}");
    let words: Vec<&str> = drawn.split_whitespace().filter(|word| text.contains(word)).collect();
    assert_eq!(words.join(" "), text);
}

#[test]
fn wide_characters_count_two_columns() {
    let columns = vec![Column::words("name", ""), Column::number("flushes", "")];
    let rows = vec![
        vec!["浏览器".to_string(), "1".to_string()],
        vec!["firefox".to_string(), "2".to_string()],
    ];
    let drawn = Grid::new(columns, vec![rows]).draw(80);
    let lines: Vec<&str> = drawn.lines().skip(2).take(2).collect();
    assert_eq!(width(lines[0]), width(lines[1]), "{drawn}");
}

#[test]
fn legend_appears_once_and_not_in_a_pipe() {
    assert!(!at(80, Legend::Never).draw(&grid()).contains("Columns"));
    for (legend, second) in [(Legend::First, false), (Legend::Always, true)] {
        let mut tables = at(60, legend);
        let text = tables.draw(&grid());
        assert_eq!(text.matches("\nColumns\n").count(), 1, "{text}");
        assert!(
            text.contains("\n  loops per second: all threads together\n") && fits(&text, 60),
            "{text}"
        );
        let mut other = grid();
        other.columns.push(Column::number("error", "against what is published"));
        other
            .groups
            .iter_mut()
            .flatten()
            .for_each(|row| row.push("1%".to_string()));
        let text = tables.draw(&other);
        assert_eq!(text.contains("error: against what is published"), second, "{text}");
        assert!(!text.contains("all threads together"), "{text}");
    }
}

#[test]
fn notes_below_the_table_wrap_at_the_terminal_width() {
    let note = format!(
        "{} this machine has no broadcast instruction, so its flushes go by interrupts",
        mark(0)
    );
    let text = at(60, Legend::Never).draw(&grid().note(note));
    assert!(
        text.contains("\n¹ this machine has no broadcast instruction") && fits(&text, 60),
        "{text}"
    );
    assert_eq!([mark(1), mark(9)], ["²", "¹⁰"]);
}
