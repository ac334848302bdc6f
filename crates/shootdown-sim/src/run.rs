//! One run: a workload, on a machine model, under a design, with a thread count and a seed.

use crate::hw::Hw;
use crate::machine::{Machine, Outcome};
use crate::model::Model;
use crate::os::category::Category;
use crate::os::{Diary, EngineCounts, Latencies, OsSettings, Recorder, System};
use crate::setup::{hardware_config, hook_costs, host, os_costs};
use crate::shares::whole_time_shares;
use crate::threads::{config, start_threads};
use crate::timeline;
use crate::window::{Edge, Measured, Plan, Window, window_events};
use shootdown::{Costs, Design, Free, Kernel, Policy, Walkers};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

pub use crate::design::{AXES, Axis, PREFIX as DESIGN_PREFIX, Setting, Settings, Values, axis};
pub use crate::precision::{Doubt, UNCERTAIN};
pub use crate::window::{PATIENT_THREADS, PRECISE, WARM_UP_EVENTS, WINDOW_EVENTS_PER_THREAD};
pub use crate::workload::{PARAMETER_PREFIX, Parameter, Parameters, Workload, parameters};

/// What to run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// Name of the workload (see [`Workload::ALL`]).
    pub workload: String,
    /// Machine model.
    pub machine: Arc<Model>,
    /// Name of the design (see [`designs`]).
    pub design: String,
    /// Simulated threads, from 1; one per CPU, up to [`MOST_PER_CPU`] for workloads that allow it.
    pub threads: usize,
    /// Seed: the same seed gives the same run in everything but host time.
    pub seed: u64,
    /// Virtual time measured, in milliseconds, after the warm-up; `None` = [`DEFAULT_VIRTUAL_MS`].
    pub virtual_ms: Option<f64>,
    /// Whether each `madvise` drains the CPU's LRU batch under the LRU lock (E2's "unmodified" kernels do).
    pub lru_drain: bool,
    /// Numbers of the workload that differ from their defaults, and settings of the design that differ from the
    /// preset's.
    pub parameters: Parameters,
}

/// Virtual time measured by default, ms. Beyond 256 threads the window instead lasts until there are as many operations
/// as threads and their rate is known to within [`PRECISE`], limited by [`WINDOW_EVENTS_PER_THREAD`].
pub const DEFAULT_VIRTUAL_MS: f64 = 30.0;

/// Virtual time before the measurement, ms: enough for sampled promotion, which samples once in about 2 ms per CPU.
/// Beyond 64 threads of a process it is multiplied by the number of 64s in them, since all of them map their region at
/// the start, one by one. Beyond 256 threads it lasts until there are as many operations as threads. [`WARM_UP_EVENTS`]
/// ends it early.
pub const WARM_UP_MS: f64 = 6.0;

/// Most threads per CPU, where there may be more than one: each needs a stack on the host.
pub const MOST_PER_CPU: usize = 64;

/// Shortest window that is accepted, ms: a few operations of one thread.
pub const LEAST_VIRTUAL_MS: f64 = 0.05;

/// The result. Everything but `host_seconds` is a pure function of the [`RunSpec`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// Workload operations in the measured window.
    pub ops: u64,
    /// Length of the measured window, virtual nanoseconds.
    pub virtual_ns: f64,
    /// Operations per virtual second, all threads together.
    pub ops_per_s: f64,
    /// Half the width of the 95 % confidence interval of `ops_per_s`, as a share of it, by batch means; `None` where
    /// the window was too short.
    pub half_width: Option<f64>,
    /// Whether the warm-up saw as many operations as there are threads, where there are more than 256; else true.
    pub warm: bool,
    /// Interrupts sent per operation.
    pub ipis_per_op: f64,
    /// Interrupts taken per operation (several requests can share one).
    pub interrupts_per_op: f64,
    /// Share of CPU time spent in invalidation, requesters and targets, 0 to 1.
    pub flush_share: f64,
    /// Stale translations and other violations the oracle found.
    pub stale: u64,
    /// Accesses the oracle checked, warm-up included.
    pub accesses_checked: u64,
    /// Accesses checked before the first violation.
    pub caught_after: Option<u64>,
    /// The first violation with its history, several lines.
    pub story: Option<String>,
    /// Table pages freed per virtual second by a workload that frees them directly (`gup`).
    pub tables_freed_per_s: f64,
    /// Charged operations simulated, warm-up included.
    pub events: u64,
    /// Where CPU time went in the measured window: (category, share of all CPU time of the threads' CPUs).
    pub time_shares: Vec<(&'static str, f64)>,
    /// Latency distributions of the measured window; those without samples are left out.
    pub latencies: Vec<Latency>,
    /// Host seconds the run took (not deterministic).
    pub host_seconds: f64,
}

