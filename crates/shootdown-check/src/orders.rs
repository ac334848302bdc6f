//! The orders that the engine asks for, by their place in its source, and leaving out one of them: what only x86
//! forgives shows where memory is weak.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::Location;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    /// A load that acquires; relaxed without.
    Acquire,
    /// A store that releases; relaxed without.
    Release,
    /// A read-modify-write that is a full barrier; relaxed without. Under x86 it is one anyway.
    Full,
    /// A barrier by itself; nothing without.
    Barrier,
}

/// An order that the engine asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Source file.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// What is asked for there.
    pub asked: Asked,
}

thread_local! {
    static LEFT_OUT: Cell<Option<Site>> = const { Cell::new(None) };
    static SEEN: RefCell<Option<BTreeSet<Site>>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// From here on this host thread's machines leave out what is asked for there; `None` for nothing.
pub fn leave_out(site: Option<Site>) {
    LEFT_OUT.set(site);
    WATCHED.set(site.is_some() || SEEN.with_borrow(Option::is_some));
}

/// Everything that was asked for on this host thread while `what` ran.
pub fn asked_in(what: impl FnOnce()) -> BTreeSet<Site> {
    SEEN.set(Some(BTreeSet::new()));
    WATCHED.set(true);
    what();
    WATCHED.set(LEFT_OUT.get().is_some());
    SEEN.take().unwrap_or_default()
}

/// Whether what is asked for at `location` is to be done.
#[inline]
pub(crate) fn is_kept(location: &'static Location<'static>, asked: Asked) -> bool {
    !WATCHED.get() || is_kept_slowly(location, asked)
}

fn is_kept_slowly(location: &'static Location<'static>, asked: Asked) -> bool {
    let site = Site {
        file: location.file(),
        line: location.line(),
        column: location.column(),
        asked,
    };
    SEEN.with_borrow_mut(|seen| seen.as_mut().is_some_and(|seen| seen.insert(site)));
    LEFT_OUT.get() != Some(site)
}
