//! A machine of loom threads: CPUs with a TLB each, one table, a few pages.

use crate::execution::{HERE, LEARNED, MAIL, REGIONS};
use crate::facade::{Loom, LoomWord, NOTHING, at_barrier, building, give_back, watch};
use crate::model::Model;
use loom::cell::UnsafeCell;
use shootdown::{
    Broadcast, BroadcastLimits, CpuId, CpuMask, Engine, Facade, Kernel, Local, PerCpu, Root, Space, Storage, Tag, Word,
    tag_words,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Pages that a model may use.
const PAGES: usize = 2;

/// Spaces; their roots are 1 and up.
const SPACES: u64 = 4;

fn region<T>(of: *const [T]) -> Range<usize> {
    let start = of.cast::<T>().expose_provenance();
    start..start + of.len() * size_of::<T>()
}

/// A broadcast for all tags.
const EVERY_TAG: u64 = u64::MAX;

/// A word of the hardware, which is not weakened.
type Sound = LoomWord<NOTHING>;

/// The addresses of a machine and of its world.
pub(crate) fn build<const WEAK: u8>(model: Model, first: CpuId) -> (usize, usize) {
    building();
    let machine: *mut Machine<WEAK> = Box::into_raw(Box::new(Machine::new(model)));
    // SAFETY: see `Model::check`, which frees it after the world.
    let world = World::<WEAK>::new(unsafe { &*machine }, model, first);
    (
        machine.expose_provenance(),
        Box::into_raw(Box::new(world)).expose_provenance(),
    )
}

/// The hardware state of a CPU. Only its thread accesses `tlb` and `masked`.
struct Hardware {
    tlb: RefCell<Tlb>,
    masked: Cell<bool>,
    raised: Sound,
    /// The tag of a pending broadcast, 0 for none. One CPU broadcasts at a time.
    mail: Sound,
    on: Sound,
}

#[derive(Default)]
struct Tlb {
    root: u64,
    tag: u16,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    page: usize,
    root: u64,
}

/// Memory whose every use loom watches.
#[derive(Default)]
struct Watched(OnceCell<UnsafeCell<()>>);

impl Watched {
    fn cell(&self) -> &UnsafeCell<()> {
        self.0.get_or_init(|| UnsafeCell::new(()))
    }
}

/// Everything that outlives the engine.
pub(crate) struct Machine<const WEAK: u8> {
    hardware: Vec<Hardware>,
    /// Used by the engine, and freed after it.
    cpus: *mut [PerCpu<Loom<WEAK>>],
    tags: *mut [<Loom<WEAK> as Facade>::U64],
    /// Whether each page of the space with root 1 is mapped.
    entries: Vec<Sound>,
    /// Frames behind the pages.
    frames: Vec<Watched>,
    /// Whether each has been freed, in the order of the execution. Not part of memory.
    freed: Vec<Cell<bool>>,
    /// Whether the table with the entries is linked.
    link: Sound,
    table: Watched,
    broadcast: bool,
}

// SAFETY: threads of a loom execution are coroutines of one thread of the host; `RefCell`s are borrowed between yields.
unsafe impl<const WEAK: u8> Sync for Machine<WEAK> {}
// SAFETY: as above.
unsafe impl<const WEAK: u8> Send for Machine<WEAK> {}

impl<const WEAK: u8> Drop for Machine<WEAK> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and the engine that used them is gone (see `explore.rs`).
        unsafe {
            drop(Box::from_raw(self.cpus));
            drop(Box::from_raw(self.tags));
        }
    }
}

std::thread_local! {
    /// The address of the machine of this execution.
    static MACHINE: Cell<usize> = const { Cell::new(0) };
}

