//! The active mutation. This file is part of the instrumented copy of the engine only; no other build includes it.
//!
//! | variable | |
//! | --- | --- |
//! | `SHOOTDOWN_MUTANT` | the number of the active mutation; none without it |
//! | `SHOOTDOWN_REACHED` | a file, written at the end: sites that were passed, and mutations that would have mattered |
//! | `SHOOTDOWN_LIMIT` | sites after which the process is taken to hang, and ends with status 97 |

extern crate std;

use crate::facade::Word;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::string::String;

const UNREAD: u32 = u32::MAX;

/// No mutation: numbers begin with 1, and a kind that a site does not have is 0.
const NONE: u32 = u32::MAX - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static PASSED: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
static REACHED: [AtomicBool; COUNT + 1] = [const { AtomicBool::new(false) }; COUNT + 1];

/// Whether to keep [`REACHED`].
static RECORDS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
}

extern "C" fn report_reached() {
    let Some(file) = std::env::var_os("SHOOTDOWN_REACHED") else { return };
    let mut text = String::new();
    text.push_str(&std::format!("{}\n", PASSED.load(Ordering::Relaxed)));
    for (number, reached) in REACHED.iter().enumerate().skip(1) {
        if reached.load(Ordering::Relaxed) {
            text.push_str(&std::format!("{number}\n"));
        }
    }
    let _ = std::fs::write(file, text);
}

#[cold]
fn begin() -> u32 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let active = number("SHOOTDOWN_MUTANT").map_or(NONE, |number| number as u32);
    LIMIT.store(number("SHOOTDOWN_LIMIT").unwrap_or(u64::MAX), Ordering::Relaxed);
    let records = std::env::var_os("SHOOTDOWN_REACHED").is_some();
    RECORDS.store(records, Ordering::Relaxed);
    if ACTIVE.swap(active, Ordering::Relaxed) == UNREAD && records {
        // SAFETY: `tell` may run at the end of the process.
        unsafe { atexit(report_reached) };
    }
    active
}

#[inline]
fn active() -> u32 {
    match ACTIVE.load(Ordering::Relaxed) {
        UNREAD => begin(),
        number => number,
    }
}

#[inline]
fn pass() -> u32 {
    let active = active();
    // Two threads may count as one: it is a bound on an endless run, and sites are many.
    let passed = PASSED.load(Ordering::Relaxed) + 1;
    PASSED.store(passed, Ordering::Relaxed);
    if passed > LIMIT.load(Ordering::Relaxed) {
        std::eprintln!("mutation: more sites passed than a run without end is allowed");
        std::process::exit(97);
    }
    active
}

#[inline]
fn reached(number: u32) {
    if RECORDS.load(Ordering::Relaxed) {
        REACHED[number as usize].store(true, Ordering::Relaxed);
    }
}

/// Whether this mutation is active.
#[inline]
pub(crate) fn on(number: u32) -> bool {
    let active = pass();
    reached(number);
    active == number
}

/// A condition, which the mutations `always` and `never` replace.
#[inline]
pub(crate) fn truth(always: u32, never: u32, value: bool) -> bool {
    let active = pass();
    reached(if value { never } else { always });
    match active {
        active if active == always => true,
        active if active == never => false,
        _ => value,
    }
}

/// A comparison, with its value if the bound moved by one.
#[inline]
pub(crate) fn edge(number: u32, moved: bool, value: bool) -> bool {
    let active = pass();
    if moved != value {
        reached(number);
    }
    if active == number { moved } else { value }
}

/// Whether a loop begins another iteration; `first` says whether it is the first.
#[inline]
pub(crate) fn again(number: u32, first: &mut bool) -> bool {
    core::mem::take(first) || !on(number)
}

/// The words' operations with their mutations.
pub(crate) trait Mutable: Word {
    fn mutable_load(&self, relaxed: u32, order: Ordering) -> u64 {
        let order = if on(relaxed) { Ordering::Relaxed } else { order };
        self.load(order)
    }
    fn mutable_store(&self, dropped: u32, relaxed: u32, value: u64, order: Ordering) {
        if on(dropped) {
            return;
        }
        let order = if relaxed != 0 && on(relaxed) { Ordering::Relaxed } else { order };
        self.store(value, order);
    }
    fn mutable_fetch_add_full(&self, dropped: u32, split: u32, value: u64) -> u64 {
        self.modify(dropped, split, |old| old.wrapping_add(value), || self.fetch_add_full(value))
    }
    fn mutable_fetch_or_full(&self, dropped: u32, split: u32, bits: u64) -> u64 {
        self.modify(dropped, split, |old| old | bits, || self.fetch_or_full(bits))
    }
    fn mutable_fetch_and_full(&self, dropped: u32, split: u32, bits: u64) -> u64 {
        self.modify(dropped, split, |old| old & bits, || self.fetch_and_full(bits))
    }
    fn mutable_swap_full(&self, dropped: u32, split: u32, value: u64) -> u64 {
        self.modify(dropped, split, |_| value, || self.swap_full(value))
    }
    fn mutable_compare_exchange_full(&self, dropped: u32, split: u32, current: u64, new: u64) -> Result<u64, u64> {
        if on(dropped) {
            return Ok(current);
        }
        if on(split) {
            let old = self.load(Ordering::Relaxed);
            if old != current {
                return Err(old);
            }
            self.store(new, Ordering::Relaxed);
            return Ok(old);
        }
        self.compare_exchange_full(current, new)
    }
    fn modify(&self, dropped: u32, split: u32, change: impl FnOnce(u64) -> u64, whole: impl FnOnce() -> u64) -> u64 {
        if on(dropped) {
            return self.load(Ordering::Relaxed);
        }
        if on(split) {
            let old = self.load(Ordering::Relaxed);
            self.store(change(old), Ordering::Relaxed);
            return old;
        }
        whole()
    }
}

impl<T: Word> Mutable for T {}
