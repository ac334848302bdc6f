//! Counts of the bare-metal kernel alone, as it prints them and as `--json` passes them on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of one run of the kernel. Null where the run has no such count.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KernelCounts {
    /// CPUs of the virtual machine.
    cpus: Option<u64>,
    /// Whether QEMU counts instructions (`--icount`): each takes 2 to this power nanoseconds.
    icount: Option<f64>,
    /// Broadcast invalidation: `hardware`, `emulated`, `firmware` (RISC-V) or `none`.
    pub broadcast: String,
    /// Broadcast instructions per operation.
    pub broadcasts_per_op: Option<f64>,
    /// Interrupts per operation that stand in for the broadcasts of hardware.
    pub emulation_interrupts_per_op: Option<f64>,
    /// Page faults per operation.
    faults_per_op: Option<f64>,
    /// Flushes per operation.
    flushes_per_op: Option<f64>,
    /// Instructions of all CPUs per operation.
    pub instructions_per_op: Option<f64>,
    /// Instructions of the requester for each flush.
    pub requester_instructions: Option<f64>,
    /// Instructions of the target for each interrupt.
    pub target_instructions: Option<f64>,
    /// Longest stretch without preemption, in instructions of its own CPU.
    pub preemption_off_instructions: Option<f64>,
    /// The same in instructions of all CPUs meanwhile.
    preemption_off_machine: Option<f64>,
    /// Longest stretch with interrupts off, in instructions of its own CPU.
    pub interrupts_off_instructions: Option<f64>,
    /// The same in instructions of all CPUs meanwhile.
    interrupts_off_machine: Option<f64>,
    /// Spaces that were given a system-wide tag.
    promoted: Option<u64>,
    /// Spaces that gave it back.
    demoted: Option<u64>,
    /// Instructions of a shootdown per operation, by name, as QEMU's plugin counts them: `tlbi_local`, `dsb`, `sgi`,
    /// `sfence_vma`, `sbi_call`.
    #[serde(default)]
    pub operations_per_op: Option<BTreeMap<String, f64>>,
    /// Of `torture`: interrupts taken.
    pub interrupts: Option<u64>,
    /// Of `torture`: interrupts that stand in for broadcasts.
    pub emulation_interrupts: Option<u64>,
    /// Of `torture`: how often each operation was done.
    #[schemars(with = "Option<BTreeMap<String, u64>>")]
    pub done: Option<serde_json::Map<String, serde_json::Value>>,
}
