//! The `explain` command: why the requests of one run went the way they did, in words and one plot.
//!
//! It shows what the engine and the simulated machine recorded and computes nothing but shares and rounding.

mod decisions;
mod json;
mod page;

pub use json::schema;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use shootdown::{Costs, Event, Reach, Way};
use shootdown_sim::os::{Diary, Requests};
use shootdown_sim::run::{self, Explanation, RunResult, RunSpec};

use crate::args::{DECISIONS, ExplainArgs};
use crate::failure::{BAD_RUN, Failure, SUCCESS};
use crate::print::number;
use crate::print::output::{self, Destination, Kind};
use crate::print::progress::Progress;
use crate::runs::catalog;
use crate::runs::target::{Target, with_vm};
use decisions::{Decision, decisions};

/// Columns of the longest bar on a terminal.
const BAR: f64 = 40.0;
/// Threads, unless told.
const THREADS: usize = 16;

/// Runs the workload once and explains it.
///
/// # Errors
/// One line naming what is wrong with the command line, or that the run failed.
pub fn command(args: &ExplainArgs, stop: &AtomicBool) -> Result<u8, Failure> {
    let target = Target::new(
        &args.place.on,
        args.place.cpus,
        &with_vm(args.place.vm, &args.place.set),
    )?;
    let inputs = [Path::new(&args.place.on)];
    let destination = args
        .html
        .as_deref()
        .map(|path| Destination::apart_from("--html", path, Kind::Page, &inputs))
        .transpose()?;
    let spec = RunSpec {
        workload: args.place.workload.clone(),
        machine: target.machine.clone(),
        design: args.design.clone(),
        threads: target.threads(args.threads, THREADS),
        seed: args.run.seed,
        virtual_ms: args.run.virtual_ms,
        lru_drain: false,
        parameters: target.parameters.clone(),
    };
    run::validate(&spec).map_err(Failure::Input)?;
    let progress = Progress::new("runs", vec![1.0]);
    let outcome = run::explain(&spec, &mut |fraction| {
        progress.update(0, fraction);
        !stop.load(Ordering::Relaxed)
    });
    drop(progress);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Suspended(
            "one run explains nothing before its end; a shorter window: --virtual-ms N".to_string(),
        ));
    }
    let (result, explanation) = outcome.map_err(Failure::Input)?;
    let title = format!(
        "{} on {target}, {}, design {}",
        spec.workload,
        number::threads(spec.threads),
        spec.design
    );
    let most = usize::try_from(args.decisions).unwrap_or(usize::MAX);
    let mut paragraphs: Vec<String> = target.without_effect([spec.design.as_str()]);
    paragraphs.extend(words(&spec, &result, &explanation, most));
    let command = command_line(args, &spec, &target);
    let text = if args.json {
        json::render(&command, &spec, target.to_string(), &result, &explanation)
    } else {
        let paragraphs: String = paragraphs.iter().map(|paragraph| format!("{paragraph}\n")).collect();
        format!("{title}\n\n{}\n{paragraphs}", bars(&explanation.diary))
    };
    let page = || page::render(&title, &command, &explanation.diary, &paragraphs);
    let label = (!args.json).then_some("report");
    output::results(&text, destination.as_ref(), label, page, stop)?;
    let bad = result.stale > 0 && spec.design != catalog::CONTROL_DESIGN;
    Ok(if bad { BAD_RUN } else { SUCCESS })
}

/// Requests by way, as bars.
fn bars(diary: &Diary) -> String {
    let all: u64 = diary.requests.iter().map(|requests| requests.count).sum();
    let mut text = String::new();
    for ((_, name), requests) in Diary::WAYS.iter().zip(&diary.requests) {
        let share = share(requests.count as f64, all as f64);
        let [mean, p50, p99] = times(requests);
        text.push_str(&format!(
            "{name:>10} {:<40} {:>6} {:>12} requests, {mean:>7} each (p50 {p50}, p99 {p99})\n",
            "█".repeat((share * BAR).round() as usize),
            number::percent(share),
            number::count(requests.count),
        ));
    }
    text
}