/// A latency distribution, in virtual nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// The distribution: "flush", "preemption off", "interrupt disturbance" and so on.
    pub name: &'static str,
    /// Samples.
    pub count: u64,
    /// Half of the samples are not above it.
    pub p50_ns: f64,
    /// 99 of 100 samples are not above it.
    pub p99_ns: f64,
    /// The largest.
    pub max_ns: f64,
    /// Upper edge in ns, and the samples up to it and above the edge before.
    pub buckets: Vec<(f64, u64)>,
}

/// A design by name, with its description.
#[derive(Debug, Clone, Copy)]
pub struct DesignEntry {
    /// Name.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Settings of the engine.
    pub design: Design,
    /// Whether the machine invalidates everything at once and for free.
    pub ideal: bool,
}

/// All designs: the engine's presets, and `ideal`, which only a simulated machine can have.
pub fn designs() -> impl Iterator<Item = DesignEntry> {
    let ideal = DesignEntry {
        name: "ideal",
        about: "perfect invalidation at no cost: the limit, simulation only",
        // CPUs never leave a set: no flush reads it, and no write is made for the sake of flushes.
        design: Policy {
            departure: shootdown::Departure::WhenAsked { trim_ns: u64::MAX },
            ..Policy::NONE
        }
        .into(),
        ideal: true,
    };
    let presets = Design::PRESETS.iter().map(|&(name, design, about)| DesignEntry {
        name,
        about,
        design,
        ideal: false,
    });
    std::iter::once(ideal).chain(presets)
}

pub(crate) fn find_design(name: &str) -> Result<DesignEntry, String> {
    designs().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = designs().map(|entry| entry.name).collect();
        format!("design `{name}` is not known; use one of: {}", known.join(", "))
    })
}

/// Checks a specification without running it.
///
/// One line with the error and the remedy.
/// One line naming what is wrong and the remedy.
pub fn validate(spec: &RunSpec) -> Result<(), String> {
    let Some(workload) = Workload::named(&spec.workload) else {
        let known: Vec<_> = Workload::ALL.iter().map(|(name, ..)| *name).collect();
        return Err(format!(
            "workload `{}` is not known; use one of: {}",
            spec.workload,
            known.join(", ")
        ));
    };
    spec.parameters.check_for(workload)?;
    spec.machine.check_vcpus()?;
    let entry = find_design(&spec.design)?;
    let cpus = spec.machine.topology.cpus();
    entry.on(&spec.machine, spec.parameters.design())?;
    if spec.threads == 0 {
        return Err("--threads 0: give at least 1 thread".into());
    }
    let oversubscribes = Workload::named(&spec.workload).is_some_and(Workload::oversubscribes);
    if oversubscribes && spec.threads > cpus * MOST_PER_CPU {
        return Err(format!(
            "--threads {}: {} has {cpus} CPUs; give at most {MOST_PER_CPU} threads per CPU, {}",
            spec.threads,
            spec.machine.name,
            cpus * MOST_PER_CPU
        ));
    }
    if !oversubscribes && spec.threads > cpus {
        return Err(format!(
            "--threads {}: {} has {cpus} CPUs; give at most {cpus}, or scale the machine with --cpus",
            spec.threads, spec.machine.name
        ));
    }
    if spec
        .virtual_ms
        .is_some_and(|ms| !(LEAST_VIRTUAL_MS..=1e6).contains(&ms))
    {
        return Err(format!(
            "--virtual-ms: expected milliseconds from {LEAST_VIRTUAL_MS} to 1000000"
        ));
    }
    Ok(())
}

