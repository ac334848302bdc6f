//! The live spaces of a replayed program, and their end.

use super::scaling::Scale;
use super::{HOT_PAGES, PAGES};
use crate::os::{PAGE, Process, System, USER_BASE};
use shootdown::{Range, Stride};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A space and its CPUs and threads.
pub(super) struct Live<const W: usize> {
    pub process: Rc<Process<W>>,
    key: (u32, u32),
    /// CPUs that run user code of it.
    running: Cell<u32>,
    /// Copies of its threads that have not ended.
    left: Cell<u32>,
    /// The page to withdraw next.
    next_page: Cell<u64>,
}

impl<const W: usize> Live<W> {
    /// The page to withdraw next, and the range to flush with it: a number of pages, or everything.
    pub fn next_range(&self, pages: Option<u32>) -> (u64, Range) {
        let page = self.next_page.get();
        self.next_page.set((page + 1) % HOT_PAGES);
        let va = USER_BASE + page * PAGE;
        let range = match pages {
            Some(pages) => Range::pages(va, va + u64::from(pages).min(PAGES - HOT_PAGES) * PAGE, Stride::Size4K),
            None => Range::pages(USER_BASE, USER_BASE + PAGES * PAGE, Stride::Size4K),
        };
        (va, range)
    }
}

/// All of them.
pub(super) struct Spaces<const W: usize> {
    system: Rc<System<W>>,
    scale: Scale,
    live: RefCell<HashMap<(u32, u32), Rc<Live<W>>>>,
    /// Torn down, but possibly still referenced by a CPU that had it loaded.
    ended: RefCell<Vec<Rc<Live<W>>>>,
    most: Cell<usize>,
}

impl<const W: usize> Spaces<W> {
    pub fn new(system: Rc<System<W>>, scale: Scale) -> Self {
        Spaces {
            system,
            scale,
            live: RefCell::default(),
            ended: RefCell::default(),
            most: Cell::new(0),
        }
    }

    /// The space of that number, in that copy of the program; created if missing. On a CPU.
    pub fn get(&self, space: u32, copy: u32) -> Rc<Live<W>> {
        let (copy, left) = match self.scale {
            Scale::Threads(n) => (0, n),
            Scale::Copies(_) | Scale::Spread => (copy, 1),
        };
        let key = (space, copy);
        if let Some(live) = self.live.borrow().get(&key) {
            return live.clone();
        }
        self.give_back();
        let process = self.system.process(self.system.next_number(), PAGES * PAGE);
        let live = Rc::new(Live {
            process,
            key,
            running: Cell::new(0),
            left: Cell::new(left),
            next_page: Cell::new(0),
        });
        let mut all = self.live.borrow_mut();
        all.insert(key, live.clone());
        self.most.set(self.most.get().max(all.len()));
        drop(all);
        self.system.map(&live.process, USER_BASE, PAGES * PAGE);
        live
    }

    /// A CPU begins to run user code of it.
    pub fn enters(&self, live: &Live<W>) {
        live.running.set(live.running.get() + 1);
    }

    /// A CPU no longer does; the last one after the end tears it down.
    pub fn leaves(&self, live: &Live<W>) {
        live.running.set(live.running.get() - 1);
        self.tear_down_if_over(live);
    }

    /// One copy of its last thread has ended, on this CPU, which runs kernel code only.
    pub fn ends(&self, space: u32, copy: u32) {
        let live = self.get(space, copy);
        live.left.set(live.left.get().saturating_sub(1));
        self.tear_down_if_over(&live);
    }

    fn tear_down_if_over(&self, live: &Live<W>) {
        // A CPU that is late may still run it.
        if live.left.get() > 0 || live.running.get() > 0 {
            return;
        }
        let ended = self.live.borrow_mut().remove(&live.key);
        if let Some(ended) = ended {
            self.system.exit(&ended.process);
            self.ended.borrow_mut().push(ended);
        }
    }

    /// Frees the memory of ended spaces that no CPU references any longer.
    fn give_back(&self) {
        let mut ended = self.ended.borrow_mut();
        let mut index = 0;
        while index < ended.len() {
            if Rc::strong_count(&ended[index]) > 1 {
                index += 1;
            } else if let Some(live) = Rc::into_inner(ended.swap_remove(index)) {
                self.system.reuse_space(live.process);
            }
        }
    }

    /// Most spaces that lived at the same time.
    pub fn most(&self) -> usize {
        self.most.get()
    }
}
