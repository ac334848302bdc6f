use super::*;
use crate::text;

/// The steps of a text, one line each, and the withheld counts.
fn steps(lines: &str) -> (Vec<String>, Recorded) {
    let (mut program, mut steps) = (Program::default(), Vec::new());
    let mut show = |step: Step| {
        let what = match step.action {
            Action::Run { space, task, recorded } => {
                format!(
                    "runs {task} of space {space}{}",
                    if recorded { "" } else { ", inferred" }
                )
            }
            Action::Lazy { idle } => if idle { "idles" } else { "is in the kernel" }.to_string(),
            Action::Flush {
                space, pages, tables, ..
            } => format!(
                "flushes {} of space {space}{}",
                pages.map_or("all".to_string(), |pages| pages.to_string()),
                if tables { " with tables" } else { "" }
            ),
            Action::KernelFlush { space, pages } => format!("flushes {pages:?} of space {space} for the kernel"),
            Action::End { space } => format!("ends space {space}"),
        };
        steps.push(format!("{} {} {what}", step.time_ns / 1000, step.cpu));
    };
    text::read(lines.as_bytes(), |event| {
        program.add(event, &mut show);
        Ok(())
    })
    .unwrap();
    let recorded = program.finish(&mut show);
    (steps, recorded)
}

/// A line of a task, `name-pid (tgid)`, at that microsecond.
fn line(task: &str, cpu: u32, us: u32, event: &str) -> String {
    format!(" {task} [{cpu:03}] d..2. 0.{us:06}: {event}\n")
}

fn switch(task: &str, cpu: u32, us: u32, from: u32, state: &str, to: u32) -> String {
    let event = format!(
        "sched_switch: prev_comm=a prev_pid={from} prev_prio=120 \
         prev_state={state} ==> next_comm=b next_pid={to} next_prio=120"
    );
    line(task, cpu, us, &event)
}

fn flush(task: &str, cpu: u32, us: u32, pages: i32, reason: u32) -> String {
    line(
        task,
        cpu,
        us,
        &format!("tlb_flush: pages:{pages} reason:some reason ({reason})"),
    )
}

#[test]
fn kernel_requests_are_counted_and_omitted_from_the_program() {
    let text = [
        flush("a-7 ( 7)", 0, 10, 4, 4),
        line(
            "a-7 ( 7)",
            0,
            11,
            "csd_queue_cpu: cpu=1 callsite=x func=flush_tlb_func csd=1",
        ),
        flush("a-7 ( 7)", 0, 12, 4, 3),
        line("a-8 ( 7)", 1, 13, "call_function_single_entry: vector=251"),
        flush("a-8 ( 7)", 1, 21, 4, 1),
        flush("a-7 ( 7)", 0, 30, 1, 3),
        switch("a-7 ( 7)", 0, 40, 7, "S", 9),
        flush("a-7 ( 7)", 0, 41, -1, 0),
        flush("b-9 ( 9)", 0, 50, -1, 3),
    ];
    let (steps, recorded) = steps(&text.concat());
    assert_eq!(
        steps,
        [
            // CPU 1's task is known from its first line, which may be any event.
            "10 1 runs 8 of space 1, inferred",
            "10 0 runs 7 of space 1, inferred",
            "10 0 flushes 4 of space 1",
            "30 0 flushes 1 of space 1",
            "40 0 runs 9 of space 2",
            "50 0 flushes all of space 2 with tables",
        ]
    );
    assert_eq!((recorded.requests, recorded.sent, recorded.queued), (3, 1, 1));
    assert_eq!((recorded.remote, recorded.flushed, recorded.kept), (1, 1, 0));
    assert_eq!(recorded.queued_to_flushed.quantile(1.0).unwrap() / 1000, 10);
}

/// A CPU whose first line names its task has run it since the recording began.
#[test]
fn first_task_of_a_cpu_runs_from_the_beginning() {
    let queued = |us, cpu, target| {
        let event = format!("csd_queue_cpu: cpu={target} callsite=x func=flush_tlb_func csd=1");
        line("a-7 ( 7)", cpu, us, &event)
    };
    let text = [
        flush("a-7 ( 7)", 0, 10, 4, 4),
        queued(11, 0, 1),
        flush("a-7 ( 7)", 0, 12, 4, 3),
        queued(13, 0, 2),
        queued(14, 0, 2),
        switch("a-8 ( 7)", 1, 20, 8, "S", 0),
        switch("<idle>-0 (-------)", 2, 30, 0, "R", 8),
        queued(40, 0, 1),
    ];
    let (steps, recorded) = steps(&text.concat());
    assert_eq!(
        steps,
        [
            "10 2 idles",
            "10 1 runs 8 of space 1, inferred",
            "10 0 runs 7 of space 1, inferred",
            "10 0 flushes 4 of space 1",
            "20 1 idles",
            "30 2 runs 8 of space 1",
        ]
    );
    assert_eq!(recorded.inferred_switches, 0, "none is missing");
    // To CPU 1 when no line had shown the process there, and to CPU 2.
    assert_eq!((recorded.queued, recorded.unseen), (4, 2));
}

