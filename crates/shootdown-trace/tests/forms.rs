//! One recording in every form that tools print: all are read as the same events, and as the same program.

use flate2::read::GzDecoder;
use shootdown_trace::program::{Action, Program, Recorded, Step};
use shootdown_trace::{Coverage, Metadata, Processes, Resolver, Summary, Survey, text};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn content(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(data(name)).unwrap();
    let mut content = Vec::new();
    if name.ends_with(".gz") {
        GzDecoder::new(&bytes[..]).read_to_end(&mut content).unwrap();
        return content;
    }
    bytes
}

fn survey(content: &[u8], with_processes: bool) -> (Metadata, Summary, Coverage, Resolver) {
    let (mut survey, mut summary) = (Survey::default(), Summary::default());
    let metadata = text::read(BufReader::new(content), |event| {
        let mut event = *event;
        event.process = event.process.filter(|_| with_processes);
        survey.add(&event);
        summary.add(&event);
        Ok(())
    });
    let metadata = metadata.unwrap();
    let (coverage, resolver) = survey.finish(&metadata);
    summary.identify(&resolver);
    (metadata, summary, coverage, resolver)
}

/// The events on each CPU, without times, which the forms print with different precision.
fn program(content: &[u8], mut resolver: Resolver) -> (Vec<(u32, Action)>, Recorded) {
    let (mut program, mut steps) = (Program::default(), Vec::new());
    let mut keep = |step: Step| steps.push((step.cpu, step.action));
    text::read(BufReader::new(content), |event| {
        program.add(&resolver.resolve(event), &mut keep);
        Ok(())
    })
    .unwrap();
    let recorded = program.finish(&mut keep);
    (steps, recorded)
}

const FORMS: [&str; 15] = [
    "tracefs_record_tgid",
    "tracefs",
    "tracefs_latency",
    "tracefs_no_irq_info",
    "tracefs_fields",
    "trace_cmd",
    "trace_cmd_raw",
    "trace_cmd_latency",
    "trace_cmd_nanoseconds",
    "trace_cmd_ts_diff",
    "perf",
    "perf_pid_tid",
    "perf_no_task",
    "perf_ip_sym",
    "perf_nanoseconds",
];

#[test]
fn every_trace_form_has_the_same_events() {
    for form in FORMS {
        let (metadata, summary, ..) = survey(&content(&format!("forms/{form}.txt.gz")), true);
        let damage = &metadata.damage;
        assert_eq!((damage.skipped(), &damage.first[..]), (0, &[][..]), "{form}");
        assert_eq!(
            (summary.events, summary.switches, summary.shootdowns),
            (1787, 639, 6),
            "{form}"
        );
        assert_eq!(summary.flushes, [357, 5, 0, 456, 19, 1], "{form}");
    }
}

#[test]
fn every_trace_form_gives_the_same_program() {
    let of = |form: &str| {
        let content = content(&format!("forms/{form}.txt.gz"));
        let (_, _, coverage, resolver) = survey(&content, true);
        assert_eq!(coverage.refusal(), None, "{form}");
        let numbered = form == "tracefs_record_tgid" || form == "perf_pid_tid";
        assert_eq!(coverage.processes == Processes::Recorded, numbered, "{form}");
        program(&content, resolver)
    };
    let (steps, recorded) = of("tracefs_record_tgid");
    let flushes = |steps: &[(u32, Action)]| {
        let is_flush = |action: &Action| matches!(action, Action::Flush { .. } | Action::KernelFlush { .. });
        steps.iter().filter(|(_, action)| is_flush(action)).count()
    };
    assert_eq!((flushes(&steps), recorded.queued), (456, 6));
    for form in FORMS {
        let (other, counts) = of(form);
        assert_eq!((counts.queued, counts.remote, counts.sent), (6, 5, 19), "{form}");
        assert_eq!((counts.spaces, flushes(&other)), (recorded.spaces, 456), "{form}");
    }
}

