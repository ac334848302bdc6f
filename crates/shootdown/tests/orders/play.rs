//! A run: random actions on each CPU, one after the other. Interleaved actions of other CPUs are in `interleaving.rs`.
//! After each flush no CPU and no device can use what was withdrawn.

use crate::caches::{self, LINK, Name, PAGES};
use crate::clocks::{self, Clock};
use crate::interleaving;
use crate::world::{self, CPUS, Strict, Strictly, here, kept, on, on_without_interrupts, write_tables};
use shootdown::{Deferral, Free, Grace, Kernel, Range, Retired, Root, Space, Stride, Token, Unmapped};
use std::cell::{Cell, RefCell};

pub struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Cell::new(0x9E37_79B9_7F4A_7C15 ^ seed << 32))
    }
    pub fn below(&self, bound: u64) -> u64 {
        let mut word = self.0.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.0.set(word);
        (word >> 11) % bound
    }
    pub fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Entries that were withdrawn, and their new versions.
pub type Withdrawn = Vec<(Name, u64)>;

type PlaySpace = &'static Space<Strict, 1>;

/// Leaked, so that everything borrowed from it lives as long as the interrupt handler.
pub struct Play {
    pub engine: &'static Strictly,
    pub random: Random,
    /// Leaked, so that their addresses are stable.
    spaces: RefCell<Vec<PlaySpace>>,
    /// The space that ends: no CPU may run it.
    pub ending: Cell<Option<usize>>,
    /// The space that each CPU runs, if any.
    pub runs: [Cell<Option<usize>>; CPUS],
    pub off: [Cell<bool>; CPUS],
    deferred: RefCell<Vec<(Deferral, Withdrawn, Clock)>>,
    graces: RefCell<Vec<(Grace, Name, u64)>>,
    /// Flushes that were dispatched and not waited for yet.
    pub tokens: RefCell<
        Vec<(
            Token<'static, 'static, &'static crate::world::TrackingKernel, 1>,
            Withdrawn,
            Clock,
        )>,
    >,
    next_root: Cell<u64>,
}

