use super::*;
use crate::runs::fake;
use crate::runs::target::Target;

/// A sentence of ratios without its intervals, and the ends of those.
fn without_ends(sentence: &str) -> (String, Vec<f64>) {
    let (mut bare, mut ends) = (Vec::new(), Vec::new());
    for word in sentence.split(' ') {
        let number = word.trim_matches(['[', ']', ',']).parse::<f64>();
        match number {
            Ok(end) if word.starts_with('[') || word.contains(']') => {
                ends.push(end);
            }
            _ => bare.push(word),
        }
    }
    (bare.join(" "), ends)
}

#[test]
fn unfitted_machine_advises_to_use_ratios() {
    let mut plan = fake::plan(&["ipi", "adaptive"], &[4]);
    let said = |plan| Verdict::new(&fake::comparison(plan)).ratios.join("\n");
    assert!(!said(plan.clone()).contains("go by ratios"));
    plan.target = Target::new("skylake-104", None, &[]).unwrap();
    let ratios = said(plan);
    assert!(ratios.contains("no rate of skylake-104 was fitted"), "{ratios}");
}

#[test]
fn clean_verdict_names_designs_and_checked_accesses() {
    let verdict = Verdict::new(&fake::comparison(fake::plan(
        &["ideal", "ipi", "broadcast", "none"],
        &[1, 16],
    )));
    assert!(verdict.sound);
    assert_eq!(
        verdict.stale,
        "stale translations: 0 in 51,000 checked accesses (ideal, ipi, broadcast)"
    );
    assert_eq!(
        verdict.control.as_deref(),
        Some("control: `none` on tlb_shared caught after 17 accesses")
    );
    assert_eq!(verdict.control_diagnosis.len(), 3);
    let [ratios, brackets] = verdict.ratios.as_slice() else {
        panic!("{:?}", verdict.ratios)
    };
    let (sentence, ends) = without_ends(ratios);
    assert_eq!(sentence, "broadcast vs ipi: 1.11x at 1 thread, 1.82x at 16");
    assert!(ends[0] < 1.11 && ends[1] > 1.11, "{ends:?}");
    assert!(ends[2] < 1.82 && ends[3] > 1.82, "{ends:?}");
    assert!(brackets.starts_with("[low, high]: 90 % interval"), "{brackets}");
    assert_eq!(
        verdict.fitted.as_deref(),
        Some("published: used for fitting: ipi at 1, broadcast at 16; the others are predictions")
    );
}

#[test]
fn adaptive_is_compared_with_the_best_other_design() {
    let verdict = Verdict::new(&fake::comparison(fake::plan(&["ipi", "broadcast", "adaptive"], &[4])));
    assert_eq!(verdict.ratios.len(), 3);
    let (sentence, _) = without_ends(&verdict.ratios[1]);
    assert_eq!(sentence, "adaptive vs the best of ipi, broadcast: 1.05x at 4 threads");
}

#[test]
fn stale_translation_is_reported_with_its_history() {
    let mut comparison = fake::comparison(fake::plan(&["ipi", "broadcast"], &[4]));
    comparison.rows[1].stale = 2;
    let result = comparison.runs[1].1.as_mut().unwrap();
    result.stale = 2;
    result.diagnosis = Some("one\ntwo".to_string());
    let verdict = Verdict::new(&comparison);
    assert!(!verdict.sound);
    assert_eq!(
        verdict.stale,
        "STALE TRANSLATIONS: 2 in 8,000 checked accesses (broadcast: 2)"
    );
    assert!(verdict.text().contains("\n    one\n    two\n"));
}

#[test]
fn failed_run_is_reported_and_excluded_from_ratios() {
    let plan = fake::plan(&["ipi", "broadcast"], &[1, 4]);
    let mut outcomes: Vec<_> = plan.specs().iter().map(|spec| Ok(fake::result(spec))).collect();
    let reason = (0..20)
        .map(|cpu| format!("CPU {cpu} sleeps"))
        .collect::<Vec<_>>()
        .join("\n");
    outcomes[2] = Err(format!("the simulated kernel hangs:\n{reason}"));
    let verdict = Verdict::new(&Comparison::new(plan, outcomes, None, 1.0));
    assert!(!verdict.sound);
    let text = verdict.text();
    assert!(
        text.starts_with(
            "FAILED RUNS: 1 of 4\n    \
             tlb_flush2 under ipi at 4 threads, seed 1: the simulated kernel hangs:\n    \
             CPU 0 sleeps\n"
        ),
        "{text}"
    );
    assert!(text.contains("and 15 more lines"), "{text}");
    let (sentence, _) = without_ends(&verdict.ratios[0]);
    assert_eq!(sentence, "broadcast vs ipi: 1.11x at 1 thread");
}

#[test]
fn uncaught_control_fails_the_verdict() {
    let mut comparison = fake::comparison(fake::plan(&["ipi"], &[4]));
    let control = comparison.control.as_mut().unwrap().1.as_mut().unwrap();
    (control.stale, control.caught_after, control.diagnosis) = (0, None, None);
    assert!(
        Verdict::new(&comparison)
            .control
            .unwrap()
            .starts_with("CONTROL NOT CAUGHT: `none` on tlb_shared")
    );
}
