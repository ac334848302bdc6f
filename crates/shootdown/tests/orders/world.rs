//! A simulation that checks the purpose of each named barrier. It runs on one host thread on which CPUs take turns, so
//! it checks the order of the engine's operations for every processor that the facade describes, on any host.

mod kernel;

use crate::caches;
use crate::clocks::{self, Clock};
use crate::interleaving::{end_walks, gives_up, interleaves, walks};
use crate::memory::Memory;
use crate::tracked_words::TrackedWord;
use crate::work::{Did, Work};
use shootdown::{
    Broadcast, BroadcastLimits, CpuMask, Design, Engine, Event, Facade, Kernel, Local, PerCpu, Range, Root, Secondary,
    Space, Storage, Tag, Word, tag_words,
};
use std::cell::{Cell, RefCell};

pub use kernel::{Broadcasts, TrackingKernel};

/// Frees a kept value.
type Free = Box<dyn FnOnce()>;

std::thread_local! {
    static KEPT: RefCell<Vec<Free>> = const { RefCell::new(Vec::new()) };
    /// The CPU that is running.
    static HERE: Cell<usize> = const { Cell::new(0) };
    /// For each CPU, what has not been ordered yet.
    static UNORDERED: RefCell<[Unordered; CPUS]> = const { RefCell::new([Unordered::NOTHING; CPUS]) };
    /// Interrupts sent and not taken yet.
    static PENDING: Cell<u64> = const { Cell::new(0) };
    /// The clock of the last CPU that interrupted each CPU, or had the hypervisor flush it.
    static ASKED: RefCell<[Clock; CPUS]> = RefCell::default();
    /// The interrupt handler.
    static HANDLER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    /// What each CPU may hold under each tag.
    static CACHED: RefCell<[[Cached; TAGS]; CPUS]> = const { RefCell::new([[Cached::Nothing; TAGS]; CPUS]) };
    static MASKED: RefCell<[bool; CPUS]> = const { RefCell::new([false; CPUS]) };
    /// CPUs in the middle of an action.
    static BUSY: Cell<u64> = const { Cell::new(0) };
    /// Virtual CPUs that are descheduled, and those of them that flush everything before they run.
    static DESCHEDULED: Cell<u64> = const { Cell::new(0) };
    static FLUSH_AT_ENTRY: Cell<u64> = const { Cell::new(0) };
}

pub const CPUS: usize = 3;

/// Runs `what` on CPU `cpu`, which runs again if it was descheduled. No interrupt follows.
pub fn on_without_interrupts<T>(cpu: usize, what: impl FnOnce() -> T) -> T {
    let bit = 1 << cpu;
    let (before, busy) = (HERE.replace(cpu), BUSY.replace(BUSY.get() | bit));
    DESCHEDULED.set(DESCHEDULED.get() & !bit);
    if FLUSH_AT_ENTRY.get() & bit != 0 {
        FLUSH_AT_ENTRY.set(FLUSH_AT_ENTRY.get() & !bit);
        all_tags().for_each(|tag| cached(cpu, tag, |it| *it = Cached::Nothing));
        caches::with(|caches| caches.flush_at_entry());
        clocks::is_interrupted(&ASKED.with_borrow(|asked| asked[cpu]));
    }
    if busy & bit == 0 {
        caches::with(caches::Caches::goes_on);
    }
    let result = what();
    BUSY.set(busy);
    HERE.set(before);
    result
}

/// Whether that CPU is in the middle of an action, or waits.
pub fn is_busy(cpu: usize) -> bool {
    BUSY.get() >> cpu & 1 != 0
}

/// Deschedules a CPU other than this one for a while.
pub fn deschedule(cpu: usize) {
    DESCHEDULED.set(DESCHEDULED.get() | 1 << cpu);
}

/// Whether that CPU flushes everything before it does anything else.
pub fn flushes_at_entry(cpu: usize) -> bool {
    FLUSH_AT_ENTRY.get() >> cpu & 1 != 0
}

