//! The oracle: the values that every access to a tortured page may see.
//!
//! For each page there is a word in ordinary memory: the number of its mappings so far (the serial), a count of changes
//! (the version), and its state. Every mapped page begins with a stamp of process, page and serial. A CPU reads the
//! word, accesses the page, and reads the word again. Then:
//!
//! * a value that is read has the stamp of this page, of a mapping that was not withdrawn, flush complete, before the
//!   first reading, nor made after the second (C1, C2). Otherwise a frame was reused too early, or a translation used
//!   too late. A page that was inherited by a fork has its ancestor's stamp, and counts as the first mapping;
//! * if the word has not changed: a mapped page must be present, an absent one must not, and a write succeeds where it
//!   is allowed and nowhere else.
//!
//! A freed frame is filled with poison, and must still be when it is reused: no CPU wrote to it meanwhile (C2). The
//! same holds for a table page, whose last entry has a stamp that lockless walks check (C3).

use crate::arch::interrupts;
use crate::cpu::{self, add};
use crate::memory::Frame;
use crate::serial::{self, Status};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The content of a freed frame: no stamp, and not present as an entry.
pub const POISON: u64 = 0xDEAD_DEAD_DEAD_DEAC;
/// Words of a frame that are written: the stamp, and one for each CPU.
pub const WRITTEN: usize = 1 + cpu::MOST_CPUS;

/// Serial of an inherited mapping: the first.
const INHERITED: u32 = 1;

/// The state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not mapped, and flushed.
    Absent = 0,
    /// Mapped, may be written.
    Writable = 1,
    /// Mapped, must not be written, and flushed.
    ReadOnly = 2,
    /// A CPU changes it.
    Changing = 3,
    /// Cleared in a batch that is not flushed yet.
    Pending = 4,
}

/// The word of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// Mappings so far, the present one included.
    pub fn serial(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The state.
    pub fn state(self) -> State {
        match self.0 & 7 {
            0 => State::Absent,
            1 => State::Writable,
            2 => State::ReadOnly,
            3 => State::Changing,
            _ => State::Pending,
        }
    }

    /// The next word, in another state.
    fn to(self, state: State) -> Word {
        let version = (self.0 >> 3).wrapping_add(1) & 0x1FFF_FFFF;
        Word(self.0 & !0xFFFF_FFFF | version << 3 | state as u64)
    }

    fn next_serial(self) -> Word {
        Word(self.0 + (1 << 32))
    }

    /// The oldest mapping that may still be seen.
    fn oldest(self) -> u32 {
        self.serial() + u32::from(self.state() == State::Absent)
    }
}

/// One page of a process, or of the kernel.
pub struct Page {
    word: AtomicU64,
    /// The common part of its stamps: process and page.
    name: u64,
    /// The stamp of the first mapping, if that was inherited; else 0.
    inherited: AtomicU64,
}

impl Page {
    /// Page `index` (below 256) of process `process` (below 57005), absent.
    pub fn new(process: u64, index: u64) -> Page {
        Page {
            word: AtomicU64::new(0),
            name: process << 48 | index << 32,
            inherited: AtomicU64::new(0),
        }
    }

    /// The word.
    pub fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// The stamp of the mapping with that serial.
    pub fn stamp(&self, serial: u32) -> u64 {
        self.name | u64::from(serial) & 0xFFFF_FFFF
    }

    /// The stamp of its present mapping.
    pub fn bears(&self) -> u64 {
        let (serial, inherited) = (self.word().serial(), self.inherited.load(Ordering::Relaxed));
        if serial == INHERITED && inherited != 0 {
            inherited
        } else {
            self.stamp(serial)
        }
    }

    /// The page, absent so far and of a process that no other CPU knows yet, maps the frame with that stamp, read-only.
    pub fn inherit(&self, stamp: u64) {
        self.inherited.store(stamp, Ordering::Relaxed);
        let word = Word(u64::from(INHERITED) << 32).to(State::ReadOnly);
        self.word.store(word.0, Ordering::Release);
    }

    /// The mapping of a claimed page is withdrawn, flush complete; the next one is about to be made.
    pub fn next_mapping(&self) {
        let word = self.word().to(State::Changing).next_serial();
        self.word.store(word.0, Ordering::Release);
    }

    /// Claims a page in one of these states for a change; `None` when it is in another, or another CPU was faster.
    pub fn claim(&self, from: &[State]) -> Option<Word> {
        let word = self.word();
        if !from.contains(&word.state()) {
            return None;
        }
        let mut claimed = word.to(State::Changing);
        if word.state() == State::Absent {
            claimed = claimed.next_serial();
        }
        self.exchange(word, claimed).then_some(word)
    }