/// The mean, the median and the 99th percentile of what requests took; unknown of none.
fn times(requests: &Requests) -> [String; 3] {
    let known = |ns: f64| if requests.count > 0 { ns } else { f64::NAN };
    [
        requests.mean_ns(),
        requests.quantile_ns(0.5),
        requests.quantile_ns(0.99),
    ]
    .map(|ns| number::time(known(ns)))
}

/// Whole nanoseconds as a time.
fn ns(ns: u64) -> String {
    number::time(ns as f64)
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The explanation, a paragraph per line.
fn words(spec: &RunSpec, result: &RunResult, explanation: &Explanation, decisions_told: usize) -> Vec<String> {
    let Explanation { diary, counts, .. } = explanation;
    let operation = catalog::operation(&spec.workload);
    let mut told = vec![format!(
        "{} {operation}s/s; {} interrupts per {operation}; {} of CPU time in invalidation; {} stale translations in {} checked accesses.",
        number::rate(result.ops_per_s),
        number::per_operation(result.ipis_per_op),
        number::percent(result.flush_share),
        result.stale,
        number::count(result.accesses_checked),
    )];
    if explanation.design.policy.reach != Reach::Adaptive {
        told.push(format!(
            "`{}` fixes the way: nothing was measured, and requests went where it says.",
            spec.design
        ));
    } else {
        told.extend(costs(explanation));
    }
    let mut ways = format!(
        "From the start: {} requests concerned no other CPU, {} interrupted",
        number::count(counts.local_only),
        number::count(counts.interrupting)
    );
    if counts.broadcast_requests > 0 {
        ways.push_str(&format!(
            ", {} were broadcast",
            number::count(counts.broadcast_requests)
        ));
    }
    if counts.any_tag > 0 {
        ways.push_str(&format!(
            ", {} of these under every tag because interrupting was expected to cost more",
            number::count(counts.any_tag)
        ));
    }
    told.push(ways + ".");
    told.push(format!(
        "Catching up: {} times range by range from the log, {} times by a whole tag.",
        number::count(counts.caught_up_partly),
        number::count(counts.caught_up_whole)
    ));
    told.extend(decisions(diary, decisions_told));
    told.extend(measurements(diary));
    told
}

/// What was measured at start, if anything was.
fn calibrated(diary: &Diary) -> Option<Costs> {
    diary.notes.iter().find_map(|note| match note.event {
        Event::Calibrated(costs) => Some(costs),
        _ => None,
    })
}

fn costs(explanation: &Explanation) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(start) = calibrated(&explanation.diary) {
        told.push(format!(
            "Measured at start: {}.",
            cost_words(&start, explanation.broadcast)
        ));
    }
    told.push(format!(
        "Estimated at the end: {}.",
        cost_words(&explanation.costs, explanation.broadcast)
    ));
    told.push(if !explanation.broadcast {
        "This machine cannot broadcast: a request concerns nobody, or is sent by interrupts.".to_string()
    } else if explanation.aimed {
        "Remote actions name one tag: a request is broadcast, to the CPUs that may hold it, where its space has a tag of its own."
            .to_string()
    } else {
        threshold(&explanation.costs)
    });
    told
}

