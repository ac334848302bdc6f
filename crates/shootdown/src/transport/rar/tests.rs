use super::*;
use crate::testing::interleave::{self, InterleavedWord};
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::rc::Rc;
use std::vec::Vec;

std::thread_local! {
    /// Runs after each poll of a waiter.
    static BUSY: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    /// Named barriers since the last signal.
    static BARRIERS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Words with actions between their operations, and recorded barriers.
struct Noted;

// SAFETY: one thread.
unsafe impl Facade for Noted {
    type U64 = InterleavedWord;
    fn full_barrier() {
        BARRIERS.with_borrow_mut(|noted| noted.push("full"));
    }
    fn publish_tables() {}
    fn after_ipi() {}
    fn before_ipi() {
        BARRIERS.with_borrow_mut(|noted| noted.push("before the interrupt"));
    }
    fn before_root_load() {}
    fn wait_until(mut condition: impl FnMut() -> bool) {
        let polls = (0..10_000).take_while(|_| {
            let over = condition();
            let busy = BUSY.take();
            BUSY.set(busy.map(|mut busy| {
                busy();
                busy
            }));
            !over
        });
        assert!(polls.count() < 10_000, "waits for ever");
    }
}

const EVERYTHING: [u64; 4] = [0xE, 0, 0, 0];

/// The hardware and the kernel's part: the signals sent, and the actions of the microcode.
struct Machine {
    /// The last unsuccessful poll of each wait: waiter, target, number.
    waits: RefCell<Vec<(CpuId, CpuId, u64)>>,
    rar: Rar<'static, Noted, 1>,
    signalled: RefCell<Vec<CpuId>>,
    off: Cell<u64>,
    /// Number of refusals among the next answers, by CPU.
    refuses: Cell<u64>,
    done: RefCell<Vec<(CpuId, [u64; 4])>>,
}

impl RarSignal<1> for Rc<Machine> {
    fn signal(&self, targets: &CpuMask<1>) {
        assert!(!targets.is_empty(), "no CPU is signalled");
        let barriers = BARRIERS.take();
        assert_eq!(barriers.last(), Some(&"before the interrupt"), "{barriers:?}");
        for target in targets.iter() {
            assert_ne!(
                self.rar.pending(target),
                0,
                "CPU {target} is signalled before it is marked"
            );
            self.signalled.borrow_mut().push(target);
        }
    }
    fn is_off(&self, cpu: CpuId) -> bool {
        self.off.get() >> cpu & 1 == 1
    }
    fn everything(&self) -> [u64; 4] {
        EVERYTHING
    }
    fn waits(&self, waiter: CpuId, target: CpuId, looks: u64) {
        let mut waits = self.waits.borrow_mut();
        if looks > 1 {
            assert_eq!(waits.pop(), Some((waiter, target, looks - 1)));
        }
        waits.push((waiter, target, looks));
    }
}

impl Machine {
    fn new(cpus: usize, entries: usize) -> Rc<Machine> {
        let table = Box::leak(Box::new(RarTable::new()));
        let cpus: Vec<RarCpu<Noted>> = (0..cpus).map(|_| RarCpu::new()).collect();
        Rc::new(Machine {
            waits: RefCell::default(),
            rar: Rar::new(table, Vec::leak(cpus), entries),
            signalled: RefCell::default(),
            off: Cell::new(0),
            refuses: Cell::new(0),
            done: RefCell::default(),
        })
    }

    /// Runs the microcode of one CPU that was signalled. Returns false if none was.
    fn microcode(&self) -> bool {
        let Some(cpu) = self.signalled.borrow_mut().pop() else {
            return false;
        };
        let pending = self.rar.pending(cpu);
        for entry in (0..64).filter(|entry| pending >> entry & 1 == 1) {
            let refused = self.refuses.get() >> cpu & 1 == 1;
            self.refuses.set(self.refuses.get() & !(1 << cpu));
            self.done.borrow_mut().push((cpu, self.rar.payload(entry)));
            let (word, change) = self.rar.answer(cpu, entry, refused);
            word.fetch_add_full(change);
        }
        true
    }

    /// From now on the microcode of one CPU runs before every `pace`th operation on memory.
    fn works(self: &Rc<Self>, pace: u32) {
        let machine = self.clone();
        let mut operations = 0;
        interleave::after_each(move || {
            operations += 1;
            if operations % pace == 0 {
                machine.microcode();
            }
            false
        });
    }

    fn user(&self, entry: usize) -> u64 {
        self.rar.table.users[entry].cpu.load(Ordering::Relaxed)
    }

    fn done(&self) -> Vec<(CpuId, [u64; 4])> {
        let mut done = self.done.take();
        done.sort_unstable();
        done
    }
}

fn mask(cpus: &[CpuId]) -> CpuMask<1> {
    let mut mask = CpuMask::EMPTY;
    cpus.iter().for_each(|&cpu| mask.insert(cpu));
    mask
}

#[test]
fn rar_wait_ends_once_every_target_has_acted() {
    for pace in [1, 2, 3, 7, 50] {
        let machine = Machine::new(64, 64);
        machine.rar.request(5, [1, 2, 3, 4], &mask(&[0, 6, 63]), &machine);
        assert_eq!(machine.done(), [], "no microcode has looked yet");
        machine.works(pace);
        machine.rar.wait(5, &machine);
        interleave::never();
        let payload = [1, 2, 3, 4];
        assert_eq!(machine.done(), [(0, payload), (6, payload), (63, payload)]);
        assert_eq!([0, 6, 63].map(|cpu| machine.rar.pending(cpu)), [0; 3]);
        assert_eq!(
            (machine.user(5), machine.rar.entry(5)),
            (0, None),
            "and the entry is free"
        );
        machine.rar.wait(5, &machine);
    }
}

#[test]
fn rar_mark_is_published_after_its_payload() {
    let machine = Machine::new(4, 64);
    let (looker, seen) = (machine.clone(), Rc::new(Cell::new(0)));
    let counted = seen.clone();
    interleave::after_each(move || {
        let pending = looker.rar.pending(0);
        if pending != 0 {
            assert_eq!((pending, looker.rar.payload(1)), (1 << 1, [9, 8, 7, 6]));
            counted.set(counted.get() + 1);
        }
        false
    });
    machine.rar.request(1, [9, 8, 7, 6], &mask(&[0, 3]), &machine);
    interleave::never();
    assert!(
        seen.get() > 0,
        "CPU 0 is marked before CPU 3, and the microcode looks in between"
    );
    assert_eq!(machine.rar.pending(3), 1 << 1);
    machine.works(1);
    machine.rar.wait(1, &machine);
    interleave::never();
}

#[test]
fn rar_marks_of_eight_requesters_in_one_word_are_kept() {
    let machine = Machine::new(10, 64);
    for me in 0..8 {
        machine.rar.request(me, [me as u64, 0, 0, 0], &mask(&[9]), &machine);
    }
    assert_eq!(machine.rar.pending(9), 0xFF);
    for me in 0..8 {
        assert_eq!(
            (machine.user(me), machine.rar.payload(me)[0]),
            (me as u64 + 1, me as u64)
        );
    }
    machine.works(1);
    (0..8).for_each(|me| machine.rar.wait(me, &machine));
    interleave::never();
    assert_eq!(machine.done().len(), 8);
}

#[test]
fn rar_entry_in_use_is_not_overwritten() {
    let machine = Machine::new(8, 2);
    machine.rar.request(0, [10, 0, 0, 0], &mask(&[7]), &machine);
    machine.rar.request(2, [12, 0, 0, 0], &mask(&[7]), &machine);
    assert_eq!((machine.user(0), machine.user(1)), (1, 3), "the second takes the next");
    // A third CPU finds both in use. After a while the second action is answered.
    let (other, mut operations) = (machine.clone(), 0);
    interleave::after_each(move || {
        operations += 1;
        let words = [0, 1].map(|entry| other.rar.payload(entry)[0]);
        if operations <= 20 {
            assert_eq!(words, [10, 12]);
        }
        if operations == 20 {
            while other.microcode() {}
            other.rar.wait(2, &other);
        }
        operations > 20
    });
    machine.rar.request(4, [14, 0, 0, 0], &mask(&[7]), &machine);
    assert!(interleave::never(), "it had to wait");
    assert_eq!((machine.user(0), machine.user(1)), (1, 5));
    assert_eq!(machine.rar.payload(1)[0], 14);
}

#[test]
fn rar_wait_reports_target_and_polls() {
    let machine = Machine::new(12, 1);
    machine.rar.request(3, [3, 0, 0, 0], &mask(&[5]), &machine);
    // Neither CPU 5 nor, for CPU 4, the only entry.
    let (slow, mut polls) = (machine.clone(), 0);
    BUSY.set(Some(Box::new(move || {
        polls += 1;
        if polls == 20 {
            slow.microcode();
        }
    })));
    let other = machine.clone();
    interleave::after(0, move || other.rar.wait(3, &other));
    machine.rar.request(4, [4, 0, 0, 0], &mask(&[5]), &machine);
    interleave::never();
    assert_eq!(machine.waits.take(), [(3, 5, 20)]);
    // CPU 4 now has it, and CPU 6 waits for it.
    let (ends, mut polls) = (machine.clone(), 0);
    BUSY.set(Some(Box::new(move || {
        polls += 1;
        if polls == 10 {
            ends.microcode();
            ends.rar.wait(4, &ends);
        }
    })));
    machine.rar.request(6, [6, 0, 0, 0], &mask(&[5]), &machine);
    BUSY.set(None);
    assert_eq!(machine.waits.take(), [(6, 4, 10)]);
}

#[test]
fn rar_requester_has_one_action_outstanding() {
    let machine = Machine::new(4, 64);
    machine.rar.request(0, [1, 0, 0, 0], &mask(&[1]), &machine);
    machine.works(5);
    machine.rar.request(0, [2, 0, 0, 0], &mask(&[2]), &machine);
    interleave::never();
    assert_eq!(
        machine.done(),
        [(1, [1, 0, 0, 0])],
        "the first is over before the second begins"
    );
    assert_eq!((machine.user(0), machine.user(1)), (1, 0), "and it has one entry");
    machine.works(5);
    machine.rar.wait(0, &machine);
    interleave::never();
    assert_eq!(machine.done(), [(2, [2, 0, 0, 0])]);
}

#[test]
fn rar_wait_skips_offline_targets_and_clears_their_marks() {
    let machine = Machine::new(4, 64);
    machine.rar.request(0, [1, 0, 0, 0], &mask(&[1, 2]), &machine);
    machine.signalled.borrow_mut().retain(|&cpu| cpu != 1);
    machine.works(1);
    let goes = machine.clone();
    machine.off.set(1 << 1);
    machine.rar.wait(0, &goes);
    interleave::never();
    assert_eq!(machine.done(), [(2, [1, 0, 0, 0])]);
    assert_eq!((machine.user(0), machine.rar.pending(1)), (0, 1), "the mark is left");
    machine.off.set(0);
    BARRIERS.take();
    interleave::after(0, || {
        assert_eq!(BARRIERS.take(), ["full"], "not off, before the marks go")
    });
    machine.rar.reset(1);
    assert!(interleave::never());
    assert_eq!(
        BARRIERS.take(),
        ["full"],
        "the marks are gone before any microcode looks"
    );
    assert_eq!(machine.rar.pending(1), 0);
    assert!(
        (0..8).all(|word| machine.rar.cpus[1].actions[word].writes() > 0),
        "all of them"
    );
    machine.rar.request(0, [2, 0, 0, 0], &mask(&[1]), &machine);
    assert_eq!(machine.rar.pending(1), 1, "and it is waited for again");
}

#[test]
fn refused_rar_action_is_repeated_as_a_full_flush() {
    for pace in [1, 7, 50] {
        let machine = Machine::new(12, 64);
        machine.rar.request(9, [1, 0, 0, 0], &mask(&[1, 2, 3]), &machine);
        machine.refuses.set(1 << 2);
        machine.works(pace);
        machine.rar.wait(9, &machine);
        interleave::never();
        let one = [1, 0, 0, 0];
        assert_eq!(machine.done(), [(1, one), (2, one), (2, EVERYTHING), (3, one)]);
        assert_eq!(machine.rar.cpus[2].action(9), 0);
        assert_eq!(machine.user(9), 0);
    }
}

/// More than 64 CPUs, which are all off.
struct Large;

impl RarSignal<2> for Large {
    fn signal(&self, _targets: &CpuMask<2>) {}
    fn is_off(&self, _cpu: CpuId) -> bool {
        true
    }
    fn everything(&self) -> [u64; 4] {
        EVERYTHING
    }
    fn waits(&self, _waiter: CpuId, _target: CpuId, _looks: u64) {}
}

#[test]
fn rar_wait_covers_targets_beyond_64() {
    let cpus: Vec<RarCpu<Noted>> = (0..100).map(|_| RarCpu::new()).collect();
    let rar: Rar<'_, Noted, 2> = Rar::new(Box::leak(Box::new(RarTable::new())), Vec::leak(cpus), 64);
    let mut targets = CpuMask::EMPTY;
    [1, 64, 99].into_iter().for_each(|cpu| targets.insert(cpu));
    rar.request(0, [1, 0, 0, 0], &targets, &Large);
    let asked = rar.table.users[0].targets.each_ref();
    assert_eq!(asked.map(|word| word.load(Ordering::Relaxed)), targets.words());
    rar.wait(0, &Large);
}

#[test]
fn rar_refusal_keeps_other_marks() {
    let machine = Machine::new(12, 64);
    for me in [8, 9, 10] {
        machine.rar.request(me, [me as u64, 0, 0, 0], &mask(&[2]), &machine);
    }
    let (word, change) = machine.rar.answer(2, 9, true);
    word.fetch_add_full(change);
    assert_eq!(
        [8, 9, 10].map(|entry| machine.rar.cpus[2].action(entry)),
        [PENDING, FAILED, PENDING]
    );
    assert_eq!(machine.rar.pending(2), 1 << 8 | 1 << 10);
    machine.works(3);
    machine.rar.wait(9, &machine);
    interleave::never();
    assert!(machine.done().contains(&(2, EVERYTHING)));
}

/// CPU 9 runs any action at any point of CPU 8's action: no mark on CPU 2 is lost, and each CPU has its own entry.
fn both_are_asked(entries: usize, begins: fn(&Rc<Machine>), eight: fn(&Rc<Machine>)) {
    let mut met = 0;
    for moment in 0..30 {
        let machine = Machine::new(12, entries);
        begins(&machine);
        let other = machine.clone();
        interleave::after(moment, move || other.rar.request(9, [9, 0, 0, 0], &mask(&[2]), &other));
        eight(&machine);
        interleave::never();
        let asked = |me: CpuId| {
            let entry = machine.rar.entry(me)?;
            let marked = machine.rar.pending(2) >> entry & 1 == 1;
            Some((entry, machine.rar.payload(entry)[0], marked))
        };
        let (eights, nines) = (asked(8), asked(9));
        if let Some((entry, payload, marked)) = nines {
            met += 1;
            assert_eq!((payload, marked), (9, true), "at operation {moment}");
            assert_ne!(eights.map(|(entry, ..)| entry), Some(entry), "at operation {moment}");
        }
        if let Some((_, payload, marked)) = eights {
            assert_eq!((payload, marked), (8, true), "at operation {moment}");
        }
    }
    assert!(met > 3, "CPU 9 came in between {met} times");
}

#[test]
fn simultaneous_rar_requesters_use_distinct_entries() {
    let asks = |machine: &Rc<Machine>| machine.rar.request(8, [8, 0, 0, 0], &mask(&[2]), machine);
    both_are_asked(64, |_| {}, asks);
    for moment in 0..12 {
        let machine = Machine::new(12, 4);
        let other = machine.clone();
        // CPU 4 begins at the same point as CPU 8.
        interleave::after(moment, move || other.rar.request(4, [4, 0, 0, 0], &mask(&[2]), &other));
        asks(&machine);
        interleave::never();
        let (eight, four) = (machine.rar.entry(8), machine.rar.entry(4));
        assert!(
            eight != four && eight.is_some(),
            "at operation {moment}: {eight:?}, {four:?}"
        );
        assert_eq!(machine.rar.payload(eight.unwrap_or(0))[0], 8, "at operation {moment}");
    }
}

#[test]
fn rar_refusal_is_cleared_during_another_post() {
    let refused = |machine: &Rc<Machine>| {
        machine.rar.request(8, [8, 0, 0, 0], &mask(&[2]), machine);
        let (word, change) = machine.rar.answer(2, 8, true);
        word.fetch_add_full(change);
    };
    let waits = |machine: &Rc<Machine>| {
        // It posts again; this request is answered at once.
        let answers = machine.clone();
        let mut polls = 0;
        BUSY.set(Some(Box::new(move || {
            polls += 1;
            if polls > 2 && answers.rar.cpus[2].action(8) == PENDING {
                let (word, change) = answers.rar.answer(2, 8, false);
                word.fetch_add_full(change);
            }
        })));
        machine.rar.wait(8, machine);
        BUSY.set(None);
    };
    both_are_asked(64, refused, waits);
}

#[test]
fn rar_memory_layout_matches_the_hardware() {
    let table = Box::leak(Box::new(RarTable::<crate::Native, 1>::new()));
    let cpus: Vec<RarCpu<crate::Native>> = (0..2).map(|_| RarCpu::new()).collect();
    let rar = Rar::new(table, Vec::leak(cpus), 64);
    let base = rar.payload_base() as usize;
    assert_eq!(base % 4096, 0);
    assert_eq!(core::ptr::from_ref(&table.payloads[3]) as usize - base, 3 * 64);
    assert_eq!(
        core::ptr::from_ref(&table.users) as usize - base,
        4096,
        "nothing else is in the page"
    );
    let vector = rar.action_vector(1) as usize;
    assert_eq!(
        (
            vector % 64,
            core::ptr::from_ref(&rar.cpus[1].actions[1]) as usize - vector
        ),
        (0, 8)
    );
    assert!(
        core::ptr::from_ref(&rar.cpus[1].entry) as usize - vector >= 64,
        "nor in the line"
    );
}

#[test]
#[should_panic(expected = "1 to 64 entries")]
fn rar_table_without_entries_is_refused() {
    let _ = Machine::new(1, 0);
}

#[test]
#[should_panic(expected = "1 to 64 entries")]
fn rar_table_larger_than_the_vector_is_refused() {
    let _ = Machine::new(1, 65);
}