pub fn is_masked(cpu: usize) -> bool {
    MASKED.with_borrow(|masked| masked[cpu])
}

/// The CPU that is running.
pub fn here() -> usize {
    HERE.get()
}

/// Tags below this are checked.
pub const TAGS: usize = 8;

/// What a CPU may hold under a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cached {
    Nothing,
    /// Entries of the space with this root.
    Of(Root),
    /// No entry of the space with this root any more, since that CPU's broadcast at that time.
    NothingSince(Root, usize, u64),
}

fn cached(cpu: usize, tag: Tag, change: impl FnOnce(&mut Cached)) {
    CACHED.with_borrow_mut(|all| all[cpu].get_mut(usize::from(tag.0)).map(change));
}

fn all_tags() -> impl Iterator<Item = Tag> {
    (0..TAGS as u16).map(Tag)
}

/// What a CPU has written that no barrier has ordered since.
#[derive(Clone, Copy)]
struct Unordered {
    /// Words, before a root load.
    root_load: bool,
    /// Words, before an interrupt.
    ipi: bool,
    /// Page-table entries, before an invalidation, here or elsewhere.
    tables: bool,
    /// The same, without the full barrier that must follow `publish_tables_before_full`.
    tables_full: bool,
}

impl Unordered {
    const NOTHING: Unordered = Unordered {
        root_load: false,
        ipi: false,
        tables: false,
        tables_full: false,
    };
}

fn unordered<T>(look: impl FnOnce(&mut Unordered) -> T) -> T {
    UNORDERED.with_borrow_mut(|unordered| look(&mut unordered[HERE.get()]))
}

pub fn wrote() {
    unordered(|unordered| (unordered.root_load, unordered.ipi) = (true, true));
}

pub fn full() {
    unordered(|unordered| unordered.tables_full = false);
}

fn tables_are_published(before: &str) {
    assert!(
        !unordered(|unordered| unordered.tables || unordered.tables_full),
        "table writes were not published before {before}"
    );
}

/// That CPU will see everything known here.
fn asks(cpu: usize) {
    ASKED.with_borrow_mut(|asked| clocks::join(&mut asked[cpu], &clocks::now()));
}

pub struct Strict;

// SAFETY: one thread, which selects the CPU; the caches of the test are the subject of its checks.
unsafe impl Facade for Strict {
    type U64 = TrackedWord;

    fn full_barrier() {
        full();
        clocks::fence();
    }
    fn publish_tables() {
        unordered(|unordered| (unordered.tables, unordered.tables_full) = (false, false));
    }
    fn publish_tables_before_full() {
        unordered(|unordered| {
            (unordered.tables, unordered.tables_full) = (false, unordered.tables || unordered.tables_full)
        });
    }
    fn after_ipi() {}
    fn before_ipi() {
        unordered(|unordered| unordered.ipi = false);
    }
    fn before_root_load() {
        unordered(|unordered| unordered.root_load = false);
    }
    fn wait_until(mut condition: impl FnMut() -> bool) {
        for round in 0..100 {
            if std::thread::panicking() || condition() {
                return;
            }
            if round > 5 && interleaves() {
                // The CPU that would send the interrupt for both has itself been interrupted by this one. Its interrupt
                // comes later and is spurious.
                PENDING.set((1 << CPUS) - 1);
            }
            deliver();
            if round > 10 {
                end_walks();
            }
        }
        gives_up();
        panic!("waits for ever");
    }
}

