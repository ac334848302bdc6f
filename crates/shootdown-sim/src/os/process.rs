//! A process of the simulated kernel: its space, its regions, its locks, and how its threads sleep.
//!
//! Shaped like Linux's: faults and `madvise` hold the address-space lock shared, `mmap` and `munmap` exclusive; a
//! spinlock protects each lowest-level table.

use super::System;
use super::category::{self, Category};
use super::lock::{Access as LockAccess, SpinLock};
use super::region_lock::RegionLock;
use super::rwsem::{SleepCosts, SleepLock};
use super::share::File;
use crate::machine::{self, LineId, Shared, SimWord, SimWorld};
use shootdown::{Root, Space, Word};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where user regions begin.
pub const USER_BASE: u64 = 0x7f00_0000_0000;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Bytes that one lowest-level table maps.
pub(super) const TABLE_SPAN: u64 = 2 << 20;

/// A region backed by a file.
#[derive(Debug, Clone)]
pub(super) struct FileRegion {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file: Rc<File>,
    pub(super) shared: bool,
    /// The page is flushed when a write fault makes a write-protected entry writable.
    pub(super) notify_flushes: bool,
    pub(super) lock: RegionLock,
}

impl FileRegion {
    pub(super) fn covers(&self, va: u64) -> bool {
        (self.start..self.end).contains(&va)
    }
}

/// A process.
pub struct Process<const W: usize> {
    /// The engine's view.
    pub space: Shared<Space<SimWorld, W>>,
    /// Number of the space in the hardware and the oracle.
    pub number: u32,
    pub(super) root: u32,
    /// Address-space lock.
    pub(super) lock: Rc<SleepLock>,
    /// One per lowest-level table, by position.
    pub(super) table_locks: Rc<[SpinLock]>,
    pub(super) table_lines: LineId,
    /// How many mapped regions use each lowest-level table.
    pub(super) table_users: RefCell<Vec<u32>>,
    /// Counts unmaps in progress in the process, as Linux does with `mm->tlb_flush_pending`.
    pub(super) unmapping: Shared<SimWord>,
    /// Lock of the anonymous regions.
    anonymous: RegionLock,
    /// Regions that are backed by files.
    pub(super) files: RefCell<Vec<FileRegion>>,
    /// Its pending deferred unmaps.
    pub(super) quarantined: Rc<Cell<usize>>,
    /// Counter that every unmap of a frame occasionally updates: resident pages, per CPU in practice, so free of cost.
    resident: Cell<i64>,
}

/// The kernel's own memory for a process. It has no holders and waiters when the process ends, and the next one reuses
/// it, as slab caches do.
pub(super) struct Memory {
    lock: Rc<SleepLock>,
    pub(super) table_locks: Rc<[SpinLock]>,
    table_lines: LineId,
    unmapping: Shared<SimWord>,
    anonymous: RegionLock,
}

impl<const W: usize> Process<W> {
    /// A process whose regions lie within `bytes` from [`USER_BASE`].
    pub(super) fn new(system: &System<W>, number: u32, bytes: u64) -> Self {
        let tables = bytes.div_ceil(TABLE_SPAN).max(1) as usize;
        let root = system.hw.borrow_mut().new_space(number);
        system.engine.kernel().know(root, number);
        system.numbers.set(system.numbers.get().max(number));
        let space = system.place_space(system.engine.space(Root(u64::from(root))));
        let Memory {
            lock,
            table_locks,
            table_lines,
            unmapping,
            anonymous,
        } = system.spare_memory(tables).unwrap_or_else(|| Memory {
            lock: Rc::new(SleepLock::new(
                system.machine(),
                system.spin_nodes.clone(),
                SleepCosts {
                    wake: system.costs.wake,
                    wake_latency: system.costs.wake_latency,
                    idle: system.costs.idle,
                    microsecond: system.costs.microsecond,
                },
                system
                    .scheduler
                    .get()
                    .map(|scheduler| Box::new(Rc::downgrade(scheduler)) as Box<_>),
                system.preemption.clone(),
            )),
            table_locks: (0..tables)
                .map(|_| SpinLock::new(system.machine(), system.spin_nodes.clone(), system.preemption.clone()))
                .collect(),
            table_lines: system.allocate_lines(tables * 64),
            unmapping: system.allocate(SimWord::new(0)),
            anonymous: RegionLock::new(system.machine()),
        });
        Process {
            space,
            number,
            root,
            lock,
            table_locks,
            table_lines,
            table_users: RefCell::new(vec![0; tables]),
            unmapping,
            anonymous,
            files: RefCell::default(),
            quarantined: Rc::default(),
            resident: Cell::new(0),
        }
    }

