//! The tortured processes: small ones with pages in several tables, and dynamic kernel pages.

use super::oracle::{self, POISON, Page};
use crate::arch::format::{self, Entry};
use crate::cpu;
use crate::engine;
use crate::facade::Bare;
use crate::frames::{self, FrameList};
use crate::hooks::WORDS;
use crate::lock::Mutex;
use crate::memory::{DYNAMIC, Frame, LARGE_PAGE, PAGE, USER_BITS};
use crate::paging;
use crate::sleeping::RwLock;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use shootdown::{Root, Space};

/// Lowest-level tables of a process, and pages used of each.
pub const TABLES: u64 = 2;
/// See [`TABLES`].
pub const PAGES: u64 = 8;
/// Large pages of a process.
pub const LARGE: u64 = 2;
/// Kernel pages.
pub const KERNEL: u64 = 8;
/// User address of the first page.
const BASE: u64 = 7 << (USER_BITS - 3);
/// Data frames that all share: few, so that they are reused soon.
const FRAMES: u32 = 32;

/// Entry of a table with its stamp, bit 0 clear. Pages end long before it.
const STAMP_ENTRY: usize = 511;

/// A process.
pub struct Process {
    /// The engine's space.
    pub space: Space<Bare, WORDS>,
    pub number: u64,
    root: Frame,
    /// Held for reading by CPUs that change pages, for writing by CPUs that unlink tables.
    pub links: RwLock<()>,
    pages: Vec<Page>,
    /// CPUs that use it, plus the slot that holds it; at 0 it ends.
    users: AtomicU64,
}

/// Free data frames.
static POOL: Mutex<FrameList> = Mutex::new(FrameList::EMPTY);
/// Frames that the pool has had so far.
static FRESH: AtomicU64 = AtomicU64::new(0);

/// A data frame with this stamp; `None` when all are in use.
pub fn take_frame(stamp: u64) -> Option<Frame> {
    let (frame, fresh) = match POOL.lock().pop() {
        Some(frame) => (frame, false),
        None if FRESH.fetch_add(1, Ordering::Relaxed) < u64::from(FRAMES) => (frames::allocate()?, true),
        None => return None,
    };
    oracle::take(frame, stamp, fresh);
    frames::note(frame).count.store(1, Ordering::Relaxed);
    Some(frame)
}

/// Before the start: large frames are as if they had been freed.
pub fn poison_large_frames() {
    let all: Vec<Frame> = core::iter::from_fn(frames::allocate_large).collect();
    for frame in all {
        oracle::poison(frame);
        frames::free_large(frame);
    }
}

/// Drops one mapping of a data frame, after its flush; returns whether it was the last.
pub fn drop_reference(frame: Frame) -> bool {
    frames::note(frame).count.fetch_sub(1, Ordering::AcqRel) == 1
}

/// Frees a data frame without mappings.
pub fn reclaim_frame(frame: Frame) {
    oracle::poison(frame);
    POOL.lock().push(frame);
}

/// Drops a mapping of a data frame, and frees the frame if it was the last.
pub fn free_frame(frame: Frame) {
    if drop_reference(frame) {
        reclaim_frame(frame);
    }
}

/// Frees a table page.
pub fn free_table(table: Frame) {
    table.fill(POISON);
    frames::free(table);
}

/// Frees the pages of a table that has replaced a large page: the copy, and the large page without its first frame.
pub fn free_split_pages(table: Frame) {
    let [copy, second, ..] = table
        .words()
        .each_ref()
        .map(|place| Entry(place.load(Ordering::Acquire)).frame());
    free_frame(copy);
    frames::free_large(Frame(second.0 - 1));
}

/// User address of page `index`: small pages first, then large ones.
pub fn address(index: u64) -> u64 {
    if index < TABLES * PAGES {
        BASE + index / PAGES * LARGE_PAGE + index % PAGES * PAGE
    } else {
        BASE + (TABLES + index - TABLES * PAGES) * LARGE_PAGE
    }
}

