//! Designs that fall back to other behaviour, because of the machine or of the number of threads.

use shootdown::{Design, Reach};
use shootdown_sim::model::{Arch, Model};
use shootdown_sim::run;

use crate::runs::plan::Plan;

/// A reason for which designs fall back, as a footnote of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The designs concerned.
    pub designs: Vec<&'static str>,
    /// Their behaviour, and the reason.
    pub why: String,
}

/// The fallbacks of a comparison, each reason once.
pub fn fallbacks(plan: &Plan) -> Vec<Fallback> {
    let model = &plan.target.machine;
    let mut fallbacks: Vec<Fallback> = Vec::new();
    for entry in &plan.designs {
        let Some(design) = run::designs().find(|design| design.name == entry.name) else {
            continue;
        };
        let threads: Vec<usize> = plan.threads.clone();
        for why in hardware(&design.design, model)
            .into_iter()
            .chain(threshold(&design.design, model, &threads))
        {
            match fallbacks.iter_mut().find(|fallback| fallback.why == why) {
                Some(fallback) => fallback.designs.push(entry.name),
                None => fallbacks.push(Fallback {
                    designs: vec![entry.name],
                    why,
                }),
            }
        }
    }
    fallbacks
}

/// Whether flushes of the design go by broadcast where the machine can.
fn broadcasts(design: &Design) -> bool {
    matches!(
        design.policy.reach,
        Reach::Broadcast | Reach::LocalFirst | Reach::Adaptive
    )
}

/// The missing feature of the machine.
fn hardware(design: &Design, model: &Model) -> Option<String> {
    if !broadcasts(design) {
        return None;
    }
    if !model.broadcasts() {
        let forbidden = model.vm.is_some_and(|vm| !vm.broadcast);
        return Some(match forbidden {
            true => format!(
                "a virtual machine on {} may not broadcast (vm.broadcast): its flushes go by interrupts",
                model.name
            ),
            false => format!(
                "{} has no broadcast invalidation: its flushes go by interrupts",
                model.name
            ),
        });
    }
    match model.arch {
        Arch::Riscv64(_) => Some(format!(
            "a broadcast on {} is a firmware call (SBI) whose firmware interrupts the other CPUs",
            model.name
        )),
        Arch::Aarch64(arm) if arm.erratum_never_broadcast && design.policy.reach != Reach::Adaptive => Some(format!(
            "broadcasts of {} are unsafe by an erratum: its flushes go by interrupts",
            model.name
        )),
        Arch::X86_64 | Arch::Aarch64(_) => None,
    }
}

/// Thread counts at which a space is never active on enough CPUs for the design to broadcast.
fn threshold(design: &Design, model: &Model, threads: &[usize]) -> Option<String> {
    let promote_at = design.policy.tags.promote_at()?;
    if !broadcasts(design) || !model.broadcasts() {
        return None;
    }
    // One thread has no other CPU to reach.
    let below = |&&threads: &&usize| threads > 1 && threads < promote_at as usize;
    let below: Vec<String> = threads.iter().filter(below).map(usize::to_string).collect();
    (!below.is_empty()).then(|| {
        format!(
            "broadcasts for spaces active on {promote_at} CPUs or more: at {} threads its flushes go by interrupts",
            below.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::fake;
    use crate::runs::target::Target;

    fn of(machine: &str, designs: &[&str], threads: &[usize]) -> Vec<(Vec<&'static str>, String)> {
        let mut plan = fake::plan(designs, threads);
        plan.target = Target::new(machine, None, &[]).unwrap();
        fallbacks(&plan)
            .into_iter()
            .map(|fallback| (fallback.designs, fallback.why))
            .collect()
    }

    #[test]
    fn designs_without_their_broadcast_hardware_share_one_note() {
        let found = of("skylake-104", &["ipi", "broadcast", "adaptive"], &[2, 16]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, ["broadcast", "adaptive"]);
        assert!(
            found[0].1.starts_with("skylake-104 has no broadcast invalidation"),
            "{found:?}"
        );
    }

    #[test]
    fn fallback_note_blames_the_virtual_machine_not_its_host() {
        let mut plan = fake::plan(&["adaptive"], &[8]);
        let set = ["vm.vcpus=8".to_string()];
        plan.target = Target::new("milan-72", None, &set).unwrap();
        let found = fallbacks(&plan);
        assert!(
            found[0]
                .why
                .starts_with("a virtual machine on milan-72 may not broadcast"),
            "{found:?}"
        );
    }

    #[test]
    fn fallback_note_names_cpu_counts_below_the_threshold() {
        let found = of("milan-72", &["ipi", "broadcast", "adaptive"], &[1, 2, 3, 4, 16]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, ["broadcast"]);
        assert!(found[0].1.contains("on 4 CPUs or more: at 2, 3 threads"), "{found:?}");
        assert_eq!(of("milan-72", &["ipi", "broadcast", "adaptive"], &[1, 4, 16, 72]), []);
    }

    #[test]
    fn fallback_note_names_firmware_and_errata() {
        let found = of("generic-riscv-64", &["ipi", "arm-broadcast"], &[16]);
        assert!(
            found.len() == 1 && found[0].1.contains("firmware interrupts the other CPUs"),
            "{found:?}"
        );
    }
}