/// From how many CPUs on requests are broadcast, and by which rule: both costs there, and what keeps the threshold
/// where it is.
fn threshold(costs: &Costs) -> String {
    let rule = "A space with a tag of its own is broadcast under it, whatever this says. One timed request in 16 goes the other way.";
    if costs.broadcast_from == u64::MAX {
        return format!("Without a tag interrupts are cheaper for any number of CPUs: nothing is broadcast. {rule}");
    }
    let from = costs.broadcast_from;
    let (by_interrupts, broadcast) = (costs.disturbance_ns(from), costs.broadcast_ns);
    let kept = if broadcast <= by_interrupts {
        "so a broadcast costs less"
    } else {
        "so interrupts cost less, but not by more than a quarter, and only that moves the threshold"
    };
    format!(
        "Without a tag, a request that concerns {from} other CPU{} or more is broadcast, one that concerns fewer is sent by \
         interrupts. To {from}: {} by broadcast, {} by interrupts ({} of it the targets'), {kept}. {rule}",
        if from == 1 { "" } else { "s" },
        ns(broadcast),
        ns(by_interrupts),
        ns(by_interrupts - costs.interrupts_ns(from)),
    )
}

/// What the engine believes; of broadcasts only where there are any, since it is an assumption else.
fn cost_words(costs: &Costs, broadcast: bool) -> String {
    let broadcast = match broadcast {
        true => format!(" a broadcast {},", ns(costs.broadcast_ns)),
        false => String::new(),
    };
    format!(
        "interrupting one CPU {} and {} for each further,{broadcast} a page on the own CPU {}, a whole tag {}",
        ns(costs.interrupt_ns),
        ns(costs.interrupt_more_ns),
        ns(costs.page_ns),
        ns(costs.tag_ns)
    )
}

/// The timed requests that went one way; means.
struct Timed {
    way: Way,
    name: &'static str,
    requests: usize,
    expected_ns: f64,
    took_ns: f64,
    targets: f64,
}

/// Expected beside measured costs, of each way that reaches other CPUs and was timed.
fn timed(diary: &Diary) -> Vec<Timed> {
    let mut all = Vec::new();
    for (way, name) in Diary::WAYS {
        let samples: Vec<(u64, u64, u32)> = diary
            .notes
            .iter()
            .filter_map(|note| match note.event {
                Event::Measured {
                    way: of,
                    targets,
                    expected_ns,
                    took_ns,
                } if of == way => Some((expected_ns, took_ns, targets)),
                _ => None,
            })
            .collect();
        if samples.is_empty() || way == Way::Local {
            continue;
        }
        let mean = |of: &dyn Fn(&(u64, u64, u32)) -> u64| {
            samples.iter().map(|sample| of(sample) as f64).sum::<f64>() / samples.len() as f64
        };
        all.push(Timed {
            way,
            name,
            requests: samples.len(),
            expected_ns: mean(&|sample| sample.0),
            took_ns: mean(&|sample| sample.1),
            targets: mean(&|sample| u64::from(sample.2)),
        });
    }
    all
}

fn measurements(diary: &Diary) -> impl Iterator<Item = String> {
    timed(diary).into_iter().map(|timed| {
        format!(
            "Timed requests by {}: {}, expected {} on average, took {}{}.",
            timed.name,
            number::count(timed.requests as u64),
            number::time(timed.expected_ns),
            number::time(timed.took_ns),
            match timed.way {
                Way::Interrupts => format!(", to {:.1} CPUs each", timed.targets),
                _ => String::new(),
            }
        )
    })
}

