//! Small programs on the machine itself, without an engine: everything that its memory, walkers and invalidations
//! allow.
//!
//! A [`Program`] is a list of operations for each CPU. [`outcomes`] explores every order of them, of late stores, old
//! values and interrupts, and returns every possible outcome. `tests/litmus.rs` compares them with the architecture.

use crate::architecture::Architecture;
use crate::machine::{Kept, Machine, PAGES, Step, TableWords};
use crate::sharing::Touch;
use crate::tlb::{Covers, What};
use crate::word::{Address, mix};
use std::collections::{BTreeSet, HashSet};

/// Number of data words, all 0 at first. One more word is the entry of the page, as software reads and writes it.
pub const WORDS: usize = 3;

/// The word that is the entry of the page. 1 at first; 0 for no translation.
pub const ENTRY: usize = WORDS;

/// The tag that every CPU has loaded, with the root that maps the page.
pub const TAG: u16 = 1;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    /// Loads a word into the next register of this CPU.
    Load(usize),
    /// The same, with acquire.
    Acquire(usize),
    /// Loads the word with acquire; a run counts only if it has this value.
    Sees(usize, u64),
    /// Stores.
    Store(usize, u64),
    /// Stores with release.
    Release(usize, u64),
    /// Exchanges, a full barrier; the old value goes to the next register.
    Swap(usize, u64),
    /// A full barrier.
    Full,
    /// [`Facade::publish_tables`](shootdown::Facade::publish_tables).
    Publish,
    /// [`Facade::before_ipi`](shootdown::Facade::before_ipi).
    BeforeIpi,
    /// [`Facade::before_root_load`](shootdown::Facade::before_root_load).
    BeforeRootLoad,
    /// Interrupts a CPU.
    Send(usize),
    /// Invalidates everything under a tag on this CPU.
    Invalidate(u16),
    /// Waits for local invalidations.
    LocalSync,
    /// Invalidates everything under a tag everywhere.
    Broadcast(u16),
    /// Waits for the broadcasts of this CPU.
    BroadcastSync,
    /// Loads the root under a tag, keeping its entries.
    LoadRoot(u16),
    /// Loads a root that maps nothing.
    Leave,
    /// Whether this CPU can use the initial translation, into the next register.
    Uses,
}

/// The operations of each CPU and of its interrupt handler.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// By CPU.
    pub cpus: &'static [&'static [Do]],
    /// By CPU; CPUs beyond have none.
    pub handlers: &'static [&'static [Do]],
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// The registers of each CPU, in the order in which it filled them.
    pub registers: Vec<Vec<u64>>,
    /// The final values of the words.
    pub words: [u64; WORDS],
}

/// The position of one CPU.
#[derive(Debug, Clone, Default, Hash, PartialEq, Eq)]
struct Place {
    next: usize,
    /// In its handler.
    handling: Option<usize>,
    registers: Vec<u64>,
}

struct Litmus {
    program: Program,
    machine: Machine,
    words: Vec<Address>,
    seen: HashSet<u64>,
    found: BTreeSet<Outcome>,
}

/// Every possible outcome of `program`.
///
/// # Panics
/// If it has more CPUs than a machine, or names CPUs or words that do not exist.
pub fn outcomes(program: Program, architecture: Architecture) -> BTreeSet<Outcome> {
    let mut litmus = Litmus::new(program, architecture);
    litmus.go_on(&vec![Place::default(); program.cpus.len()]);
    litmus.found
}

impl Litmus {
    fn new(program: Program, architecture: Architecture) -> Self {
        let cpus = program.cpus.len();
        let mut machine = Machine::new(cpus, architecture);
        let mut word = |value| machine.memory.allocate(None, value);
        let kernel = word(0);
        let link = word(1);
        let entries: [Address; PAGES] = std::array::from_fn(|page| word(u64::from(page == 0)));
        let mut words: Vec<Address> = (0..WORDS).map(|_| word(0)).collect();
        words.push(entries[0]);
        machine.words = TableWords {
            links: vec![link],
            entries: vec![entries],
            kernel,
        };
        for cpu in 0..cpus {
            machine.current = cpu;
            machine.load_root(1, TAG, true);
            for &address in &words {
                machine.memory.depends(address, cpu, Touch::Write);
                machine.memory.sharing.reaches(address, cpu, None);
            }
        }
        machine.begin();
        Litmus {
            program,
            machine,
            words,
            seen: HashSet::new(),
            found: BTreeSet::new(),
        }
    }

