use crate::facade::Word;
use crate::testing::interleave;
use crate::testing::mock_kernel::{DESIGN, on, three};
use core::sync::atomic::Ordering;

#[test]
fn cpu_going_offline_stays_online_until_its_space_is_unloaded() {
    let (engine, _) = three(DESIGN);
    interleave::after_each(move || {
        let loaded = engine.cpus[1].own.space.load(Ordering::Relaxed) != 0;
        assert!(
            engine.online.contains(1) || !loaded,
            "broadcasts to online CPUs miss it"
        );
        false
    });
    on(1, || engine.cpu_offline());
    interleave::never();
    assert!(!engine.online.contains(1));
}
