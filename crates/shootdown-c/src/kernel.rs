//! The hooks of C as the engine calls them.

use crate::cpu_words::SHOOTDOWN_CPU_WORDS;
use crate::fixed::FIXED;
use crate::hooks::{shootdown_event, shootdown_interrupts, shootdown_stuck};
use crate::instructions::Instructions;
use crate::range::shootdown_range;
use crate::settings::{shootdown_settings, shootdown_status};
use core::ffi::c_void;
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

/// The hooks from C, with the required ones checked.
#[derive(Clone, Copy)]
pub struct Hooks {
    kernel: *mut c_void,
    instructions: Instructions,
    cpu: unsafe extern "C" fn(*mut c_void) -> u32,
    send_ipi: unsafe extern "C" fn(*mut c_void, *const u64),
    pin: Option<unsafe extern "C" fn(*mut c_void)>,
    unpin: Option<unsafe extern "C" fn(*mut c_void)>,
    now_ns: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
    flush_at_entry: Option<unsafe extern "C" fn(*mut c_void, u32) -> bool>,
    secondary: Option<unsafe extern "C" fn(*mut c_void, u64, *const shootdown_range) -> u64>,
    secondary_sync: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    unloaded: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    event: Option<unsafe extern "C" fn(*mut c_void, *const shootdown_event)>,
    stuck: Option<unsafe extern "C" fn(*mut c_void, *const shootdown_stuck)>,
}

// SAFETY: the hooks are called on every CPU with the one pointer, as the header says.
unsafe impl Sync for Hooks {}

impl Hooks {
    pub fn new(settings: &shootdown_settings) -> Result<Hooks, shootdown_status> {
        let given = &settings.hooks;
        let missing = shootdown_status::SHOOTDOWN_MISSING_HOOK;
        if !settings.not_preemptible && (given.pin.is_none() || given.unpin.is_none()) {
            return Err(missing);
        }
        Ok(Hooks {
            kernel: settings.kernel,
            instructions: Instructions::new(settings)?,
            cpu: given.cpu.ok_or(missing)?,
            send_ipi: given.send_ipi.ok_or(missing)?,
            pin: given.pin,
            unpin: given.unpin,
            now_ns: given.now_ns,
            flush_at_entry: given.flush_at_entry,
            secondary: given.secondary,
            secondary_sync: given.secondary_sync,
            unloaded: given.unloaded,
            event: given.event,
            stuck: given.stuck,
        })
    }

    /// Called before this CPU goes online.
    pub fn enable(&self) {
        self.instructions.enable();
    }
}

/// A set of CPUs in C's form.
pub fn words_of(cpus: &CpuMask<SHOOTDOWN_CPU_WORDS>) -> [u64; SHOOTDOWN_CPU_WORDS] {
    let mut words = [0; SHOOTDOWN_CPU_WORDS];
    cpus.iter().for_each(|cpu| words[cpu / 64] |= 1 << (cpu % 64));
    words
}

// SAFETY, of all calls below: the caller of the init function promised that the hooks are functions that satisfy the
// header's contracts, with that pointer, on every CPU.
// SAFETY: the caller of the init function promised the contract of each hook.
unsafe impl Kernel<SHOOTDOWN_CPU_WORDS> for Hooks {
    const POLICY: Option<Policy> = match FIXED {
        Some((_, design)) => Some(design.policy),
        None => None,
    };
    // Settings say so at run time: `not_preemptible`.
    const PREEMPTIBLE: bool = true;

    type Facade = CFacade;

    #[inline]
    fn cpu(&self) -> CpuId {
        // SAFETY: see above.
        unsafe { (self.cpu)(self.kernel) as CpuId }
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
        let words = words_of(targets);
        // SAFETY: see above.
        unsafe { (self.send_ipi)(self.kernel, words.as_ptr()) }
    }

    // Not by `send_ipi`, which copies the words out of a set: that takes instructions of every shootdown.
    #[inline]
    fn send_ipi_to(&self, target: CpuId) {
        let mut words = [0; SHOOTDOWN_CPU_WORDS];
        if let Some(word) = words.get_mut(target / 64) {
            *word = 1 << (target % 64);
        }
        // SAFETY: see above.
        unsafe { (self.send_ipi)(self.kernel, words.as_ptr()) }
    }

    #[inline]
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
        if let Some(hook) = self.pin {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn unpin(&self) {
        if let Some(hook) = self.unpin {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        // SAFETY: see above.
        self.now_ns.map_or(0, |hook| unsafe { hook(self.kernel) })
    }

    #[inline]
    fn flush_at_entry(&self, cpu: CpuId) -> bool {
        // SAFETY: see above.
        self.flush_at_entry
            .is_some_and(|hook| unsafe { hook(self.kernel, cpu as u32) })
    }

    fn secondary(&self, root: Root, invalidation: Secondary) -> u64 {
        let Some(hook) = self.secondary else { return 0 };
        let range = match invalidation {
            Secondary::Flush(range) => Some(shootdown_range::from(range)),
            Secondary::End => None,
        };
        // SAFETY: see above.
        unsafe {
            hook(
                self.kernel,
                root.0,
                range.as_ref().map_or(core::ptr::null(), core::ptr::from_ref),
            )
        }
    }

    fn secondary_sync(&self, ticket: u64) {
        if let Some(hook) = self.secondary_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel, ticket) }
        }
    }

    fn unloaded(&self, root: Root) {
        if let Some(hook) = self.unloaded {
            // SAFETY: see above.
            unsafe { hook(self.kernel, root.0) }
        }
    }

    // One copy, since there are many events.
    #[inline(never)]
    fn event(&self, event: Event) {
        if let Some(hook) = self.event {
            // SAFETY: see above.
            unsafe { hook(self.kernel, &event.into()) }
        }
    }

    fn stuck(&self, report: Stuck) {
        let report = shootdown_stuck {
            waiter: report.waiter as u32,
            target: report.target as u32,
            space: report.space,
            generation: report.generation,
            interrupts: match report.masked {
                None => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_UNKNOWN,
                Some(false) => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_ON,
                Some(true) => shootdown_interrupts::SHOOTDOWN_INTERRUPTS_OFF,
            },
        };
        if let Some(hook) = self.stuck {
            // SAFETY: see above.
            unsafe { hook(self.kernel, &report) }
        }
    }
}
