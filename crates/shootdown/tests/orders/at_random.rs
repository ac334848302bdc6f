//! One thing after the other, at random, under every preset and what no preset has: after each flush nobody can use what was
//! withdrawn, wherever that may be cached.

use crate::caches::{self, PAGES};
use crate::work::{Work, is_as_written};
use crate::world::{CPUS, Strict, Strictly, engine, here, must_publish, on, write_tables};
use shootdown::{
    Ack, Deferral, Departure, Design, Errata, Exit, Range, Reach, Requests, Root, Space, Stride, Tags, Unmapped,
};

/// Runs of each design, and what happens in each.
const RUNS: u64 = 2;
const STEPS: u64 = 250;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// What no preset has.
pub fn variants() -> impl Iterator<Item = (&'static str, Design)> {
    let system = Design {
        tag_limit: 7,
        ..Design::ARM_BROADCAST
    };
    let hybrid = Design {
        tags: Tags::Hybrid { promote_at: 2 },
        slots: 2,
        tag_limit: 7,
        sample_one_in: 1,
        demote_after: 1,
        consider_window_ns: 1,
        ..Design::ADAPTIVE
    };
    let errata = |interrupt_too, never_broadcast| Errata {
        interrupt_too,
        never_broadcast,
        ..Errata::NONE
    };
    [
        (
            "log on slots",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                log_reach: 3,
                slots: 2,
                ..hybrid
            },
        ),
        (
            "log on slots, low ceiling",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ceiling: 2,
                ..hybrid
            },
        ),
        (
            "log, split",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                split: true,
                tag_limit: 4096,
                ..hybrid
            },
        ),
        (
            "log and deferral",
            Design {
                tags: Tags::PerCpu,
                requests: Requests::Log,
                ..Design::DEFERRED
            },
        ),
        (
            "hybrid, interrupts besides",
            Design {
                errata: errata(true, false),
                ..hybrid
            },
        ),
        (
            "hybrid on stack, interrupts besides",
            Design {
                errata: errata(true, false),
                requests: Requests::PerRequest,
                ..hybrid
            },
        ),
        (
            "hybrid, never broadcast",
            Design {
                errata: errata(false, true),
                ..hybrid
            },
        ),
        ("hybrid, low ceiling", Design { ceiling: 1, ..hybrid }),
        (
            "log on tags of the system",
            Design {
                requests: Requests::Log,
                ..system
            },
        ),
        (
            "log on tags of the system, by interrupts",
            Design {
                requests: Requests::Log,
                reach: Reach::Ipi,
                ..system
            },
        ),
        (
            "local first, flush at exit",
            Design {
                reach: Reach::LocalFirst,
                exit: Exit::Flush,
                ..system
            },
        ),
        (
            "by interrupts, page by page",
            Design {
                reach: Reach::Ipi,
                exit: Exit::Flush,
                ceiling: 33,
                ..system
            },
        ),
        (
            "log, answered early",
            Design {
                tags: Tags::PerCpu,
                reach: Reach::Ipi,
                ack: Ack::Early,
                slots: 2,
                ..hybrid
            },
        ),
        (
            "log and promotion, answered early",
            Design {
                ack: Ack::Early,
                ..hybrid
            },
        ),
        (
            "log, interrupts besides, answered early",
            Design {
                ack: Ack::Early,
                errata: errata(true, false),
                ..hybrid
            },
        ),
        (
            "synchronous batches",
            Design {
                free: shootdown::Free::Synchronous,
                ..hybrid
            },
        ),
        (
            "trims at once",
            Design {
                departure: Departure::WhenAsked { trim_ns: 1 },
                ..Design::IPI
            },
        ),
        (
            "two slots, everybody",
            Design {
                slots: 2,
                targets: shootdown::Targets::All,
                ..Design::IPI
            },
        ),
        (
            "two slots, the whole set",
            Design {
                slots: 2,
                targets: shootdown::Targets::Space,
                ..Design::IPI
            },
        ),
    ]
    .into_iter()
}

struct Play<'a> {
    engine: &'a Strictly,
    random: Random,
    /// Leaked, so that they stay where they are.
    spaces: Vec<&'static Space<Strict, 1>>,
    /// Which space each CPU runs, if any, and whether it is in user mode or off.
    runs: [Option<usize>; CPUS],
    off: [bool; CPUS],
    deferred: Vec<(Deferral, Vec<(u64, u64)>)>,
    next_root: u64,
}

