//! Instructions of a shootdown: the functions of the guest's kernel that belong to it, and the plugin's counts.

use std::collections::BTreeMap;

use serde::Serialize;
use shootdown_qemu::{Arch, CpuCounts, Plugin, SpanCounts, Window};

use super::report::{Ran, Report};

/// Functions of Linux on x86-64 and RISC-V: the requester's; on x86-64 the target's interrupt entries (the second when
/// it is the only target). On RISC-V Linux calls OpenSBI instead. On Arm its flush has no function: the compiler puts
/// it into those that clear entries.
pub const SYMBOLS: [&str; 6] = [
    "flush_tlb_mm_range",
    "asm_sysvec_call_function",
    "asm_sysvec_call_function_single",
    OF_ENGINE,
    SWITCHES,
    PER_CPU,
];

/// The target's interrupt entry where the engine is inside Linux (`linux/`).
const OF_ENGINE: &str = "asm_sysvec_shootdown";

/// What switches address spaces.
const SWITCHES: &str = "switch_mm_irqs_off";

/// Linux's variables of a CPU that are used most, and where among them the count of preemption is (`struct pcpu_hot` in
/// arch/x86/include/asm/current.h). Only a kernel with CONFIG_KALLSYMS_ALL names it.
const PER_CPU: &str = "pcpu_hot";
const PREEMPT_COUNT: u64 = 8;

const REQUESTER: &str = "requester";
const TARGET: &str = "target";
const BARRIERS: &str = "barriers";
const SWITCH: &str = "switch";
const MASKED: &str = "masked";
const PREEMPTION: &str = "preemption";

/// One workload with a number of threads on one kernel.
#[derive(Debug, Clone, Serialize)]
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
    /// Instructions of RISC-V's machine mode (OpenSBI), which are not among them, for each operation.
    pub firmware_per_op: f64,
    /// Instructions of a shootdown for each operation, by name: `tlbi_broadcast`, `dsb`, `sgi`, `sfence_vma`.
    pub operations: BTreeMap<String, f64>,
    /// Shootdown interrupts for each operation.
    pub interrupts_per_op: f64,
    /// The flush at the initiator; `None` where there was none.
    pub requester: Option<Span>,
    /// On Arm: from the barrier before a broadcast TLBI to the one behind it.
    pub barriers: Option<Span>,
    /// The interrupt at the target.
    pub target: Option<Span>,
    /// A switch of address spaces, where it was counted.
    pub switch: Option<Span>,
    /// Interrupts masked by CLI, until the next STI, IRET or SYSRET, where it was counted.
    pub masked: Option<Span>,
    /// Preemption off, while not idle, where it was counted.
    pub unpreemptible: Option<Span>,
}

#[cfg(test)]
impl Count {
    /// A count of `madvise_spin` with these medians.
    pub fn example(kernel: &str, requester: u64, target: u64) -> Count {
        let span = |median| Span {
            times: 2000,
            cpu: 1,
            median,
            least: median,
            most: median,
            mean: median as f64,
            waits: 0,
            waiting: 0.0,
            firmware: 0.0,
        };
        Count {
            kernel: kernel.into(),
            workload: "madvise_spin".into(),
            threads: 2,
            ops: 2000,
            instructions_per_op: 2000.0,
            firmware_per_op: 0.0,
            operations: [("dsb".to_string(), 2.0)].into(),
            interrupts_per_op: 1.0,
            requester: Some(span(requester)),
            barriers: None,
            target: Some(span(target)),
            switch: None,
            masked: None,
            unpreemptible: None,
        }
    }
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
    /// Number of times with a PAUSE, on all CPUs.
    pub waits: u64,
    /// Instructions in wait loops, mean of all CPUs.
    pub waiting: f64,
    /// Instructions of RISC-V's machine mode (OpenSBI), mean of all CPUs; not in the others.
    pub firmware: f64,
}

/// The spans of Linux, as arguments of the plugin.
///
/// # Errors
/// When the kernel lacks a function: then a shootdown uses other functions, and the counts would be meaningless.
pub fn of_linux(arch: Arch, symbols: &BTreeMap<String, u64>) -> Result<Vec<String>, String> {
    let at = |symbol: &str| {
        let address = symbols.get(symbol).copied();
        address.ok_or_else(|| format!("this kernel has no function {symbol}, so its shootdowns cannot be counted"))
    };
    Ok(match arch {
        Arch::X86_64 => {
            let handlers = match at(OF_ENGINE) {
                Ok(entry) => vec![(entry, None)],
                Err(_) => vec![(at(SYMBOLS[1])?, None), (at(SYMBOLS[2])?, None)],
            };
            of(at(SYMBOLS[0])?, &handlers)
        }
        Arch::Aarch64 => vec![barriers()],
        Arch::Riscv64 => of(at(SYMBOLS[0])?, &[]),
    })
}

/// Further spans of Linux on x86-64: switches of address spaces; sections with interrupts masked; and with preemption
/// off, where the kernel names its count.
///
/// # Errors
/// As [`of_linux`].
pub fn further(symbols: &BTreeMap<String, u64>) -> Result<Vec<String>, String> {
    let entry = symbols
        .get(SWITCHES)
        .ok_or_else(|| format!("this kernel has no function {SWITCHES}, so its switches cannot be counted"))?;
    let mut all = vec![
        format!("span={SWITCH}:call:{entry:x}"),
        format!("span={MASKED}:masked:0"),
    ];
    if let Some(variables) = symbols.get(PER_CPU) {
        all.push(format!("span={PREEMPTION}:preemption:{:x}", variables + PREEMPT_COUNT));
    }
    Ok(all)
}

