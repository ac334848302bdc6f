//! Software-generated interrupts of a GICv3, by its system registers.

use super::instructions::{isb, read_iar1, read_mpidr, write_eoir1, write_sgi1r};
use shootdown_arch::aarch64::sgi;

/// How the controller identifies a CPU: the affinity fields of its MPIDR_EL1.
pub type ControllerId = u64;

/// The CPU interface of a GICv3. The kernel sets it up: on each CPU wake the redistributor, put the interrupt into
/// group 1 and enable it there, and set ICC_SRE_EL1, ICC_PMR_EL1 and ICC_IGRPEN1_EL1.
#[derive(Debug, Clone, Copy)]
pub struct Controller;

impl Controller {
    /// The controller's id of this CPU.
    #[inline]
    pub fn this_cpu(&self) -> ControllerId {
        read_mpidr() & sgi::AFFINITY
    }

    /// Raises software-generated interrupt `interrupt` (0 to 15) on `cpus`. The handlers see earlier stores if
    /// `BareMetal::before_ipi` was called, as the engine does.
    #[inline]
    pub fn send(&self, cpus: impl IntoIterator<Item = ControllerId>, interrupt: u8) {
        sgi::covering(cpus, interrupt).for_each(write_sgi1r);
        // The write takes effect now, not at a later synchronising event.
        isb();
    }

    /// Acknowledges the most urgent interrupt of this CPU. Returns its number, or 1020 to 1023 if there is none. Call
    /// it before `Engine::on_ipi`, which has the barrier that this needs.
    #[inline]
    pub fn acknowledge(&self) -> u32 {
        (read_iar1() & 0xFF_FFFF) as u32
    }

    /// Ends the interrupt that was acknowledged.
    #[inline]
    pub fn end(&self, interrupt: u32) {
        write_eoir1(u64::from(interrupt));
    }
}