/// Process numbers are present but withheld, and compared with the inferred ones.
#[test]
fn inferred_processes_match_recorded_ones() {
    for (name, least) in [
        ("forms/tracefs_record_tgid.txt.gz", 1.0),
        ("imports/process_numbers_with.txt.gz", 1.0),
        ("go_gc.txt.gz", 1.0),
        ("java_zgc_whole.txt.gz", 1.0),
        ("cargo_build_sys_whole.txt.gz", 0.95),
        ("cc_make_j2.txt.gz", 0.98),
    ] {
        let content = content(name);
        let (_, _, coverage, mut resolver) = survey(&content, false);
        let Processes::Rebuilt(found) = &coverage.processes else {
            panic!("{name}: {:?}", coverage.processes);
        };
        assert!(found.confidence() > 0.97, "{name}: {found:?}");
        // Pairs of user tasks in one process, as recorded and as inferred.
        let mut tasks = std::collections::BTreeMap::new();
        text::read(BufReader::new(&content[..]), |event| {
            let mut without = *event;
            without.process = None;
            let inferred = resolver.resolve(&without).process;
            if let (Some(recorded), Some(inferred)) = (event.process, inferred) {
                tasks.insert(event.task, (recorded, inferred));
            }
            Ok(())
        })
        .unwrap();
        let tasks: Vec<_> = tasks.into_values().collect();
        let (mut same, mut found, mut wrong) = (0, 0, 0);
        for (index, (recorded, inferred)) in tasks.iter().enumerate() {
            for (other, with) in &tasks[..index] {
                same += u32::from(recorded == other);
                found += u32::from(recorded == other && inferred == with);
                wrong += u32::from(recorded != other && inferred == with);
            }
        }
        assert_eq!(wrong, 0, "{name}: tasks of different processes are not put together");
        let share = f64::from(found) / f64::from(same.max(1));
        assert!(same == 0 || share >= least * 0.8, "{name}: {found} of {same} pairs");
    }
}

#[test]
fn unnamed_functions_are_identified_by_following_flushes() {
    let content = content("imports/unresolved_functions.txt");
    let (_, summary, coverage, _) = survey(&content, true);
    assert_eq!(
        (
            summary.shootdowns,
            coverage.identified_requests,
            coverage.unknown_requests
        ),
        (42, 42, 0)
    );
    // They are unknown without flushes.
    let queued: Vec<u8> = String::from_utf8(content)
        .unwrap()
        .lines()
        .filter(|line| !line.contains("tlb_flush"))
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect();
    let (_, summary, coverage, _) = survey(&queued, true);
    assert_eq!(
        (
            summary.shootdowns,
            coverage.identified_requests,
            coverage.unknown_requests
        ),
        (0, 0, 42)
    );
}

#[test]
fn lost_events_are_counted_by_cpu() {
    let (metadata, ..) = survey(&content("imports/lost_events.txt"), true);
    let losses: Vec<_> = metadata
        .losses
        .iter()
        .map(|loss| (loss.cpu, loss.events, loss.times))
        .collect();
    assert_eq!(
        losses.iter().filter(|(_, events, _)| events.is_none()).count(),
        1,
        "{losses:?}"
    );
    assert_eq!((metadata.lost_events, metadata.damage.damaged), (77, 0));
    let (metadata, _, coverage, _) = survey(&content("imports/overwritten_buffer.txt"), true);
    assert_eq!((metadata.lost_events, coverage.lost_events()), (149_992, 149_992));
}

#[test]
fn truncated_names_and_unknown_tasks_are_read() {
    let (metadata, ..) = survey(&content("imports/name_cut_inside_a_letter.txt"), true);
    assert_eq!(metadata.damage.damaged, 0);
    let mut tasks = Vec::new();
    text::read(&content("imports/perf_task_minus_one.txt")[..], |event| {
        tasks.push((event.task, event.process));
        Ok(())
    })
    .unwrap();
    let unknown = (shootdown_trace::Event::UNKNOWN_TASK, None);
    assert_eq!(tasks, [unknown, (101, Some(100)), (101, Some(100))]);
}

#[test]
fn flush_printed_by_the_trace_cmd_plugin_is_read_by_reason_number() {
    let (metadata, summary, ..) = survey(&content("imports/trace_cmd_default.txt"), true);
    assert_eq!((metadata.damage.damaged, metadata.damage.unknown), (0, 0));
    // The clock of the last three lines is another: the first of them is out of order.
    assert_eq!(metadata.damage.out_of_order, 1);
    let lines: Vec<u64> = metadata.damage.first.iter().map(|damage| damage.line).collect();
    assert_eq!(lines, [261, 262], "{:?}", metadata.damage.first);
    assert_eq!(summary.flushes.iter().sum::<u64>(), 132);
}
