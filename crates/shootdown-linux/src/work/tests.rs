use super::*;

/// Short: it tests that the loops run and end, not their speed.
const WINDOW: Duration = Duration::from_millis(60);

#[test]
fn every_workload_counts_operations_without_stale_reads() {
    let allowed = cpus::allowed().unwrap();
    let some = &allowed[..allowed.len().min(2)];
    let measured = |workload: Workload, window| {
        let measured = measure(workload, some, window, &AtomicBool::new(false));
        measured
            .unwrap_or_else(|error| panic!("{}: {error}", workload.name()))
            .unwrap()
    };
    for workload in Workload::ALL {
        // On a busy host the workers may not run at all in a short one.
        let mut windows = [1, 10, 100].map(|times| WINDOW * times).into_iter();
        let measured = windows.find_map(|window| Some(measured(workload, window)).filter(|measured| measured.ops > 0));
        let measured = measured.unwrap_or_else(|| panic!("{}: no operation in six seconds", workload.name()));
        assert!(measured.seconds > 0.0, "{}", workload.name());
        assert_eq!(measured.stale, 0, "{}", workload.name());
        assert_eq!(measured.checked > 0, workload == Workload::TlbFlush2);
        assert_eq!(measured.idle_ns.is_some(), workload == Workload::ContextSwitch);
    }
}

#[test]
fn unpinnable_worker_fails_the_measurement() {
    // No machine has so many CPUs that this process may use.
    for workload in [Workload::TlbFlush2, Workload::MprotectAll] {
        assert!(measure(workload, &[1023], WINDOW, &AtomicBool::new(false)).is_err());
    }
}

#[test]
fn ctrl_c_ends_the_measurement_without_a_result() {
    let allowed = cpus::allowed().unwrap();
    let measured = measure(Workload::MadviseSpin, &allowed[..1], WINDOW, &AtomicBool::new(true));
    assert_eq!(measured.unwrap(), None);
}
