//! Calls of kernels that are compiled for several policies. `cargo xtask stack` reads from the assembly how much stack
//! each uses. Nothing here is run.

use super::*;

/// The first is that of all other functions of this library. `None`: the policy is chosen at boot.
pub(crate) const POLICIES: [Option<Policy>; 6] = [
    Some(Policy::IPI),
    Some(Policy::BROADCAST),
    Some(Policy::ARM_IPI),
    Some(Policy::ARM_BROADCAST),
    Some(Policy::ADAPTIVE),
    None,
];

/// For each policy a module with a function for each call, named after both.
macro_rules! policies {
    ($($policy:ident: $index:literal),*) => {$(
        mod $policy {
            use super::*;
            type Sys = Engine<'static, Hooks<$index>, WORDS>;

            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".engine_init"))]
            fn new(engine: &mut MaybeUninit<Sys>, design: &Design, storage: Storage<'static, Bare>) {
                engine.write(Engine::new(Hooks, *design, Root(0), storage));
            }
            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".flush"))]
            fn flush(engine: &'static Sys, space: &Mm, range: Range) {
                let _ = engine.flush(space, range);
            }
            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".flush_kernel"))]
            fn flush_kernel(engine: &'static Sys, range: Range) {
                let _ = engine.flush_kernel(range);
            }
            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".switch_to"))]
            fn switch_to(engine: &'static Sys, space: &Mm) {
                unsafe { engine.switch_to(space) }
            }
            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".on_ipi"))]
            fn on_ipi(engine: &'static Sys) {
                unsafe { engine.on_ipi() }
            }
            #[unsafe(export_name = concat!("stack.", stringify!($policy), ".poll"))]
            fn poll(engine: &'static Sys) -> bool {
                engine.poll()
            }
        }
    )*};
}

policies!(ipi: 0, broadcast: 1, arm_ipi: 2, arm_broadcast: 3, adaptive: 4, any: 5);
