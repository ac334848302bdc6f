//! Flushes and interrupts of one operation of each workload, in numbers.

use shootdown_sim::model::Model;
use shootdown_sim::run::{Parameters, RunResult, RunSpec, run};
use std::sync::Arc;

fn played(workload: &str, design: &str, threads: usize, set: &[(&str, f64)]) -> RunResult {
    let parameters = set.iter().fold(Parameters::default(), |parameters, &(path, value)| {
        parameters.with(path, value).unwrap()
    });
    played_with(workload, design, threads, parameters)
}

fn played_with(workload: &str, design: &str, threads: usize, parameters: Parameters) -> RunResult {
    let result = run(&spec(workload, design, threads, parameters), &mut |_| true).unwrap();
    assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
    result
}

fn spec(workload: &str, design: &str, threads: usize, parameters: Parameters) -> RunSpec {
    RunSpec {
        workload: workload.into(),
        machine: Arc::new(Model::find("milan-72").unwrap()),
        design: design.into(),
        threads,
        seed: 7,
        virtual_ms: Some(4.0),
        lru_drain: false,
        parameters,
    }
}

fn call_us(result: &RunResult) -> f64 {
    result
        .latencies
        .iter()
        .find(|latency| latency.name == "call")
        .unwrap()
        .p50_ns
        / 1e3
}

/// Each call interrupts every CPU that has read the pages, and takes longer with their number.
#[test]
fn unmap_of_shared_pages_interrupts_every_reader() {
    for unmap in [0.0, 1.0] {
        let set = [
            ("workload.unmap_shared.unmap", unmap),
            ("workload.unmap_shared.pages", 4.0),
        ];
        let times = [1, 2, 9, 33].map(|threads| {
            let result = played("unmap_shared", "ipi-per-cpu", threads, &set);
            let readers = threads as f64 - 1.0;
            assert!(
                (result.interrupts_per_op - readers).abs() < 0.1 * readers + 0.01,
                "{threads}: {result:?}"
            );
            call_us(&result)
        });
        assert!(times.is_sorted() && times[3] > 2.0 * times[1], "{times:?}");
        let ideal = call_us(&played("unmap_shared", "ideal", 33, &set));
        assert!(ideal < 0.5 * times[3], "{ideal} {times:?}");
    }
}

/// A batch of 512 pages is flushed once, where one page at a time is flushed 512 times: 99.8 % fewer interrupts.
#[test]
fn page_migration_batches_share_a_flush() {
    let per_page = |batch: f64| {
        let result = played("migrate", "ipi-per-cpu", 8, &[("workload.migrate.batch", batch)]);
        (result.interrupts_per_op, result.ops_per_s)
    };
    let ((alone, slow), (batched, fast)) = (per_page(1.0), per_page(512.0));
    assert!((6.0..=7.5).contains(&alone), "seven readers: {alone}");
    assert!(batched < 0.01 * alone && fast > 1.5 * slow, "{batched} {fast} {slow}");
}

/// will-it-scale's processes never interrupt each other; two threads of one process do, 1 + 15/16 times a loop.
#[test]
fn file_loops_flush_as_in_will_it_scale() {
    for workload in ["tlb_flush1", "tlb_flush3"] {
        let path = format!("workload.{workload}.process_threads");
        let (threads, processes) = (
            played(workload, "ipi-per-cpu", 2, &[]),
            played(workload, "ipi-per-cpu", 2, &[(&path, 1.0)]),
        );
        // Of a private mapping, 15 of 16 writes flush too. Of a shared one, a drop flushes again beside another drop.
        let expected = if workload == "tlb_flush1" {
            1.90..=1.98
        } else {
            1.80..=2.02
        };
        assert!(
            expected.contains(&threads.interrupts_per_op),
            "{workload}: {}",
            threads.interrupts_per_op
        );
        assert!(processes.interrupts_per_op < 0.01, "{}", processes.interrupts_per_op);
        assert!(processes.ops_per_s > 1.5 * threads.ops_per_s, "{processes:?}");
    }
    let anonymous = played("tlb_flush2", "ipi-per-cpu", 2, &[]).interrupts_per_op;
    assert!((anonymous - 1.0).abs() < 0.02, "{anonymous}");
}

/// A chunk of any size is dropped by one call.
#[test]
fn freed_chunk_is_flushed_once() {
    let result = played("malloc_churn", "ipi-per-cpu", 8, &[]);
    let flushes = result.latencies.iter().find(|latency| latency.name == "flush").unwrap();
    let per_op = flushes.count as f64 / result.ops as f64;
    assert!((per_op - 1.0).abs() < 0.02, "{per_op}");
    // Requests that meet at a CPU share an interrupt.
    assert!(result.interrupts_per_op <= 7.0, "{}", result.interrupts_per_op);
}

/// Each of many processes runs where it did not run before: a switch between two processes sends no interrupt, and the
/// CPU set of a process is a line that few CPUs write.
#[test]
fn switches_among_many_processes_contend_for_no_cpu_set() {
    let rate = |design, processes| {
        let set = [("workload.context_switch.processes", processes)];
        let result = played("context_switch", design, 72, &set);
        assert!(processes == 2.0 || result.interrupts_per_op < 0.001, "{result:?}");
        result.ops_per_s
    };
    let gain = |processes| rate("ipi-trim", processes) / rate("ipi", processes);
    let (one_set, many) = (gain(2.0), gain(800.0));
    assert!(one_set > 1.3 && (0.97..1.15).contains(&many), "{one_set} {many}");
}