impl Play<'_> {
    fn root(&self, space: usize) -> Root {
        self.spaces[space].root()
    }

    fn enter(&mut self, space: usize) {
        let cpu = here();
        caches::with(|caches| caches.user(false));
        // SAFETY: a space that ends is retired first, and lives until the end of the run.
        unsafe { self.engine.switch_to(self.spaces[space]) };
        self.runs[cpu] = Some(space);
        caches::with(|caches| caches.user(true));
    }

    fn leave(&mut self) {
        caches::with(|caches| caches.user(false));
        self.engine.switch_to_kernel();
        caches::with(|caches| caches.in_kernel());
        self.runs[here()] = None;
    }

    fn some_pages(&mut self) -> (Range, std::ops::Range<u64>) {
        let first = self.random.below(PAGES);
        let end = first + 1 + self.random.below(PAGES - first);
        match self.random.below(6) {
            0 => (Range::WHOLE, 0..PAGES),
            1 => (Range::pages(0, PAGES << 12, Stride::Size2M), 0..PAGES),
            2 => (Range::pages(first << 12, 200 << 12, Stride::Size4K), first..PAGES),
            3 => (Range::page(first << 12), first..first + 1),
            _ => (Range::pages(first << 12, end << 12, Stride::Size4K), first..end),
        }
    }

    fn withdraw(&mut self, root: Root, pages: std::ops::Range<u64>, link: bool) -> Vec<(u64, u64)> {
        write_tables();
        caches::with(|caches| caches.withdraw(root, pages, link))
    }

    fn unmap(&mut self, space: usize) {
        let (range, pages) = self.some_pages();
        let root = self.root(space);
        let tables = range.tables() || self.random.one_in(4);
        let range = if tables { range.with_tables() } else { range };
        let names = self.withdraw(root, pages, tables);
        let space = self.spaces[space];
        match self.random.below(4) {
            0 => {
                let (_done, _) = self.engine.flush_while(space, range, || ());
            }
            1 => {
                let token = self.engine.dispatch(space, range);
                crate::world::deliver();
                let _done = token.wait();
            }
            _ if tables => {
                let _done = self.engine.flush_tables(space, range);
            }
            _ => {
                let _done = self.engine.flush(space, range);
            }
        }
        caches::with(|caches| caches.flushed(&names));
    }

    fn reclaim(&mut self) {
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        let mut batch = self.engine.batch();
        for _ in 0..=self.random.below(25) {
            let space = self.random.below(self.spaces.len() as u64) as usize;
            let (range, pages) = self.some_pages();
            let range = if self.random.one_in(5) {
                range.with_tables()
            } else {
                range
            };
            let root = self.root(space);
            // Whoever collects may migrate.
            let cpu = self.random.below(CPUS as u64) as usize;
            let cpu = if self.off[cpu] { here() } else { cpu };
            let space = self.spaces[space];
            on(cpu, || {
                waiting.extend(self.withdraw(root, pages, range.tables()));
                batch.add(space, range);
                must_publish(false);
            });
            if self.random.one_in(6) {
                self.engine.settle(space);
                let (settled, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|name| name.0 == root.0);
                caches::with(|caches| caches.flushed(&settled));
                waiting = rest;
            }
        }
        must_publish(true);
        if self.random.one_in(2) {
            drop(batch);
        } else {
            let _done = batch.finish();
        }
        must_publish(false);
        caches::with(|caches| caches.flushed(&waiting));
    }

    fn kernel(&mut self) {
        let (range, pages) = self.some_pages();
        let names = self.withdraw(Root(0), pages, false);
        let _done = self.engine.flush_kernel(range);
        caches::with(|caches| caches.flushed(&names));
    }

    fn later(&mut self, space: usize) {
        let (range, pages) = self.some_pages();
        let root = self.root(space);
        let names = self.withdraw(root, pages, range.tables());
        match self.engine.flush_later(self.spaces[space], range, 1) {
            Unmapped::Now(_) => caches::with(|caches| caches.flushed(&names)),
            Unmapped::Later(deferral) => self.deferred.push((deferral, names)),
        }
    }

    fn release(&mut self) {
        let over = self.engine.deferrals_over();
        for (deferral, names) in std::mem::take(&mut self.deferred) {
            match self.engine.release(deferral, &over) {
                Ok(_) => caches::with(|caches| caches.flushed(&names)),
                Err(not_yet) => self.deferred.push((not_yet, names)),
            }
        }
    }

    fn end(&mut self, space: usize) {
        for cpu in 0..CPUS {
            if self.runs[cpu] != Some(space) {
                continue;
            }
            // Nobody runs it any more; some have it loaded.
            self.runs[cpu] = None;
            on(cpu, || {
                caches::with(|caches| caches.user(false));
                self.engine.enter_lazy();
            });
        }
        let _done = self.engine.retire(self.spaces[space]);
        let root = self.root(space);
        let names = caches::with(|caches| caches.withdraw(root, 0..PAGES, true));
        caches::with(|caches| caches.flushed(&names));
        self.next_root += 1;
        self.spaces[space] = Box::leak(Box::new(self.engine.space(Root(self.next_root))));
    }

    fn step(&mut self) {
        let cpu = self.random.below(CPUS as u64) as usize;
        // Every other time this CPU's window for promotion is open.
        let now = self.engine.kernel().now.get();
        let window = (now / 32 + 2) * 32 - cpu as u64;
        self.engine
            .kernel()
            .now
            .set(if self.random.one_in(2) { window } else { now + 1 });
        let space = self.random.below(self.spaces.len() as u64) as usize;
        let what = self.random.below(24);
        if self.off[cpu] {
            if what < 8 {
                self.off[cpu] = false;
                on(cpu, || {
                    self.engine.cpu_online();
                    caches::with(|caches| caches.online(true));
                });
            }
            return;
        }
        on(cpu, || match what {
            0..=5 => self.enter(space),
            6 => self.leave(),
            7 => {
                caches::with(|caches| caches.user(false));
                self.engine.enter_lazy();
            }
            8 => {
                if let Some(space) = self.runs[here()] {
                    caches::with(|caches| caches.user(false));
                    if self.engine.enter_kernel(self.spaces[space]) {
                        crate::world::deliver();
                    }
                }
            }
            9 => self.reclaim(),
            10 => self.kernel(),
            11 => self.later(space),
            12 => {
                self.engine.tick();
                self.release();
            }
            13 if CPUS - self.off.iter().filter(|off| **off).count() > 1 => {
                caches::with(|caches| caches.user(false));
                self.engine.cpu_offline();
                self.runs[here()] = None;
                self.off[here()] = true;
                caches::with(|caches| caches.online(false));
            }
            14 => self.end(space),
            15 => {
                let root = self.root(space);
                caches::with(|caches| caches.device_uses(root));
            }
            16 => drop(self.engine.walk(self.spaces[space])),
            17 => {
                if self.random.one_in(2) {
                    self.engine.tick_stops();
                } else {
                    self.engine.tick_resumes();
                }
            }
            _ => self.unmap(self.runs[here()].filter(|_| what < 22).unwrap_or(space)),
        });
        self.engine.kernel().is_settled();
    }
}

