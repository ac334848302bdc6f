//! The machine of a guest, for each instruction set: QEMU's arguments, and the command line of Linux on it.

use std::path::Path;
use std::process::Command;

use shootdown_qemu::Arch;

/// Linux: no workarounds for processor bugs (`mitigations=off`), small pages only, as the simulator's workloads have
/// them, and functions at the addresses of the symbol table.
const LINUX: &str = "quiet panic=-1 mitigations=off transparent_hugepage=never nokaslr norandmaps rdinit=/init";

/// Where this kernel's archive is put on Arm: above the kernel, within the smallest machine.
const ARCHIVE: &str = "0x48000000";

/// The command line of Linux.
pub fn linux(arch: Arch) -> String {
    let console = match arch {
        Arch::X86_64 | Arch::Riscv64 => "ttyS0",
        Arch::Aarch64 => "ttyAMA0",
    };
    format!("console={console} {LINUX}")
}

/// QEMU with the parts of the machine. `console` gets the first serial port where there are two; reports come from the
/// last one, on the standard output.
pub fn qemu(arch: Arch, cpus: u32, console: &Path) -> Command {
    let mut command = Command::new(arch.binary());
    let parts: &[&str] = match arch {
        // All features of the emulator except CMPXCHG16B, after which QEMU 7.2 sometimes leaves wrong flags. This
        // kernel ends the emulator through the last device; Linux has no driver for it.
        Arch::X86_64 => &[
            "-M",
            "q35",
            "-cpu",
            "max,-cx16",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=4",
        ],
        Arch::Aarch64 => &[
            "-M",
            "virt,gic-version=3",
            "-cpu",
            "max",
            "-semihosting-config",
            "enable=on,target=native",
        ],
        Arch::Riscv64 => &["-M", "virt", "-cpu", "rv64"],
    };
    command.args(parts).args(["-m", "512", "-smp", &cpus.to_string()]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    if arch == Arch::X86_64 {
        command.arg("-serial").arg(format!("file:{}", console.display()));
    }
    command.args(["-serial", "stdio"]);
    command
}

/// The arguments for the archive beside the kernel.
pub fn archive(arch: Arch, of_linux: bool, archive: &Path) -> [String; 2] {
    let file = archive.display();
    if arch == Arch::Aarch64 && !of_linux {
        // `-initrd` is ignored for an ELF kernel there.
        return ["-device".into(), format!("guest-loader,addr={ARCHIVE},initrd={file}")];
    }
    ["-initrd".into(), file.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_a_board_and_a_console_on_stdout() {
        for arch in Arch::ALL {
            let command = qemu(arch, 2, Path::new("/console"));
            let words: Vec<String> = command
                .get_args()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let after = |option: &str| {
                let all = words.windows(2).filter(|pair| pair[0] == option);
                all.map(|pair| pair[1].clone()).collect::<Vec<_>>()
            };
            assert_eq!(after("-smp"), ["2"]);
            assert_eq!(after("-M").len(), 1, "{words:?}");
            assert_eq!(after("-serial").last().map(String::as_str), Some("stdio"));
            assert!(linux(arch).contains("rdinit=/init"));
        }
        let of = |of_linux| archive(Arch::Aarch64, of_linux, Path::new("/a"))[0].clone();
        assert_eq!([of(true), of(false)], ["-initrd", "-device"]);
    }
}