impl<const WEAK: u8> Machine<WEAK> {
    fn new(model: Model) -> Self {
        Machine {
            hardware: (0..model.cpus)
                .map(|_| Hardware {
                    tlb: RefCell::default(),
                    masked: Cell::new(false),
                    raised: Word::new(0),
                    mail: Word::new(0),
                    on: Word::new(1),
                })
                .collect(),
            cpus: Box::into_raw((0..model.cpus).map(|_| PerCpu::new()).collect()),
            tags: Box::into_raw(
                (0..tag_words(model.design.machine.tag_limit))
                    .map(|_| Word::new(0))
                    .collect(),
            ),
            entries: (0..PAGES).map(|_| Word::new(1)).collect(),
            frames: (0..PAGES).map(|_| Watched::default()).collect(),
            freed: vec![Cell::new(false); PAGES],
            link: Word::new(1),
            table: Watched::default(),
            broadcast: model.broadcast,
        }
    }

    fn here(&self) -> &Hardware {
        &self.hardware[HERE.with(Cell::get)]
    }

    fn take_mail(&self, cpu: CpuId) {
        let hardware = &self.hardware[cpu];
        let tag = if self.broadcast { hardware.mail.load(Acquire) } else { 0 };
        if tag != 0 {
            let mut tlb = hardware.tlb.borrow_mut();
            tlb.entries
                .retain(|entry| u64::from(entry.tag) != tag && tag != EVERY_TAG);
            drop(tlb);
            hardware.mail.store(0, Release);
        }
    }
}

