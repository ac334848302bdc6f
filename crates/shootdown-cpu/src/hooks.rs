//! The hooks that are the same in every kernel.

/// The hooks of [`shootdown::Kernel`] that this crate provides, for an `impl` block: `Facade`, the interrupt mask,
/// `invalidate`, `local_sync`, `load_root` and the broadcasts. `$processor` is the field of `self` that holds the
/// `Processor`.
///
/// The kernel adds `cpu` and `send_ipi`; `pin` and `unpin` if it is preemptible; and optionally `now_ns`, `stuck` and
/// `event`. A kernel that counts, or does more, writes these hooks by hand: each is one line.
///
/// If the firmware may refuse a broadcast (RISC-V), `refused = |refused, hooks, what| ...` handles that: by
/// [`FlushByIpi`](crate::FlushByIpi), or more. Without a handler it panics, since nothing has been flushed.
///
/// The `unsafe impl` also promises the safety conditions of `load_root`: roots map the kernel alike, and stay until
/// another is loaded.
///
/// ```ignore
/// unsafe impl Kernel<1> for Hooks {
///     shootdown_cpu::hooks!(processor);
///     const PREEMPTIBLE: bool = false; // or true, with `pin` and `unpin`
///     fn cpu(&self) -> CpuId { this_cpu() }
///     fn send_ipi(&self, targets: &CpuMask<1>) { Controller.send(targets.iter().map(controller_id), IPI) }
/// }
/// ```
#[macro_export]
macro_rules! hooks {
    ($processor:ident) => {
        $crate::hooks!(
            $processor,
            (|refused, _: &Self, _| panic!("a broadcast was refused: {refused:?}"))
        );
    };
    ($processor:ident, refused = $refused:expr) => {
        $crate::hooks!($processor, ($refused));
    };
    ($processor:ident, ($refused:expr)) => {
        type Facade = $crate::BareMetal;
        #[inline]
        fn interrupts_off(&self) -> u64 {
            $crate::interrupts_off()
        }
        #[inline]
        fn interrupts_restore(&self, saved: u64) {
            $crate::interrupts_restore(saved);
        }
        #[inline]
        fn interrupts_are_off(&self) -> bool {
            $crate::interrupts_are_off()
        }
        #[inline]
        fn invalidate(&self, what: $crate::shootdown::Local) {
            self.$processor.invalidate(what);
        }
        #[inline]
        fn local_sync(&self) {
            self.$processor.local_sync();
        }
        #[inline]
        fn load_root(&self, root: $crate::shootdown::Root, tag: $crate::shootdown::Tag, keep: bool) {
            // SAFETY: part of the promise of the `impl`; the engine has masked interrupts.
            unsafe { self.$processor.load_root(root, tag, keep) };
        }
        #[inline]
        fn broadcast_limits(&self) -> Option<$crate::shootdown::BroadcastLimits> {
            self.$processor.broadcast_limits()
        }
        #[inline]
        fn broadcast_interrupts(&self) -> bool {
            self.$processor.broadcast_interrupts()
        }
        #[inline]
        fn broadcast(&self, what: $crate::shootdown::Broadcast) {
            if let Err(refused) = self.$processor.broadcast(what) {
                ($refused)(refused, self, what);
            }
        }
        #[inline]
        fn broadcast_sync(&self) {
            self.$processor.broadcast_sync();
        }
    };
}