impl Process {
    /// A new one, with one user. `None` when memory is exhausted.
    pub fn new(number: u64) -> Option<Process> {
        let root = paging::new_root()?;
        // Down to level 2, which stays until the process ends.
        paging::table_or_new(root, BASE, 2)?;
        Some(Process {
            space: engine().space(Root(root.address())),
            number,
            root,
            links: RwLock::new(()),
            pages: (0..TABLES * PAGES + LARGE)
                .map(|index| Page::new(number, index))
                .collect(),
            users: AtomicU64::new(1),
        })
    }

    /// A page.
    pub fn page(&self, index: u64) -> &Page {
        &self.pages[index as usize]
    }

    /// Adds a user, unless it has ended.
    pub fn use_too(&self) -> bool {
        self.users
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |users| {
                (users > 0).then_some(users + 1)
            })
            .is_ok()
    }

    /// Removes a user; returns whether it was the last, which ends the process.
    pub fn unuse(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The place of the link to the lowest-level table `table`, or of a large page.
    pub fn link(&self, address: u64) -> &'static AtomicU64 {
        let above = paging::table(self.root, address, 2).expect("made with the process");
        paging::place(above, address, 2)
    }

    fn table_stamp(&self, address: u64) -> u64 {
        (self.number << 32 | paging::index(address, 2) as u64) << 1
    }

    /// The table for a small page, created if missing. The links are locked for reading.
    pub fn table_or_new(&self, address: u64) -> Option<Frame> {
        let place = self.link(address);
        let link = Entry(place.load(Ordering::Acquire));
        if link.is_present() {
            return Some(link.frame());
        }
        let table = frames::allocate_zeroed()?;
        table.words()[STAMP_ENTRY].store(self.table_stamp(address), Ordering::Relaxed);
        match place.compare_exchange(0, Entry::table(table).0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(table),
            Err(other) => {
                frames::free(table);
                Some(Entry(other).frame())
            }
        }
    }

    /// Checks that `table`, to which a lockless walk has found a link for `address`, is still that table (C3).
    pub fn check_walked(&self, table: Frame, address: u64) {
        let found = table.words()[STAMP_ENTRY].load(Ordering::Acquire);
        if found != self.table_stamp(address) {
            oracle::violation(
                "C3 (tables)",
                format_args!(
                    "CPU {}: a lockless walk of process {} is in table page {:#x}, which is freed ({found:#x})",
                    cpu::cpu().id,
                    self.number,
                    table.0
                ),
            );
        }
    }

    /// Frees everything. The space is retired: no CPU may have it loaded.
    pub fn free(&self) {
        for cpu in cpu::all() {
            if cpu.loaded_root.load(Ordering::Acquire) == self.root.address() {
                oracle::violation(
                    "C3 (tables)",
                    format_args!(
                        "CPU {} has the root of process {} loaded, which is freed",
                        cpu.id, self.number
                    ),
                );
            }
        }
        let above = paging::table(self.root, BASE, 2).expect("made with the process");
        for link in above.words().iter().map(|place| Entry(place.load(Ordering::Acquire))) {
            if link.is_large() {
                oracle::poison(link.frame());
                frames::free_large(link.frame());
            } else if link.is_present() && Entry(link.frame().words()[STAMP_ENTRY].load(Ordering::Acquire)).is_present()
            {
                free_split_pages(link.frame());
                free_table(link.frame());
            } else if link.is_present() {
                let pages = link.frame().words()[..PAGES as usize].iter();
                pages
                    .map(|place| Entry(place.load(Ordering::Acquire)))
                    .filter(|entry| entry.is_present())
                    .for_each(|entry| free_frame(entry.frame()));
                free_table(link.frame());
            }
        }
        // Bottom-up: the path to a table leads through those above it.
        for level in 2..=format::levels() {
            free_table(paging::table(self.root, BASE, level).expect("made with the process"));
        }
    }
}

/// Address of a kernel page.
pub fn kernel_address(index: u64) -> u64 {
    DYNAMIC + index * PAGE
}
