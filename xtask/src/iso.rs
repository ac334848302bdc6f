//! The image for real machines, booted in QEMU behind a BIOS and behind UEFI: GRUB, the multiboot2 entry and the
//! firmware's own tables, instead of QEMU's short cut. It must print the table that the kernel prints without it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use shootdown_qemu::{Clock, Emulator, ISO_NEEDS, Machine, Run, write_iso};

use super::{debian, workspace};

/// UEFI for virtual machines, and the package that holds it.
pub const FIRMWARE: (&str, &str) = ("/usr/share/ovmf/OVMF.fd", "ovmf");
/// Longest boot, on a busy host: translated firmware is slow.
const MOST: Duration = Duration::from_secs(180);
const WORDS: &str = "workload=tlb_flush2 table=1 design=ipi,broadcast threads=1,3 ms=5";
/// The start of the table, in WORDS' order.
const ROWS: [[&str; 2]; 4] = [["1", "ipi"], ["1", "broadcast"], ["3", "ipi"], ["3", "broadcast"]];

/// Makes the image and boots it twice.
///
/// # Errors
/// The missing item, or the unexpected output.
pub fn check(emulator: &Emulator, kernel: &Path, end: Instant) -> Result<(), String> {
    debian::programs(&[&ISO_NEEDS[..], &[FIRMWARE]].concat(), end)?;
    let iso = workspace::root().join("target/shootdown.iso");
    write_iso(kernel, WORDS, &iso, &AtomicBool::new(false))?;
    let machine = Machine {
        cpus: 3,
        clock: Clock::Translated,
        memory_mib: 256,
    };
    let stop = AtomicBool::new(false);
    let runs = [
        ("kernel by itself", machine.run(emulator, kernel, WORDS, MOST, &stop)?),
        ("image, BIOS", machine.run_iso(emulator, &iso, None, MOST, &stop)?),
        (
            "image, UEFI",
            machine.run_iso(emulator, &iso, Some(Path::new(FIRMWARE.0)), MOST, &stop)?,
        ),
    ];
    for (name, run) in runs {
        judge(&run).map_err(|why| format!("{name}: {why}"))?;
        println!("  {name:<46} printed the table in {:.1} s", run.seconds);
    }
    Ok(())
}

fn judge(run: &Run) -> Result<(), String> {
    if let Some(problem) = run.problem() {
        return Err(problem);
    }
    let rows: Vec<Vec<&str>> = run.lines.iter().map(|line| line.split_whitespace().collect()).collect();
    let table: Vec<&Vec<&str>> = rows
        .iter()
        .filter(|row| row.len() == 7 && row[0] != "threads")
        .collect();
    let is_right = table.len() == ROWS.len()
        && table
            .iter()
            .zip(ROWS)
            .all(|(row, begins)| row.starts_with(&begins) && row[2] != "0" && row[6] == "0");
    if is_right {
        Ok(())
    } else {
        Err(format!("another table than expected:\n{}", run.lines.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shootdown_qemu::Ended;

    #[test]
    fn missing_and_stale_rows_are_errors() {
        let row = |begins: [&str; 2], stale: &str| format!("{} {} 100 1.00 1.00 0.00 {stale}", begins[0], begins[1]);
        let run = |lines: Vec<String>| Run {
            ended: Ended::Success,
            lines,
            errors: String::new(),
            seconds: 1.0,
        };
        let all: Vec<String> = ROWS.iter().map(|begins| row(*begins, "0")).collect();
        assert_eq!(judge(&run(all.clone())), Ok(()));
        assert!(judge(&run(all[1..].to_vec())).is_err());
        let mut stale = all;
        stale[3] = row(ROWS[3], "2");
        assert!(judge(&run(stale)).is_err());
    }
}