    /// The change is over.
    pub fn settle(&self, state: State) {
        let _word = self.put(state);
    }

    /// Marks the page as cleared, in a batch; returns its word, for [`rely_on_absence`](Self::rely_on_absence).
    pub fn settle_pending(&self) -> Word {
        self.put(State::Pending)
    }

    fn put(&self, state: State) -> Word {
        let word = self.word().to(state);
        self.word.store(word.0, Ordering::Release);
        word
    }

    /// Ends a claim without a change: the page is as it was, though a serial is lost.
    pub fn give_up(&self, before: Word) {
        self.settle(before.state());
    }

    /// From pending to absent, by the first CPU that relies on it. `pending` is the word from a batch that has been
    /// flushed; meanwhile the page may be pending again, in another.
    pub fn rely_on_absence(&self, pending: Word) {
        let _other_was_faster = self.exchange(pending, pending.to(State::Absent));
    }

    fn exchange(&self, from: Word, to: Word) -> bool {
        self.word
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Checks a read. `again` retries: a fault may come from a time when less was allowed.
    pub fn check_read(&self, before: Word, value: Option<u64>, again: impl Fn() -> Option<u64>) {
        let after = self.word();
        count();
        let same = before == after;
        match value {
            Some(value) => {
                let is_inherited = value == self.inherited.load(Ordering::Relaxed);
                let serial = if is_inherited { INHERITED } else { value as u32 };
                if !is_inherited && value & !0xFFFF_FFFF != self.name {
                    violation(
                        "C2 (frames)",
                        format_args!("{self} read {value:#018x}: the frame has another owner"),
                    );
                }
                if serial < before.oldest() || serial > after.serial() {
                    violation(
                        "C1 (translations)",
                        format_args!("{self} read mapping {serial}, {before} before and {after} after"),
                    );
                }
                if same && before.state() == State::Absent {
                    violation(
                        "C1 (translations)",
                        format_args!("{self} read mapping {serial}, {before} all the time"),
                    );
                }
            }
            None if same && matches!(before.state(), State::Writable | State::ReadOnly) => {
                tolerate();
                let value = again();
                if value.is_none() && self.word() == before {
                    violation("mapping", format_args!("{self} faulted, {before} all the time"));
                }
            }
            None => {}
        }
    }

    /// Checks a write that succeeded or not.
    pub fn check_write(&self, before: Word, succeeded: bool, again: impl Fn() -> bool) {
        let after = self.word();
        count();
        if before != after {
            return;
        }
        match before.state() {
            State::ReadOnly | State::Absent if succeeded => {
                violation(
                    "C1 (translations)",
                    format_args!("{self} was written, {before} all the time"),
                );
            }
            State::Writable if !succeeded => {
                tolerate();
                if !again() && self.word() == before {
                    violation(
                        "mapping",
                        format_args!("{self} could not be written, {before} all the time"),
                    );
                }
            }
            _ => {}
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at mapping {}", self.state(), self.serial())
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, index) = (self.name >> 48, self.name >> 32 & 0xFFFF);
        if process == 0 {
            write!(f, "CPU {}: kernel page {index}", cpu::cpu().id)
        } else {
            write!(f, "CPU {}: page {index} of process {process}", cpu::cpu().id)
        }
    }
}

fn count() {
    add(&cpu::cpu().counts.checked, 1);
}

/// Counts an access that failed although the tables allow it: the processor has cached an entry that allows less.
fn tolerate() {
    add(&cpu::cpu().counts.tolerated, 1);
}

/// Takes a frame into use: it must be as it was freed. `fresh` frames were never used.
pub fn take(frame: Frame, stamp: u64, fresh: bool) {
    let words = &frame.words()[..WRITTEN];
    if !fresh
        && let Some(found) = words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .find(|&word| word != POISON)
    {
        violation(
            "C2 (frames)",
            format_args!(
                "CPU {}: frame {:#x} was written with {found:#018x} after it was freed",
                cpu::cpu().id,
                frame.0
            ),
        );
    }
    words.iter().for_each(|word| word.store(stamp, Ordering::Relaxed));
}

/// The frame has no user any longer.
pub fn poison(frame: Frame) {
    let words = &frame.words()[..WRITTEN];
    words.iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
}

/// Steps that all CPUs have begun.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Counts a step.
pub fn begin_step() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Prints the violation with the number of steps, and ends.
pub fn violation(what: &str, diagnosis: fmt::Arguments<'_>) -> ! {
    interrupts::disable();
    let steps = STEPS.load(Ordering::Relaxed);
    serial::print_last(format_args!("violation: {what}: {diagnosis} (after {steps} steps)"));
    serial::exit(Status::Violation)
}
