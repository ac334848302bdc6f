//! The first lines of an import's summary: what is missing from the recording, and the command that would record it.

use shootdown_trace::{Coverage, Metadata, Processes};

use crate::print::number;

/// Names of unused events that are shown.
const MOST_UNUSED: usize = 6;

/// A line for each missing item; empty when there is none.
pub(crate) fn lines(metadata: &Metadata, coverage: &Coverage) -> String {
    let mut lines = Vec::from_iter(processes(&coverage.processes));
    if coverage.identified_requests > 0 {
        lines.push(format!(
            "functions: {} calls without a name are shootdowns by what follows them",
            number::count(coverage.identified_requests)
        ));
    }
    if coverage.unknown_requests > 0 {
        lines.push(format!(
            "functions: {} calls to other CPUs are of unknown kind, \
             because the recording has addresses in place of names; \
             print it as root, with `echo 0 > /proc/sys/kernel/kptr_restrict` and on the kernel that was recorded",
            number::count(coverage.unknown_requests)
        ));
    }
    let missing: Vec<_> = ["sched_switch", "tlb_flush", "csd_queue_cpu"]
        .into_iter()
        .filter(|event| coverage.count(event) == 0)
        .collect();
    if !missing.is_empty() {
        lines.push(format!(
            "absent events: {}; record them with `trace-cmd record -e sched:sched_switch \
             -e tlb:tlb_flush -e csd:csd_queue_cpu` (csd_queue_cpu from Linux 6.3 on)",
            missing.join(", ")
        ));
    }
    if !metadata.damage.unused.is_empty() {
        lines.push(unused(metadata));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Events lost before they could be recorded: a line, or nothing.
pub(crate) fn losses(metadata: &Metadata) -> String {
    let losses = &metadata.losses;
    let unknown: u64 = losses
        .iter()
        .filter(|loss| loss.events.is_none())
        .map(|loss| loss.times)
        .sum();
    if metadata.lost_events == 0 && unknown == 0 {
        return String::new();
    }
    let mut what = match metadata.lost_events {
        0 => String::new(),
        lost => number::counted(lost, "event"),
    };
    if unknown > 0 {
        what.push_str(if what.is_empty() { "" } else { ", and " });
        what.push_str(&format!("events {} without a number", times(unknown)));
    }
    let cpus: std::collections::BTreeSet<_> = losses.iter().filter_map(|loss| loss.cpu).collect();
    let at = match (cpus.len(), cpus.first()) {
        (1, Some(cpu)) => format!(" on CPU {cpu}"),
        (0, _) => String::new(),
        (cpus, _) => format!(" on {cpus} CPUs"),
    };
    format!(
        "lost by the kernel's buffers: {what}{at}; every count below is too low; \
         record with larger buffers, for example `trace-cmd record -b 65536`\n"
    )
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_string(),
        _ => format!("{} times", number::count(count)),
    }
}

fn processes(processes: &Processes) -> Option<String> {
    match processes {
        Processes::Recorded => None,
        Processes::Rebuilt(found) => Some(format!(
            "processes: not recorded; `replay` infers {} from {} tasks, and {} of the observations agree. \
             The tables below name tasks. Record them with `echo 1 > /sys/kernel/tracing/options/record-tgid`, \
             or print them with `perf script -F comm,pid,tid,cpu,time,event,trace`",
            number::count(found.processes),
            number::count(found.tasks),
            number::percent(found.confidence())
        )),
        Processes::Absent => Some(
            "processes: not recorded, and too little to infer them from: \
             `replay` refuses this recording. Record them with `echo 1 > /sys/kernel/tracing/options/record-tgid`, \
             or print them with `perf script -F comm,pid,tid,cpu,time,event,trace`"
                .to_string(),
        ),
    }
}

fn unused(metadata: &Metadata) -> String {
    let unused = &metadata.damage.unused;
    let names: Vec<_> = unused
        .iter()
        .take(MOST_UNUSED)
        .map(|(name, count)| format!("{name} {}", number::count(*count)))
        .collect();
    let others = unused.len().saturating_sub(MOST_UNUSED);
    let others = if others > 0 {
        format!(" and {others} other kinds")
    } else {
        String::new()
    };
    format!("events that are not used: {}{others}", names.join(", "))
}