/// Runs it. `progress` is called occasionally with the fraction done (0 to 1); returning `false` abandons the run.
///
/// # Errors
/// As [`validate`]; also when abandoned, and when the simulated kernel hangs (which is a bug of the design).
pub fn run(spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<RunResult, String> {
    run_explained(spec, progress, &mut None)
}

/// The engine's decisions in a run, with reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Requests by method and their durations, in the measured window; decisions with reasons, from the start.
    pub diary: Diary,
    /// Engine events from the start.
    pub counts: EngineCounts,
    /// The cost estimate of each method at the end.
    pub costs: Costs,
    /// Whether requests could have been broadcast.
    pub broadcast: bool,
    /// Other CPUs that a broadcast interrupts, where firmware carries it out; otherwise 0. Each adds
    /// [`disturbed_ns`](Costs::disturbed_ns) to the cost of a broadcast that the engine compares.
    pub broadcast_interrupts: u64,
    /// Whether broadcasts are aimed at CPUs: remote actions.
    pub aimed: bool,
    /// The design as it was run on this machine.
    pub design: Design,
}

/// Runs it and logs the engine's events. The result is that of [`run`].
///
/// # Errors
/// As [`run`].
pub fn explain(spec: &RunSpec, progress: &mut dyn FnMut(f64) -> bool) -> Result<(RunResult, Explanation), String> {
    let mut explanation = Some(Explanation {
        diary: Diary::default(),
        counts: EngineCounts::default(),
        costs: Costs::PRIORS,
        broadcast: false,
        broadcast_interrupts: 0,
        aimed: false,
        design: Policy::NONE.into(),
    });
    let result = run_explained(spec, progress, &mut explanation)?;
    Ok((result, explanation.ok_or("no explanation was kept")?))
}

fn run_explained(
    spec: &RunSpec,
    progress: &mut dyn FnMut(f64) -> bool,
    explanation: &mut Option<Explanation>,
) -> Result<RunResult, String> {
    validate(spec)?;
    if spec.machine.topology.cpus() <= 64 * 8 {
        run_sized::<8>(spec, progress, explanation)
    } else {
        run_sized::<128>(spec, progress, explanation)
    }
}

fn run_sized<const W: usize>(
    spec: &RunSpec,
    progress: &mut dyn FnMut(f64) -> bool,
    explanation: &mut Option<Explanation>,
) -> Result<RunResult, String> {
    let started = Instant::now();
    let workload = Workload::named(&spec.workload).ok_or("unknown workload")?;
    let entry = find_design(&spec.design)?;
    let model = &spec.machine;
    let cpus = model.topology.cpus();
    let shared = spec.threads > cpus || workload.bystander::<W>().is_some();
    let extra_tasks = if shared { spec.threads + cpus } else { 0 };
    let mut design = entry.on(model, spec.parameters.design())?;
    if !workload.walks() {
        // A kernel without lockless walks frees page-table pages without regard to them.
        design.policy.walkers = Walkers::None;
    }
    let mut machine = Machine::new(config::<W>(spec, workload, extra_tasks));
    let system: Rc<System<W>> = System::new(
        &machine,
        Hw::new(hardware_config(model, spec.seed)),
        hook_costs(model, &design),
        design,
        os_costs(model),
        OsSettings {
            lru_drain: spec.lru_drain,
            ideal: entry.ideal,
        },
    );
    if let Some(host) = host(model) {
        system.run_on_host(host);
    }
    if design.policy.free == Free::Deferred {
        system.start_ticks(
            model.kernel.tick_period.round() as u64,
            model.kernel.tick.round() as u64,
        );
    }
    // One thread per CPU needs no scheduler.
    if shared {
        system.use_scheduler(&machine, model.kernel.slice.round() as u64);
    }
    if explanation.is_some() {
        system.engine.kernel().keep_diary(model.topology.cpus());
    }
    let counters: Vec<_> = (0..spec.threads).map(|_| Rc::new(Cell::new(0_u64))).collect();
    start_threads(&machine, &system, spec, workload, shared, &counters);

    let plan = plan(spec, workload);
    let deadline = plan.warm_up + plan.length;
    let freed = Rc::new(Cell::new(0));
    let measured_latencies = Rc::new(RefCell::new(Vec::new()));
    let online = Rc::new(Cell::new(0));
    let window = Window::new(&machine, plan, counters, {
        let (freed, system, model) = (freed.clone(), system.clone(), model.clone());
        let (measured, online) = (measured_latencies.clone(), online.clone());
        move |edge| match edge {
            Edge::Begin => {
                freed.set(system.tables_freed());
                system.engine.kernel().begin_counting();
                system.preemption.reset();
                timeline::window_opens();
            }
            Edge::End => {
                // Afterwards CPUs go offline.
                online.set(system.engine.online().len() as u64);
                freed.set(system.tables_freed() - freed.get());
                *measured.borrow_mut() = latencies(&system.preemption.latencies, &model);
            }
        }
    });
    play(&mut machine, spec, deadline, &window, progress)?;
    let Measured {
        ops,
        cycles: window,
        statistics,
        half_width,
        warm,
    } = window.take().ok_or("the measured window never ended")?;
    let virtual_ns = model.ns(window as f64);
    let per_op = |count: u64| if ops == 0 { 0.0 } else { count as f64 / ops as f64 };
    // With a scheduler every CPU has an idle task, which counts.
    let all = window as f64 * if shared { cpus } else { spec.threads } as f64;
    let time_shares = whole_time_shares(&statistics.total, model, all);
    let flush_share = time_shares[Category::FlushRequester as usize].1 + time_shares[Category::FlushTarget as usize].1;
    if let Some(explanation) = explanation {
        let kernel = system.engine.kernel();
        *explanation = Explanation {
            diary: kernel.take_diary().unwrap_or_default(),
            counts: kernel.counts(),
            costs: system.engine.costs(),
            broadcast: model.broadcasts(),
            broadcast_interrupts: match Kernel::<W>::broadcast_interrupts(kernel) {
                true => online.get().saturating_sub(1),
                false => 0,
            },
            aimed: model.rar.is_some(),
            design,
        };
    }
    let hw = system.hw.borrow();
    Ok(RunResult {
        ops,
        virtual_ns,
        ops_per_s: ops as f64 / (virtual_ns * 1e-9),
        half_width,
        warm,
        ipis_per_op: per_op(statistics.total.ipis_sent),
        interrupts_per_op: per_op(statistics.total.interrupts_taken),
        flush_share,
        stale: hw.violation_count(),
        accesses_checked: hw.accesses_checked(),
        caught_after: hw.first_violation_after(),
        story: hw.violations().first().map(|violation| violation.to_string()),
        tables_freed_per_s: freed.get() as f64 / (virtual_ns * 1e-9),
        events: machine.events(),
        time_shares,
        latencies: measured_latencies.take(),
        host_seconds: started.elapsed().as_secs_f64(),
    })
}

