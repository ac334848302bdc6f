//! Resources for a run's threads: memory and tasks of the machine, processes, and a CPU for each thread.

use crate::machine::{Config, Machine, SimWorld};
use crate::os::{Priority, Process, System, run_thread};
use crate::setup::{machine_config, machines, process_bytes};
use crate::spec::{DEFAULT_VIRTUAL_MS, RunSpec, WARM_UP_MS};
use crate::window::{LONGEST, PATIENT_THREADS};
use crate::workload::{Thread, Workload};
use shootdown::Space;
use std::cell::Cell;
use std::rc::Rc;

/// Sizes the machine for the threads, the processes that exist at once, and the engine's spaces of later ones.
pub(crate) fn config<const W: usize>(spec: &RunSpec, workload: Workload, extra_tasks: usize) -> Config {
    let machines = machines(&spec.machine);
    let mut config = machine_config(&spec.machine, spec.threads * machines, extra_tasks, spec.seed);
    // The precision of a rate follows from samples taken when progress is reported.
    config.progress_events = if spec.threads > PATIENT_THREADS {
        1 << 18
    } else {
        1 << 14
    };
    // Processes that end leave their memory to later ones, except the engine's space.
    let longest = spec
        .virtual_ms
        .unwrap_or(DEFAULT_VIRTUAL_MS * LONGEST as f64 * (spec.threads as f64 / 256.0).max(workload.patience()));
    let made = workload.processes_made(
        WARM_UP_MS * (spec.threads as f64 / 64.0).max(1.0) + longest,
        &spec.parameters,
    );
    config.arena_bytes += machines * spec.threads * made * size_of::<Space<SimWorld, W>>();
    let processes = workload.processes(spec.threads, &spec.parameters) + workload.processes_at_once(spec.threads);
    config.arena_bytes +=
        machines * processes * process_bytes(&spec.machine, workload.bytes(spec.threads, &spec.parameters));
    config
}

/// Makes the processes of one kernel, whose CPUs begin with `first`, and the threads on each CPU: threads of the
/// workload, each with its counter of operations, and bystanders where the workload has some. Without a scheduler
/// (`shared`) there is one thread on a CPU.
pub(crate) fn start_threads<const W: usize>(
    machine: &Machine,
    system: &Rc<System<W>>,
    spec: &RunSpec,
    workload: Workload,
    shared: bool,
    first: usize,
    counters: &[Rc<Cell<u64>>],
) {
    let model = &spec.machine;
    let cpus = model.topology.cpus();
    let parameters = Rc::new(spec.parameters.clone());
    let processes: Rc<[_]> = (1..=workload.processes(spec.threads, &spec.parameters))
        .map(|number| system.process(number as u32, workload.bytes(spec.threads, &parameters)))
        .collect();
    let commons = Rc::new(workload.commons(system));
    // Threads go to cores first, siblings last, as a scheduler places them.
    let placement: Vec<_> = model.topology.placement().map(|cpu| first + cpu).collect();
    let thread = |index: usize, threads: usize, process: &Rc<Process<W>>, operations: &Rc<Cell<u64>>| Thread {
        system: system.clone(),
        process: process.clone(),
        processes: processes.clone(),
        commons: commons.clone(),
        model: model.clone(),
        seed: spec.seed,
        parameters: parameters.clone(),
        index,
        threads,
        operations: operations.clone(),
    };
    for (index, operations) in counters.iter().enumerate() {
        let cpu = placement[index % cpus];
        let process = &processes[index % processes.len()];
        let thread = thread(index, spec.threads, process, operations);
        if shared {
            system.spawn_thread(machine, process, cpu, Priority::Normal, move || workload.run(&thread));
            continue;
        }
        machine.spawn(cpu, move || {
            thread.system.online();
            if thread.index == 0 {
                thread.system.calibrate(thread.threads);
            }
            run_thread(&thread.system, &thread.process, || workload.run(&thread));
            thread.system.offline();
        });
    }
    if let Some(body) = workload.bystander::<W>() {
        let process = system.process(processes.len() as u32 + 1, 0);
        for (index, &cpu) in placement.iter().enumerate() {
            let thread = thread(index, cpus, &process, &Rc::default());
            system.spawn_thread(machine, &process, cpu, Priority::RealTime, move || body(&thread));
        }
    }
}
