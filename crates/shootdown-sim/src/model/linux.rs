//! Releases of Linux, and the change of the simulated kernel by each.
//!
//! Owns the list, with the commit of each change. A release only stands for values of `linux.*`.

/// A change of Linux that the simulated kernel follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelChange {
    /// First release that has it.
    pub since: (u32, u32),
    /// The number of the model that it changes.
    pub path: &'static str,
    /// Its value before the change, and after it.
    pub values: (f64, f64),
    /// The commit.
    pub commit: &'static str,
}

/// All known changes, oldest first. Each published row states two others itself: whether each dropped page drains the
/// LRU batch (`lru_drain`), and whether the kernel trims CPU sets (the design `ipi-trim`):
/// - `lru_add_drain` left `zap_page_range_single` with "mm: remove unnecessary calls to lru_add_drain" (2025, 6.14 or
///   6.15: not confirmed);
/// - since 6.13, 209954cbc7d0, CPUs stay in the set of a space until a flush finds that they left, at most once a
///   second since 6db2526c1d69 (6.13).
///
/// The LRU lock is one for each node and memory group since 5.11 (6168d0da2b47). All simulated processes are in one
/// group, so it is the lock of the node. The cost of memory accounting is part of `kernel.page_alloc` and
/// `kernel.page_free`.
///
/// Not of a release: each target of a cross-CPU call has had its own `call_single_data`, which it releases by a store,
/// since 2.6.30 (`linux.answer_lines`), and one write of the interrupt register reaches the CPUs of an x2APIC cluster
/// since 3.0 (`linux.ipi_cluster`). Before 5.2 a nested unmap flushed its own range once more.
pub const KERNEL_CHANGES: [KernelChange; 5] = [
    KernelChange {
        since: (4, 8),
        path: "linux.node_lru",
        values: (0.0, 1.0),
        commit: "a52633d8e9c3, mm, vmscan: move lru_lock to the node",
    },
    KernelChange {
        since: (5, 2),
        path: "linux.nested_flushes",
        values: (0.0, 1.0),
        commit: "7a30df49f63a, mm: mmu_gather: remove __tlb_reset_range() for force flush",
    },
    KernelChange {
        since: (6, 4),
        path: "linux.region_faults",
        values: (0.0, 1.0),
        commit: "0bff0aaea03e, x86/mm: try VMA lock-based page fault handling first",
    },
    KernelChange {
        since: (6, 9),
        path: "linux.lru_batch",
        values: (15.0, 31.0),
        commit: "9cecde80aae0, mm: increase folio batch size",
    },
    KernelChange {
        since: (6, 17),
        path: "linux.region_drops",
        values: (0.0, 1.0),
        commit: "a6fde7add78d, mm: use per_vma lock for MADV_DONTNEED (release and number not confirmed)",
    },
];

/// The numbers of a model under release `text`, such as `6.4`.
///
/// # Errors
/// The expected form, if that is not a release.
pub fn release(text: &str) -> Result<Vec<(&'static str, f64)>, String> {
    let parsed = text
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    let Some(release) = parsed else {
        return Err("expected a release of Linux, for example 6.4".into());
    };
    let value = |change: &KernelChange| match release >= change.since {
        true => change.values.1,
        false => change.values.0,
    };
    Ok(KERNEL_CHANGES
        .iter()
        .map(|change| (change.path, value(change)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn linux_release_includes_all_earlier_changes() {
        assert_eq!(
            release("6.4").unwrap(),
            [
                ("linux.node_lru", 1.0),
                ("linux.nested_flushes", 1.0),
                ("linux.region_faults", 1.0),
                ("linux.lru_batch", 15.0),
                ("linux.region_drops", 0.0)
            ]
        );
        let before = release("5.17").unwrap();
        assert_eq!(
            before[2],
            ("linux.region_faults", 0.0),
            "5.17 is older than 6.4, not newer than 5.4 only"
        );
        assert!(release("6").is_err() && release("six.4").is_err());
    }

    #[test]
    fn every_linux_change_is_a_model_parameter() {
        let model = Model::find("milan-72").unwrap();
        for change in KERNEL_CHANGES {
            model.with(change.path, change.values.0).unwrap();
        }
    }
}
