//! What a hypervisor under the machine implements. `exits` calls it.

/// Callbacks of the machine into a hypervisor. Each is called on the CPU, with interrupts masked, and returns when the
/// CPU enters again. It may let time pass, and sleep. No exit happens within one.
pub trait Hypervisor {
    /// The CPU was asked to leave ([`request_exit`](super::request_exit)).
    fn exits(&self);

    /// How many cycles a waiting CPU may spin from here on before it leaves; none: without limit.
    fn spin_window(&self) -> Option<u64>;

    /// The CPU has spun for its window: a pause-loop exit.
    fn spins(&self);
}
