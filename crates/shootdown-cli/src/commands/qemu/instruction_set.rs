//! What depends on the instruction set: the target's name, the designs, and the options that some of them refuse.

use shootdown::{Design, Reach};
use shootdown_qemu::{Arch, Clock};

use crate::args::{Accel, QemuArgs};
use crate::failure::Failure;

/// The target's name, in JSON and for `compare --on`.
pub fn target_of(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "qemu-x86_64",
        Arch::Aarch64 => "qemu-aarch64",
        Arch::Riscv64 => "qemu-riscv64",
    }
}

/// The instruction set of the target with that name.
pub fn arch_of(target: &str) -> Option<Arch> {
    Arch::ALL.into_iter().find(|&arch| target_of(arch) == target)
}

/// `--arch`, where it is not the default.
pub(super) fn option(arch: Arch) -> String {
    match arch {
        Arch::X86_64 => String::new(),
        _ => format!(" --arch {}", arch.name()),
    }
}

/// The instructions of a broadcast.
pub(super) fn broadcast(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "INVLPGB and TLBSYNC",
        Arch::Aarch64 => "TLBI and DSB, inner-shareable,",
        Arch::Riscv64 => "remote fences",
    }
}

/// The designs: those given, or the default ones.
pub(super) fn designs(args: &QemuArgs) -> Vec<String> {
    let default: &[&str] = match args.arch {
        Arch::X86_64 => &["ipi", "broadcast", "adaptive"],
        Arch::Aarch64 => &["arm-ipi", "arm-broadcast", "arm-local-first", "adaptive"],
        Arch::Riscv64 => &["ipi", "arm-ipi"],
    };
    match &args.designs {
        Some(given) => given.iter().map(|name| name.trim().to_owned()).collect(),
        None => default.iter().map(ToString::to_string).collect(),
    }
}

/// # Errors
/// One line when this instruction set refuses an option.
pub(super) fn check(args: &QemuArgs, clock: Clock, designs: &[String]) -> Result<(), Failure> {
    let (arch, name) = (args.arch, args.arch.name());
    if arch != Arch::X86_64 && (args.accel == Accel::Kvm || args.iso.is_some()) {
        let (given, remedy) = match args.accel {
            Accel::Kvm => ("--accel kvm", "leave it out"),
            Accel::Tcg => ("--iso", "the image is for x86-64: leave out --arch"),
        };
        return Err(Failure::Input(format!("{given} with --arch {name}: {remedy}")));
    }
    let broadcasts = |name: &&String| {
        Design::preset(name).is_some_and(|design| !matches!(design.policy.reach, Reach::Ipi | Reach::None))
    };
    match designs.iter().find(broadcasts) {
        Some(design) if arch == Arch::Riscv64 && matches!(clock, Clock::Counted { .. }) => {
            Err(Failure::Input(format!(
                "design {design} on riscv64: OpenSBI waits in a remote fence without ending QEMU's turn, \
                 for a tenth of a second each; \
                 use `shootdown qemu --arch riscv64 --icount off --cpus 2`, or --designs ipi,arm-ipi"
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(words: &[&str]) -> QemuArgs {
        let cli = Cli::try_parse_from(["shootdown", "qemu"].iter().chain(words)).expect("the grammar allows it");
        let Some(Command::Qemu(args)) = cli.command else {
            panic!("not qemu")
        };
        args
    }

    #[test]
    fn every_target_is_found_by_its_name() {
        for arch in Arch::ALL {
            assert_eq!(arch_of(target_of(arch)), Some(arch));
        }
        assert_eq!(arch_of("milan-72"), None);
    }

    #[test]
    fn option_unsupported_by_the_instruction_set_is_refused_with_a_remedy() {
        let counted = Clock::Counted { shift: 0 };
        let refused = |words: &[&str], clock| {
            let args = args(words);
            let designs = designs(&args);
            check(&args, clock, &designs).err().map(|failure| failure.to_string())
        };
        for (words, remedy) in [
            (&["--arch", "aarch64", "--accel", "kvm"][..], "leave it out"),
            (&["--arch", "riscv64", "--iso", "x.iso"], "leave out --arch"),
            (&["--arch", "riscv64", "--designs", "adaptive"], "--icount off"),
        ] {
            assert!(
                refused(words, counted).is_some_and(|why| why.contains(remedy)),
                "{words:?}"
            );
        }
        let fences = ["--arch", "riscv64", "--designs", "arm-broadcast"];
        assert_eq!(refused(&fences, Clock::Translated), None);
        for arch in Arch::ALL {
            assert_eq!(refused(&["--arch", arch.name()], counted), None);
        }
    }
}
