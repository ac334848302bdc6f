//! A case: drawn from its seed and number, and run.

use crate::threads;
use crate::traffic::{Traffic, play_on};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use shootdown::{
    Ack, Departure, Design, Errata, Exit, Free, Order, Policy, Reach, Requests, Tags, Targets, Wait, Walkers,
};
use shootdown_sim::hw::{Aarch64, Isa, Riscv64};
use shootdown_sim::machine::Outcome;
use shootdown_sim::model::Model;
use shootdown_sim::run::{self, RunSpec, Workload, designs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Kinds of cases.
pub const KINDS: [&str; 3] = [
    "kernel traffic on a tiny machine",
    "threads that are preempted and migrate",
    "workload, machine and design",
];

/// The run of a case.
#[derive(Debug)]
enum What {
    Traffic(Isa, Traffic),
    Threads(Design, usize, usize, u64),
    Workload(Box<RunSpec>),
}

/// One case.
pub struct Case {
    /// Its number.
    pub number: u64,
    /// Index into [`KINDS`].
    pub kind: usize,
    what: What,
}

/// The result.
pub struct Found {
    /// Accesses that the oracle checked.
    pub checked: u64,
    /// The failure.
    pub found: Option<String>,
}

/// Random draws.
struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn isa(&mut self) -> Isa {
        match self.below(4) {
            0 | 1 => Isa::X86_64,
            2 => Isa::Aarch64(Aarch64::default()),
            _ => Isa::Riscv64(Riscv64 {
                svinval: self.chance(2),
                sbi_call: 1000,
                sbi_per_hart: 50,
                root_load_ends_walks: self.chance(2),
            }),
        }
    }

    /// Any design that keeps the contract, with so few tags that they run out.
    fn design(&mut self, cpus: usize) -> Design {
        let hybrid = self.of(&[Tags::Hybrid { promote_at: 2 }, Tags::HybridByCost { promote_at: 2 }]);
        let (tags, reach) = self.of(&[
            (Tags::PerCpu, Reach::Ipi),
            (Tags::PerCpu, Reach::Broadcast),
            (hybrid, Reach::Broadcast),
            (hybrid, Reach::Adaptive),
            (Tags::System, Reach::Ipi),
            (Tags::System, Reach::Broadcast),
            (Tags::System, Reach::LocalFirst),
        ]);
        let (slots, first_tag) = (1 + self.below(6) as u8, 1 + self.below(17) as u16);
        Policy {
            tags,
            reach,
            targets: self.of(&[Targets::Active, Targets::InUser, Targets::Space, Targets::All]),
            departure: self.of(&[
                Departure::AtSwitch,
                Departure::WhenAsked { trim_ns: 500 },
                Departure::WhenShared { looks: 2 },
            ]),
            requests: self.of(&[Requests::PerRequest, Requests::PerCpu, Requests::Log]),
            order: self.of(&[Order::Serial, Order::Concurrent]),
            ack: self.of(&[Ack::Late, Ack::Early]),
            wait: self.of(&[
                Wait::Spin,
                Wait::SpinServing,
                Wait::Preemptible,
                Wait::PreemptibleServing,
            ]),
            walkers: self.of(&[
                Walkers::InterruptAll,
                Walkers::Precise,
                Walkers::PreciseExchange,
                Walkers::Sticky,
                Walkers::GracePeriod,
                Walkers::Adaptive,
            ]),
            exit: self.of(&[Exit::Flush, Exit::DeferToRollOver]),
            free: self.of(&[Free::Synchronous, Free::Batched, Free::Deferred]),
            ceiling: self.of(&[0, 1, 5, 33, 511]),
            slots,
            consider_window_ns: 64,
            sample_one_in: 4,
            demote_after: 1 + self.below(3) as u32,
            defer_frames: self.of(&[4096, 4]),
            stuck_ns: 0,
        }
        .on(shootdown::Machine {
            errata: Errata {
                repeat: self.chance(8),
                interrupt_too: self.chance(8),
                never_broadcast: self.chance(8),
            },
            first_tag,
            tag_limit: match tags {
                Tags::System => u32::from(first_tag) + cpus as u32 + 1 + self.below(3) as u32,
                _ => u32::from(first_tag) + u32::from(slots) + 1 + self.below(3) as u32,
            },
            split: self.chance(3),
        })
    }

    fn workload(&mut self, seed: u64) -> RunSpec {
        loop {
            let machine = self.of(Model::builtin_names());
            let machine = Arc::new(Model::find(machine).expect("shipped"));
            // The workload whose threads read pages that others withdraw, as often as all others together.
            let workload = match self.chance(2) {
                true => "tlb_shared",
                false => self.of(&Workload::ALL).0,
            };
            let entries: Vec<_> = designs().filter(|entry| entry.name != "none").collect();
            let design = self.of(&entries).name;
            let spec = RunSpec {
                workload: workload.into(),
                threads: self.of(&[1, 2, 3, 4, 6, 8, 16, 24]).min(machine.topology.cpus()),
                machine,
                design: design.into(),
                seed,
                virtual_ms: Some(self.of(&[1.0, 4.0, 16.0])),
                lru_drain: self.chance(4),
                parameters: Default::default(),
            };
            if run::validate(&spec).is_ok() {
                return spec;
            }
        }
    }
}

