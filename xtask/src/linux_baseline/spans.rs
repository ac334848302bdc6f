//! Instructions of a shootdown: the functions of the guest's kernel that belong to it, and the plugin's counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::child;
use super::report::{Ran, Report};
use crate::workspace;

/// Functions of Linux, x86-64: the requester's, and the target's interrupt entries (the second when it is the only
/// target).
pub const SYMBOLS: [&str; 4] = [
    "flush_tlb_mm_range",
    "asm_sysvec_call_function",
    "asm_sysvec_call_function_single",
    OF_ENGINE,
];

/// The target's interrupt entry where the engine is inside Linux (`linux/`).
const OF_ENGINE: &str = "asm_sysvec_shootdown";

const REQUESTER: &str = "requester";
const TARGET: &str = "target";

/// One workload with a number of threads on one kernel, CPUs in turns.
#[derive(Debug, Serialize)]
pub struct Count {
    /// The kernel: `Linux`, or the design.
    pub kernel: String,
    /// The program.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// Operations in the window.
    pub ops: u64,
    /// Instructions of all CPUs in the window, for each operation.
    pub instructions_per_op: f64,
    /// Shootdown interrupts for each operation.
    pub interrupts_per_op: f64,
    /// The flush at the initiator; `None` where there was none.
    pub requester: Option<Span>,
    /// The interrupt at the target.
    pub target: Option<Span>,
}

/// The counts of one span, on all CPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    /// Number of times, on all CPUs.
    pub times: u64,
    /// The CPU on which it happened most often: on other CPUs Linux needs other numbers of instructions.
    pub cpu: u32,
    /// Median instructions there, without waiting.
    pub median: u64,
    /// The least there.
    pub least: u64,
    /// And the most.
    pub most: u64,
    /// Mean of all CPUs.
    pub mean: f64,
    /// Instructions in wait loops, mean of all CPUs.
    pub waiting: f64,
}

/// A line of the plugin: one window.
#[derive(Debug, Deserialize)]
struct Window {
    cpus: Vec<Cpu>,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    cpu: u32,
    instructions: u64,
    spans: Vec<Tally>,
}

#[derive(Debug, Clone, Deserialize)]
struct Tally {
    name: String,
    times: u64,
    sum: u64,
    waiting: u64,
    least: u64,
    median: u64,
    most: u64,
}

/// Compiles the plugin for this version of QEMU; returns its path.
///
/// # Errors
/// When the compiler refuses.
pub fn build(qemu: &str, end: Instant) -> Result<PathBuf, String> {
    let root = workspace::root();
    let source = root.join("xtask/plugin/spans.c");
    let folder = root.join("target/linux-baseline");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let out = folder.join("spans.so");
    let mut compiler = Command::new("gcc");
    compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden"]);
    compiler.arg(format!("-DPLUGIN_VERSION={}", interface(qemu)?));
    compiler.arg("-o").arg(&out).arg(&source);
    child::output(&mut compiler, end).map_err(|why| format!("cannot compile {}: {why}", source.display()))?;
    out.canonicalize()
        .map_err(|error| format!("{}: {error}", out.display()))
}

/// The requested version of the plugin interface: each QEMU accepts a range.
fn interface(qemu: &str) -> Result<u32, String> {
    let mut numbers = qemu.split('.').map_while(|digits| digits.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(7..=8), _) => Ok(1),
        (Some(9), Some(0)) => Ok(2),
        (Some(9..), _) => Ok(3),
        _ => Err(format!(
            "QEMU {qemu} is too old to count instructions; install Debian's qemu-system-x86, 7.2 or newer"
        )),
    }
}

/// The spans of Linux, as arguments of the plugin.
///
/// # Errors
/// When the kernel lacks a function: then a shootdown uses other functions, and the counts would be meaningless.
pub fn of_linux(symbols: &BTreeMap<String, u64>) -> Result<Vec<String>, String> {
    let at = |symbol: &str| {
        let address = symbols.get(symbol).copied();
        address.ok_or_else(|| format!("this kernel has no function {symbol}, so its shootdowns cannot be counted"))
    };
    let requester = at(SYMBOLS[0])?;
    let handlers = match at(OF_ENGINE) {
        Ok(entry) => vec![entry],
        Err(_) => vec![at(SYMBOLS[1])?, at(SYMBOLS[2])?],
    };
    Ok(of(requester, &handlers))
}

