//! `trace:FILE`: a recorded program, replayed on the simulated machine with the real engine.
//!
//! The recording gives the threads of each space, where and when they ran, idle times, and the requested flushes. The
//! engine decides how each flush is carried out. Time between steps passes as recorded. The machine, the simulated
//! kernel and the engine use that time, and delay the program when it is not enough (see `feed.rs`). Steps are
//! streamed: memory grows with the live spaces and threads, not with the length of the recording.

mod cpu;
mod feed;
mod scaling;
mod spaces;
mod victims;

pub use feed::SLACK_NS;
pub use scaling::{STAGGER_NS, Scale};

use crate::design::{Settings, find_design};
use crate::machine::{Machine, Outcome, SimWorld};
use crate::model::Model;
use crate::os::category::Category;
pub use crate::os::{BYSTANDERS, DISTURBANCE, Hit};
use crate::os::{DecisionLog, EngineCounts, System};
use crate::result::{Latency, latencies};
use crate::setup::{machine_config, machines, os_settings, process_bytes, systems_on};
use crate::shares::time_shares;
use crate::timeline::{TimelineEvent, recorded};
use cpu::{Cpu, Shared, Tally};
use feed::Feed;
use shootdown::{Space, Walkers};
use shootdown_trace::program::Step;
use shootdown_trace::victims::Interruptions;
use spaces::Spaces;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use victims::Victims;

/// Pages of each space: one lowest-level table.
const PAGES: u64 = 512;

/// Pages of each space that user code touches.
const HOT_PAGES: u64 = 4;

/// Spaces that may live at the same time.
const MOST_LIVE: usize = 4096;

/// The recording, the machine and the design of a replay.
#[derive(Debug, Clone)]
pub struct ReplaySpec {
    /// Machine model.
    pub machine: Arc<Model>,
    /// Name of the design (see [`designs`](crate::run::designs)).
    pub design: String,
    /// Settings of the design that are not the preset's.
    pub settings: Settings,
    /// Seed: the same gives the same result.
    pub seed: u64,
    /// How the program is scaled to the machine's CPUs.
    pub scale: Scale,
    /// CPUs of the recording.
    pub recorded_cpus: usize,
}

/// The result. Everything but `host_seconds` is a pure function of the [`ReplaySpec`] and the steps.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayResult {
    /// Flushes that threads requested.
    pub requests: u64,
    /// The engine's counts.
    pub counts: EngineCounts,
    /// Interrupts sent.
    pub interrupts_sent: u64,
    /// Interrupts taken; several that were sent can merge into one.
    pub interrupts_taken: u64,
    /// Virtual time that the program took, ns.
    pub virtual_ns: f64,
    /// Time of all CPUs that the program used, ns.
    pub cpu_ns: f64,
    /// Delay of the program by invalidation, ns.
    pub put_off_ns: u64,
    /// Longest delay of a CPU behind the recording, ns.
    pub latest_ns: u64,
    /// CPU time that requesters spent on invalidation, waiting included, ns.
    pub requester_ns: f64,
    /// CPU time that interrupts took from the interrupted code, ns.
    pub victim_ns: f64,
    /// The activities that these interrupts hit.
    pub hits: [(Hit, Hits); Hit::ALL.len()],
    /// Interrupts sent, by interrupted CPU and thread, and by sending thread and system call.
    pub victims: Interruptions,
    /// CPU time of catching up at switches, ns.
    pub switch_ns: f64,
    /// CPU time of user code, ns.
    pub user_ns: f64,
    /// Time of the CPUs that the program used: (category, share).
    pub time_shares: Vec<(&'static str, f64)>,
    /// From the call of a flush to its proof, only of those that reached other CPUs.
    pub shootdowns: Option<Quantiles>,
    /// Distributions.
    pub latencies: Vec<Latency>,
    /// Root loads at recorded switches that kept the tag's translations.
    pub kept: u64,
    /// Root loads at recorded switches, and returns from idleness, that flushed.
    pub flushed: u64,
    /// Root loads at switches that the recording lacks.
    pub roots_inferred: u64,
    /// Stale translations and other violations that the oracle found.
    pub stale: u64,
    /// Accesses that it checked.
    pub accesses_checked: u64,
    /// The first violation, with its history.
    pub diagnosis: Option<String>,
    /// Charged operations.
    pub events: u64,
    /// Most spaces that lived at the same time.
    pub most_spaces: usize,
    /// Most steps that waited at the same time.
    pub most_waiting: usize,
    /// Host seconds (not deterministic).
    pub host_seconds: f64,
}

