use super::*;

fn results(rows: &[(&str, u64, f64, f64)]) -> Results {
    Results::gather(
        rows.iter()
            .map(|&(design, threads, cost, rate)| {
                vec![
                    ("workload".to_string(), Value::Text("w".to_string())),
                    ("machine".to_string(), Value::Text("m".to_string())),
                    ("design".to_string(), Value::Text(design.to_string())),
                    ("cpus".to_string(), Value::Count(72)),
                    ("threads".to_string(), Value::Count(threads)),
                    ("costs.a".to_string(), Value::Number(cost)),
                    ("ops_per_s".to_string(), Value::Number(rate)),
                    ("stale".to_string(), Value::Count(u64::from(design == "none"))),
                    ("accesses_checked".to_string(), Value::Count(10)),
                ]
            })
            .collect(),
    )
}

#[test]
fn tables_show_the_winner_at_each_point() {
    let summary = Summary::new(&results(&[
        ("ipi", 2, 1.0, 100.0),
        ("adaptive", 2, 1.0, 110.0),
        ("ideal", 2, 1.0, 900.0),
        ("none", 2, 1.0, 900.0),
        ("ipi", 2, 9.0, 100.0),
        ("adaptive", 2, 9.0, 90.0),
        ("ipi", 4, 1.0, 100.0),
        ("adaptive", 4, 1.0, 200.0),
        ("ipi", 4, 9.0, 100.0),
        ("adaptive", 4, 9.0, 300.0),
    ]));
    let text = summary.text();
    let squeezed: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for expected in [
        "Operations per second at each point (medians of the seeds), w on m",
        "72 2 1 ipi 100 –",
        "adaptive 110 –",
        "72 4 9 ipi 100 –",
        "adaptive 300 –",
        "72 2 ipi 1 of 2 1.01x –",
        "adaptive 1 of 2 1.00x –",
        "adaptive 2 of 2 2.50x –",
        "costs.a 1 0.70x (0.50) 1.55x (1.10)",
        "9 0.72x (0.33) 1.95x (0.90)",
        "stale translations: 0 in 90 checked accesses",
    ] {
        assert!(squeezed.iter().any(|line| line == expected), "{expected}\n{text}");
    }
    let verdict = "MISSED adaptive ahead of every other design at both ends of every range (1.000 of \
                   the best or more): behind at 1 of 4; least 0.900 of the best, w on m at 2 threads with costs.a = 9";
    assert!(text.lines().any(|line| line == verdict), "{text}");
}

#[test]
fn lowest_ratio_is_attributed_to_the_varied_parameters() {
    let cell = |a: f64, b: f64, adaptive: f64| Cell {
        size: ["w", "m", "72", "2"].map(String::from).to_vec(),
        values: vec![Some(a), Some(b)],
        rates: BTreeMap::from([(0, vec![100.0]), (1, vec![adaptive])]),
        intervals: BTreeMap::new(),
    };
    // The first parameter is 0 unless it is varied, an end of its range.
    let mut cells = vec![
        cell(0.0, 5.0, 130.0),
        cell(9.0, 5.0, 120.0),
        cell(0.0, 1.0, 110.0),
        cell(0.0, 8.0, 140.0),
    ];
    let (designs, parameters) = (
        ["ipi", "adaptive"].map(String::from),
        ["a", "b"].map(|name| Parameter {
            name,
            words: Vec::new(),
        }),
    );
    let line = ahead(&designs, &parameters, &cells).unwrap();
    assert!(
        line.contains("behind at 0 of 4; least 1.100 of the best, w on m at 2 threads with b = 1"),
        "{line}"
    );
    let grid = ends(&designs, &parameters, &cells);
    let least: Vec<&str> = grid.groups.iter().flatten().map(|row| row[3].as_str()).collect();
    assert_eq!(
        least,
        ["1.30x (1.30)", "1.20x (1.20)", "1.10x (1.10)", "1.40x (1.40)"],
        "the end where the others vary"
    );
    // Where several are varied at once, an end is every point at it.
    cells.push(cell(9.0, 8.0, 90.0));
    let grid = ends(&designs, &parameters, &cells);
    assert_eq!(grid.groups[0][0][3], "1.30x (1.10)");
}

#[test]
fn no_range_ends_are_reported_without_varied_parameters() {
    let text = Summary::new(&results(&[("ipi", 2, 1.0, 100.0), ("adaptive", 2, 1.0, 110.0)])).text();
    assert!(!text.contains("both ends of every range"), "{text}");
}

#[test]
fn single_design_is_not_compared() {
    let text = Summary::new(&results(&[("ipi", 2, 1.0, 100.0)])).text();
    assert!(!text.contains("over the best"), "{text}");
    let row = text.lines().find(|line| line.contains(" ipi ")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["72", "2", "ipi", "100", "–"]
    );
    assert!(
        text.ends_with("stale translations: 0 in 10 checked accesses\n"),
        "{text}"
    );
}

#[test]
fn rates_of_many_points_are_omitted_from_the_summary() {
    let row = |threads| ("ipi", threads, 1.0, 100.0);
    let rows = |most: u64| (1..=most).map(row).collect::<Vec<_>>();
    let text = |most| Summary::new(&results(&rows(most))).text();
    assert!(text(30).contains("at each point"));
    assert!(!text(31).contains("at each point"));
}

/// A rate has the interval of its row, a ratio that of its two designs; in 80 columns.
#[test]
fn rates_and_ratios_have_intervals() {
    let row = |design: &str, machine: &str, rate: f64| {
        let text = |name: &str, text: &str| (name.to_string(), Value::Text(text.to_string()));
        let figure = |name: &str, figure: f64| (name.to_string(), Value::Number(figure));
        vec![
            text("workload", "tlb_flush2"),
            text("machine", machine),
            text("design", design),
            ("cpus".to_string(), Value::Count(72)),
            ("threads".to_string(), Value::Count(16)),
            figure("costs.a", rate),
            figure("ops_per_s", rate),
            figure("interval_90_low", rate * 0.8),
            figure("interval_90_high", rate * 1.5),
        ]
    };
    let text = |machine: &str| {
        let rows = [("ipi", 100.0), ("ipi", 200.0), ("adaptive", 100.0), ("adaptive", 200.0)];
        let rows = rows.map(|(design, rate)| row(design, machine, rate));
        Summary::new(&Results::gather(rows.to_vec())).text()
    };
    for machine in ["milan-72", "a machine of the user"] {
        let text = text(machine);
        assert!(text.contains("[80, 150]") && text.contains("[160, 300]"), "{text}");
        let ratio = text.lines().find(|line| line.contains("2 of 2")).unwrap();
        assert!(ratio.contains("1.00x ") && ratio.contains(" [0."), "{ratio}");
        assert!(text.contains("90 % interval of each ratio: at most from 0."), "{text}");
        assert!(text.contains("least 1.000 [0."), "{text}");
        // Sentences are broken when they are printed.
        let mut rows = text.lines().filter(|line| line.starts_with([' ', '─']));
        assert!(rows.all(|row| row.chars().count() <= 80), "{text}");
    }
}
