//! The instructions of a shootdown, counted by QEMU's plugin from the stream of executed instructions: independent of
//! what the kernel counts.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use shootdown_qemu::{Clock, Emulator, Image, NotDone, Plugin};

use super::grid::grid;
use super::reading::Row;
use super::{Plan, TORTURE};
use crate::failure::Failure;
use crate::print::number;
use crate::print::table::{Column, Grid};

/// What counts, or why nothing does.
pub(super) enum Counting {
    /// Instructions of this plan are not counted.
    Off,
    /// The plugin.
    By(Plugin),
    /// It cannot be compiled.
    Missing(String),
}

impl Counting {
    /// Compiles the plugin if this plan counts instructions.
    ///
    /// # Errors
    /// When it is stopped.
    pub fn set_up(plan: &Plan, image: &Image, emulator: &Emulator, stop: &AtomicBool) -> Result<Counting, Failure> {
        if plan.workload == TORTURE || !matches!(plan.machine.clock, Clock::Counted { .. }) {
            return Ok(Counting::Off);
        }
        let root = image.checkout();
        match Plugin::build(root, emulator.version, &root.join("target/plugin"), stop) {
            Ok(plugin) => Ok(Counting::By(plugin)),
            Err(NotDone::Stopped) => Err(Failure::Interrupted),
            Err(NotDone::Failed(why)) => Ok(Counting::Missing(why)),
        }
    }

    /// The emulator with the plugin.
    pub fn emulator(&self, emulator: Emulator) -> Emulator {
        match self {
            Counting::By(plugin) => emulator.with_plugin(plugin.clone()),
            Counting::Off | Counting::Missing(_) => emulator,
        }
    }

    /// The counts of the last run, which had one window; `None` where it counted nothing.
    pub fn take(&self) -> Option<BTreeMap<String, u64>> {
        match self {
            Counting::By(plugin) => plugin.take().ok()?.into_iter().next().map(|window| window.operations),
            Counting::Off | Counting::Missing(_) => None,
        }
    }

    /// A note for readers of the tables.
    pub fn note(&self) -> Option<String> {
        match self {
            Counting::Off => None,
            Counting::By(_) => {
                Some("instructions of a shootdown: counted by QEMU's plugin from what the CPUs execute".to_owned())
            }
            Counting::Missing(why) => Some(format!("instructions of a shootdown: not counted, because of {why}")),
        }
    }
}

/// The table; `None` where nothing was counted.
pub(super) fn table(rows: &[Row]) -> Option<Grid> {
    let of = |row: &Row| row.line.as_ref().and_then(|line| line.own.operations_per_op.clone());
    let names: Vec<String> = rows.iter().find_map(of)?.into_keys().collect();
    let columns = names.iter().map(|name| {
        Column::number(
            title(name),
            format!("{} for one operation of the workload", meaning(name)),
        )
    });
    Some(grid(columns.collect(), rows, |row| {
        let counts = of(row)?;
        Some(
            names
                .iter()
                .map(|name| number::per_operation(counts.get(name).copied().unwrap_or(0.0)))
                .collect(),
        )
    }))
}

/// A column's title, and what it counts.
const KNOWN: [(&str, &str, &str); 16] = [
    ("invlpg", "INVLPG", "INVLPG of all CPUs"),
    ("invpcid", "INVPCID", "INVPCID of all CPUs"),
    (
        "root_load",
        "root loads",
        "loads of a root: MOV to CR3, MSR TTBR0_EL1, CSRRW satp",
    ),
    ("invlpgb", "INVLPGB", "INVLPGB, also where it is emulated"),
    ("tlbsync", "TLBSYNC", "TLBSYNC, also where it is emulated"),
    ("tlbi_local", "TLBI local", "TLBI of this CPU alone"),
    ("tlbi_broadcast", "TLBI broadcast", "TLBI of the inner-shareable domain"),
    ("dsb", "DSB", "DSB of any domain"),
    ("isb", "ISB", "ISB"),
    (
        "sgi",
        "SGI",
        "writes of ICC_SGI1R_EL1, each an interrupt to one CPU or more",
    ),
    ("sfence_vma", "SFENCE.VMA", "SFENCE.VMA of the kernel"),
    (
        "sfence_vma_firmware",
        "SFENCE.VMA, OpenSBI",
        "SFENCE.VMA of OpenSBI, for remote fences",
    ),
    ("sinval_vma", "SINVAL.VMA", "SINVAL.VMA of the kernel (Svinval)"),
    (
        "sfence_w_inval",
        "SFENCE.W.INVAL",
        "SFENCE.W.INVAL of the kernel (Svinval)",
    ),
    (
        "sfence_inval_ir",
        "SFENCE.INVAL.IR",
        "SFENCE.INVAL.IR of the kernel (Svinval)",
    ),
    (
        "sbi_call",
        "SBI calls",
        "calls of OpenSBI: interrupts to harts, remote fences, timers",
    ),
];

fn title(name: &str) -> &str {
    KNOWN.iter().find(|known| known.0 == name).map_or(name, |known| known.1)
}

fn meaning(name: &str) -> &str {
    KNOWN.iter().find(|known| known.0 == name).map_or(name, |known| known.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the plugin's source.
    #[test]
    fn every_operation_of_the_plugin_has_a_title() {
        let source = include_str!("../../../../../xtask/plugin/operations.h");
        let table = source.split("isas[]").nth(1).expect("the table of instruction sets");
        let words: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
        let names = words
            .iter()
            .filter(|word| !["x86_64", "aarch64", "riscv64"].contains(word));
        let names: Vec<_> = names.collect();
        assert!(names.len() > 15, "{names:?}");
        assert!(
            names.iter().all(|name| KNOWN.iter().any(|known| known.0 == **name)),
            "{names:?}"
        );
    }
}