    /// Explores every continuation from here.
    fn go_on(&mut self, places: &[Place]) {
        let key = places.iter().fold(self.machine.hash(), |hash, place| {
            let at = place.next as u64 | place.handling.map_or(0, |at| at as u64 + 1) << 32;
            place
                .registers
                .iter()
                .fold(mix(hash, at), |hash, &value| mix(hash, value))
        });
        if !self.seen.insert(key) {
            return;
        }
        let steps = self.steps(places);
        if steps.is_empty() {
            let outcome = self.outcome(places);
            self.found.insert(outcome);
        }
        let mut here = Kept::default();
        self.machine.keep(&mut here);
        for step in steps {
            self.machine.go_back(&here, false);
            let mut places = places.to_vec();
            if self.take(step, &mut places) {
                self.go_on(&places);
            }
        }
    }

    /// The next operation of the CPU, if any.
    fn next(&self, cpu: usize, place: &Place) -> Option<Do> {
        match place.handling {
            Some(at) => self.program.handlers[cpu].get(at).copied(),
            None => self.program.cpus[cpu].get(place.next).copied(),
        }
    }

    fn steps(&self, places: &[Place]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (cpu, place) in places.iter().enumerate() {
            let id = cpu as u8;
            let next = self.next(cpu, place);
            if next.is_some() || place.handling.is_some() {
                steps.push(Step::Run(id));
            }
            if let Some(Do::Load(word) | Do::Acquire(word) | Do::Sees(word, _)) = next {
                let older = self.machine.memory.older(cpu, self.words[word]) as u8;
                steps.extend((1..=older).map(|back| Step::Old(id, back)));
            }
            let state = &self.machine.cpus[cpu];
            if state.pending && !state.masked {
                steps.push(Step::Interrupt(id));
            }
            // Even if no CPU waits for it: in the end everything is visible.
            steps.extend((1..=self.machine.memory.buffered(cpu)).map(|place| Step::Drain(id, place as u8)));
        }
        steps
    }

    /// Returns false if the run does not count.
    fn take(&mut self, step: Step, places: &mut [Place]) -> bool {
        let cpu = step.cpu();
        self.machine.current = cpu;
        let place = &mut places[cpu];
        let mut counts = true;
        match step {
            Step::Drain(_, at) => drop(self.machine.drain(cpu, usize::from(at))),
            Step::Interrupt(_) => {
                self.machine.take_interrupt();
                place.handling = Some(0);
            }
            Step::Run(_) | Step::Old(..) => {
                if let Step::Old(_, back) = step {
                    self.machine.cpus[cpu].back = back;
                }
                match self.next(cpu, place) {
                    Some(what) => {
                        match &mut place.handling {
                            Some(at) => *at += 1,
                            None => place.next += 1,
                        }
                        counts = self.does(what, &mut place.registers);
                    }
                    None => {
                        place.handling = None;
                        self.machine.end_interrupt();
                    }
                }
            }
        }
        self.machine.forget();
        counts
    }

    fn does(&mut self, what: Do, registers: &mut Vec<u64>) -> bool {
        let machine = &mut self.machine;
        let words = &self.words;
        match what {
            Do::Load(word) => registers.push(machine.load(words[word], false)),
            Do::Acquire(word) => registers.push(machine.load(words[word], true)),
            Do::Sees(word, value) => return machine.load(words[word], true) == value,
            Do::Store(word, value) => machine.store(words[word], value, false),
            Do::Release(word, value) => machine.store(words[word], value, true),
            Do::Swap(word, value) => registers.push(machine.update(words[word], true, |_| Some(value))),
            Do::Full => machine.full_barrier(),
            Do::Publish => machine.publish_tables(),
            Do::BeforeIpi => machine.before_ipi(),
            Do::BeforeRootLoad => machine.before_root_load(),
            Do::Send(cpu) => machine.send(cpu),
            Do::Invalidate(tag) => machine.invalidate(Covers::Tag(tag)),
            Do::LocalSync => machine.local_sync(),
            Do::Broadcast(tag) => machine.broadcast(Covers::Tag(tag)),
            Do::BroadcastSync => machine.broadcast_sync(),
            Do::LoadRoot(tag) => machine.load_root(1, tag, true),
            Do::Leave => machine.load_root(0, 0, true),
            Do::Uses => {
                let mut usable = machine.cpu().tlb.usable();
                let uses = usable.any(|entry| entry.what == What::Page(0, 1));
                registers.push(u64::from(uses));
            }
        }
        true
    }

    fn outcome(&self, places: &[Place]) -> Outcome {
        Outcome {
            registers: places.iter().map(|place| place.registers.clone()).collect(),
            words: std::array::from_fn(|word| self.machine.memory.value(self.words[word])),
        }
    }
}