/// Of all designs, those of one part of [`PARTS`], some times each; and what was done under each.
pub fn play(part: usize) -> Vec<(String, Work)> {
    let mut done = Vec::new();
    for (name, design) in crate::designs().chain(variants()).skip(part).step_by(PARTS) {
        for broadcasts in [true, false] {
            let traits = [
                (design.split, ", split"),
                (design.errata.repeat, ", twice"),
                (broadcasts, ", broadcasts"),
            ];
            let traits: String = traits.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
            let mut work = Work::default();
            for run in 0..RUNS {
                println!("{name}{traits}, run {run}");
                let did = run_once(design, broadcasts, run);
                work.iter_mut().zip(did).for_each(|(sum, more)| *sum += more);
            }
            done.push((format!("{name}{traits}"), work));
        }
    }
    done
}

fn run_once(design: Design, broadcasts: bool, run: u64) -> Work {
    let engine = engine(design, broadcasts);
    // With few spaces a CPU comes back to those that it has run.
    let spaces = (1..=3 + 3 * (run % 2)).map(|root| &*Box::leak(Box::new(engine.space(Root(root)))));
    let mut play = Play {
        engine,
        random: Random(0x9E37_79B9_7F4A_7C15 ^ run << 32),
        spaces: spaces.collect(),
        runs: [None; CPUS],
        off: [false; CPUS],
        deferred: Vec::new(),
        next_root: 6,
    };
    (0..CPUS).for_each(|cpu| on(cpu, || caches::with(|caches| caches.online(true))));
    (0..STEPS).for_each(|_| play.step());
    engine.kernel().work.get()
}

/// Tests that share the designs, so that each is short.
pub const PARTS: usize = 12;

macro_rules! nobody_uses_what_was_withdrawn {
    ($($name:ident: $part:literal)*) => {
        $(#[test]
        fn $name() {
            let done = play($part);
            done.iter().for_each(|(name, work)| is_as_written(name, work));
        })*
    };
}

nobody_uses_what_was_withdrawn! {
    nobody_uses_what_was_withdrawn_1: 0
    nobody_uses_what_was_withdrawn_2: 1
    nobody_uses_what_was_withdrawn_3: 2
    nobody_uses_what_was_withdrawn_4: 3
    nobody_uses_what_was_withdrawn_5: 4
    nobody_uses_what_was_withdrawn_6: 5
    nobody_uses_what_was_withdrawn_7: 6
    nobody_uses_what_was_withdrawn_8: 7
    nobody_uses_what_was_withdrawn_9: 8
    nobody_uses_what_was_withdrawn_10: 9
    nobody_uses_what_was_withdrawn_11: 10
    nobody_uses_what_was_withdrawn_12: 11
}
