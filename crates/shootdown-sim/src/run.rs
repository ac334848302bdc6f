//! One run: a workload, on a machine model, under a design, with a thread count and a seed.

use crate::design::find_design;
use crate::hw::Hw;
use crate::machine::{Machine, Outcome, activity};
use crate::os::category::Category;
use crate::os::{DecisionLog, EngineCounts, System};
use crate::result::latencies;
use crate::setup::{all_cpus, machines, os_settings, systems_on};
use crate::shares::whole_time_shares;
use crate::threads::{config, start_threads};
use crate::window::{Edge, Measured, Plan, Window, window_events};
use shootdown::{Costs, Design, Free, Kernel, Policy, Walkers};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

pub use crate::design::{AXES, Axis, DesignEntry, PREFIX as DESIGN_PREFIX, Setting, Settings, Values, axis, designs};
pub use crate::precision::UNCERTAIN;
pub use crate::result::{Caveat, Latency, RunResult};
pub use crate::spec::{
    DEFAULT_VIRTUAL_MS, LEAST_VIRTUAL_MS, MOST_PER_CPU, RunSpec, WARM_UP_APART_MS, WARM_UP_MS, validate,
};
pub use crate::window::{PATIENT_THREADS, PRECISE, WARM_UP_EVENTS, WINDOW_EVENTS_PER_THREAD};
pub use crate::workload::{PARAMETER_PREFIX, Parameter, Parameters, Workload, parameters};

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
    pub decision_log: DecisionLog,
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
        decision_log: DecisionLog::default(),
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
    if all_cpus(&spec.machine) <= 64 * 8 {
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
    let machines = machines(model);
    let extra_tasks = if shared { machines * (spec.threads + cpus) } else { 0 };
    let mut design = entry.on(model, spec.parameters.design())?;
    if !workload.walks() {
        // A kernel without lockless walks frees page-table pages without regard to them.
        design.policy.walkers = Walkers::None;
    }
    let mut machine = Machine::new(config::<W>(spec, workload, extra_tasks));
    let settings = os_settings(model, &design, spec.lru_drain, entry.ideal);
    let systems: Vec<Rc<System<W>>> = systems_on(&machine, model, design, settings, spec.seed);
    let counters: Vec<_> = (0..machines * spec.threads)
        .map(|_| Rc::new(Cell::new(0_u64)))
        .collect();
    for (number, (system, counters)) in systems.iter().zip(counters.chunks(spec.threads)).enumerate() {
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
        start_threads(&machine, system, spec, workload, shared, number * cpus, counters);
    }
    // The decisions and latencies shown are those of the first machine.
    let system = systems[0].clone();
    if explanation.is_some() {
        system.engine.kernel().keep_decision_log(all_cpus(model));
    }

    let plan = plan(spec, workload);
    let deadline = plan.warm_up + plan.length;
    let freed = Rc::new(Cell::new(0));
    let measured_latencies = Rc::new(RefCell::new(Vec::new()));
    let online = Rc::new(Cell::new(0));
    let window = Window::new(&machine, plan, counters, {
        let (freed, systems, model) = (freed.clone(), systems.clone(), model.clone());
        let (measured, online) = (measured_latencies.clone(), online.clone());
        let tables_freed = move || systems.iter().map(|system| system.tables_freed()).sum::<u64>();
        let system = system.clone();
        move |edge| match edge {
            Edge::Begin => {
                freed.set(tables_freed());
                system.engine.kernel().begin_counting();
                system.preemption.reset();
                activity::window_opens();
            }
            Edge::End => {
                // Afterwards CPUs go offline.
                online.set(system.engine.online().len() as u64);
                freed.set(tables_freed() - freed.get());
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
    let counted = (machines * if shared { cpus } else { spec.threads }) as f64;
    let all = window as f64 * counted;
    let time_shares = whole_time_shares(&statistics.total, model, all, (counted, ops));
    let flush_share = time_shares[Category::FlushRequester as usize].1 + time_shares[Category::FlushTarget as usize].1;
    if let Some(explanation) = explanation {
        let kernel = system.engine.kernel();
        *explanation = Explanation {
            decision_log: kernel.take_decision_log().unwrap_or_default(),
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
    let of_all = |count: fn(&Hw) -> u64| systems.iter().map(|system| count(&system.hw.borrow())).sum();
    let first_violation = |system: &Rc<System<W>>| {
        let hw = system.hw.borrow();
        hw.violations().first().map(|violation| violation.to_string())
    };
    Ok(RunResult {
        ops,
        virtual_ns,
        ops_per_s: ops as f64 / machines as f64 / (virtual_ns * 1e-9),
        half_width,
        warm,
        ipis_per_op: per_op(statistics.total.ipis_sent),
        interrupts_per_op: per_op(statistics.total.interrupts_taken),
        flush_share,
        stale: of_all(Hw::violation_count),
        accesses_checked: of_all(Hw::accesses_checked),
        caught_after: systems
            .iter()
            .find_map(|system| system.hw.borrow().first_violation_after()),
        diagnosis: systems.iter().find_map(first_violation),
        tables_freed_per_s: freed.get() as f64 / (virtual_ns * 1e-9),
        events: machine.events(),
        time_shares,
        latencies: measured_latencies.take(),
        host_seconds: started.elapsed().as_secs_f64(),
    })
}

/// When the measurement begins and ends.
fn plan(spec: &RunSpec, workload: Workload) -> Plan {
    let processes = workload.processes(spec.threads, &spec.parameters);
    // Threads that wait for one another to map their regions.
    let crowd = spec.threads.div_ceil(processes);
    let warm_up = match workload.stays_apart() && crowd == 1 && processes > 1 {
        true => WARM_UP_APART_MS,
        false => WARM_UP_MS * (crowd as f64 / 64.0).max(1.0),
    };
    let longer = |threads: f64| (spec.threads as f64 / threads).max(1.0);
    let cycles = |ms: f64| spec.machine.cycles(ms * 1e6) as u64;
    let usual = DEFAULT_VIRTUAL_MS * longer(256.0).max(workload.patience());
    Plan {
        warm_up: cycles(warm_up),
        length: cycles(spec.virtual_ms.unwrap_or(usual)),
        fixed_length: spec.virtual_ms.is_some(),
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
