//! A test bed: a small machine with one user space on every CPU, and helpers for the operations of a kernel.

use shootdown::Stride;
use shootdown::{Broadcast, BroadcastLimits, Local, Tag};
use shootdown_sim::hw::*;

pub const PAGE: u64 = 4096;
/// A user page at an arbitrary address.
pub const VA: u64 = 0x7f00_0040_0000;
/// A kernel page.
pub const KVA: u64 = 0xffff_8880_0000_0000;
pub const TAG: u16 = 1;

pub struct Bed {
    pub hw: Hw,
    pub root: u32,
    pub now: u64,
}

pub fn config(cpus: usize) -> HwConfig {
    HwConfig {
        cpus,
        broadcast: Some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 4,
        }),
        ..HwConfig::default()
    }
}

impl Bed {
    /// Space 1 loaded under tag 1 everywhere.
    pub fn new(config: HwConfig) -> Bed {
        let cpus = config.cpus;
        let mut hw = Hw::new(HwConfig {
            defect: crate::mutations::requested(),
            ..config
        });
        let root = hw.new_space(1);
        let mut bed = Bed { hw, root, now: 0 };
        for cpu in 0..cpus {
            bed.load(cpu, 1, if bed.hw.config().tags { TAG } else { 0 }, true);
            bed.hw.caught_up(cpu, 0);
        }
        bed
    }

    /// As [`new`](Bed::new), with a page at [`VA`] that `readers` have cached, in that order; and its frame.
    pub fn with_page(config: HwConfig, readers: &[usize]) -> (Bed, u32) {
        let mut bed = Bed::new(config);
        let frame = bed.hw.alloc_data();
        bed.map(VA, frame);
        for &cpu in readers {
            bed.read(cpu, VA).expect("it is mapped");
        }
        (bed, frame)
    }

    pub fn load(&mut self, cpu: usize, space: u32, tag: u16, keep: bool) {
        let root = self.hw.root(space);
        self.hw
            .load_root(cpu, root, tag, keep, space, self.now)
            .expect("a valid tag");
    }

    /// Stores a leaf, visible at once.
    pub fn set(&mut self, root: u32, va: u64, level: u32, value: Entry) {
        self.now += 1;
        let table = self.hw.ensure_table(root, va, level, 0, self.now);
        self.hw.store_entry(table, table_index(va, level), value, 0, self.now);
    }

    /// Stores an entry where a table is linked: a large page, or nothing.
    pub fn set_over(&mut self, va: u64, value: Entry) {
        let table = self.hw.table_at(self.root, va, 2).unwrap();
        self.hw.store_entry(table, table_index(va, 2), value, 0, self.now);
    }

    pub fn map(&mut self, va: u64, frame: u32) {
        self.set(self.root, va, 1, rw(frame));
    }

    pub fn unmap(&mut self, va: u64) {
        self.set(self.root, va, 1, Entry::NONE);
    }

    pub fn read(&mut self, cpu: usize, va: u64) -> Result<Translation, PageFault> {
        self.now += 1;
        self.hw.translate(cpu, va, Access::Read, Privilege::User, self.now)
    }

    pub fn write(&mut self, cpu: usize, va: u64) -> Result<Translation, PageFault> {
        self.now += 1;
        self.hw.translate(cpu, va, Access::Write, Privilege::User, self.now)
    }

    pub fn kernel_read(&mut self, cpu: usize, va: u64) -> Result<Translation, PageFault> {
        self.now += 1;
        self.hw.translate(cpu, va, Access::Read, Privilege::Kernel, self.now)
    }

    /// Whether a user read succeeds without a walk.
    pub fn hits(&mut self, cpu: usize, va: u64) -> bool {
        self.read(cpu, va).is_ok_and(|t| !t.walked)
    }

    pub fn page(&mut self, cpu: usize, va: u64, tag: u16) {
        self.local(
            cpu,
            Local::Page {
                address: va,
                stride: Stride::Size4K,
                tag: Tag(tag),
                leaf_only: false,
            },
        );
    }

    pub fn local(&mut self, cpu: usize, what: Local) -> u32 {
        self.now += 1;
        self.hw.local(cpu, what, self.now).expect("a valid operand")
    }

    /// A request by `cpu` for the page at `va` begins, does nothing, and reports completion.
    pub fn claim_flushed(&mut self, cpu: usize, space: u32, va: u64) {
        let stamp = self.hw.request_begins(cpu, self.now);
        self.now += 1;
        self.hw.completed(space, va..va + PAGE, stamp, cpu, self.now);
    }

    pub fn rules(&self) -> Vec<Rule> {
        self.hw.violations().iter().map(|v| v.rule).collect()
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(
            self.hw.violations().is_empty(),
            "false alarm:\n{}",
            self.hw.violations()[0]
        );
    }
}

pub fn rw(frame: u32) -> Entry {
    Entry::page(frame).with(Entry::USER | Entry::WRITE)
}

pub fn ro(frame: u32) -> Entry {
    Entry::page(frame).with(Entry::USER)
}

/// Both CPUs have cached a page that was then unmapped, and CPU 0 has invalidated its own; and its frame.
pub fn unmapped() -> (Bed, u32) {
    let (mut b, f) = Bed::with_page(config(2), &[0, 1]);
    b.unmap(VA);
    b.page(0, VA, TAG);
    (b, f)
}

/// A broadcast of the page at [`VA`].
pub fn broadcast_page(tag: u16, leaf_only: bool) -> Broadcast {
    Broadcast::Pages {
        address: VA,
        stride: Stride::Size4K,
        count: 1,
        tag: Tag(tag),
        leaf_only,
    }
}