/// When the measurement begins and ends.
fn plan(spec: &RunSpec, workload: Workload) -> Plan {
    // Threads that wait for one another to map their regions.
    let crowd = spec
        .threads
        .div_ceil(workload.processes(spec.threads, &spec.parameters));
    let longer = |threads: f64| (spec.threads as f64 / threads).max(1.0);
    let cycles = |ms: f64| spec.machine.cycles(ms * 1e6) as u64;
    let usual = DEFAULT_VIRTUAL_MS * longer(256.0).max(workload.patience());
    Plan {
        warm_up: cycles(WARM_UP_MS * (crowd as f64 / 64.0).max(1.0)),
        length: cycles(spec.virtual_ms.unwrap_or(usual)),
        asked: spec.virtual_ms.is_some(),
        patient: (spec.threads > PATIENT_THREADS).then_some(spec.threads as u64),
        events: (WARM_UP_EVENTS, window_events(spec.threads)),
    }
}

/// Runs the machine until the window is over.
fn play(
    machine: &mut Machine,
    spec: &RunSpec,
    deadline: u64,
    window: &Window,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(), String> {
    let mut abandoned = false;
    let outcome = machine.run(deadline, |at| {
        abandoned = !progress(window.fraction(at));
        window.look(at) && !abandoned
    });
    match outcome {
        Outcome::Finished => Ok(()),
        Outcome::Abandoned if !abandoned => Ok(()),
        Outcome::Abandoned => Err("abandoned".into()),
        Outcome::Deadlock(report) => Err(format!("the simulated kernel hangs under `{}`:\n{report}", spec.design)),
        Outcome::Runaway(report) => Err(format!("the simulated kernel spins under `{}`:\n{report}", spec.design)),
    }
}

pub(crate) fn latencies(measured: &Latencies, model: &Model) -> Vec<Latency> {
    let summed_up = |(name, recorder): (&'static str, &Recorder)| {
        let distribution = recorder.distribution()?;
        Some(Latency {
            name,
            count: distribution.count,
            p50_ns: model.ns(distribution.p50),
            p99_ns: model.ns(distribution.p99),
            max_ns: model.ns(distribution.max),
            buckets: distribution
                .buckets
                .iter()
                .map(|&(edge, count)| (model.ns(edge), count))
                .collect(),
        })
    };
    measured.all().into_iter().filter_map(summed_up).collect()
}
