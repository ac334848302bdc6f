use super::*;

const RULES: Rules = Rules {
    slice: 10,
    latency: 40,
    wakeup: 15,
};

fn queues(cpus: usize, tasks: usize) -> Queues {
    Queues::new(RULES, cpus, tasks)
}

fn whole(slice: u64) -> u64 {
    slice
}

fn decisions(queues: &mut Queues) -> Vec<Decision> {
    queues.decisions.drain(..).collect()
}

#[test]
fn tasks_go_to_idle_cpus_and_then_to_the_shortest_queue() {
    let mut queues = queues(2, 3);
    assert!(queues.join(0, 0, whole) && queues.join(1, 0, whole));
    assert!(!queues.join(2, 0, whole));
    // Two tasks: a slice is half of the latency.
    assert_eq!(decisions(&mut queues), [Decision::Leaves(0, 20)]);
    assert!(!queues.is_over(0, 19) && queues.is_over(0, 20));
    assert!(!queues.reschedule(0, false, 20, whole));
    assert_eq!(decisions(&mut queues), [Decision::Leaves(2, 40), Decision::Runs(2)]);
}

#[test]
fn idle_cpu_steals_a_waiting_task() {
    let mut queues = queues(2, 3);
    (0..3).for_each(|task| _ = queues.join(task, 0, whole));
    queues.reschedule(0, false, 20, whole);
    decisions(&mut queues);
    queues.leave(1, Place::Halted, 25, whole);
    assert_eq!(decisions(&mut queues), [Decision::Runs(0)]);
    assert!(queues.take_moved(0) && !queues.take_moved(0));
    assert!(queues.join(1, 30, whole) || queues.place(1) == Place::Queued);
}

#[test]
fn woken_task_preempts_one_that_ran_much_longer() {
    for (ran, takes) in [(10, false), (200, true)] {
        let mut queues = queues(1, 2);
        queues.join(0, 0, whole);
        queues.join(1, 0, whole);
        queues.leave(1, Place::Halted, 0, whole);
        decisions(&mut queues);
        queues.join(1, ran, whole);
        let hurried = decisions(&mut queues).contains(&Decision::Leaves(0, ran));
        assert_eq!((hurried, queues.is_fresh(1)), (takes, true), "{ran}");
    }
}

#[test]
fn directed_yield_runs_a_waiting_target_next_if_fair() {
    let mut queues = queues(2, 5);
    (0..5).for_each(|task| _ = queues.join(task, 0, whole));
    // 0 runs with 2 and 4 behind it, 1 with 3.
    decisions(&mut queues);
    assert!(queues.yield_to(1, 4, 5));
    assert_eq!(decisions(&mut queues), [Decision::Leaves(0, 5)]);
    assert!(!queues.reschedule(0, false, 5, whole));
    assert_eq!(queues.place(4), Place::Running, "not 2, which was first");
    assert!(!queues.reschedule(1, true, 5, whole), "1 gives way");
    assert_eq!(queues.place(3), Place::Running);
    assert!(!queues.yield_to(3, 4, 6), "4 runs");
}

#[test]
fn tasks_that_never_sleep_share_time_evenly() {
    let mut queues = queues(3, 7);
    let mut ran = [0; 7];
    (0..7).for_each(|task| _ = queues.join(task, 0, whole));
    for now in 1..20_000 {
        for (task, ran) in ran.iter_mut().enumerate() {
            *ran += u64::from(queues.place(task) == Place::Running);
        }
        for task in 0..7 {
            if queues.is_over(task, now) {
                queues.reschedule(task, false, now, whole);
            }
        }
    }
    // Three CPUs of 19,999 turns for seven tasks; a CPU has two tasks or three, and they move at most occasionally.
    assert_eq!(ran.iter().sum::<u64>(), 3 * 19_999);
    assert!(ran.iter().all(|&ran| (6_000..=10_500).contains(&ran)), "{ran:?}");
}