/// Interrupts that hit one kind of CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hits {
    /// Their number.
    pub count: u64,
    /// Their total duration, entry and exit included, ns.
    pub ns: f64,
}

/// The tail of a distribution, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    /// Samples.
    pub count: u64,
    /// Half are not above it.
    pub p50_ns: f64,
    /// 99 of 100 are not.
    pub p99_ns: f64,
    /// The largest.
    pub max_ns: f64,
}

/// Checks a specification.
///
/// # Errors
/// One line with the error and the remedy.
pub fn validate(spec: &ReplaySpec) -> Result<(), String> {
    find_design(&spec.design)?.on(&spec.machine, &spec.settings)?;
    spec.machine.check_vcpus()?;
    if machines(&spec.machine) > 1 {
        return Err("vm.machines: a recording is replayed on one machine; make others busy with vm.others".into());
    }
    let (cpus, needed) = (spec.machine.topology.cpus(), spec.scale.cpus(spec.recorded_cpus));
    if needed > cpus {
        return Err(format!(
            "--scale {}: {} CPUs of the recording become {needed}, and {} has {cpus}; \
             scale less, or make the machine larger with --cpus {needed}",
            spec.scale, spec.recorded_cpus, spec.machine.name
        ));
    }
    Ok(())
}

/// Replays `steps`. `progress` is called occasionally; returning `false` abandons the replay.
///
/// # Errors
/// As [`validate`]; also when abandoned, and when the simulated kernel hangs.
pub fn replay(
    spec: &ReplaySpec,
    steps: impl Iterator<Item = Step> + 'static,
    progress: &mut dyn FnMut() -> bool,
) -> Result<ReplayResult, String> {
    validate(spec)?;
    let steps = Box::new(steps);
    if spec.machine.topology.cpus() <= 64 * 8 {
        replay_sized::<8>(spec, steps, progress)
    } else {
        replay_sized::<128>(spec, steps, progress)
    }
}

/// As [`replay`], and with `timeline` returns the events of every CPU, in order of time, up to the memory limit.
///
/// # Errors
/// As [`replay`].
pub fn replay_recorded(
    spec: &ReplaySpec,
    steps: impl Iterator<Item = Step> + 'static,
    timeline: bool,
    progress: &mut dyn FnMut() -> bool,
) -> Result<(ReplayResult, Vec<TimelineEvent>), String> {
    if !timeline {
        return Ok((replay(spec, steps, progress)?, Vec::new()));
    }
    let (result, events) = recorded(&spec.machine, || replay(spec, steps, progress));
    Ok((result?, events))
}

