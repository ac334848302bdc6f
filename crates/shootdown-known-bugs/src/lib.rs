//! Deliberate mistakes in the engine (`bugs.toml`), and which of them is selected. For tests only.
//!
//! `shootdown-patched` is a copy of the engine that holds every mistake of the manifest and asks [`is_on`] at each; no
//! other build of the engine knows of them.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

use core::sync::atomic::{AtomicU16, Ordering};

macro_rules! bugs {
    ($($name:ident: $number:expr, $source:expr, $what:literal, $qemu:expr, $why_not:expr;)*) => {
        /// A known bug, by name. In the order of the manifest.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Bug {
            $(#[doc = $what] $name,)*
        }

        /// All of them.
        pub const ALL: &[Known] = &[
            $(Known {
                bug: Bug::$name,
                name: stringify!($name),
                number: $number,
                source: $source,
                what: $what,
                qemu: $qemu,
                not_in_qemu: $why_not,
            },)*
        ];
    };
}

/// What the manifest says of a bug.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Which.
    pub bug: Bug,
    /// Its name.
    pub name: &'static str,
    /// Its row in `docs/src/verification/correctness.md`.
    pub number: Option<u32>,
    /// Where it shipped.
    pub source: Option<&'static str>,
    /// What goes wrong.
    pub what: &'static str,
    /// The design under which the bare-metal kernel shows it in QEMU.
    pub qemu: Option<&'static str>,
    /// Why it cannot show there.
    pub not_in_qemu: Option<&'static str>,
}

/// A deliberate mistake that is no patch of a source: the manifest's `[[mistake]]`.
#[derive(Debug, Clone, Copy)]
pub struct Mistake {
    /// `model`, `facade` or `hardware`.
    pub kind: &'static str,
    /// Its name in the source.
    pub name: &'static str,
    /// The model it is a mutant of.
    pub place: Option<&'static str>,
    /// Its row in `docs/src/verification/correctness.md`.
    pub number: Option<u32>,
    /// The claim that the model sees broken.
    pub breaks: Option<&'static str>,
    /// What goes wrong.
    pub what: &'static str,
    /// Who notices.
    pub caught_by: &'static [&'static str],
}

macro_rules! mistakes {
    ($($kind:literal, $name:literal, $place:expr, $number:expr, $breaks:expr, $what:literal, $by:expr;)*) => {
        /// All of them, in the order of the manifest.
        pub const MISTAKES: &[Mistake] = &[
            $(Mistake {
                kind: $kind, name: $name, place: $place, number: $number, breaks: $breaks, what: $what, caught_by: &$by,
            },)*
        ];
    };
}

/// The mistakes of one kind.
pub fn mistakes(kind: &str) -> impl Iterator<Item = &'static Mistake> {
    MISTAKES.iter().filter(move |mistake| mistake.kind == kind)
}

include!(concat!(env!("OUT_DIR"), "/bugs.rs"));

const NONE: u16 = u16::MAX;

static EVERYWHERE: AtomicU16 = AtomicU16::new(NONE);

#[cfg(feature = "std")]
std::thread_local! {
    static HERE: core::cell::Cell<u16> = const { core::cell::Cell::new(NONE) };
}

/// Whether this bug is selected.
#[inline]
pub fn is_on(bug: Bug) -> bool {
    #[cfg(feature = "std")]
    if HERE.get() == bug as u16 {
        return true;
    }
    EVERYWHERE.load(Ordering::Relaxed) == bug as u16
}

/// Selects a bug, or none, for what this host thread runs.
#[cfg(feature = "std")]
pub fn select(bug: Option<Bug>) {
    HERE.set(bug.map_or(NONE, |bug| bug as u16));
}

/// Selects a bug, or none, for all threads.
pub fn select_everywhere(bug: Option<Bug>) {
    EVERYWHERE.store(bug.map_or(NONE, |bug| bug as u16), Ordering::Relaxed);
}

/// The bug of that name.
pub fn named(name: &str) -> Option<Bug> {
    ALL.iter().find(|known| known.name == name).map(|known| known.bug)
}
