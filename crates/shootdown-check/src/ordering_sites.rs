//! The memory orderings that the engine requests, each identified by its place in the source. One of them can be left
//! out. Under a weak memory model the exploration then finds the mistakes that x86 hides.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::Location;

/// A memory ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// A load with acquire; relaxed if left out.
    Acquire,
    /// A store with release; relaxed if left out.
    Release,
    /// A read-modify-write that is a full barrier; relaxed if left out. On x86 it remains one.
    Full,
    /// A barrier; nothing if left out.
    Barrier,
}

/// A memory ordering that the engine requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Source file.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// A memory ordering.
    pub order: Order,
}

thread_local! {
    static LEFT_OUT: Cell<Option<Site>> = const { Cell::new(None) };
    static SEEN: RefCell<Option<BTreeSet<Site>>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// From here on this host thread's machines leave out the order at this site; `None` for none.
pub fn leave_out(site: Option<Site>) {
    LEFT_OUT.set(site);
    WATCHED.set(site.is_some() || SEEN.with_borrow(Option::is_some));
}

/// Every order that was requested on this host thread while `what` ran.
pub fn requested_in(what: impl FnOnce()) -> BTreeSet<Site> {
    SEEN.set(Some(BTreeSet::new()));
    WATCHED.set(true);
    what();
    WATCHED.set(LEFT_OUT.get().is_some());
    SEEN.take().unwrap_or_default()
}

/// Whether the order at `location` is to be carried out.
#[inline]
pub(crate) fn is_kept(location: &'static Location<'static>, order: Order) -> bool {
    !WATCHED.get() || is_kept_slow_path(location, order)
}

fn is_kept_slow_path(location: &'static Location<'static>, order: Order) -> bool {
    let site = Site {
        file: location.file(),
        line: location.line(),
        column: location.column(),
        order,
    };
    SEEN.with_borrow_mut(|seen| seen.as_mut().is_some_and(|seen| seen.insert(site)));
    LEFT_OUT.get() != Some(site)
}