fn replay_sized<const W: usize>(
    spec: &ReplaySpec,
    steps: Box<dyn Iterator<Item = Step>>,
    progress: &mut dyn FnMut() -> bool,
) -> Result<ReplayResult, String> {
    let started = Instant::now();
    let entry = find_design(&spec.design)?;
    let model = &spec.machine;
    let used = match spec.scale {
        Scale::Spread => model.topology.cpus(),
        scale => scale.cpus(spec.recorded_cpus),
    };
    let mut design = entry.on(model, &spec.settings)?;
    design.policy.walkers = Walkers::None;
    let mut config = machine_config(model, used, 0, spec.seed);
    // Committed when used; ended spaces leave theirs to later ones.
    config.arena_bytes += MOST_LIVE * (process_bytes(model, PAGES * crate::os::PAGE) + size_of::<Space<SimWorld, W>>());
    let mut machine = Machine::new(config);
    let settings = os_settings(model, &design, false, entry.ideal);
    // One machine: `validate`.
    let system: Rc<System<W>> = systems_on(&machine, model, design, settings, spec.seed).swap_remove(0);
    system.engine.kernel().keep_decision_log(model.topology.cpus());
    let shared = Rc::new(Shared {
        system: system.clone(),
        feed: RefCell::new(Feed::new(steps, spec.scale, spec.recorded_cpus, used)),
        spaces: Spaces::new(system.clone(), spec.scale),
        ghz: model.ghz,
        tally: Tally::default(),
        victims: Rc::new(Victims::new(model.topology.cpus())),
    });
    let victims = shared.victims.clone();
    machine.set_send_hook(move |target| victims.sends(crate::machine::cpu(), target));
    for (number, cpu) in model.topology.placement().take(used).enumerate() {
        let cpu_of = Cpu::new(shared.clone(), number);
        machine.spawn(cpu, move || cpu_of.run());
    }
    match machine.run(u64::MAX / 64, |_| progress()) {
        Outcome::Finished => {}
        Outcome::Abandoned => return Err("abandoned".into()),
        Outcome::Deadlock(report) | Outcome::Runaway(report) => {
            return Err(format!("the simulated kernel hangs under `{}`:\n{report}", spec.design));
        }
    }
    let statistics = machine.statistics();
    let all = machine.time() as f64 * used as f64;
    let time_shares = time_shares(&statistics.total, model, all);
    let ns = |category: Category| model.ns(time_shares[category as usize].1 * all);
    let kernel = system.engine.kernel();
    let hw = system.hw.borrow();
    let feed = shared.feed.borrow();
    let tally = &shared.tally;
    Ok(ReplayResult {
        requests: tally.requests.get(),
        counts: kernel.counts(),
        interrupts_sent: statistics.total.ipis_sent,
        interrupts_taken: statistics.total.interrupts_taken,
        virtual_ns: model.ns(machine.time() as f64),
        cpu_ns: model.ns(all),
        put_off_ns: feed.put_off_ns(),
        latest_ns: tally.latest_ns.get(),
        requester_ns: ns(Category::FlushRequester),
        victim_ns: ns(Category::FlushTarget),
        hits: Hit::ALL.map(|hit| {
            let (count, cycles) = system.preemption.interrupted.of(hit);
            let ns = model.ns(cycles as f64);
            (hit, Hits { count, ns })
        }),
        victims: shared.victims.take(),
        switch_ns: ns(Category::Switch),
        user_ns: ns(Category::User),
        time_shares,
        shootdowns: quantiles(&kernel.take_decision_log().unwrap_or_default()),
        latencies: latencies(&system.preemption.latencies, model),
        kept: tally.kept.get(),
        flushed: tally.flushed.get(),
        roots_inferred: tally.roots_inferred.get(),
        stale: hw.violation_count(),
        accesses_checked: hw.accesses_checked(),
        diagnosis: hw.violations().first().map(ToString::to_string),
        events: machine.events(),
        most_spaces: shared.spaces.most(),
        most_waiting: feed.most_waiting(),
        host_seconds: started.elapsed().as_secs_f64(),
    })
}

/// Of the requests by interrupts or by broadcast.
fn quantiles(decision_log: &DecisionLog) -> Option<Quantiles> {
    let mut times: Vec<f32> = decision_log.requests[1..]
        .iter()
        .flat_map(|requests| requests.times_ns.iter().copied())
        .collect();
    times.sort_unstable_by(f32::total_cmp);
    let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share).round() as usize]);
    (!times.is_empty()).then(|| Quantiles {
        count: decision_log.requests[1..].iter().map(|requests| requests.count).sum(),
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: at(1.0),
    })
}
