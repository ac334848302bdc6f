//! The command that runs the bare-metal kernel.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use shootdown_qemu::Arch;

use super::whole_number;

/// How the kernel's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// QEMU translates them
    Tcg,
    /// The processor of this host
    Kvm,
}

/// Arguments of `qemu`.
#[derive(Debug, Args)]
#[command(
    after_help = "Builds kernel/ of the checkout and runs it once for each design and thread count. \
    With `--accel tcg` instructions are counted and runs are deterministic: the same seed and --icount print the same. \
    Emulated CPUs then take turns, so rates are those of the guest's clock, not of a real machine; \
    interrupts and instructions per operation are exact. \
    On a processor without INVLPGB the kernel emulates it by IPIs, in its invalid-opcode handler, \
    and the output says so. \
    On RISC-V, broadcasts are remote fences of OpenSBI.\n\n\
    Examples:\n  \
    shootdown qemu --workload tlb_flush2 --designs ipi,broadcast,adaptive --cpus 4\n  \
    shootdown qemu --workload torture --designs ipi,adaptive --seed 7       random changes, every access checked\n  \
    shootdown qemu --workload madvise_spin --threads 1,2,4 \
    --json | jq '.runs[] | [.threads, .qemu.target_instructions]'\n  \
    shootdown qemu --workload tlb_flush2 --accel kvm --cpus 2               on this host's processor\n  \
    shootdown qemu --arch aarch64 --workload process_churn                  the same kernel on AArch64\n  \
    shootdown qemu --workload tlb_flush2 --threads 1,2,4 --html qemu.html    the same with plots\n  \
    shootdown qemu --workload tlb_flush2 --iso shootdown.iso                an image for a real machine"
)]
pub struct QemuArgs {
    /// Instruction set of the machine
    #[arg(long, value_name = "x86_64|aarch64|riscv64", default_value = "x86_64", value_parser = Arch::named)]
    pub arch: Arch,

    /// tlb_flush2, madvise_spin, mprotect_all, process_churn, or torture
    #[arg(long, value_name = "WORKLOAD", default_value = crate::catalog::FLAGSHIP_WORKLOAD)]
    pub workload: String,

    /// Designs, as in `shootdown list` [default: ipi,broadcast,adaptive; aarch64:
    /// arm-ipi,arm-broadcast,arm-local-first,adaptive; riscv64: ipi,arm-ipi]
    #[arg(long, value_name = "D,D,..", value_delimiter = ',')]
    pub designs: Option<Vec<String>>,

    /// CPUs of the machine, 1 to 64
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: u64,

    /// Thread counts, at most one per CPU [default: as many as CPUs]
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        value_parser = whole_number,
        allow_negative_numbers = true
    )]
    pub threads: Option<Vec<u64>>,

    /// How instructions are executed
    #[arg(long, value_name = "tcg|kvm", default_value = "tcg", value_enum)]
    pub accel: Accel,

    /// With tcg: an instruction takes 2^N ns of the guest, 0 to 10; `off` runs all CPUs at once and counts nothing
    #[arg(long, value_name = "N|off", default_value = "0")]
    pub icount: String,

    /// Seed: the same seed gives the same run
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number, allow_negative_numbers = true)]
    pub seed: u64,

    /// Torture: steps of each CPU
    #[arg(long, value_name = "N", default_value = "2000", value_parser = whole_number, allow_negative_numbers = true)]
    pub steps: u64,

    /// Torture: most instructions between two timer interrupts, which come at random
    #[arg(long, value_name = "N", default_value = "3000", value_parser = whole_number, allow_negative_numbers = true)]
    pub jitter: u64,

    /// Stop a run after that many seconds of this host
    #[arg(long, value_name = "S", default_value = "120", value_parser = whole_number, allow_negative_numbers = true)]
    pub seconds: u64,

    /// Print only JSON, for programs (one element per run, no control run)
    #[arg(long)]
    pub json: bool,

    /// Write a report with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Run nothing, but write an image to this file that boots on a real machine and prints the table there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "accel", "icount", "cpus"])]
    pub iso: Option<PathBuf>,
}