/// From the DSB before a broadcast TLBI to the one behind it.
pub fn barriers() -> String {
    format!("span={BARRIERS}:barriers:0")
}

/// The spans of a kernel that flushes by a call of `requester` and has these entries of handlers. One that serves other
/// interrupts too counts only if it comes by the second address.
pub fn of(requester: u64, handlers: &[(u64, Option<u64>)]) -> Vec<String> {
    let handlers = handlers.iter().map(|(entry, via)| {
        let via = via.map_or(String::new(), |via| format!(":{via:x}"));
        format!("span={TARGET}:interrupt:{entry:x}{via}")
    });
    [format!("span={REQUESTER}:call:{requester:x}")]
        .into_iter()
        .chain(handlers)
        .collect()
}

/// The plugin's counts, run by run.
///
/// # Errors
/// When its file cannot be read or holds another number of windows than there were runs.
pub fn counts(kernel: &str, report: &Report, plugin: &Plugin) -> Result<Vec<Count>, String> {
    let place = |error: String| format!("the counts of {kernel}: {error}");
    let windows = plugin.take().map_err(place)?;
    if windows.len() != report.ran.len() {
        return Err(place(format!(
            "{} windows were counted in {} runs",
            windows.len(),
            report.ran.len()
        )));
    }
    let count = |(window, ran): (Window, &Ran)| {
        let sum = |part: fn(&CpuCounts) -> u64| window.cpus.iter().map(part).sum::<u64>() as f64;
        let per_op = |(name, count): (&String, &u64)| (name.clone(), *count as f64 / ran.ops as f64);
        Count {
            kernel: kernel.to_string(),
            workload: ran.workload.clone(),
            threads: ran.threads,
            ops: ran.ops,
            instructions_per_op: sum(|cpu| cpu.instructions) / ran.ops as f64,
            firmware_per_op: sum(|cpu| cpu.firmware) / ran.ops as f64,
            operations: window.operations.iter().map(per_op).collect(),
            interrupts_per_op: ran.shootdown_interrupts as f64 / ran.ops_with_warm_up as f64,
            requester: span(&window, REQUESTER),
            barriers: span(&window, BARRIERS),
            target: span(&window, TARGET),
            switch: span(&window, SWITCH),
            masked: span(&window, MASKED),
            unpreemptible: span(&window, PREEMPTION),
        }
    };
    Ok(windows.into_iter().zip(&report.ran).map(count).collect())
}

/// The span of that name: medians from the CPU on which it happened most often, means from all.
fn span(window: &Window, name: &str) -> Option<Span> {
    let of_cpu = |cpu: &'_ CpuCounts| {
        let named = cpu.spans.iter().filter(|counts| counts.name == name);
        named.map(|counts| (cpu.cpu, counts.clone())).collect::<Vec<_>>()
    };
    let all: Vec<(u32, SpanCounts)> = window.cpus.iter().flat_map(of_cpu).collect();
    let (cpu, most_often) = all.iter().max_by_key(|(_, counts)| counts.times)?;
    let sum = |part: fn(&SpanCounts) -> u64| all.iter().map(|(_, counts)| part(counts)).sum::<u64>();
    let times = sum(|counts| counts.times);
    let mean = |part: fn(&SpanCounts) -> u64| sum(part) as f64 / times as f64;
    Some(Span {
        times,
        cpu: *cpu,
        median: most_often.median,
        least: most_often.least,
        most: most_often.most,
        mean: mean(|counts| counts.sum),
        waits: sum(|counts| counts.waits),
        waiting: mean(|counts| counts.waiting),
        firmware: mean(|counts| counts.firmware),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_median_is_of_the_busiest_cpu_and_mean_of_all_cpus() {
        let line = r#"{"operations":{"dsb":3},"cpus":[
            {"cpu":0,"instructions":5000,"firmware":0,"spans":[
                {"name":"requester","times":3,"sum":300,"waits":2,"waiting":30,"firmware":6,
                 "least":90,"median":100,"most":110}]},
            {"cpu":1,"instructions":700,"firmware":9,"spans":[
                {"name":"requester","times":1,"sum":500,"waits":1,"waiting":10,"firmware":2,
                 "least":500,"median":500,"most":500}]}]}"#;
        let window: Window = serde_json::from_str(line).unwrap();
        let requester = span(&window, REQUESTER).unwrap();
        assert_eq!(
            (
                requester.times,
                requester.cpu,
                requester.median,
                requester.least,
                requester.most
            ),
            (4, 0, 100, 90, 110)
        );
        assert_eq!(
            (requester.mean, requester.waits, requester.waiting, requester.firmware),
            (200.0, 3, 10.0, 2.0)
        );
        assert_eq!(span(&window, TARGET), None);
    }

    #[test]
    fn preemption_is_counted_where_the_kernel_names_its_count() {
        let mut symbols: BTreeMap<String, u64> = [(SWITCHES.to_string(), 0xffff)].into();
        assert_eq!(further(&symbols).unwrap().len(), 2);
        symbols.insert(PER_CPU.into(), 0x2_0f80);
        assert_eq!(further(&symbols).unwrap()[2], "span=preemption:preemption:20f88");
    }

    #[test]
    fn kernel_without_the_flush_symbols_is_refused() {
        for arch in [Arch::X86_64, Arch::Riscv64] {
            assert!(of_linux(arch, &BTreeMap::new()).is_err_and(|why| why.contains("cannot be counted")));
        }
    }
}