/// An unmap that meets another one flushes everything, so idle CPUs are interrupted too; a design whose log has the
/// ranges does not.
#[test]
fn nested_unmaps_interrupt_idle_cpus() {
    let run = |design: &str, nested| {
        let machine = Model::find("skylake-104").unwrap();
        let spec = RunSpec {
            workload: "tlb_flush2".into(),
            machine: Arc::new(machine.with("linux.nested_flushes", nested).unwrap()),
            design: design.into(),
            threads: 104,
            seed: 7,
            virtual_ms: Some(3.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        result
    };
    let (alone, nested) = (run("ipi", 0.0).interrupts_per_op, run("ipi", 1.0).interrupts_per_op);
    assert!(nested > 1.03 * alone, "{nested} {alone}");
    assert_eq!(run("adaptive", 0.0).ops, run("adaptive", 1.0).ops);
    assert_eq!(run("ideal", 0.0).ops, run("ideal", 1.0).ops);
}

/// A flush of everything where two unmaps meet is no proof for the other unmap's pages: their removal may still sit in
/// a store buffer. Three of these 24 runs reported a stale translation while the oracle took it for one.
#[test]
fn flush_of_an_unmap_proves_nothing_about_the_pages_of_another_one() {
    for seed in 1..=24 {
        let spec = RunSpec {
            workload: "tlb_shared".into(),
            machine: Arc::new(Model::find("milan-128").unwrap()),
            design: "arm-local-first".into(),
            threads: 8,
            seed,
            virtual_ms: Some(2.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "seed {seed}: {:?}", result.diagnosis);
    }
}

/// One write of the interrupt register reaches many targets: a request to them is sent sooner.
#[test]
fn targets_of_one_cluster_take_one_write() {
    let flush = |cluster: f64, threads| {
        let machine = Model::find("skylake-104").unwrap();
        let spec = RunSpec {
            workload: "madvise_spin".into(),
            machine: Arc::new(machine.with("linux.ipi_cluster", cluster).unwrap()),
            design: "ipi-per-cpu".into(),
            threads,
            seed: 7,
            virtual_ms: Some(3.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        1e9 / run(&spec, &mut |_| true).unwrap().ops_per_s
    };
    // One write for 7 targets in place of 7, at 85 ns each.
    let saved = flush(1.0, 8) - flush(16.0, 8);
    assert!((300.0..900.0).contains(&saved), "{saved}");
    assert_eq!(flush(1.0, 2), flush(16.0, 2));
}

/// Where each target answers in a line of its own, many targets answer sooner.
#[test]
fn answers_in_own_lines_are_faster() {
    let rate = |own: f64| {
        let machine = Model::find("milan-72")
            .unwrap()
            .with("linux.answer_lines", own)
            .unwrap();
        let spec = RunSpec {
            workload: "tlb_flush1".into(),
            machine: Arc::new(machine),
            design: "ipi".into(),
            threads: 36,
            seed: 7,
            virtual_ms: Some(2.0),
            lru_drain: false,
            parameters: Parameters::default(),
        };
        let result = run(&spec, &mut |_| true).unwrap();
        assert_eq!(result.stale, 0, "{:?}", result.diagnosis);
        result.ops_per_s
    };
    let (shared, own) = (rate(0.0), rate(1.0));
    assert!(own > 1.03 * shared, "{own} {shared}");
}

/// Which ceiling is right depends on how many translations of other memory are in use: flushing the whole tag for 16
/// pages pays with none, and costs more than it saves with a thousand.
#[test]
fn whole_tags_are_flushed_cheaply_only_where_little_memory_is_in_use() {
    let gain = |pages| {
        let rate = |ceiling| {
            let parameters = Parameters::default().with("workload.mmap_churn.pages_in_use", pages);
            let parameters = parameters.unwrap().with_setting("design.ceiling", ceiling).unwrap();
            played_with("mmap_churn", "adaptive", 1, parameters).ops_per_s
        };
        rate("8") / rate("33")
    };
    let (none, many) = (gain(0.0), gain(1024.0));
    assert!(none > 1.01 && many < 0.96, "{none} {many}");
}

/// The shorter warm-up of processes that stay apart is long enough: the window that follows it sees the same rate as a
/// later one. After two thirds of it the rate is still 0.6 % too low.
#[test]
fn processes_that_stay_apart_are_warm_when_the_window_opens() {
    let rate = |ms| {
        let parameters = Parameters::default().with("workload.tlb_flush3.process_threads", 1.0);
        let spec = RunSpec {
            machine: Arc::new(Model::find("sapphire-224").unwrap()),
            virtual_ms: Some(ms),
            ..spec("tlb_flush3", "ipi-trim", 192, parameters.unwrap())
        };
        run(&spec, &mut |_| true).unwrap().ops_per_s
    };
    let (early, long) = (rate(0.5), rate(2.0));
    assert!((early / long - 1.0).abs() < 0.005, "{early} {long}");
}