/// What to type for the same again.
fn command_line(args: &ExplainArgs, spec: &RunSpec, target: &Target) -> String {
    let window = spec.virtual_ms.map(|ms| format!(" --virtual-ms {ms}"));
    let decisions = (args.decisions != DECISIONS).then(|| format!(" --decisions {}", args.decisions));
    format!(
        "shootdown explain {} --on {} --design {} --threads {} --seed {}{}{}",
        spec.workload,
        target.options(),
        spec.design,
        spec.threads,
        spec.seed,
        window.unwrap_or_default(),
        decisions.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(threads: usize, set: &[&str], design: &str) -> (RunSpec, RunResult, Explanation) {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let target = Target::new("milan-72", None, &set).unwrap();
        let spec = RunSpec {
            workload: "tlb_flush2".into(),
            machine: target.machine,
            design: design.into(),
            threads,
            seed: 1,
            virtual_ms: Some(1.0),
            lru_drain: false,
            parameters: target.parameters,
        };
        let (result, explanation) = run::explain(&spec, &mut |_| true).unwrap();
        (spec, result, explanation)
    }

    #[test]
    fn an_explained_run_is_not_another_run() {
        let (spec, result, _) = explained(6, &[], "adaptive");
        let again = run::run(&spec, &mut |_| true).unwrap();
        let host_seconds = result.host_seconds;
        assert_eq!(result, RunResult { host_seconds, ..again });
    }

    #[test]
    fn the_reason_for_broadcasting_names_costs_and_promotion() {
        let (spec, result, explanation) = explained(6, &[], "adaptive");
        let text = words(&spec, &result, &explanation, 8).join("\n");
        assert!(text.contains("Measured at start: interrupting one CPU"), "{text}");
        assert!(text.contains("it was promoted"), "{text}");
        let [_, _, broadcast] = &explanation.diary.requests;
        assert!(broadcast.count > 0 && broadcast.mean_ns() > 0.0);
    }

    #[test]
    fn the_sentence_and_the_decisions_follow_from_the_numbers_in_json() {
        for threads in [6, 12, 16, 32] {
            let (spec, result, explanation) = explained(threads, &[], "adaptive");
            let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let costs = &value["costs"][1];
            let number = |name: &str| costs[name].as_u64().unwrap();
            if let Some(from) = costs["broadcast_from"].as_u64() {
                let by_interrupts = |cpus: u64| match cpus {
                    0 => 0,
                    cpus => {
                        number("interrupt_ns")
                            + number("interrupt_more_ns") * (cpus - 1)
                            + number("disturbed_ns") * cpus
                    }
                };
                let broadcast = number("broadcast_ns");
                assert!(4 * broadcast <= 5 * by_interrupts(from) + 4, "{threads}: {costs}");
                assert!(4 * by_interrupts(from - 1) <= 5 * broadcast + 4, "{threads}: {costs}");
                let told = words(&spec, &result, &explanation, 8).join("\n");
                let cheaper = told.contains("so a broadcast costs less");
                assert_eq!(cheaper, broadcast <= by_interrupts(from), "{told}");
            }
            for decision in value["decisions"].as_array().unwrap() {
                let (without, with) = (decision["without_tag_ns"].as_u64(), decision["with_tag_ns"].as_u64());
                let Some((without, with)) = without.zip(with) else {
                    continue;
                };
                match decision["kind"].as_str().unwrap() {
                    "promoting" => assert!(8 * without > 9 * with - 8, "{decision}"),
                    "demoting-dear" => assert!(8 * with > 9 * without - 8, "{decision}"),
                    other => panic!("{other} has costs"),
                }
            }
        }
    }

    #[test]
    fn json_says_what_the_words_say() {
        let (spec, result, explanation) = explained(6, &[], "adaptive");
        let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
        crate::print::json::assert_explained(&text);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["run"]["ops_per_s"], result.ops_per_s);
        let shares = |value: &serde_json::Value| {
            let requests = value["requests"].as_array().unwrap();
            requests.iter().map(|way| way["share"].as_f64().unwrap()).sum::<f64>()
        };
        assert!((shares(&value) - 1.0).abs() < 1e-9, "{text}");
        assert_eq!(value["requests"][2]["way"], "broadcast");
        assert_eq!(value["requests"][2]["count"], explanation.diary.requests[2].count);
        let told = decisions(&explanation.diary, usize::MAX);
        let listed = value["decisions"].as_array().unwrap();
        // Programs get every decision, people those that change what happens.
        let of_tags = |line: &&String| !line.contains("the threshold moved") && !line.contains("no longer");
        let moved = |decision: &&serde_json::Value| decision["kind"] == "threshold-moved";
        let thresholds = listed.iter().filter(moved).count();
        assert_eq!(listed.len() - thresholds, told.iter().filter(of_tags).count());
        let promoted = listed.iter().find(|decision| decision["kind"] == "promoted").unwrap();
        assert!(
            told.iter()
                .any(|line| line.contains(promoted["what"].as_str().unwrap()))
        );
        let start = calibrated(&explanation.diary).unwrap();
        assert_eq!(value["costs"][0]["when"], "calibrated");
        assert_eq!(value["costs"][0]["interrupt_ns"], start.interrupt_ns);
        assert_eq!(value["costs"][1]["broadcast_ns"], explanation.costs.broadcast_ns);
        let timed: Vec<_> = value["timed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|timed| &timed["way"])
            .collect();
        assert!(timed.contains(&&serde_json::json!("broadcast")), "{text}");
    }

    #[test]
    fn json_of_a_design_or_machine_without_a_choice_has_no_costs_for_it() {
        let (spec, result, explanation) = explained(4, &[], "ipi");
        let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["adaptive"], &value["costs"]),
            (&false.into(), &serde_json::json!([]))
        );
        let (spec, result, explanation) = explained(4, &["broadcast.available=false"], "adaptive");
        let text = json::render("shootdown explain", &spec, "milan-72".into(), &result, &explanation);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let broadcast = &value["requests"][2];
        assert!(broadcast["count"] == 0 && broadcast["mean_ns"].is_null() && broadcast["p99_ns"].is_null());
        let costs = value["costs"].as_array().unwrap();
        assert!(!costs.is_empty());
        assert!(
            costs
                .iter()
                .all(|costs| costs["broadcast_ns"].is_null() && costs["broadcast_from"].is_null())
        );
    }

    #[test]
    fn a_machine_that_cannot_broadcast_is_not_said_to() {
        let (spec, result, explanation) = explained(6, &["broadcast.available=false"], "adaptive");
        let text = words(&spec, &result, &explanation, 8).join("\n");
        assert!(text.contains("cannot broadcast"), "{text}");
        assert!(!text.contains("were broadcast"), "none were: {text}");
        assert_eq!(explanation.diary.requests[2].count, 0);
        let page = page::render("a < b", "shootdown explain", &explanation.diary, &[text]);
        let header = "<th class=\"word\">way</th><th>requests</th><th>share</th><th>of their time</th><th>mean</th>";
        assert!(page.contains(header), "{page}");
        assert!(
            page.contains(
                "<td class=\"word\">broadcast</td><td>0</td><td>0.0%</td><td>0.0%</td><td>–</td><td>–</td><td>–</td>"
            ),
            "{page}"
        );
        assert!(bars(&explanation.diary).contains("0 requests,       – each (p50 –, p99 –)"));
        assert!(
            crate::print::page::checked(&page)
                .descendants()
                .any(|node| node.has_tag_name("svg"))
        );
        assert!(page.contains("<h1>a &lt; b</h1>"), "{page}");
    }

    #[test]
    fn the_command_repeats_how_many_decisions_were_told() {
        use clap::Parser;
        let told = |more: &[&str]| {
            let words = [&["shootdown", "explain", "tlb_flush2"], more].concat();
            let Some(crate::args::Command::Explain(args)) = crate::args::Cli::try_parse_from(words).unwrap().command
            else {
                panic!("not explain")
            };
            let (spec, ..) = explained(2, &[], "ipi");
            command_line(&args, &spec, &Target::new("milan-72", None, &[]).unwrap())
        };
        assert!(told(&["--decisions", "40"]).ends_with(" --virtual-ms 1 --decisions 40"));
        assert!(told(&[]).ends_with(" --virtual-ms 1"));
    }

    #[test]
    fn a_design_that_measures_nothing_is_explained_by_its_settings() {
        let (spec, result, explanation) = explained(4, &[], "ipi");
        let text = words(&spec, &result, &explanation, 8).join("\n");
        assert!(text.contains("nothing was measured"), "{text}");
        assert!(explanation.diary.requests[1].count > 0, "{text}");
    }
}