impl Play {
    pub fn new(engine: &'static Strictly, spaces: u64, seed: u64) -> &'static Self {
        let space = |root| -> &'static Space<Strict, 1> { kept(engine.space(Root(root))) };
        let play = Play {
            engine,
            random: Random::new(seed),
            spaces: RefCell::new((1..=spaces).map(space).collect()),
            ending: Cell::new(None),
            runs: Default::default(),
            off: Default::default(),
            deferred: RefCell::default(),
            graces: RefCell::default(),
            tokens: RefCell::default(),
            next_root: Cell::new(spaces),
        };
        let up = |caches: &mut caches::Caches| {
            caches.online(true);
            caches.in_kernel();
        };
        (0..CPUS).for_each(|cpu| on(cpu, || caches::with(up)));
        kept(play)
    }

    pub fn space(&self, space: usize) -> PlaySpace {
        self.spaces.borrow()[space]
    }

    /// A random space that can be run.
    pub fn some_space(&self, random: &Random) -> usize {
        let count = self.spaces.borrow().len() as u64;
        let space = random.below(count) as usize;
        if self.ending.get() == Some(space) {
            (space + 1) % count as usize
        } else {
            space
        }
    }

    pub fn some_pages(&self, random: &Random) -> (Range, std::ops::Range<u64>) {
        let first = random.below(PAGES);
        let end = first + 1 + random.below(PAGES - first);
        match random.below(6) {
            0 => (Range::WHOLE, 0..PAGES),
            1 => (Range::pages(0, PAGES << 12, Stride::Size2M), 0..PAGES),
            2 => (Range::pages(first << 12, 200 << 12, Stride::Size4K), first..PAGES),
            3 => (Range::page(first << 12), first..first + 1),
            _ => (Range::pages(first << 12, end << 12, Stride::Size4K), first..end),
        }
    }

    pub fn withdraw(&self, root: Root, pages: std::ops::Range<u64>, link: bool) -> Withdrawn {
        write_tables();
        caches::with(|caches| caches.withdraw(root, pages, link))
    }

    // Actions on this CPU.

    pub fn enter(&self, space: usize) {
        caches::with(|caches| caches.user(false));
        self.runs[here()].set(Some(space));
        // SAFETY: a space that ends is retired first, and lives until the end of the run.
        unsafe { self.engine.switch_to(self.space(space)) };
        caches::with(|caches| caches.user(true));
    }

    /// Returns to the space that it ran, after a system call or idle.
    pub fn returns(&self) {
        let Some(space) = self.runs[here()].get() else { return };
        caches::with(|caches| caches.user(false));
        // SAFETY: as in `enter`.
        unsafe { self.engine.leave_lazy(self.space(space)) };
        caches::with(|caches| caches.user(true));
    }

    pub fn leave(&self) {
        caches::with(|caches| caches.user(false));
        self.runs[here()].set(None);
        self.engine.switch_to_kernel();
        caches::with(|caches| caches.in_kernel());
    }

    pub fn lazy(&self) {
        caches::with(|caches| caches.user(false));
        self.engine.enter_lazy();
    }

    pub fn enter_kernel(&self) {
        let Some(space) = self.runs[here()].get() else { return };
        // It continues in the kernel, and may use user addresses if the engine says no.
        if self.engine.enter_kernel(self.space(space)) {
            caches::with(|caches| caches.user(false));
        }
    }

    pub fn goes_off(&self) {
        caches::with(|caches| caches.user(false));
        self.runs[here()].set(None);
        self.engine.cpu_offline();
        self.off[here()].set(true);
        caches::with(|caches| caches.online(false));
    }

    pub fn comes_on(&self) {
        self.off[here()].set(false);
        caches::with(|caches| caches.online(true));
        self.engine.cpu_online();
        caches::with(|caches| caches.in_kernel());
    }

    pub fn are_on(&self) -> usize {
        self.off.iter().filter(|off| !off.get()).count()
    }

    /// An NMI handler reads a user stack, if it may.
    pub fn look(&self, space: usize) {
        let space = self.space(space);
        if self.engine.user_access_ok(space) {
            caches::with(|caches| caches.looks(space.root()));
        }
    }

    /// Opens this CPU's next window for promotion.
    pub fn opens_window(&self) {
        let clock = &self.engine.kernel().now;
        clock.set((clock.get() / 32 + 2) * 32 - here() as u64);
    }

    /// Runs in the middle of another CPU's action.
    pub fn flush_something(&self, space: usize, random: &Random) {
        self.opens_window();
        match random.below(6) {
            0 => self.kernel(random),
            1 => self.later(space, random),
            _ => self.unmap(space, random),
        }
    }

    pub fn unmap(&self, space: usize, random: &Random) {
        let (range, pages) = self.some_pages(random);
        let root = self.space(space).root();
        let tables = random.one_in(4);
        let range = if tables { range.with_tables() } else { range };
        let names = self.withdraw(root, pages, tables);
        let unlinked = caches::with(|caches| caches.version((root.0, LINK)));
        let space = self.space(space);
        match random.below(5) {
            0 => {
                let (_done, _) = self.engine.flush_while(space, range, || ());
            }
            1 => {
                let token = self.engine.dispatch(space, range);
                crate::world::deliver();
                let _done = token.wait();
            }
            2 if tables => match self.engine.flush_tables_later(space, range) {
                Retired::Now(_) => interleaving::assert_no_walk((root.0, LINK), unlinked),
                Retired::Later(grace) => self.graces.borrow_mut().push((grace, (root.0, LINK), unlinked)),
            },
            _ if tables => {
                let _done = self.engine.flush_tables(space, range);
                interleaving::assert_no_walk((root.0, LINK), unlinked);
            }
            _ => {
                let _done = self.engine.flush(space, range);
            }
        }
        caches::with(|caches| caches.flushed(&names));
    }

    /// Withdraws and dispatches, to wait later. Only where nothing is waited for in between.
    pub fn dispatch(&self, space: usize, random: &Random) {
        let (range, pages) = self.some_pages(random);
        let names = self.withdraw(self.space(space).root(), pages, false);
        let token = self.engine.dispatch(self.space(space), range);
        self.tokens.borrow_mut().push((token, names, clocks::now()));
    }

    pub fn wait(&self) {
        let next = || self.tokens.borrow_mut().pop();
        while let Some((token, names, known)) = next() {
            clocks::learn(&known);
            let _done = token.wait();
            caches::with(|caches| caches.flushed(&names));
        }
    }

    fn reclaim(&self) {
        let mut waiting = Withdrawn::new();
        let mut batch = self.engine.batch();
        for _ in 0..=self.random.below(25) {
            let space = self.some_space(&self.random);
            let (range, pages) = self.some_pages(&self.random);
            let range = if self.random.one_in(5) {
                range.with_tables()
            } else {
                range
            };
            let root = self.space(space).root();
            // The task that collects may migrate.
            let cpu = self.random.below(CPUS as u64) as usize;
            let cpu = if self.off[cpu].get() || interleaving::walks(cpu) {
                here()
            } else {
                cpu
            };
            let space = self.space(space);
            let known = clocks::now();
            let known = on(cpu, || {
                clocks::learn(&known);
                waiting.extend(self.withdraw(root, pages, range.tables()));
                batch.add(space, range);
                clocks::now()
            });
            clocks::learn(&known);
            // Back on this CPU, where user code may have run in between.
            caches::with(caches::Caches::apply_late);
            if self.random.one_in(6) {
                self.engine.flush_pending(space);
                let (settled, rest): (Withdrawn, Withdrawn) =
                    waiting.into_iter().partition(|((owner, _), _)| *owner == root.0);
                caches::with(|caches| caches.flushed(&settled));
                waiting = rest;
            }
        }
        if self.random.one_in(2) {
            drop(batch);
        } else {
            let _done = batch.finish();
        }
        caches::with(|caches| caches.flushed(&waiting));
    }

    pub fn kernel(&self, random: &Random) {
        let (range, pages) = self.some_pages(random);
        let names = self.withdraw(Root(0), pages, false);
        let _done = self.engine.flush_kernel(range);
        caches::with(|caches| caches.flushed(&names));
    }

    pub fn later(&self, space: usize, random: &Random) {
        let (range, pages) = self.some_pages(random);
        let root = self.space(space).root();
        let names = self.withdraw(root, pages, range.tables());
        match self.engine.flush_later(self.space(space), range, 1) {
            Unmapped::Now(_) => caches::with(|caches| caches.flushed(&names)),
            Unmapped::Later(deferral) => self.deferred.borrow_mut().push((deferral, names, clocks::now())),
        }
    }

    /// Frees what deferrals and grace periods held.
    pub fn free(&self) {
        let over = self.engine.deferrals_over();
        for (deferral, names, known) in self.deferred.take() {
            clocks::learn(&known);
            match self.engine.release(deferral, &over) {
                Ok(_) => caches::with(|caches| caches.flushed(&names)),
                Err(not_yet) => self.deferred.borrow_mut().push((not_yet, names, known)),
            }
        }
        let over = self.engine.graces_over();
        for (grace, link, unlinked) in self.graces.take() {
            match over.proof(grace) {
                Some(_) => interleaving::assert_no_walk(link, unlinked),
                None => self.graces.borrow_mut().push((grace, link, unlinked)),
            }
        }
    }

    pub fn end(&self, space: usize) {
        self.ending.set(Some(space));
        for cpu in 0..CPUS {
            if self.runs[cpu].get() != Some(space) {
                continue;
            }
            // No CPU runs it any more; some have it loaded.
            self.runs[cpu].set(None);
            interleaving::end_walks_on(cpu);
            on(cpu, || self.lazy());
        }
        self.wait();
        world::takes_tables_apart();
        let _done = self.engine.retire(self.space(space));
        let root = self.space(space).root();
        let names = caches::with(|caches| caches.withdraw(root, 0..PAGES, true));
        caches::with(|caches| {
            caches.flushed(&names);
            caches.forget(root);
        });
        self.next_root.set(self.next_root.get() + 1);
        let root = Root(self.next_root.get());
        self.spaces.borrow_mut()[space] = kept(self.engine.space(root));
        self.ending.set(None);
    }

    /// How many of a few new spaces get a system-wide tag after all others have given theirs up: none is lost.
    pub fn tags_left(&self) -> usize {
        (0..CPUS)
            .filter(|&cpu| self.off[cpu].get())
            .for_each(|cpu| on(cpu, || self.comes_on()));
        let count = self.spaces.borrow().len();
        (0..count).for_each(|space| on(0, || self.end(space)));
        on(0, || {
            self.engine.calibrate();
            self.engine.kernel().local_sync();
        });
        let promoted = |root| {
            let space: PlaySpace = kept(self.engine.space(Root(root)));
            // SAFETY: it is kept.
            (0..CPUS).for_each(|cpu| on(cpu, || unsafe { self.engine.switch_to(space) }));
            for _ in 0..2 * CPUS {
                on_without_interrupts(0, || self.opens_window());
                on(0, || world::unmap(self.engine, space, Range::page(0)));
            }
            space.system_tag().is_some()
        };
        (1000..1010).filter(|&root| promoted(root)).count()
    }

    /// Unlinks tables, and frees them when no walk can hold the link: at once, later, or after a separate flush.
    pub fn free_tables(&self, space: usize) {
        match self.random.below(4) {
            0 => self.free_tables_in_two_steps(space),
            1 => self.free_tables_later(space),
            _ => self.free_tables_now(space),
        }
    }

    /// The range that the table maps.
    pub fn tables() -> Range {
        Range::pages(0, PAGES << 12, Stride::Size4K)
    }

    /// What is withdrawn with the table, the link last.
    fn unlink(&self, space: usize) -> (Withdrawn, (Name, u64)) {
        let names = self.withdraw(self.space(space).root(), 0..PAGES, true);
        let link = *names.last().expect("the link");
        (names, link)
    }

    pub fn free_tables_now(&self, space: usize) {
        let (names, link) = self.unlink(space);
        let _free = self.engine.flush_tables(self.space(space), Self::tables());
        interleaving::assert_no_walk(link.0, link.1);
        caches::with(|caches| caches.flushed(&names));
    }

    pub fn free_tables_in_two_steps(&self, space: usize) {
        let (names, link) = self.unlink(space);
        let flushed = self.engine.flush(self.space(space), Self::tables().with_tables());
        caches::with(|caches| caches.flushed(&names));
        let _free = self.engine.retire_tables(self.space(space), &flushed);
        interleaving::assert_no_walk(link.0, link.1);
    }

    fn free_tables_later(&self, space: usize) {
        let (names, link) = self.unlink(space);
        match self.engine.flush_tables_later(self.space(space), Self::tables()) {
            Retired::Now(_) => interleaving::assert_no_walk(link.0, link.1),
            Retired::Later(grace) => self.graces.borrow_mut().push((grace, link.0, link.1)),
        }
        caches::with(|caches| caches.flushed(&names));
    }

    pub fn step(&'static self) {
        let random = &self.random;
        let cpu = random.below(CPUS as u64) as usize;
        interleaving::end_walks_on(cpu);
        let clock = &self.engine.kernel().now;
        if random.one_in(2) {
            on_without_interrupts(cpu, || self.opens_window());
        } else {
            clock.set(clock.get() + 1);
        }
        let space = self.some_space(random);
        let what = random.below(26);
        on(cpu, || match what {
            0..8 if self.off[cpu].get() => self.comes_on(),
            _ if self.off[cpu].get() => {}
            0..=4 => self.enter(space),
            5 => self.returns(),
            6 => self.leave(),
            7 => self.lazy(),
            8 => self.enter_kernel(),
            9 => self.reclaim(),
            10 => self.kernel(random),
            11 => self.later(space, random),
            18..=20 if self.engine.policy().free == Free::Deferred && random.one_in(2) => self.later(space, random),
            21 if self.engine.policy().free == Free::Deferred => self.engine.tick(),
            12 if random.one_in(2) => self.free(),
            12 => self.engine.tick(),
            13 if self.are_on() > 1 => self.goes_off(),
            14 => self.end(space),
            15 => {
                let root = self.space(space).root();
                caches::with(|caches| caches.device_uses(root));
            }
            16 => interleaving::walk(self, space, random.one_in(4)),
            17 if random.one_in(2) => self.engine.tick_stops(),
            17 => self.engine.tick_resumes(),
            18 => self.look(space),
            25 => crate::world::deschedule((here() + 1) % CPUS),
            _ => self.unmap(self.runs[here()].get().filter(|_| what < 23).unwrap_or(space), random),
        });
        interleaving::end_walks_on(cpu);
        let waiter = (0..CPUS).find(|&cpu| !self.off[cpu].get()).unwrap_or(0);
        interleaving::end_walks_on(waiter);
        on(waiter, || self.wait());
        interleaving::end_walks_on(here());
        self.engine.kernel().is_settled();
    }
}
