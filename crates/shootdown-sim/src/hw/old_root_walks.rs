//! AArch64 and RISC-V: hardware table walks in progress when their root is replaced.
//!
//! Owns what ends them. A root load does not end them: on Arm an ISB waits for no walk, a DSB does (Arm ARM, R_LFHQG);
//! on RISC-V an SFENCE.VMA that names the old ASID, or all, orders them, unless harts end them at the write of satp
//! ([`root_load_ends_walks`](super::Riscv64::root_load_ends_walks)). Until then the CPU may read, and write accessed
//! bits to, any table that was linked when the root was replaced; so none of those may be freed (C3).

use super::deferred::OldRootWalk;
use super::violation::Rule;
use super::{Hw, Isa};
use shootdown::{Broadcast, Local};

impl Hw {
    /// `root` and `tag`, of `space`, were replaced on this CPU.
    pub(super) fn root_replaced(&mut self, cpu: usize, root: u32, tag: u16, space: u32) {
        let since = self.seq;
        let ends = matches!(self.config.isa, Isa::Riscv64(riscv) if riscv.root_load_ends_walks);
        if let Some(later) = &mut self.later
            && space != 0
            && !ends
        {
            let walks = &mut later.cpus[cpu].old_root_walks;
            if !walks.iter().any(|walk| (walk.root, walk.tag) == (root, tag)) {
                walks.push(OldRootWalk {
                    root,
                    space,
                    tag,
                    since,
                });
            }
        }
    }

    fn end_walks(&mut self, cpu: usize, of: impl Fn(&OldRootWalk) -> bool) {
        if let Some(later) = &mut self.later {
            later.cpus[cpu].old_root_walks.retain(|walk| !of(walk));
        }
    }

    /// The CPU has waited for all of them.
    pub(super) fn no_old_root_walks(&mut self, cpu: usize) {
        self.end_walks(cpu, |_| true);
    }

    /// A root was loaded under `tag` with a flush of the tag. On Arm that takes a DSB after the old root was left; on
    /// RISC-V a fence that names the new tag.
    pub(super) fn flush_at_load_ends_walks(&mut self, cpu: usize, tag: u16) {
        match self.config.isa {
            Isa::X86_64 => {}
            Isa::Aarch64(_) => self.no_old_root_walks(cpu),
            Isa::Riscv64(_) => self.end_walks(cpu, |walk| walk.tag == tag),
        }
    }

    /// A fence of this hart for `what` is complete.
    pub(super) fn fence_ends_walks(&mut self, cpu: usize, what: Local) {
        match what {
            Local::Tag(tag) => self.end_walks(cpu, |walk| walk.tag == tag.0),
            Local::All => self.no_old_root_walks(cpu),
            // With an address only leaves are ordered.
            Local::Page { .. } | Local::Kernel { .. } => {}
        }
    }

    /// A broadcast invalidation is complete on this CPU, and so are walks by the entries that it removed.
    pub(super) fn broadcast_ends_walks(&mut self, cpu: usize, what: Broadcast) {
        match what {
            Broadcast::Tag(tag)
            | Broadcast::Pages {
                tag, leaf_only: false, ..
            } => self.end_walks(cpu, |walk| walk.tag == tag.0),
            Broadcast::NonGlobal | Broadcast::All => self.no_old_root_walks(cpu),
            Broadcast::Pages { .. } | Broadcast::Kernel { .. } => {}
        }
    }

    /// A page-table page, or a root, is freed: no such walk may still use it.
    pub(super) fn check_old_root_walks(&mut self, frame: u32, space: u32, unlinked: u64, now: u64) {
        let Some(later) = &self.later else { return };
        let reaches = |walk: &OldRootWalk| {
            walk.root == frame || walk.space == space && space != 0 && (unlinked == 0 || unlinked >= walk.since)
        };
        let found = later.cpus.iter().enumerate().find_map(|(cpu, of)| {
            let walk = of.old_root_walks.iter().find(|walk| reaches(walk))?;
            Some((cpu, *walk))
        });
        if let Some((cpu, walk)) = found {
            self.report(Rule::C3, cpu, 0, now, |_| {
                vec![format!(
                    "page-table page {frame} is freed at {now} while a walk by root {}, \
                     which CPU {cpu} has replaced, may still read it: no barrier has waited for it",
                    walk.root
                )]
            });
        }
    }

    /// Spaces whose tables such walks may read.
    pub(super) fn spaces_walked(&self) -> Vec<u32> {
        let later = self.later.iter().flat_map(|later| &later.cpus);
        later
            .flat_map(|cpu| &cpu.old_root_walks)
            .map(|walk| walk.space)
            .collect()
    }
}