/// The spans of a kernel that flushes by a call of `requester` and has these entries of handlers.
pub fn of(requester: u64, handlers: &[u64]) -> Vec<String> {
    let handlers = handlers
        .iter()
        .map(|entry| format!("span={TARGET}:interrupt:{entry:x}"));
    [format!("span={REQUESTER}:call:{requester:x}")]
        .into_iter()
        .chain(handlers)
        .collect()
}

/// The plugin's counts, run by run.
///
/// # Errors
/// When its file cannot be read or holds another number of windows than there were runs.
pub fn counts(kernel: &str, report: &Report, plugin: &Path) -> Result<Vec<Count>, String> {
    let file = plugin.with_extension("jsonl");
    let place = |error: String| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|error| place(error.to_string()))?;
    let windows: Vec<Window> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| place(error.to_string()))?;
    if windows.len() != report.ran.len() {
        return Err(place(format!(
            "{} windows were counted in {} runs",
            windows.len(),
            report.ran.len()
        )));
    }
    let count = |(window, ran): (Window, &Ran)| {
        let instructions: u64 = window.cpus.iter().map(|cpu| cpu.instructions).sum();
        Count {
            kernel: kernel.to_string(),
            workload: ran.workload.clone(),
            threads: ran.threads,
            ops: ran.ops,
            instructions_per_op: instructions as f64 / ran.ops as f64,
            interrupts_per_op: ran.shootdown_interrupts as f64 / ran.ops_with_warm_up as f64,
            requester: window.span(REQUESTER),
            target: window.span(TARGET),
        }
    };
    Ok(windows.into_iter().zip(&report.ran).map(count).collect())
}

impl Window {
    fn span(&self, name: &str) -> Option<Span> {
        let of_cpu = |cpu: &'_ Cpu| {
            let named = cpu.spans.iter().filter(|tally| tally.name == name);
            named.map(|tally| (cpu.cpu, tally.clone())).collect::<Vec<_>>()
        };
        let all: Vec<(u32, Tally)> = self.cpus.iter().flat_map(of_cpu).collect();
        let (cpu, most_often) = all.iter().max_by_key(|(_, tally)| tally.times)?;
        let times = all.iter().map(|(_, tally)| tally.times).sum::<u64>();
        let mean = |part: fn(&Tally) -> u64| {
            let sum: u64 = all.iter().map(|(_, tally)| part(tally)).sum();
            sum as f64 / times as f64
        };
        Some(Span {
            times,
            cpu: *cpu,
            median: most_often.median,
            least: most_often.least,
            most: most_often.most,
            mean: mean(|tally| tally.sum),
            waiting: mean(|tally| tally.waiting),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_taken_from_where_it_happened_most_and_its_mean_from_everywhere() {
        let line = r#"{"cpus":[
            {"cpu":0,"instructions":5000,"spans":[
                {"name":"requester","times":3,"sum":300,"waiting":30,"least":90,"median":100,"most":110}]},
            {"cpu":1,"instructions":700,"spans":[
                {"name":"requester","times":1,"sum":500,"waiting":10,"least":500,"median":500,"most":500}]}]}"#;
        let window: Window = serde_json::from_str(line).unwrap();
        let span = window.span(REQUESTER).unwrap();
        assert_eq!(
            (span.times, span.cpu, span.median, span.least, span.most),
            (4, 0, 100, 90, 110)
        );
        assert_eq!((span.mean, span.waiting), (200.0, 10.0));
        assert_eq!(window.span(TARGET), None);
    }

    #[test]
    fn each_qemu_is_asked_for_an_interface_that_it_has() {
        for (qemu, version) in [("7.2.22", 1), ("8.2.0", 1), ("9.0.1", 2), ("9.1.0", 3), ("10.0.2", 3)] {
            assert_eq!(interface(qemu), Ok(version));
        }
        assert!(interface("6.1.0").is_err_and(|why| why.contains("too old")));
    }

    #[test]
    fn a_kernel_without_the_functions_is_refused() {
        assert!(of_linux(&BTreeMap::new()).is_err_and(|why| why.contains("flush_tlb_mm_range")));
    }
}
