use super::*;

fn place<'a>(machine: &'a Model, design: &'a str, threads: usize) -> Place<'a> {
    Place {
        machine,
        workload: "tlb_flush2",
        design,
        threads,
        lru_drain: false,
    }
}

#[test]
fn every_cell_has_a_number_for_each_weight_and_weights_sum_to_one() {
    let machines: Vec<&str> = table().machine.iter().map(|machine| machine.name.as_str()).collect();
    assert_eq!(machines, ["milan-72", "skylake-104"]);
    for machine in &table().machine {
        let sum = machine.weights.iter().sum::<f64>();
        assert!((sum - 1.0).abs() < 0.03, "{}: {sum}", machine.name);
        for cell in &machine.cell {
            assert_eq!(cell.log_rates.len(), machine.weights.len(), "{cell:?}");
            assert_eq!(cell.log_flushes.len(), machine.weights.len(), "{cell:?}");
        }
    }
}

#[test]
fn samples_and_model_error_widen_an_interval() {
    let off = Figure::FittedRate.off();
    let narrow = interval(&[], &[], Figure::FittedRate);
    assert!((narrow.high - (NINETY * off).exp()).abs() < 1e-9, "{narrow:?}");
    assert!((narrow.low * narrow.high - 1.0).abs() < 1e-9, "{narrow:?}");
    let wide = interval(&[-0.5, 0.0, 0.5], &[1.0, 1.0, 1.0], Figure::FittedRate);
    assert!(wide.high > 0.5_f64.exp() && wide.low < (-0.5_f64).exp(), "{wide:?}");
    let weighed = interval(&[-0.5, 0.0, 0.5], &[0.0, 1.0, 1.0], Figure::FittedRate);
    assert!(weighed.high == wide.high && weighed.low == narrow.low, "{weighed:?}");
}

#[test]
fn interval_can_be_rebuilt_with_another_error() {
    let kind = Figure::Ratio;
    let own = interval(&[-0.5, 0.0, 0.5], &[1.0, 1.0, 1.0], kind);
    let same = own.with_off(kind, kind.off());
    assert!((same.low - own.low).abs() < 1e-9 && (same.high - own.high).abs() < 1e-9);
    let none = own.with_off(kind, 0.0);
    assert!((none.high - 0.5_f64.exp()).abs() < 1e-9 && (none.low - (-0.5_f64).exp()).abs() < 1e-9);
}

#[test]
fn ratio_interval_cancels_common_errors() {
    let machine = Model::find("milan-72").unwrap();
    let same = of_ratio(place(&machine, "ipi", 36), place(&machine, "ipi", 36)).unwrap();
    assert_eq!(same, interval(&[], &[], Figure::Ratio));
    let ratio = of_ratio(place(&machine, "broadcast", 72), place(&machine, "ipi", 72)).unwrap();
    assert!(ratio.half_width() > same.half_width(), "{ratio:?}");
}

#[test]
fn figures_of_virtual_machines_have_no_intervals() {
    let bare = Model::find("skylake-104").unwrap();
    let guest = bare.with("vm.vcpus", 8.0).unwrap();
    let (on_bare, in_guest) = (place(&bare, "ipi", 8), place(&guest, "ipi", 8));
    assert!(of_rate(on_bare).is_some() && of_rate(in_guest).is_none());
    assert!(of_ratio(in_guest, in_guest).is_none() && of_flush_ratio(on_bare, in_guest).is_none());
}

#[test]
fn run_uses_the_interval_cell_of_its_kind() {
    let (milan, icelake) = (Model::find("milan-72").unwrap(), Model::find("icelake-128").unwrap());
    let found = |machine, design, threads| {
        let (machine, cell) = cell(place(machine, design, threads));
        (machine.name.as_str(), cell.design.as_str(), cell.threads)
    };
    assert_eq!(found(&milan, "broadcast", 50), ("milan-72", "broadcast", 72));
    assert_eq!(found(&milan, "ipi-per-cpu", 1), ("milan-72", "ipi", 1));
    assert_eq!(found(&icelake, "adaptive", 128), ("skylake-104", "adaptive", 104));
    assert_eq!(found(&icelake, "ipi-trim", 9), ("skylake-104", "ipi-trim", 104));
    let other = Place {
        workload: "madvise_spin",
        ..place(&icelake, "preemptible", 4)
    };
    assert_eq!(cell(other).1.workload, "madvise_spin");
}

#[test]
fn a_machine_counts_as_fitted_if_a_rate_of_it_was() {
    assert_eq!(Figure::rate_on("milan-72"), Figure::FittedRate);
    assert_eq!(Figure::rate_on("skylake-104"), Figure::OtherRate);
    // Its fitted rows are tails of latencies.
    assert_eq!(Figure::rate_on("icelake-128"), Figure::OtherRate);
}