/// The machine as the engine's kernel.
pub struct Hooks<const WEAK: u8>(&'static Machine<WEAK>);

// SAFETY: a CPU is one thread of the model; masking keeps its interrupt out; caches are the model's.
unsafe impl<const WEAK: u8> Kernel<1> for Hooks<WEAK> {
    const PREEMPTIBLE: bool = false;
    type Facade = Loom<WEAK>;

    fn cpu(&self) -> CpuId {
        HERE.with(Cell::get)
    }
    fn interrupts_off(&self) -> u64 {
        u64::from(self.0.here().masked.replace(true))
    }
    fn interrupts_restore(&self, saved: u64) {
        self.0.here().masked.set(saved != 0);
    }
    fn send_ipi(&self, targets: &CpuMask<1>) {
        for cpu in targets.iter() {
            self.0.hardware[cpu].raised.store(1, Release);
        }
    }
    fn invalidate(&self, what: Local) {
        let mut tlb = self.0.here().tlb.borrow_mut();
        match what {
            Local::Page { address, tag, .. } => {
                let page = (address >> 12) as usize;
                tlb.entries.retain(|entry| entry.page != page || entry.tag != tag.0);
            }
            Local::Tag(tag) => tlb.entries.retain(|entry| entry.tag != tag.0),
            Local::Kernel { .. } | Local::All => tlb.entries.clear(),
        }
    }
    fn load_root(&self, root: Root, tag: Tag, keep: bool) {
        let mut tlb = self.0.here().tlb.borrow_mut();
        (tlb.root, tlb.tag) = (root.0, tag.0);
        if !keep {
            tlb.entries.retain(|entry| entry.tag != tag.0);
        }
        drop(tlb);
        // From now on the processor may fill speculatively.
        if root.0 == 1 && self.0.entries[0].load(Relaxed) != 0 {
            let (tag, page, root) = (tag.0, 0, root.0);
            self.0.here().tlb.borrow_mut().entries.push(Entry { tag, page, root });
        }
    }
    fn broadcast_limits(&self) -> Option<BroadcastLimits> {
        self.0.broadcast.then_some(BroadcastLimits {
            max_pages: 1,
            max_large_pages: 1,
        })
    }
    fn broadcast(&self, what: Broadcast) {
        let concerned = match what {
            Broadcast::Pages { tag, .. } | Broadcast::Tag(tag) => {
                self.invalidate(Local::Tag(tag));
                u64::from(tag.0)
            }
            Broadcast::Kernel { .. } | Broadcast::NonGlobal | Broadcast::All => {
                self.invalidate(Local::All);
                EVERY_TAG
            }
        };
        for (cpu, hardware) in self.0.hardware.iter().enumerate() {
            if cpu != self.cpu() {
                hardware.mail.store(concerned, Release);
            }
        }
    }
    fn broadcast_sync(&self) {
        for (cpu, hardware) in self.0.hardware.iter().enumerate() {
            if cpu != self.cpu() {
                Loom::<WEAK>::wait_until(|| hardware.mail.load(Acquire) == 0 || hardware.on.load(Acquire) == 0);
            }
        }
    }
}

/// The machine, engine and spaces of one execution.
pub struct World<const WEAK: u8> {
    machine: &'static Machine<WEAK>,
    /// The engine.
    pub engine: Engine<'static, Hooks<WEAK>, 1>,
    /// The pages belong to the first one.
    spaces: Vec<Space<Loom<WEAK>, 1>>,
    cpus: usize,
    /// The CPU whose code the first thread runs.
    first: CpuId,
}

/// Code of one CPU.
pub type Cpu<const WEAK: u8> = fn(&'static World<WEAK>);

impl<const WEAK: u8> World<WEAK> {
    fn new(machine: &'static Machine<WEAK>, model: Model, first: CpuId) -> Self {
        // SAFETY: the machine is new, has one world, and outlives it; there are no other references.
        let storage = unsafe {
            Storage {
                cpus: &mut *machine.cpus,
                tags: &mut *machine.tags,
            }
        };
        let engine = Engine::new(Hooks(machine), model.design, Root(0), storage);
        let spaces = (1..=SPACES).map(|root| engine.space(Root(root))).collect();
        World {
            machine,
            engine,
            spaces,
            cpus: model.cpus,
            first,
        }
    }

    /// Brings the CPUs online.
    pub(crate) fn begin(&self) {
        MACHINE.set(std::ptr::from_ref(self.machine).expose_provenance());
        MAIL.set(Some(|cpu| {
            // SAFETY: set by this execution's world, whose machine lives until all its threads were joined.
            let machine: &Machine<WEAK> = unsafe { &*std::ptr::with_exposed_provenance(MACHINE.get()) };
            machine.take_mail(cpu);
        }));
        let machine = self.machine;
        let regions = vec![
            region(std::slice::from_ref(self)),
            region(std::slice::from_ref(machine)),
            region(&raw const *self.spaces),
            region(machine.cpus),
            region(machine.tags),
            region(&raw const *machine.hardware),
            region(&raw const *machine.entries),
        ];
        REGIONS.set(Vec::new());
        watch(None);
        let known = LEARNED.lock().map(|words| words.clone()).unwrap_or_default();
        for (number, offset, spun) in known {
            if regions[number].len() > offset {
                let word: *const LoomWord<WEAK> = std::ptr::with_exposed_provenance(regions[number].start + offset);
                // SAFETY: a word was there in an earlier execution, whose machine had the same layout; all kinds of
                // words have one layout.
                let word = unsafe { &*word };
                word.word();
                if spun {
                    word.is_spun();
                }
            }
        }
        REGIONS.set(regions);
        // Here, so that their creation precedes every use.
        for watched in self.machine.frames.iter().chain([&self.machine.table]) {
            watched.cell();
        }
        (0..self.cpus).for_each(|cpu| self.on(cpu, |world| world.engine.cpu_online()));
    }

    /// Runs `code` as CPU `cpu`, before or after the concurrent part.
    pub fn on(&self, cpu: CpuId, code: impl FnOnce(&Self)) {
        HERE.with(|here| here.set(cpu));
        code(self);
    }

    /// Runs the CPUs concurrently, each with its code; then each goes offline. Joins all.
    pub fn run<const N: usize>(&'static self, code: [Cpu<WEAK>; N]) {
        assert_eq!(N, self.cpus);
        let run = move |cpu: CpuId, code: Cpu<WEAK>| {
            self.on(cpu, |world| {
                code(self);
                world.engine.cpu_offline();
                world.machine.hardware[cpu].on.store(0, Release);
            });
        };
        let others: Vec<_> = (0..N)
            .filter(|&cpu| cpu != self.first)
            .map(|cpu| {
                let code = code[cpu];
                loom::thread::spawn(move || run(cpu, code))
            })
            .collect();
        run(self.first, code[self.first]);
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }

    /// One of the spaces.
    pub fn space(&self, index: usize) -> &Space<Loom<WEAK>, 1> {
        &self.spaces[index]
    }

    /// Loads a space on this CPU.
    pub fn switch_to(&self, space: usize) {
        // SAFETY: the spaces live until all CPUs are offline.
        unsafe { self.engine.switch_to(self.space(space)) };
    }

    /// Watches the memory of a space that will end.
    pub fn watch(&self, space: usize) {
        watch(Some(region(std::slice::from_ref(self.space(space)))));
    }

    /// Ends a space that is watched and that no CPU runs any more, and drops it: a concurrent or later use fails.
    pub fn end(&self, space: usize) {
        let _end = self.engine.retire(self.space(space));
        give_back();
    }

    /// Delivers an NMI before this CPU's next full barrier. Its handler uses a page of a space if it may.
    pub fn nmi_at_barrier(&'static self, space: usize, page: usize) {
        at_barrier(move || {
            if self.engine.user_access_ok(self.space(space)) {
                self.access(page);
            }
        });
    }

    /// Takes a pending interrupt of this CPU, and broadcasts.
    pub fn poll(&self) {
        let hardware = self.machine.here();
        self.machine.take_mail(HERE.with(Cell::get));
        if hardware.raised.load(Acquire) != 0 && hardware.raised.swap_full(0) != 0 {
            hardware.masked.set(true);
            // SAFETY: masked, and this thread is the CPU.
            unsafe { self.engine.on_ipi() };
            hardware.masked.set(false);
        }
    }

    /// Reads a page, through the TLB or by a walk that fills it.
    ///
    /// # Panics
    /// If the entry found under the loaded tag belongs to another space (C4). If the page was freed and, in loom, if
    /// the use is not ordered with the freeing (C1).
    pub fn access(&self, page: usize) {
        self.machine.take_mail(HERE.with(Cell::get));
        let hardware = self.machine.here();
        let (root, tag, found) = {
            let tlb = hardware.tlb.borrow();
            let mut entries = tlb.entries.iter();
            let found = entries.find(|entry| entry.page == page && entry.tag == tlb.tag);
            (tlb.root, tlb.tag, found.copied())
        };
        if let Some(entry) = found {
            assert_eq!(entry.root, root, "C4: the entry under tag {tag} is another space's");
        } else if root == 0 || (root == 1 && self.machine.entries[page].load(Relaxed) == 0) {
            return; // a page fault
        } else {
            hardware.tlb.borrow_mut().entries.push(Entry { tag, page, root });
        }
        if root == 1 {
            self.machine.frames[page].cell().with(|_| ());
            assert!(
                !self.machine.freed[page].get(),
                "C1: page {page} is used that was freed"
            );
        }
    }

    /// Unmaps a page of space 0, flushes, and frees the frame.
    pub fn unmap(&self, page: usize) {
        self.free_after(page, |range| self.engine.flush(self.space(0), range));
    }

    /// The same, as if the page belonged to the kernel.
    pub fn unmap_kernel(&self, page: usize) {
        self.free_after(page, |range| self.engine.flush_kernel(range));
    }

    fn free_after(&self, page: usize, flush: impl FnOnce(shootdown::Range) -> shootdown::Flushed) {
        self.machine.entries[page].store(0, Relaxed);
        let _flushed = flush(shootdown::Range::page((page as u64) << 12));
        self.machine.frames[page].cell().with_mut(|_| ());
        self.machine.freed[page].set(true);
    }

    /// Walks space 0 without a lock.
    pub fn walk(&self) {
        let walk = self.engine.walk(self.space(0));
        if self.machine.link.load(Relaxed) != 0 {
            self.machine.table.cell().with(|_| ());
        }
        drop(walk);
    }

    /// Unlinks the table of space 0, flushes, and frees it.
    pub fn free_table(&self) {
        self.machine.link.store(0, Relaxed);
        let _free = self.engine.flush_tables(self.space(0), shootdown::Range::page(0));
        self.machine.table.cell().with_mut(|_| ());
    }
}
