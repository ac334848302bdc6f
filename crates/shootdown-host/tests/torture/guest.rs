//! The guest: frames, page tables made of frames, processes; and the oracle, which sees every use of a frame.
//!
//! Every frame carries a stamp that changes whenever it is freed or used anew, and every entry that refers to a frame
//! carries the stamp of the moment at which it was made. Whoever uses a frame through an entry and finds another stamp
//! there has used it after it was freed: a translation that should have been gone (C1, C2), or a table page (C3).
//!
//! With `plain` the stamp is read and written as ordinary memory. Then ThreadSanitizer sees a race wherever a use and
//! the freeing are not ordered by the engine, also where the stamp happens to be right.

use shootdown::{Local, Range, Root, Space, Stride, Tag};
use shootdown_host::{Host, Tlb};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// Tables of a process, and pages of a table.
pub const FAN_OUT: usize = 8;

/// Refers to a frame: its number, and above it the stamp. 0 refers to nothing.
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

/// The software TLB, which lets other threads run where a processor would take its time: around a root load, before an
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

/// What a frame is used as; told when its use is a violation.
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
    /// `frames` frames; frame 0 is used by nobody.
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
            // SAFETY: the frame is the caller's alone: it was never used, or the engine has given the proof that nobody
            // uses it. Should the engine be wrong, that is what is being tested.
            unsafe { word.as_ptr().write(stamp) };
        } else {
            word.store(stamp, Ordering::Relaxed);
        }
    }

    /// Takes a free frame into use, under a stamp that was never used before.
    pub fn allocate(&self, frame: usize, stamp: u64) -> Entry {
        self.write_stamp(frame, stamp);
        for entry in &self.frames[frame].entries {
            entry.store(0, Ordering::Relaxed);
        }
        Entry(frame as u64 | stamp << 16)
    }

    /// Nobody uses the frame any more: from now on every use of it is a violation.
    pub fn free(&self, frame: usize) {
        self.write_stamp(frame, 0);
    }

    /// Uses a frame through `entry`; false, and reported, when it is not what the entry refers to.
    pub fn check(&self, entry: Entry, how: Use, cpu: usize) -> bool {
        let word = &self.frames[entry.frame()].stamp;
        let found = if self.plain {
            // SAFETY: stamps are written only while nobody uses the frame; see `write_stamp`.
            unsafe { word.as_ptr().read() }
        } else {
            word.load(Ordering::Relaxed)
        };
        if found != entry.stamp() {
            let frame = entry.frame();
            let story = format!(
                "CPU {cpu}, {how:?}: frame {frame} has stamp {found}, the entry was made for {}",
                entry.stamp()
            );
            let _first = self.violation.set(story);
            self.stop.store(true, Ordering::Relaxed);
        }
        found == entry.stamp()
    }

    /// Entry `index` of a table. Acquire, as a walker's load of an entry orders its use of what that leads to.
    pub fn entry(&self, table: Entry, index: usize) -> Option<Entry> {
        let entry = Entry(self.frames[table.frame()].entries[index].load(Ordering::Acquire));
        (entry.0 != 0).then_some(entry)
    }

    pub fn set(&self, table: Entry, index: usize, entry: Option<Entry>) {
        self.frames[table.frame()].entries[index].store(entry.map_or(0, |entry| entry.0), Ordering::Release);
    }

    /// What the hardware does for an access, or for no reason at all: TLB, else cached link, else root. Fills.
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

/// A process: its address space, and how many CPUs keep it from ending.
pub struct Process {
    pub space: Space<Host, 1>,
    /// Held to change its tables.
    pub tables: Mutex<()>,
    users: AtomicUsize,
}

impl Process {
    /// With one user: the slot it stands in.
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

    /// Whether that was the last user, who has to end it.
    pub fn unuse(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
