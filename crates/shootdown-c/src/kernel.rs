//! The hooks of C as the engine calls them.

use crate::fixed::FIXED;
use crate::hooks::{shootdown_hooks, shootdown_invalidation, shootdown_stuck, shootdown_what};
use crate::range::shootdown_range;
use crate::settings::{shootdown_settings, shootdown_status};
use crate::words::SHOOTDOWN_CPU_WORDS;
use core::ffi::c_void;
use shootdown::{
    Broadcast, BroadcastLimits, CpuId, CpuMask, Engine, Kernel, Local, Policy, Root, Secondary, Space, Stride, Stuck,
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
pub struct Hooks {
    kernel: *mut c_void,
    limits: Option<BroadcastLimits>,
    broadcast_interrupts: bool,
    cpu: unsafe extern "C" fn(*mut c_void) -> u32,
    interrupts_off: unsafe extern "C" fn(*mut c_void) -> u64,
    interrupts_restore: unsafe extern "C" fn(*mut c_void, u64),
    send_ipi: unsafe extern "C" fn(*mut c_void, *const u64),
    invalidate: unsafe extern "C" fn(*mut c_void, *const shootdown_invalidation),
    load_root: unsafe extern "C" fn(*mut c_void, u64, u16, bool),
    optional: shootdown_hooks,
}

// SAFETY: the hooks are called on every CPU with the one pointer, as the header says.
unsafe impl Sync for Hooks {}

impl Hooks {
    pub fn new(settings: &shootdown_settings) -> Result<Hooks, shootdown_status> {
        let given = settings.hooks;
        let missing = shootdown_status::SHOOTDOWN_MISSING_HOOK;
        let limits = (settings.broadcast_pages > 0).then_some(BroadcastLimits {
            max_pages: settings.broadcast_pages,
            max_large_pages: settings.broadcast_large_pages.max(1),
        });
        if limits.is_some() && (given.broadcast.is_none() || given.broadcast_sync.is_none()) {
            return Err(missing);
        }
        if !settings.not_preemptible && (given.pin.is_none() || given.unpin.is_none()) {
            return Err(missing);
        }
        Ok(Hooks {
            kernel: settings.kernel,
            limits,
            broadcast_interrupts: settings.broadcast_interrupts,
            cpu: given.cpu.ok_or(missing)?,
            interrupts_off: given.interrupts_off.ok_or(missing)?,
            interrupts_restore: given.interrupts_restore.ok_or(missing)?,
            send_ipi: given.send_ipi.ok_or(missing)?,
            invalidate: given.invalidate.ok_or(missing)?,
            load_root: given.load_root.ok_or(missing)?,
            optional: given,
        })
    }
}

fn pages(
    what: shootdown_what,
    address: u64,
    stride: Stride,
    count: u32,
    tag: Tag,
    leaf_only: bool,
) -> shootdown_invalidation {
    shootdown_invalidation {
        what,
        page_shift: stride.shift(),
        address,
        count,
        tag: tag.0,
        leaf_only,
    }
}

fn whole(what: shootdown_what, tag: Tag) -> shootdown_invalidation {
    shootdown_invalidation {
        page_shift: 0,
        ..pages(what, 0, Stride::Size4K, 0, tag, false)
    }
}

// SAFETY, of all calls below: the caller of the init function promised that the hooks are functions that satisfy the
// header's contracts, with that pointer, on every CPU.
// SAFETY: what each hook does is the promise of whoever called `shootdown_init`.
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
        // SAFETY: see above.
        unsafe { (self.interrupts_off)(self.kernel) }
    }

    #[inline]
    fn interrupts_restore(&self, saved: u64) {
        // SAFETY: see above.
        unsafe { (self.interrupts_restore)(self.kernel, saved) }
    }

    #[inline]
    fn interrupts_are_off(&self) -> bool {
        // SAFETY: see above.
        self.optional
            .interrupts_are_off
            .is_none_or(|hook| unsafe { hook(self.kernel) })
    }

    fn send_ipi(&self, targets: &CpuMask<SHOOTDOWN_CPU_WORDS>) {
        let mut words = [0; SHOOTDOWN_CPU_WORDS];
        targets.iter().for_each(|cpu| words[cpu / 64] |= 1 << (cpu % 64));
        // SAFETY: see above.
        unsafe { (self.send_ipi)(self.kernel, words.as_ptr()) }
    }

    fn invalidate(&self, what: Local) {
        let what = match what {
            Local::Page {
                address,
                stride,
                tag,
                leaf_only,
            } => pages(shootdown_what::SHOOTDOWN_PAGES, address, stride, 1, tag, leaf_only),
            Local::Tag(tag) => whole(shootdown_what::SHOOTDOWN_TAG, tag),
            Local::Kernel { address, stride } => pages(
                shootdown_what::SHOOTDOWN_PAGES_EVERY_TAG,
                address,
                stride,
                1,
                Tag(0),
                true,
            ),
            Local::All => whole(shootdown_what::SHOOTDOWN_ALL, Tag(0)),
        };
        // SAFETY: see above.
        unsafe { (self.invalidate)(self.kernel, &what) }
    }

    #[inline]
    fn local_sync(&self) {
        if let Some(hook) = self.optional.local_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // SAFETY: see above.
        unsafe { (self.load_root)(self.kernel, root.0, tag.0, keep) }
    }

    #[inline]
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.limits
    }

    #[inline]
    fn broadcast_interrupts(&self) -> bool {
        self.broadcast_interrupts
    }

    fn broadcast(&self, what: Broadcast) {
        let what = match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => pages(shootdown_what::SHOOTDOWN_PAGES, address, stride, count, tag, leaf_only),
            Broadcast::Tag(tag) => whole(shootdown_what::SHOOTDOWN_TAG, tag),
            Broadcast::Kernel { address, stride, count } => pages(
                shootdown_what::SHOOTDOWN_PAGES_EVERY_TAG,
                address,
                stride,
                count,
                Tag(0),
                false,
            ),
            Broadcast::NonGlobal => whole(shootdown_what::SHOOTDOWN_NON_GLOBAL, Tag(0)),
            Broadcast::All => whole(shootdown_what::SHOOTDOWN_ALL, Tag(0)),
        };
        if let Some(hook) = self.optional.broadcast {
            // SAFETY: see above.
            unsafe { hook(self.kernel, &what) }
        }
    }

    fn broadcast_sync(&self) {
        if let Some(hook) = self.optional.broadcast_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn pin(&self) {
        if let Some(hook) = self.optional.pin {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn unpin(&self) {
        if let Some(hook) = self.optional.unpin {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        // SAFETY: see above.
        self.optional.now_ns.map_or(0, |hook| unsafe { hook(self.kernel) })
    }

    #[inline]
    fn flush_at_entry(&self, cpu: CpuId) -> bool {
        // SAFETY: see above.
        self.optional
            .flush_at_entry
            .is_some_and(|hook| unsafe { hook(self.kernel, cpu as u32) })
    }

    fn secondary(&self, root: Root, told: Secondary) -> u64 {
        let Some(hook) = self.optional.secondary else { return 0 };
        let range = match told {
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
        if let Some(hook) = self.optional.secondary_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel, ticket) }
        }
    }

    fn stuck(&self, report: Stuck) {
        let report = shootdown_stuck {
            waiter: report.waiter as u32,
            target: report.target as u32,
            space: report.space,
            generation: report.generation,
        };
        if let Some(hook) = self.optional.stuck {
            // SAFETY: see above.
            unsafe { hook(self.kernel, &report) }
        }
    }
}
