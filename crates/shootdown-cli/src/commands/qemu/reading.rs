//! Parses the output of a run of the kernel.

use std::collections::BTreeMap;

use serde::Deserialize;
use shootdown_qemu::{Arch, Ended, Run};

use super::target_of;
use crate::comparison::json;
use crate::comparison::kernel_counts::KernelCounts;

/// One run.
#[derive(Debug)]
pub struct Row {
    /// Instruction set of the machine.
    arch: Arch,
    /// Workload.
    workload: String,
    /// Design.
    pub design: String,
    /// Threads.
    pub threads: u64,
    seed: u64,
    seconds: f64,
    /// The kernel's counts, if the run got that far.
    pub line: Option<Line>,
    /// The error.
    pub problem: Option<String>,
    violation: bool,
}

/// The kernel's own line.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    ops: Option<u64>,
    /// By the guest's clock.
    pub ops_per_s: Option<f64>,
    /// Shootdown interrupts sent.
    pub ipis_per_op: Option<f64>,
    /// Shootdown interrupts taken.
    pub interrupts_per_op: Option<f64>,
    /// Stale reads.
    pub stale: u64,
    /// Checked accesses.
    pub accesses_checked: u64,
    /// Counts that only this target has.
    #[serde(flatten)]
    pub own: KernelCounts,
}

impl Row {
    /// Parses the output of `run`.
    pub fn new(arch: Arch, workload: &str, design: &str, threads: u64, seed: u64, run: Run) -> Row {
        let (line, unreadable) = match run.json().map(serde_json::from_str::<Line>) {
            Some(Ok(line)) => (Some(line), None),
            Some(Err(error)) => (None, Some(format!("its line is not what was expected: {error}"))),
            None => (None, Some("it printed no result".to_owned())),
        };
        Row {
            arch,
            workload: workload.to_owned(),
            design: design.to_owned(),
            threads,
            seed,
            seconds: run.seconds,
            problem: run.problem().or(unreadable),
            violation: run.ended == Ended::Violation,
            line,
        }
    }

    /// With the instructions of a shootdown that were executed.
    pub fn with_operations(mut self, counted: Option<BTreeMap<String, u64>>) -> Row {
        if let (Some(line), Some(counted)) = (&mut self.line, counted)
            && let Some(ops) = line.ops.filter(|&ops| ops > 0)
        {
            let each = counted
                .into_iter()
                .map(|(name, count)| (name, count as f64 / ops as f64));
            line.own.operations_per_op = Some(each.collect());
        }
        self
    }

    /// Whether it failed, or a translation was stale.
    pub fn is_bad(&self) -> bool {
        self.problem.is_some()
    }

    /// For a run that must be caught: whether it was.
    pub fn is_caught(&self) -> bool {
        self.violation
    }

    /// As an element of the JSON that programs read.
    pub fn json(&self) -> json::Run<'_> {
        let line = self.line.as_ref();
        json::Run {
            workload: &self.workload,
            target: target_of(self.arch).into(),
            design: &self.design,
            threads: self.threads as usize,
            seed: self.seed,
            ops: line.and_then(|line| line.ops),
            ops_per_s: line.and_then(|line| line.ops_per_s),
            ipis_per_op: line.and_then(|line| line.ipis_per_op),
            interrupts_per_op: line.and_then(|line| line.interrupts_per_op),
            stale: line
                .map(|line| line.stale)
                .filter(|_| line.is_some_and(|line| line.accesses_checked > 0))
                .or(self.violation.then_some(1)),
            accesses_checked: line.map(|line| line.accesses_checked).filter(|&count| count > 0),
            host_time_ns: Some(self.seconds * 1e9),
            error: self.problem.as_deref(),
            qemu: line.map(|line| &line.own),
            ..json::Run::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ended: Ended, line: &str) -> Run {
        Run {
            ended,
            lines: vec![line.into()],
            errors: String::new(),
            seconds: 0.5,
        }
    }

    const LINE: &str = r#"{"ops":10,"ops_per_s":5.0,"ipis_per_op":1.5,"interrupts_per_op":1.5,"stale":0,
        "accesses_checked":10,"broadcast":"emulated","broadcasts_per_op":0.5,"target_instructions":null}"#;

    #[test]
    fn kernel_counts_become_a_json_element() {
        let row = Row::new(
            Arch::X86_64,
            "tlb_flush2",
            "ipi",
            2,
            1,
            run(Ended::Success, &LINE.replace('\n', "")),
        );
        assert!(!row.is_bad(), "{:?}", row.problem);
        let value = serde_json::to_value(row.json()).unwrap();
        assert_eq!((&value["ops"], &value["stale"]), (&10.into(), &0.into()));
        assert_eq!(value["qemu"]["broadcast"], "emulated");
        assert!(value["qemu"]["target_instructions"].is_null());
    }

    #[test]
    fn plugin_counts_are_per_operation() {
        let row = Row::new(
            Arch::Aarch64,
            "tlb_flush2",
            "ipi",
            2,
            1,
            run(Ended::Success, &LINE.replace('\n', "")),
        );
        let row = row.with_operations(Some(BTreeMap::from([("dsb".to_owned(), 25)])));
        let value = serde_json::to_value(row.json()).unwrap();
        assert_eq!(value["qemu"]["operations_per_op"]["dsb"], 2.5);
        assert_eq!(value["target"], "qemu-aarch64");
    }

    /// The keys of the schema are those that are printed: both come from the same types.
    #[test]
    fn printed_json_has_the_keys_of_the_schema() {
        let row = Row::new(
            Arch::X86_64,
            "tlb_flush2",
            "ipi",
            2,
            1,
            run(Ended::Success, &LINE.replace('\n', "")),
        );
        let printed: serde_json::Value = serde_json::from_str(&json::document(vec![row.json()])).unwrap();
        let schema = crate::commands::qemu::schema().to_value();
        let of_run = &schema["properties"]["runs"]["items"]["properties"];
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for key in keys(&printed["runs"][0]) {
            assert!(of_run.get(&key).is_some(), "{key}");
        }
        let of_kernel = of_run["qemu"].to_string();
        for key in keys(&printed["runs"][0]["qemu"]) {
            assert!(of_kernel.contains(&format!("\"{key}\":{{")), "{key}: {of_kernel}");
        }
    }

    #[test]
    fn violation_without_a_result_line_counts_as_stale() {
        let row = Row::new(
            Arch::X86_64,
            "torture",
            "none",
            4,
            1,
            run(Ended::Violation, "violation: C1: page 3"),
        );
        assert!(row.is_bad() && row.is_caught());
        let value = serde_json::to_value(row.json()).unwrap();
        assert_eq!(
            (&value["stale"], &value["error"]),
            (&1.into(), &"violation: C1: page 3".into())
        );
    }

    #[test]
    fn run_without_a_result_line_fails() {
        assert!(Row::new(Arch::X86_64, "tlb_flush2", "ipi", 2, 1, run(Ended::Success, "hello")).is_bad());
    }
}
