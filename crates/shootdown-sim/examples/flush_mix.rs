//! The flushes of a recorded program: per second of CPU time by reason, their page counts, how often processes begin,
//! end, switch and migrate, and how many flushes concern more than one CPU.
//!
//! `zcat trace.txt.gz | cargo run --release -p shootdown-sim --example flush_mix` (or give a file). The input is the
//! text of Linux's trace file with the events `tlb_flush`, `sched_switch` and `csd_queue_cpu`; other lines are counted
//! and ignored. The parameters of the workload `build` come from here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

/// Reasons of `tlb_flush` events, by number.
const REASONS: [&str; 6] = [
    "task switch",
    "remote, carried out",
    "local",
    "local space",
    "remote, sent",
    "remote, wrong CPU",
];

/// Counts of one kind of process (by its command name).
#[derive(Debug, Default)]
struct Kind {
    processes: BTreeSet<u32>,
    cpu_us: f64,
    /// Flushes of its own space, by pages; -1 is everything.
    flushes: BTreeMap<i64, u64>,
    switches: u64,
}

/// All counts.
#[derive(Debug, Default)]
struct Mix {
    lines: u64,
    unknown: u64,
    first_us: f64,
    last_us: f64,
    busy_us: f64,
    /// (reason, pages of reason 3).
    reasons: [u64; 6],
    pages: BTreeMap<i64, u64>,
    kinds: BTreeMap<String, Kind>,
    exits: u64,
    switches: u64,
    migrations: u64,
    /// Requests that interrupted a CPU.
    interrupts: u64,
    /// Flushes of spaces that had run on one CPU only until then.
    one_cpu: u64,
}

/// One line of a trace.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    command: &'a str,
    pid: u32,
    tgid: Option<u32>,
    cpu: usize,
    us: f64,
    event: &'a str,
    fields: &'a str,
}

/// `   cc-27792   (  27792) [001] d..1.  5862.335068: tlb_flush: pages:-1 reason:local MM shootdown (3)`
fn line(text: &str) -> Option<Line<'_>> {
    let (task, rest) = text.split_once('(')?;
    let (command, pid) = task.trim().rsplit_once('-')?;
    let (tgid, rest) = rest.split_once(')')?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    let (_flags, rest) = rest.trim_start().split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (event, fields) = rest.split_once(':')?;
    Some(Line {
        command,
        pid: pid.parse().ok()?,
        tgid: tgid.trim().parse().ok(),
        cpu: cpu.parse().ok()?,
        us: time.parse::<f64>().ok()? * 1e6,
        event,
        fields: fields.trim(),
    })
}

/// The value of `key=` or `key:` in the fields of an event.
fn field<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    let words = fields.split_whitespace();
    words.filter_map(|word| word.strip_prefix(key)).next()
}

impl Mix {
    fn of(input: impl BufRead) -> std::io::Result<Mix> {
        let mut mix = Mix::default();
        // The thread on each CPU, and since when.
        let mut running: HashMap<usize, (u32, f64)> = HashMap::new();
        let mut names: HashMap<u32, (String, u32)> = HashMap::new();
        let mut last_cpu: HashMap<u32, usize> = HashMap::new();
        let mut cpus_of: HashMap<u32, BTreeSet<usize>> = HashMap::new();
        for text in input.lines() {
            let text = text?;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            mix.lines += 1;
            let Some(line) = line(&text) else {
                mix.unknown += 1;
                continue;
            };
            if mix.first_us == 0.0 {
                mix.first_us = line.us;
            }
            mix.last_us = line.us;
            let idle = line.pid == 0;
            let tgid = line.tgid.unwrap_or(0);
            if !idle && tgid != 0 {
                names.insert(line.pid, (line.command.to_string(), tgid));
                mix.kind(line.command).processes.insert(tgid);
                if last_cpu.insert(line.pid, line.cpu).is_some_and(|last| last != line.cpu) {
                    mix.migrations += 1;
                }
                cpus_of.entry(tgid).or_default().insert(line.cpu);
            }
            // The time since the last line belongs to the thread that this line says was running.
            let (_, since) = running
                .insert(line.cpu, (line.pid, line.us))
                .unwrap_or((line.pid, line.us));
            if !idle && tgid != 0 {
                mix.busy_us += line.us - since;
                mix.kind(line.command).cpu_us += line.us - since;
            }
            match line.event {
                "tlb_flush" => {
                    let reason = line
                        .fields
                        .rsplit_once('(')
                        .and_then(|(_, number)| number.strip_suffix(')'));
                    let reason = reason
                        .and_then(|number| number.parse::<usize>().ok())
                        .filter(|&n| n < REASONS.len());
                    let pages = field(line.fields, "pages:").and_then(|pages| pages.parse::<i64>().ok());
                    let (Some(reason), Some(pages)) = (reason, pages) else {
                        mix.unknown += 1;
                        continue;
                    };
                    mix.reasons[reason] += 1;
                    if reason == 3 {
                        *mix.pages.entry(pages).or_default() += 1;
                        *mix.kind(line.command).flushes.entry(pages).or_default() += 1;
                        mix.one_cpu += u64::from(cpus_of.get(&tgid).is_some_and(|cpus| cpus.len() == 1));
                    }
                }
                "sched_switch" => {
                    mix.switches += 1;
                    mix.kind(line.command).switches += 1;
                    let ended = field(line.fields, "prev_state=").is_some_and(|state| state.starts_with(['Z', 'X']));
                    mix.exits += u64::from(ended && line.tgid == Some(line.pid));
                    if let Some(next) = field(line.fields, "next_pid=").and_then(|pid| pid.parse().ok()) {
                        running.insert(line.cpu, (next, line.us));
                    }
                }
                "csd_queue_cpu" => mix.interrupts += u64::from(line.fields.contains("func=flush_tlb_func")),
                "ipi_send_cpu" | "ipi_send_cpumask" | "call_function_entry" | "call_function_single_entry" => {}
                _ => mix.unknown += 1,
            }
        }
        Ok(mix)
    }

