//! Runs with few kinds of steps and frequent interleaving: races that mixed runs (`at_random.rs`) rarely reach.

use crate::interleaving;
use crate::play::Play;
use crate::variants::variants;
use crate::world::{CPUS, engine, here, on, on_without_interrupts};
use shootdown::{Design, Free, Policy, Reach, Tags, Walkers};

/// Average number of operations on words between two interleavings.
const OFTEN: u64 = 4;

const STEPS: u64 = 250;

/// `step` under each of `designs`, on this many spaces.
fn play(designs: impl Iterator<Item = (&'static str, Design)>, spaces: u64, runs: u64, step: fn(&'static Play)) {
    for (name, design) in designs {
        for run in 0..runs {
            println!("{name}, run {run}");
            interleaving::begin(None, 0);
            let play = Play::new(engine(design, true), spaces, run);
            interleaving::begin_often(play, run, OFTEN);
            for _ in 0..STEPS {
                play.time_goes_on();
                step(play);
                play.settles();
            }
            interleaving::end_all();
            if design.policy.tags.promote_at().is_some() {
                let left = play.tags_left();
                let fresh = Play::new(engine(design, true), spaces, run).tags_left();
                // By its estimated costs it may promote none.
                let none = left == 0 && design.policy.reach == Reach::Adaptive;
                println!("{left} of {fresh}");
                assert!(left == fresh || none, "{left} of {fresh} tags are left");
            }
        }
    }
}

fn designs(wanted: fn(&Design) -> bool) -> impl Iterator<Item = (&'static str, Design)> {
    let all = crate::designs().chain(variants());
    all.filter(move |(_, design)| wanted(design) && !design.machine.split && !design.machine.errata.repeat)
}

impl Play {
    fn time_goes_on(&self) {
        interleaving::end_walks();
        self.engine
            .kernel()
            .now
            .set(self.engine.kernel().now.get() + self.random.below(40));
    }

    fn settles(&self) {
        let waiter = (0..CPUS).find(|&cpu| !self.off[cpu].get()).unwrap_or(0);
        interleaving::end_walks_on(waiter);
        on(waiter, || self.wait());
        interleaving::end_walks_on(here());
        self.engine.kernel().is_settled();
    }

    fn on_some_cpu(&'static self, what: impl FnOnce(usize)) {
        let cpu = self.random.below(CPUS as u64) as usize;
        let space = self.some_space(&self.random);
        interleaving::end_walks_on(cpu);
        on(cpu, || {
            if self.off[cpu].get() {
                self.comes_on();
            }
            what(space);
        });
    }

    /// Mostly walks and frees of tables.
    fn step_of_walks(&'static self) {
        let random = &self.random;
        let cpu = random.below(CPUS as u64) as usize;
        interleaving::end_walks_on(cpu);
        let clock = &self.engine.kernel().now;
        // Frees alternate between frequent and rare.
        let is_hot = clock.get() / 1_000_000 % 2 == 0;
        clock.set(
            clock.get()
                + if is_hot {
                    random.below(20_000)
                } else {
                    random.below(200_000)
                },
        );
        let space = self.some_space(random);
        on(cpu, || match random.below(16) {
            0..8 if self.off[cpu].get() => self.comes_on(),
            _ if self.off[cpu].get() => {}
            0 => self.enter(space),
            1 => self.leave(),
            2 => self.free(),
            3 => self.engine.tick(),
            4 if self.are_on() > 1 => self.goes_off(),
            5..=8 => (0..random.below(60)).for_each(|_| {
                interleaving::walk(self, space, false);
                interleaving::end_walks_on(cpu);
            }),
            _ => self.free_tables(space),
        });
        interleaving::end_walks_on(cpu);
        on_without_interrupts(cpu, || self.engine.kernel().is_settled());
    }
}

/// With each way of tracking walks.
#[test]
fn no_table_is_freed_during_a_walk() {
    use Walkers::{Adaptive, GracePeriod, InterruptAll, Precise, PreciseExchange, Sticky};
    for walkers in [Adaptive, Sticky, Precise, PreciseExchange, GracePeriod, InterruptAll] {
        for base in [Policy::IPI, Policy::ADAPTIVE, Policy::ARM_BROADCAST, Policy::ARM_IPI] {
            for seed in 0..3 {
                println!("{walkers:?}, {:?}, {:?}, run {seed}", base.tags, base.reach);
                interleaving::begin(None, 0);
                let play = Play::new(engine(Policy { walkers, ..base }, true), 2, seed);
                interleaving::begin(Some(play), seed);
                (0..200).for_each(|_| play.step_of_walks());
                interleaving::begin(None, 0);
            }
        }
    }
}

#[test]
fn deferred_unmaps_end_once_every_cpu_has_flushed() {
    let designs = designs(|design| design.policy.free == Free::Deferred);
    play(designs, 2, 60, |play| {
        let random = &play.random;
        play.on_some_cpu(|space| match random.below(16) {
            0..=4 => play.enter(space),
            5 => play.leave(),
            6 => play.lazy(),
            7 => play.returns(),
            8 => play.engine.tick(),
            9 => play.engine.tick_stops(),
            10 => play.engine.tick_resumes(),
            11 if play.are_on() > 1 => play.goes_off(),
            12 => play.free(),
            _ => play.later(play.runs[here()].get().unwrap_or(space), random),
        });
        (0..CPUS).for_each(|cpu| on(cpu, || play.engine.tick()));
    });
}

#[test]
fn spaces_are_promoted_demoted_and_retired() {
    let designs = designs(|design| design.policy.tags.promote_at().is_some());
    play(designs, 2, 2, |play| {
        let random = &play.random;
        let space = play.some_space(random);
        // Most CPUs run it, and it is promoted. Then most leave, and it is demoted, or ends meanwhile.
        for most in [true, false] {
            for cpu in 0..CPUS {
                interleaving::end_walks_on(cpu);
                on(cpu, || match random.below(8) {
                    _ if play.off[cpu].get() => play.comes_on(),
                    0 => play.lazy(),
                    1 => play.returns(),
                    2 if play.are_on() > 1 && random.one_in(4) => play.goes_off(),
                    3 => play.enter(1 - space),
                    _ if most => play.enter(space),
                    _ => play.leave(),
                });
            }
            for _ in 0..2 {
                play.on_some_cpu(|_| {
                    play.opens_window();
                    play.unmap(space, random);
                });
            }
            if random.one_in(8) {
                play.on_some_cpu(|_| play.end(space));
            }
        }
    });
}

#[test]
fn tags_roll_over_while_spaces_are_switched_and_flushed() {
    let designs = designs(|design| design.policy.tags == Tags::System);
    play(designs, 6, 16, |play| {
        let random = &play.random;
        play.on_some_cpu(|space| match random.below(16) {
            0..=7 => play.enter(space),
            8 => play.leave(),
            9 => play.lazy(),
            10 => play.returns(),
            11 if play.are_on() > 1 => play.goes_off(),
            _ => play.unmap(play.runs[here()].get().unwrap_or(space), random),
        });
    });
}

#[test]
fn hotplug_during_kernel_flushes() {
    let designs = designs(|design| design.policy.reach != Reach::None);
    play(designs, 2, 8, |play| {
        let random = &play.random;
        play.on_some_cpu(|space| match random.below(8) {
            0 | 1 => play.enter(space),
            2 | 3 if play.are_on() > 1 => play.goes_off(),
            4 => play.lazy(),
            5 => play.unmap(space, random),
            _ => play.kernel(random),
        });
    });
}