impl Case {
    /// Case `number` of `seed`.
    pub fn of(seed: u64, number: u64) -> Case {
        let mut draw = Draw(Xoshiro256PlusPlus::seed_from_u64(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number),
        ));
        let kind = draw.of(&[0, 0, 0, 1, 2]);
        let case_seed = draw.below(u64::MAX);
        let what = match kind {
            0 => {
                let (isa, cpus) = (draw.isa(), 2 + draw.below(7) as usize);
                let design = draw.design(cpus);
                let steps = draw.of(&[40, 80, 160]);
                What::Traffic(
                    isa,
                    Traffic {
                        design,
                        cpus,
                        steps,
                        seed: case_seed,
                    },
                )
            }
            1 => {
                let cpus = 2 + draw.below(5) as usize;
                What::Threads(draw.design(cpus), cpus, cpus * (1 + draw.below(3) as usize), case_seed)
            }
            _ => What::Workload(Box::new(draw.workload(case_seed))),
        };
        Case { number, kind, what }
    }

    /// Its description, in one line.
    pub fn description(&self) -> String {
        match &self.what {
            What::Workload(spec) => format!(
                "{} on {} under {}, {} threads, {:?} ms, seed {}",
                spec.workload, spec.machine.name, spec.design, spec.threads, spec.virtual_ms, spec.seed
            ),
            what => format!("{what:?}"),
        }
    }

    /// Runs it.
    pub fn run(&self) -> Found {
        match catch_unwind(AssertUnwindSafe(|| self.check())) {
            Ok(found) => found,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                Found {
                    checked: 0,
                    found: Some(format!("it panicked: {}", text.unwrap_or_default())),
                }
            }
        }
    }

    fn check(&self) -> Found {
        let ended = |diagnosis: Option<String>, outcome: Outcome| {
            diagnosis.or_else(|| (outcome != Outcome::Finished).then(|| format!("it did not finish: {outcome:?}")))
        };
        match &self.what {
            What::Traffic(isa, traffic) => {
                let (tally, diagnosis, outcome) = play_on(*isa, traffic);
                Found {
                    checked: tally.checked,
                    found: ended(diagnosis, outcome),
                }
            }
            What::Threads(design, cpus, threads, seed) => {
                let (tally, diagnosis, outcome) = threads::play(*design, *cpus, *threads, *seed);
                Found {
                    checked: tally.checked,
                    found: ended(diagnosis, outcome),
                }
            }
            What::Workload(spec) => match run::run(spec, &mut |_| true) {
                Ok(result) => Found {
                    checked: result.accesses_checked,
                    found: (result.stale > 0)
                        .then(|| result.diagnosis.unwrap_or_else(|| "stale, and no diagnosis".into())),
                },
                Err(why) => Found {
                    checked: 0,
                    found: Some(why),
                },
            },
        }
    }
}