#[test]
fn request_without_recorded_answer_does_not_match_a_later_one() {
    let queued = |us| {
        line(
            "a-7 ( 7)",
            0,
            us,
            "csd_queue_cpu: cpu=1 callsite=x func=flush_tlb_func csd=1",
        )
    };
    let text = [
        queued(10),
        switch("a-7 ( 7)", 0, 40, 7, "S", 9),
        flush("a-8 ( 7)", 1, 900, 4, 1),
        queued(1000),
        flush("a-8 ( 7)", 1, 1007, 4, 1),
    ];
    let (_, recorded) = steps(&text.concat());
    assert_eq!((recorded.queued, recorded.remote), (2, 2));
    assert_eq!(recorded.queued_to_flushed.count(), 1);
    assert_eq!(recorded.queued_to_flushed.quantile(1.0).unwrap() / 1000, 7);
}

#[test]
fn missing_switch_from_idle_is_inferred_after_its_interrupt() {
    let text = [
        // CPU 0 shows that it takes 4 us from the interrupt to the switch.
        switch("a-7 ( 7)", 0, 10, 7, "S", 0),
        switch("a-8 ( 7)", 1, 11, 8, "S", 0),
        line("<idle>-0 (-------)", 0, 20, "call_function_single_entry: vector=251"),
        switch("<idle>-0 (-------)", 0, 24, 0, "R", 7),
        line("<idle>-0 (-------)", 1, 30, "call_function_single_entry: vector=251"),
        flush("a-7 ( 7)", 0, 50, 1, 3),
        flush("a-8 ( 7)", 1, 60, 1, 3),
    ];
    let (steps, recorded) = steps(&text.concat());
    assert!(
        steps.contains(&"34 1 runs 8 of space 1, inferred".to_string()),
        "{steps:?}"
    );
    assert_eq!(recorded.inferred_switches, 1);
}

#[test]
fn vforked_child_shares_its_parents_space_until_it_flushes() {
    let text = [
        flush("cc-7 ( 7)", 0, 10, 1, 3),
        switch("cc-7 ( 7)", 0, 20, 7, "D", 9),
        flush("cc-9 ( 9)", 0, 30, -1, 0),
        flush("cc-9 ( 9)", 0, 40, 1, 3),
        switch("cc-9 ( 9)", 0, 50, 9, "Z", 7),
        switch("cc-7 ( 7)", 0, 60, 7, "X", 0),
    ];
    let (steps, _) = steps(&text.concat());
    assert_eq!(
        steps,
        [
            "10 0 runs 7 of space 1, inferred",
            "10 0 flushes 1 of space 1",
            "20 0 runs 9 of space 1",
            "40 0 runs 9 of space 2",
            "40 0 flushes 1 of space 2",
            "50 0 is in the kernel",
            "50 0 ends space 2",
            "50 0 runs 7 of space 1",
            "60 0 is in the kernel",
            "60 0 ends space 1",
            "60 0 idles",
        ]
    );
}

#[test]
fn kernel_threads_are_lazy_and_call_size_decides_table_frees() {
    let call = |us, length: &str| {
        let event = format!("sys_madvise(start: 0x7f0000200000, len_in: {length}, behavior: 4)");
        line("a-7 ( 7)", 0, us, &event)
    };
    let text = [
        call(10, "0x100000"),
        flush("a-7 ( 7)", 0, 11, -1, 3),
        call(20, "0x200000"),
        flush("a-7 ( 7)", 0, 21, -1, 3),
        switch("a-7 ( 7)", 0, 30, 7, "R", 15),
        switch("rcu_preempt-15 ( 15)", 0, 40, 15, "I", 7),
    ];
    let (steps, _) = steps(&text.concat());
    assert_eq!(
        steps,
        [
            "10 0 runs 7 of space 1, inferred",
            "11 0 flushes all of space 1",
            "21 0 flushes all of space 1 with tables",
            "30 0 is in the kernel",
            "40 0 runs 7 of space 1",
        ]
    );
}

#[test]
fn resolver_memory_is_bounded_by_the_window() {
    let mut program = Program::default();
    let mut most = 0;
    let text: String = (0..200_000).map(|k| flush("a-7 ( 7)", k % 2, k * 4, 1, 3)).collect();
    text::read(text.as_bytes(), |event| {
        program.add(event, &mut |_| {});
        most = most.max(program.window.waiting());
        Ok(())
    })
    .unwrap();
    // And one for the first task of each CPU.
    assert!(most <= WINDOW_NS as usize / 4_000 + 2 + 2, "{most}");
}

#[test]
fn request_of_a_kernel_thread_is_for_the_spaces_of_its_targets() {
    let queued = |us, target| {
        let event = format!("csd_queue_cpu: cpu={target} callsite=x func=flush_tlb_func csd=1");
        line("kswapd0-50 ( 50)", 0, us, &event)
    };
    let text = [
        flush("a-7 ( 7)", 1, 10, 1, 3),
        flush("b-9 ( 9)", 2, 20, 1, 3),
        flush("b-10 ( 9)", 3, 25, 1, 3),
        flush("kswapd0-50 ( 50)", 0, 30, -1, 4),
        queued(31, 1),
        queued(32, 2),
        queued(33, 3),
        // CPU 4 has never been seen: its space is unknown.
        flush("kswapd0-50 ( 50)", 0, 40, -1, 4),
        queued(41, 4),
    ];
    let (steps, recorded) = steps(&text.concat());
    let flushes: Vec<_> = steps.iter().filter(|step| step.contains("kernel")).cloned().collect();
    assert_eq!(
        flushes[flushes.len() - 2..],
        [
            "31 0 flushes None of space 2 for the kernel",
            "32 0 flushes None of space 1 for the kernel"
        ]
    );
    assert_eq!(
        (recorded.kernel_requests, recorded.foreign, recorded.requests),
        (1, 1, 5)
    );
}
