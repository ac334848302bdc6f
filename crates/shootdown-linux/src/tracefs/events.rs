//! The events of a recording.

/// Task switches: without them the space that a CPU has loaded is unknown.
pub(super) const SWITCH: &str = "sched/sched_switch";

/// Requested events, as `group/name`, if the kernel has them. Only x86 has `tlb_flush` and the interrupt vectors;
/// `csd_queue_cpu` and `ipi_send_*` came with Linux 6.4; system calls need `CONFIG_FTRACE_SYSCALLS`.
pub const RECORDED_EVENTS: &[&str] = &[
    SWITCH,
    "tlb/tlb_flush",
    "sched/sched_process_fork",
    "sched/sched_process_exec",
    "sched/sched_process_exit",
    "csd/csd_queue_cpu",
    "ipi/ipi_send_cpu",
    "ipi/ipi_send_cpumask",
    "irq_vectors/call_function_entry",
    "irq_vectors/call_function_single_entry",
    "syscalls/sys_enter_madvise",
    "syscalls/sys_enter_munmap",
    "syscalls/sys_enter_mprotect",
    "syscalls/sys_enter_mremap",
];

/// Page faults of user code, on x86: for most programs more events than all others together.
pub const FAULTS: &str = "exceptions/page_fault_user";
