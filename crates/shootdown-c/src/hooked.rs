//! Instructions that the kernel's hooks execute.

use crate::hooks::{shootdown_invalidation, shootdown_what};
use crate::settings::{shootdown_settings, shootdown_status};
use core::ffi::c_void;
use shootdown::{Broadcast, BroadcastLimits, Local, Machine, Root, Stride, Tag};

/// The hooks that execute instructions. The required ones were checked.
#[derive(Clone, Copy)]
pub struct Instructions {
    kernel: *mut c_void,
    limits: Option<BroadcastLimits>,
    broadcast_interrupts: bool,
    interrupts_off: unsafe extern "C" fn(*mut c_void) -> u64,
    interrupts_restore: unsafe extern "C" fn(*mut c_void, u64),
    invalidate: unsafe extern "C" fn(*mut c_void, *const shootdown_invalidation),
    load_root: unsafe extern "C" fn(*mut c_void, u64, u16, bool),
    interrupts_are_off: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    local_sync: Option<unsafe extern "C" fn(*mut c_void)>,
    broadcast: Option<unsafe extern "C" fn(*mut c_void, *const shootdown_invalidation)>,
    broadcast_sync: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY, of all calls below: the caller of the init function promised that the hooks are functions that satisfy the
// header's contracts, with that pointer, on every CPU.
impl Instructions {
    /// # Errors
    /// A required hook is missing.
    pub fn check(settings: &shootdown_settings) -> Result<(), shootdown_status> {
        let given = &settings.hooks;
        let required = given.interrupts_off.is_some()
            && given.interrupts_restore.is_some()
            && given.invalidate.is_some()
            && given.load_root.is_some();
        let broadcasts = given.broadcast.is_some() && given.broadcast_sync.is_some();
        if required && (broadcasts || settings.broadcast_pages == 0) {
            Ok(())
        } else {
            Err(shootdown_status::SHOOTDOWN_MISSING_HOOK)
        }
    }

    /// # Safety
    /// [`check`](Self::check) has found nothing missing.
    #[inline]
    pub unsafe fn of(settings: &shootdown_settings) -> Instructions {
        let given = &settings.hooks;
        // SAFETY: the caller's.
        unsafe {
            Instructions {
                kernel: settings.kernel,
                limits: (settings.broadcast_pages > 0).then_some(BroadcastLimits {
                    max_pages: settings.broadcast_pages,
                    max_large_pages: settings.broadcast_large_pages.max(1),
                }),
                broadcast_interrupts: settings.broadcast_interrupts,
                interrupts_off: given.interrupts_off.unwrap_unchecked(),
                interrupts_restore: given.interrupts_restore.unwrap_unchecked(),
                invalidate: given.invalidate.unwrap_unchecked(),
                load_root: given.load_root.unwrap_unchecked(),
                interrupts_are_off: given.interrupts_are_off,
                local_sync: given.local_sync,
                broadcast: given.broadcast,
                broadcast_sync: given.broadcast_sync,
            }
        }
    }

    /// The machine, if the kernel does not describe one.
    pub fn machine(_kernel_root: Root) -> Option<Machine> {
        None
    }

    /// Called before this CPU goes online: the kernel enables its own features.
    pub fn enable(&self) {}

    #[inline]
    pub fn interrupts_off(&self) -> u64 {
        // SAFETY: see above.
        unsafe { (self.interrupts_off)(self.kernel) }
    }

    #[inline]
    pub fn interrupts_restore(&self, saved: u64) {
        // SAFETY: see above.
        unsafe { (self.interrupts_restore)(self.kernel, saved) }
    }

    #[inline]
    pub fn interrupts_are_off(&self) -> bool {
        // SAFETY: see above.
        self.interrupts_are_off.is_none_or(|hook| unsafe { hook(self.kernel) })
    }

    pub fn invalidate(&self, what: Local) {
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
    pub fn local_sync(&self) {
        if let Some(hook) = self.local_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
    }

    #[inline]
    pub fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        // SAFETY: see above.
        unsafe { (self.load_root)(self.kernel, root.0, tag.0, keep) }
    }

    #[inline]
    pub fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.limits
    }

    #[inline]
    pub fn broadcast_interrupts(&self) -> bool {
        self.broadcast_interrupts
    }

    pub fn broadcast(&self, what: Broadcast) {
        let what = match what {
            Broadcast::Pages {
                address,
                stride,
                count,
                tag,
                leaf_only,
            } => pages(shootdown_what::SHOOTDOWN_PAGES, address, stride, count, tag, leaf_only),
            Broadcast::Tag(tag) => whole(shootdown_what::SHOOTDOWN_TAG, tag),
            Broadcast::Kernel {
                address,
                stride,
                count,
                leaf_only,
            } => pages(
                shootdown_what::SHOOTDOWN_PAGES_EVERY_TAG,
                address,
                stride,
                count,
                Tag(0),
                leaf_only,
            ),
            Broadcast::NonGlobal => whole(shootdown_what::SHOOTDOWN_NON_GLOBAL, Tag(0)),
            Broadcast::All => whole(shootdown_what::SHOOTDOWN_ALL, Tag(0)),
        };
        if let Some(hook) = self.broadcast {
            // SAFETY: see above.
            unsafe { hook(self.kernel, &what) }
        }
    }

    pub fn broadcast_sync(&self) {
        if let Some(hook) = self.broadcast_sync {
            // SAFETY: see above.
            unsafe { hook(self.kernel) }
        }
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