    /// The memory of a process that a later one can reuse.
    pub(super) fn memory(&self) -> Memory {
        Memory {
            lock: self.lock.clone(),
            table_locks: self.table_locks.clone(),
            table_lines: self.table_lines,
            unmapping: self.unmapping.clone(),
            anonymous: self.anonymous.clone(),
        }
    }

    /// The lock of the region at `va`.
    pub(super) fn region_lock(&self, va: u64) -> RegionLock {
        let files = self.files.borrow();
        let file = files.iter().find(|region| region.covers(va));
        file.map_or_else(|| self.anonymous.clone(), |region| region.lock.clone())
    }

    /// Whether the page at `va` belongs to a file that is mapped shared.
    pub(super) fn is_shared_file(&self, va: u64) -> bool {
        self.files
            .borrow()
            .iter()
            .any(|region| region.shared && region.covers(va))
    }

    /// The locks of all regions.
    pub(super) fn region_locks(&self) -> Vec<RegionLock> {
        let files = self.files.borrow();
        let of_files = files.iter().map(|region| region.lock.clone());
        of_files.chain([self.anonymous.clone()]).collect()
    }

    /// As a forked process begins.
    pub(super) fn take_regions_of(&self, system: &System<W>, parent: &Process<W>) {
        *self.files.borrow_mut() = parent.files.borrow().clone();
        let own = |region: &mut FileRegion| region.lock = RegionLock::new(system.machine());
        self.files.borrow_mut().iter_mut().for_each(own);
        *self.table_users.borrow_mut() = parent.table_users.borrow().clone();
        self.resident.set(parent.resident.get());
    }

    /// A page that was written for the first time is accounted for.
    pub(super) fn now_resident(&self, system: &System<W>, frame: u32) {
        self.resident.set(self.resident.get() + 1);
        system.lru_add(frame);
    }

    /// A region releases the lowest-level table at `va`. True when no other region uses it.
    pub(super) fn release_table(&self, va: u64) -> bool {
        let users = &mut self.table_users.borrow_mut()[self.table_index(va)];
        *users -= 1;
        *users == 0
    }

    pub(super) fn table_index(&self, va: u64) -> usize {
        ((va - USER_BASE) / TABLE_SPAN) as usize
    }

    /// Line of the entry for `va` in its lowest-level table.
    pub(super) fn entry_line(&self, va: u64) -> LineId {
        self.table_lines
            .offset(self.table_index(va) * 64 + (va / PAGE % 512 / 8) as usize)
    }

    /// Pages resident now.
    pub fn resident(&self) -> i64 {
        self.resident.get()
    }
}

impl<const W: usize> System<W> {
    pub(super) fn lock(&self, process: &Process<W>, access: LockAccess) {
        process.lock.lock(access, || self.block(process));
    }

    pub(super) fn unlock(&self, process: &Process<W>, access: LockAccess) {
        process.lock.unlock(access);
    }

    /// User code of this CPU has been stalled by broadcasts of other CPUs; workloads that compute without accesses call
    /// it.
    #[inline]
    pub(crate) fn take_in_broadcasts(&self) {
        self.engine.kernel().take_in_broadcasts();
    }

    /// Puts this thread to sleep until it is woken: the CPU idles, in lazy TLB mode on the thread's space, or runs
    /// another thread.
    pub fn block(&self, process: &Process<W>) {
        if let Some(scheduler) = self.scheduler.get() {
            return scheduler.sleep();
        }
        machine::charge(self.costs.sleep);
        self.go_lazy();
        let outer = category::enter(Category::Idle);
        self.halt();
        self.engine.kernel().forget_broadcasts();
        category::leave(outer);
        machine::charge(self.costs.switch);
        self.resume(process);
    }
}

/// Runs `body` on this CPU as a thread of `process`.
pub fn run_thread<const W: usize>(system: &Rc<System<W>>, process: &Rc<Process<W>>, body: impl FnOnce()) {
    system.load(process);
    body();
    system.unload();
}
