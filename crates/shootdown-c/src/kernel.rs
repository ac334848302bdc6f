//! The hooks of C as the engine calls them.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::fixed::FIXED;
use crate::hook_calls::HookCalls;
use crate::hooks::{shootdown_interrupts, shootdown_stuck};
use crate::instructions::Instructions;
use crate::range::shootdown_range;
use crate::settings::{shootdown_settings, shootdown_status};
use core::mem::MaybeUninit;
use core::ops::Deref;
use shootdown::{
    Broadcast, BroadcastLimits, CpuId, CpuMask, Engine, Event, Kernel, Local, Policy, Root, Secondary, Space, Stuck,
    Tag,
};

/// The barriers of a kernel, or those of threads of a host.
#[cfg(target_os = "none")]
pub type CFacade = shootdown_cpu::BareMetal;
#[cfg(not(target_os = "none"))]
pub type CFacade = shootdown::Native;

/// The engine and a space, as C sees them.
pub type CEngine = Engine<'static, Hooks, SHOOTDOWN_CPU_WORDS>;
pub type CSpace = Space<CFacade, SHOOTDOWN_CPU_WORDS>;

/// The hooks from C, with the required ones checked. Empty until they are [filled in](Hooks::fill_in), where they lie
/// in the engine: a value of them would take half of the stack of `shootdown_engine_init`.
pub struct Hooks {
    given: MaybeUninit<Given>,
}

/// What [`Hooks`] consist of.
pub struct Given {
    calls: HookCalls,
    instructions: Instructions,
}

impl Deref for Hooks {
    type Target = Given;

    #[inline(always)]
    fn deref(&self) -> &Given {
        // SAFETY: `fill_in` follows `empty` before anything is called.
        unsafe { self.given.assume_init_ref() }
    }
}

// SAFETY: the hooks are called on every CPU with the one pointer, as the header says.
unsafe impl Sync for Hooks {}

impl Hooks {
    /// # Errors
    /// A required hook is missing.
    pub fn check(settings: &shootdown_settings) -> Result<(), shootdown_status> {
        HookCalls::check(settings)?;
        Instructions::check(settings)
    }

    /// No hooks yet.
    ///
    /// # Safety
    /// They are filled in before any is called.
    #[inline]
    pub unsafe fn empty() -> Hooks {
        Hooks {
            given: MaybeUninit::uninit(),
        }
    }

    /// Not inlined: what it takes from the stack is free again when it returns.
    ///
    /// # Safety
    /// [`check`](Self::check) has found nothing missing.
    #[inline(never)]
    pub unsafe fn fill_in(&mut self, settings: &shootdown_settings) {
        // SAFETY: the caller's.
        self.given.write(unsafe {
            Given {
                calls: HookCalls::of(settings),
                instructions: Instructions::of(settings),
            }
        });
    }

    /// Called before this CPU goes online.
    pub fn enable(&self) {
        self.instructions.enable();
    }

    // Not inlined, as `report`.
    #[inline(never)]
    fn notify_secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        match invalidation {
            Secondary::Flush(range) => self.calls.secondary(root.0, &shootdown_range::from(range)),
            Secondary::End => self.calls.secondary(root.0, core::ptr::null()),
        }
    }

    // Not inlined: there are many events, and one conversion is enough.
    #[inline(never)]
    fn report(&self, event: Event) {
        self.calls.event(&event.into());
    }
}

/// A set of CPUs in C's form.
pub fn words_of(cpus: &CpuMask<SHOOTDOWN_CPU_WORDS>) -> [u64; SHOOTDOWN_CPU_WORDS] {
    let mut words = [0; SHOOTDOWN_CPU_WORDS];
    cpus.iter().for_each(|cpu| words[cpu / 64] |= 1 << (cpu % 64));
    words
}

// SAFETY: the caller of the init function promised the contract of each hook.
unsafe impl Kernel<SHOOTDOWN_CPU_WORDS> for Hooks {
    const POLICY: Option<Policy> = match FIXED {
        Some((_, design)) => Some(design.policy),
        None => None,
    };
    // Otherwise the settings say so: `not_preemptible`.
    const PREEMPTIBLE: bool = HookCalls::MAY_BE_PREEMPTIBLE;

    type Facade = CFacade;

    #[inline]
    fn cpu(&self) -> CpuId {
        self.calls.cpu()
    }

    #[inline]
    fn interrupts_off(&self) -> u64 {
        self.instructions.interrupts_off()
    }

    #[inline]
    fn interrupts_restore(&self, saved: u64) {
        self.instructions.interrupts_restore(saved);
    }

    #[inline]
    fn interrupts_are_off(&self) -> bool {
        self.instructions.interrupts_are_off()
    }

    fn send_ipi(&self, targets: &CpuMask<SHOOTDOWN_CPU_WORDS>) {
        self.calls.send_ipi(words_of(targets).as_ptr());
    }

    // Not by `send_ipi`, which copies the words out of a set: that takes instructions of every shootdown.
    #[inline]
    fn send_ipi_to(&self, target: CpuId) {
        if self.calls.sends_to_one() {
            return self.calls.send_ipi_to(target as u32);
        }
        let mut words = [0; SHOOTDOWN_CPU_WORDS];
        if let Some(word) = words.get_mut(target / 64) {
            *word = 1 << (target % 64);
        }
        self.calls.send_ipi(words.as_ptr());
    }

    // Always: the caller's operation is constant, so this becomes one or two instructions.
    #[inline(always)]
    fn invalidate(&self, what: Local) {
        self.instructions.invalidate(what);
    }

    #[inline]
    fn local_sync(&self) {
        self.instructions.local_sync();
    }

    #[inline]
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        self.instructions.load_root(root, tag, keep);
    }

    #[inline]
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.instructions.broadcast_limits()
    }

    #[inline]
    fn broadcast_interrupts(&self) -> bool {
        self.instructions.broadcast_interrupts()
    }

    #[inline]
    fn broadcast(&self, what: Broadcast) {
        self.instructions.broadcast(what);
    }

    #[inline]
    fn broadcast_sync(&self) {
        self.instructions.broadcast_sync();
    }

    #[inline]
    fn pin(&self) {
        self.calls.pin();
    }

    #[inline]
    fn unpin(&self) {
        self.calls.unpin();
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.calls.now_ns()
    }

    #[inline]
    fn flush_at_entry(&self, cpu: CpuId) -> bool {
        self.calls.flush_at_entry(cpu as u32)
    }

    #[inline]
    fn secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        if self.calls.has_secondary() {
            self.notify_secondary(root, invalidation)
        } else {
            0
        }
    }

    #[inline]
    fn secondary_sync(&self, ticket: u64) {
        self.calls.secondary_sync(ticket);
    }

    #[inline]
    fn unloaded(&self, root: Root) {
        self.calls.unloaded(root.0);
    }

    #[inline]
    fn event(&self, event: Event) {
        if self.calls.takes_events() {
            self.report(event);
        }
    }

    fn stuck(&self, report: Stuck) {
        self.calls.stuck(&shootdown_stuck {
            waiter: report.waiter as u32,
            target: report.target as u32,
            space: report.space,
            generation: report.generation,
            interrupts: match report.masked {
                None => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_UNKNOWN,
                Some(false) => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_ON,
                Some(true) => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_OFF,
            },
        });
    }
}