    fn kind(&mut self, command: &str) -> &mut Kind {
        if !self.kinds.contains_key(command) {
            self.kinds.insert(command.to_string(), Kind::default());
        }
        self.kinds.get_mut(command).expect("just made")
    }

    /// Flushes of spaces that a program requested.
    fn flushes(&self) -> u64 {
        self.reasons[3]
    }

    fn print(&self) {
        let busy = self.busy_us * 1e-6;
        let rate = |count: u64| format!("{count:>8} {:>9.0} per second of CPU time", count as f64 / busy);
        println!(
            "{} events in {:.3} s, {:.3} s of CPU time, {} lines not understood",
            self.lines,
            (self.last_us - self.first_us) * 1e-6,
            busy,
            self.unknown
        );
        println!("\ntlb_flush events by reason");
        for (reason, count) in REASONS.iter().zip(self.reasons) {
            println!("  {reason:24}{}", rate(count));
        }
        println!("\npages of local flushes");
        for (pages, count) in &self.pages {
            let name = if *pages < 0 { "all".into() } else { pages.to_string() };
            println!(
                "  {name:24}{}  {:5.1} %",
                rate(*count),
                100.0 * *count as f64 / self.flushes() as f64
            );
        }
        println!("\nscheduling");
        println!("  {:24}{}", "processes ended", rate(self.exits));
        println!("  {:24}{}", "switches", rate(self.switches));
        println!("  {:24}{}", "migrations", rate(self.migrations));
        let share = |part: u64| 100.0 * part as f64 / self.flushes() as f64;
        println!("\nof {} local flushes", self.flushes());
        println!(
            "  {:5.1} % for spaces that had run on one CPU only",
            share(self.one_cpu)
        );
        println!("  {:5.1} % with another CPU in the space's set", share(self.reasons[4]));
        println!("  {:5.1} % that interrupted a CPU", share(self.interrupts));
        println!("\nper process");
        for (name, kind) in self.kinds.iter().filter(|(_, kind)| kind.processes.len() >= 10) {
            let per = |count: f64| count / kind.processes.len() as f64;
            let sizes: Vec<_> = (kind.flushes.iter())
                .map(|(pages, count)| format!("{pages}: {:.2}", per(*count as f64)))
                .collect();
            println!(
                "  {name:8}{:5} processes, {:7.0} us, {:5.2} switches, flushes by pages: {}",
                kind.processes.len(),
                per(kind.cpu_us),
                per(kind.switches as f64),
                sizes.join(", ")
            );
        }
    }
}

fn main() -> ExitCode {
    let mix = match std::env::args().nth(1) {
        None => Mix::of(std::io::stdin().lock()),
        Some(path) => std::fs::File::open(&path).and_then(|file| Mix::of(BufReader::new(file))),
    };
    match mix {
        Ok(mix) if mix.flushes() > 0 => {
            mix.print();
            ExitCode::SUCCESS
        }
        Ok(mix) => {
            eprintln!(
                "no local tlb_flush event in {} lines: record with `-e tlb:tlb_flush -e sched:sched_switch`",
                mix.lines
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the trace cannot be read: {error}; unpack it first (zcat FILE.gz | flush_mix)");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_line_is_parsed() {
        let text = "cc-27792   (  27792) [001] d..1.  5862.335068: tlb_flush: pages:-1 reason:local MM shootdown (3)";
        let line = line(text).expect("a line");
        assert_eq!(
            (line.command, line.pid, line.tgid, line.cpu),
            ("cc", 27792, Some(27792), 1)
        );
        assert_eq!((line.event, field(line.fields, "pages:")), ("tlb_flush", Some("-1")));
        assert!((line.us - 5_862_335_068.0).abs() < 0.5);
    }

    /// One job of the recording that the workload `build` is made from.
    #[test]
    fn one_compile_job_has_three_processes() {
        let extract = include_str!("../tests/data/cc_make_extract.txt");
        let mix = Mix::of(extract.as_bytes()).expect("readable");
        assert_eq!((mix.unknown, mix.exits, mix.kinds.len()), (0, 3, 3));
        assert!(mix.kinds.values().all(|kind| kind.processes.len() == 1));
        assert!(mix.pages[&1] * 100 > mix.flushes() * 85, "{:?}", mix.pages);
        assert_eq!(mix.pages.values().sum::<u64>(), mix.flushes());
        assert_eq!(
            (mix.pages[&4], mix.pages[&10], mix.pages[&20]),
            (3, 3, 1),
            "once per process, and the assembler's"
        );
    }

    #[test]
    fn damaged_lines_are_counted_and_skipped() {
        let text = "gibberish\ncc-1 ( 1) [0] d.. 1.5: tlb_flush: pages:x reason:local MM shootdown (3)\n\
            cc-1 ( 1) [0] d.. 1.6: tlb_flush: pages:1 reason:local MM shootdown (3)\n";
        let mix = Mix::of(text.as_bytes()).expect("readable");
        assert_eq!((mix.lines, mix.unknown, mix.flushes()), (3, 2, 1));
    }
}
