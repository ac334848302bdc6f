//! The guest: frames, page tables made of frames, processes; and the oracle, which checks every use of a frame.
//!
//! Every frame has a stamp that changes when it is freed or reused. Every entry that refers to a frame has the frame's
//! stamp from when the entry was created. A use through an entry that finds another stamp is a use after free: a
//! translation that should have been invalidated (C1, C2), or a page-table page (C3).
//!
//! With `plain` the stamp is read and written as ordinary memory. ThreadSanitizer then sees a race if the engine does
//! not order a use and the freeing, even if the stamp happens to be right.

use shootdown::{Local, Range, Root, Space, Stride, Tag};
use shootdown_host::{Host, Tlb};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Tables of a process, and pages of a table.
pub const FAN_OUT: usize = 8;

/// Refers to a frame: its number, and above it the stamp. 0 refers to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    pub fn frame(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }
    fn stamp(self) -> u64 {
        self.0 >> 16
    }
}

/// The software TLB. It lets other threads run where a processor would take time: around a root load, before an
/// invalidation.
#[derive(Default)]
pub struct Mmu {
    pub tlb: Tlb<Entry, Entry>,
    calls: u64,
}

impl Mmu {
    fn pause(&mut self, one_in: u64) {
        self.calls += 1;
        if self.calls.is_multiple_of(one_in) {
            std::thread::yield_now();
        }
    }
}

impl shootdown_host::Mmu for Mmu {
    fn invalidate(&mut self, what: Local) {
        self.pause(64);
        self.tlb.invalidate(what);
    }

    fn load_root(&mut self, root: Root, tag: Tag, keep: bool) {
        self.pause(5);
        self.tlb.load_root(root, tag, keep);
        self.pause(7);
    }
}

/// A page of guest memory: data, or a table.
#[derive(Default)]
struct Frame {
    stamp: AtomicU64,
    entries: [AtomicU64; FAN_OUT],
}

/// The use of a frame, for the report of a violation.
#[derive(Debug, Clone, Copy)]
pub enum Use {
    Data,
    HardwareWalk,
    LocklessWalk,
}

/// All guest memory.
pub struct Guest {
    frames: Vec<Frame>,
    plain: bool,
    /// Uses that were checked.
    pub checked: AtomicU64,
    violation: OnceLock<String>,
    pub stop: AtomicBool,
}

impl Guest {
    /// `frames` frames; frame 0 is unused.
    pub fn new(frames: usize, plain: bool) -> Self {
        Guest {
            frames: (0..frames).map(|_| Frame::default()).collect(),
            plain,
            checked: AtomicU64::new(0),
            violation: OnceLock::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&str> {
        self.violation.get().map(String::as_str)
    }

    fn write_stamp(&self, frame: usize, stamp: u64) {
        let word = &self.frames[frame].stamp;
        if self.plain {
            // SAFETY: the caller owns the frame: it was never used, or the engine has proved that it is unused. The
            // test checks that proof.
            unsafe { word.as_ptr().write(stamp) };
        } else {
            word.store(stamp, Ordering::Relaxed);
        }
    }

    /// Allocates a free frame, under a stamp that was never used before.
    pub fn allocate(&self, frame: usize, stamp: u64) -> Entry {
        self.write_stamp(frame, stamp);
        for entry in &self.frames[frame].entries {
            entry.store(0, Ordering::Relaxed);
        }
        Entry(frame as u64 | stamp << 16)
    }

    /// Frees a frame: from now on every use of it is a violation.
    pub fn free(&self, frame: usize) {
        self.write_stamp(frame, 0);
    }

    /// Uses a frame through `entry`. Returns false, and reports, if it is not what the entry refers to.
    pub fn check(&self, entry: Entry, how: Use, cpu: usize) -> bool {
        let word = &self.frames[entry.frame()].stamp;
        let found = if self.plain {
            // SAFETY: stamps are written only while the frame is unused; see `write_stamp`.
            unsafe { word.as_ptr().read() }
        } else {
            word.load(Ordering::Relaxed)
        };
        if found != entry.stamp() {
            let frame = entry.frame();
            let diagnosis = format!(
                "CPU {cpu}, {how:?}: frame {frame} has stamp {found}, the entry was made for {}",
                entry.stamp()
            );
            let _first = self.violation.set(diagnosis);
            self.stop.store(true, Ordering::Relaxed);
        }
        found == entry.stamp()
    }

    /// Entry `index` of a table. Acquire, as a walker orders its load of an entry before its use of the target.
    pub fn entry(&self, table: Entry, index: usize) -> Option<Entry> {
        let entry = Entry(self.frames[table.frame()].entries[index].load(Ordering::Acquire));
        (entry.0 != 0).then_some(entry)
    }

    pub fn set(&self, table: Entry, index: usize, entry: Option<Entry>) {
        self.frames[table.frame()].entries[index].store(entry.map_or(0, |entry| entry.0), Ordering::Release);
    }

    /// A hardware access, or a speculative one: TLB, then cached link, then root. Fills.
    pub fn translate(&self, Mmu { tlb, .. }: &mut Mmu, (table, page): (usize, usize), cpu: usize) -> Option<Entry> {
        let address = address(table, page);
        if let Some(entry) = tlb.lookup(address) {
            return Some(entry);
        }
        let link = match tlb.link(address) {
            Some(link) => link,
            None => {
                let root = Entry(tlb.root().0);
                if root.0 == 0 || !self.check(root, Use::HardwareWalk, cpu) {
                    return None;
                }
                let link = self.entry(root, table)?;
                tlb.fill_link(address, link);
                link
            }
        };
        if !self.check(link, Use::HardwareWalk, cpu) {
            return None;
        }
        let entry = self.entry(link, page)?;
        tlb.fill(address, entry, false);
        Some(entry)
    }
}

/// First byte of a page.
pub fn address(table: usize, page: usize) -> u64 {
    (table as u64) << 21 | (page as u64) << 12
}

/// All pages of a table.
pub fn span(table: usize) -> Range {
    Range::pages(address(table, 0), address(table, FAN_OUT), Stride::Size4K)
}

/// A process: its address space, and the number of CPUs that keep it alive.
pub struct Process {
    pub space: Space<Host, 1>,
    /// Held to change its tables.
    pub tables: Mutex<()>,
    users: AtomicUsize,
}

impl Process {
    /// With one user: its slot.
    pub fn new(space: Space<Host, 1>) -> Self {
        Process {
            space,
            tables: Mutex::new(()),
            users: AtomicUsize::new(1),
        }
    }

    pub fn root(&self) -> Entry {
        let Root(root) = self.space.root();
        Entry(root)
    }

    pub fn use_too(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a use. Returns whether that was the last one, which must end it.
    pub fn unuse(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
