//! Runs of the bare-metal kernel's torture: each seed with a clock and an interval of random interrupts of its own.

use shootdown_qemu::{Arch, Emulator};

use super::kernel_case::Case;

/// Clocks: log2 of the nanoseconds of an instruction is below this.
const CLOCKS: u8 = 11;

/// Mean intervals between random timer interrupts, in instructions.
const JITTERS: [u32; 3] = [3000, 700, 1500];
/// The same where CPUs run in parallel, in nanoseconds of the host.
const PARALLEL_JITTER: u32 = 20_000;

/// Designs whose broadcasts the firmware of RISC-V carries out. The firmware waits for each hart without ending
/// QEMU's turn, which then lasts up to 100 ms of QEMU's time. So these run on two parallel harts, and the others with
/// instructions counted.
const FENCED: [&str; 5] = [
    "arm-local-first",
    "arm-broadcast",
    "adaptive",
    "broadcast",
    "broadcast+ipi",
];

/// Whether harts run in parallel under this design: see [`FENCED`].
pub fn takes_parallel_harts(arch: Arch, design: &str) -> bool {
    arch == Arch::Riscv64 && FENCED.contains(&design)
}

/// The mean interval between random timer interrupts in turns, in instructions.
pub fn jitter(seed: u8) -> u32 {
    JITTERS[usize::from(seed) % JITTERS.len()]
}

/// How a run differs from those with other seeds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variation {
    pub at_once: bool,
    pub cpus: usize,
    pub shift: u8,
    jitter: u32,
}

/// That of a seed, on `cpus` CPUs; on two where harts run in parallel.
pub fn variation(arch: Arch, design: &str, seed: u8, cpus: usize) -> Variation {
    let at_once = takes_parallel_harts(arch, design);
    Variation {
        at_once,
        cpus: if at_once { 2 } else { cpus },
        shift: if at_once { 0 } else { seed % CLOCKS },
        jitter: if at_once { PARALLEL_JITTER } else { jitter(seed) },
    }
}

/// The run; each CPU makes so many steps.
pub fn case(arch: Arch, emulator: &Emulator, design: &str, seed: u8, cpus: usize, steps: u32) -> Case {
    let Variation {
        at_once,
        cpus,
        shift,
        jitter,
    } = variation(arch, design, seed, cpus);
    let place = match at_once {
        true => format!("{cpus} harts at once"),
        false => format!("shift {shift}, {cpus} CPUs"),
    };
    Case {
        at_once,
        cpus,
        shift,
        ..Case::new(
            format!("torture, {design}, {place}, seed {seed}"),
            emulator,
            format!("workload=torture design={design} seed={seed} jitter={jitter} steps={steps}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn runs_of_a_design_differ_and_remote_fences_run_on_parallel_harts() {
        let runs = |design| (0..22).map(move |seed| variation(Arch::Riscv64, design, seed, 2 + usize::from(seed) % 3));
        let in_turns: BTreeSet<Variation> = runs("ipi").collect();
        assert_eq!(
            in_turns.len(),
            22,
            "a clock, an interval and a number of CPUs of its own"
        );
        assert!(in_turns.iter().all(|run| !run.at_once));
        assert!(runs("arm-broadcast").all(|run| run.at_once && run.cpus == 2));
        assert!(!takes_parallel_harts(Arch::Aarch64, "arm-broadcast"));
    }
}
