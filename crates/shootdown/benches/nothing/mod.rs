//! A kernel whose hooks do nothing, so that what is measured is the engine.

use shootdown::{CpuMask, Kernel, Local, Native, Root, Tag};
use std::hint::black_box;

/// A kernel whose hooks do nothing.
pub struct Nothing;

// SAFETY: one CPU, no translations: there is nothing to keep coherent.
unsafe impl Kernel<2> for Nothing {
    const PREEMPTIBLE: bool = false;
    type Facade = Native;
    #[inline]
    fn cpu(&self) -> usize {
        0
    }
    #[inline]
    fn interrupts_off(&self) -> u64 {
        0
    }
    #[inline]
    fn interrupts_restore(&self, _saved: u64) {}
    fn send_ipi(&self, _targets: &CpuMask<2>) {}
    #[inline]
    fn invalidate(&self, what: Local) {
        black_box(what);
    }
    #[inline]
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        black_box((root, tag, keep));
    }
}
