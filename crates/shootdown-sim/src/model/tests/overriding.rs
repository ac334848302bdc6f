//! Overriding one number of a model.

use super::*;

#[test]
fn override_changes_one_parameter_and_keeps_the_original() {
    let milan = Model::find("milan-72").expect("built in");
    let faster = milan.with("costs.transfer_cluster", 50.0).expect("valid");
    assert!((faster.costs.transfer_cluster - 170.0).abs() < 1e-9, "50 ns at 3.4 GHz");
    assert_eq!(faster.costs.transfer_socket, milan.costs.transfer_socket);
    let again = faster.with("costs.transfer_cluster", 60.0).expect("valid");
    match &again.parameter("costs.transfer_cluster").expect("known").provenance {
        Provenance::Overridden { was, because } => assert_eq!((*was, because.kind()), (20.5, "source")),
        other => panic!("not marked as overridden: {other}"),
    }
    let slower = milan.with("machine.ghz", 1.7).expect("valid");
    assert!(
        (slower.costs.transfer_socket * 2.0 - milan.costs.transfer_socket).abs() < 1e-9,
        "ns follow the clock"
    );
    assert_eq!(slower.costs.invlpg, milan.costs.invlpg, "cycles do not");
    assert!(
        !milan
            .with("broadcast.available", 0.0)
            .expect("valid")
            .broadcast
            .available
    );
}

#[test]
fn override_is_validated_like_the_file() {
    let milan = Model::find("milan-72").expect("built in");
    let says = |path: &str, value: f64| milan.with(path, value).expect_err("refused").to_string();
    let line = milan.parameter("costs.rmw").expect("known").line;
    assert_eq!(
        says("costs.rmw", 0.0),
        format!("machines/milan-72.toml:{line}: costs.rmw: expected cycles > 0, asked for 0")
    );
    assert!(says("costs.rmw", f64::NAN).ends_with("costs.rmw: expected a finite number, asked for NaN"));
    assert!(says("tlb.ways", 12.0).ends_with("tlb.ways: expected a divisor of tlb.entries (2048)"));
    assert_eq!(
        says("smt.speed", 1.0),
        "machines/milan-72.toml: smt.speed: unknown parameter; expected one of smt.slowdown, smt.spin_slowdown"
    );
    assert!(says("speed", 1.0).contains("expected one of machine.*, topology.*, "));
}

proptest! {
    #[test]
    fn every_accepted_override_reads_back(index in any::<prop::sample::Index>(), value in 1e-3f64..1e6) {
        let milan = Model::find("milan-72").expect("built in");
        let path = milan.parameters().nth(index.index(milan.parameters().len())).expect("in range").path;
        if let Ok(model) = milan.with(path, value) {
            prop_assert_eq!(model.parameter(path).expect("known").value, value);
        }
    }
}