/// Every other CPU that was interrupted, and can be, takes its interrupt.
pub fn deliver() {
    for cpu in 0..CPUS {
        if PENDING.get() >> cpu & 1 == 0 || is_masked(cpu) || walks(cpu) {
            continue;
        }
        PENDING.set(PENDING.get() & !(1 << cpu));
        on_without_interrupts(cpu, || {
            MASKED.with_borrow_mut(|masked| masked[cpu] = true);
            clocks::is_interrupted(&ASKED.with_borrow(|asked| asked[cpu]));
            // Writes of this CPU that are not published yet are not what its handler invalidates.
            let unpublished = unordered(|unordered| {
                let handlers = Unordered {
                    tables: false,
                    tables_full: false,
                    ..*unordered
                };
                std::mem::replace(unordered, handlers)
            });
            HANDLER.with_borrow(|handler| handler.as_ref().expect("set with the engine")());
            unordered(|unordered| {
                (unordered.tables, unordered.tables_full) = (unpublished.tables, unpublished.tables_full)
            });
            MASKED.with_borrow_mut(|masked| masked[cpu] = false);
        });
    }
}

pub type Strictly = Engine<'static, &'static TrackingKernel, 1>;

/// Keeps `value` until the next [`engine`] of this thread, or forever.
pub fn kept<T: 'static>(value: T) -> &'static mut T {
    let raw = Box::into_raw(Box::new(value));
    // SAFETY: made above, and freed once.
    KEPT.with_borrow_mut(|kept| kept.push(Box::new(move || drop(unsafe { Box::from_raw(raw) }))));
    // SAFETY: the code that frees kept values promises not to use them again; there is no other reference.
    unsafe { &mut *raw }
}

/// An engine with every CPU online. [Kept](kept): it lives until the next. Each thread has one simulated machine, which
/// starts anew with each engine: values of the previous one may not be used any more, and are freed, the last first.
pub fn engine(design: impl Into<Design>, broadcasts: impl Into<Broadcasts>) -> &'static Strictly {
    let design = design.into();
    HANDLER.take();
    KEPT.take().into_iter().rev().for_each(|free| free());
    clocks::reset();
    caches::reset(&design);
    UNORDERED.set([Unordered::NOTHING; CPUS]);
    MASKED.set([false; CPUS]);
    PENDING.set(0);
    BUSY.set(0);
    DESCHEDULED.set(0);
    FLUSH_AT_ENTRY.set(0);
    CACHED.set([[Cached::Nothing; TAGS]; CPUS]);
    HERE.set(0);
    ASKED.set(Default::default());
    let cpus: Vec<PerCpu<Strict>> = (0..CPUS).map(|_| PerCpu::new()).collect();
    let tags: Vec<TrackedWord> = (0..tag_words(design.machine.tag_limit))
        .map(|_| TrackedWord::new(0))
        .collect();
    let storage = Storage {
        cpus: kept(cpus),
        tags: kept(tags),
    };
    let kernel: &'static TrackingKernel = kept(TrackingKernel::new(broadcasts.into()));
    let engine: &'static Strictly = kept(Engine::new(kernel, design, Root(0), storage));
    // SAFETY: one thread; the world masks interrupts before it calls a handler.
    HANDLER.set(Some(Box::new(|| unsafe { engine.on_ipi() })));
    for cpu in 0..CPUS {
        on(cpu, || engine.cpu_online());
    }
    engine
}

/// Runs `what` on CPU `cpu`; then interrupts arrive.
pub fn on<T>(cpu: usize, what: impl FnOnce() -> T) -> T {
    on_without_interrupts(cpu, || {
        let result = what();
        deliver();
        result
    })
}

/// This CPU writes entries that only a device may still read, until it is notified.
pub fn takes_tables_apart() {
    unordered(|unordered| unordered.tables_full = true);
}

/// This CPU writes page-table entries.
pub fn write_tables() {
    unordered(|unordered| (unordered.tables, unordered.tables_full) = (true, true));
}

/// Withdraws a page and flushes it.
pub fn unmap(engine: &Strictly, space: &Space<Strict, 1>, range: Range) {
    write_tables();
    let _done = engine.flush(space, range);
    engine.kernel().is_settled();
}
