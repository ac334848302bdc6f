//! A small correct kernel on a tiny, speculating machine causes no report; with one step omitted it does.

use crate::bed::*;
use shootdown::Stride;
use shootdown::{Broadcast, Local, Tag};
use shootdown_sim::hw::*;

/// The step that the kernel omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forget {
    Nothing,
    /// To interrupt CPU 2.
    OneCpu,
    /// To flush when a switch finds its tag behind.
    CatchUp,
    /// To flush when lazy TLB mode ends.
    LazyExit,
    /// The paging structures, when a table is freed.
    Links,
    /// To wait for its broadcasts.
    Sync,
}

const CPUS: usize = 4;
const SPACES: u32 = 2;

/// A random run; lazy CPUs and CPUs in the other space are skipped and catch up by flushing their tag.
fn run(seed: u64, forget: Forget, broadcast: bool) -> Bed {
    let mut b = Bed::new(HwConfig {
        tlb_entries: 16,
        tlb_ways: 4,
        psc_entries: 4,
        speculation: 0.3,
        leaf_only_keeps_psc: true,
        tce: seed.is_multiple_of(2),
        seed,
        ..config(CPUS)
    });
    b.hw.new_space(2);
    let zero = b.hw.zero_page();
    let mut behind = [[false; CPUS]; SPACES as usize + 1];
    let mut lazy = [false; CPUS];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    for _ in 0..400 {
        let (cpu, space) = (random(CPUS as u64) as usize, 1 + random(SPACES as u64) as u32);
        let va = VA + random(3) * PAGE + random(2) * (2 << 20);
        let root = b.hw.root(space);
        match random(8) {
            0..=3 => {
                if !lazy[cpu] {
                    let _ = if random(2) == 0 {
                        b.read(cpu, va)
                    } else {
                        b.write(cpu, va)
                    };
                }
            }
            4 => {
                let old = b.hw.table_at(root, va, 1).map(|t| b.hw.entry(t, table_index(va, 1)));
                if old.is_none_or(|e| !e.is_present()) {
                    let value = if random(3) == 0 {
                        ro(zero)
                    } else {
                        rw(b.hw.alloc_data())
                    };
                    b.set(root, va, 1, value);
                }
            }
            5 => {
                if lazy[cpu] && random(2) == 0 {
                    lazy[cpu] = false;
                    b.hw.set_lazy(cpu, false);
                } else {
                    b.load(
                        cpu,
                        space,
                        space as u16,
                        !behind[space as usize][cpu] || forget == Forget::CatchUp,
                    );
                    behind[space as usize][cpu] = false;
                }
                let loaded = b.hw.loaded(cpu).2 as usize;
                if behind[loaded][cpu] && !lazy[cpu] && forget != Forget::LazyExit {
                    b.local(cpu, Local::Tag(Tag(loaded as u16)));
                    behind[loaded][cpu] = false;
                }
                b.hw.caught_up(cpu, b.now);
            }
            6 => {
                lazy[cpu] = true;
                b.hw.set_lazy(cpu, true);
            }
            _ => {
                // Unmap a page, and free the table with it when it was the last one.
                let Some(table) = b.hw.table_at(root, va, 1) else {
                    continue;
                };
                let old = b.hw.entry(table, table_index(va, 1));
                if !old.is_present() {
                    continue;
                }
                b.set(root, va, 1, Entry::NONE);
                let empty = (0..512).all(|i| !b.hw.entry(table, i).is_present());
                if empty {
                    let above = b.hw.table_at(root, va, 2).unwrap();
                    b.hw.store_entry(above, table_index(va, 2), Entry::NONE, cpu, b.now);
                }
                let stamp = b.hw.request_begins(cpu, b.now);
                let leaf_only = !empty || forget == Forget::Links;
                if broadcast {
                    let what = Broadcast::Pages {
                        address: va,
                        stride: Stride::Size4K,
                        count: 1,
                        tag: Tag(space as u16),
                        leaf_only,
                    };
                    b.hw.broadcast(cpu, what, b.now).unwrap();
                    if forget != Forget::Sync {
                        b.now = b.hw.sync_ready_at(cpu, b.now);
                        b.hw.sync_done(cpu);
                    }
                } else {
                    for other in 0..CPUS {
                        if b.hw.loaded(other).2 != space || (lazy[other] && !empty) {
                            behind[space as usize][other] = true;
                        } else if !(forget == Forget::OneCpu && other == 2) {
                            let what = Local::Page {
                                address: va,
                                stride: Stride::Size4K,
                                tag: Tag(space as u16),
                                leaf_only,
                            };
                            b.local(other, what);
                        }
                    }
                }
                b.hw.completed(space, va..va + PAGE, stamp, cpu, b.now);
                if old.frame() != zero {
                    b.hw.free_data(old.frame(), cpu, b.now);
                }
                if empty {
                    b.hw.free_table(table, cpu, b.now);
                }
            }
        }
    }
    b
}

#[test]
fn oracle_accepts_a_correct_kernel() {
    for seed in 0..1500 {
        for broadcast in [false, true] {
            run(seed, Forget::Nothing, broadcast).assert_clean();
        }
    }
}

#[test]
fn oracle_catches_a_kernel_that_omits_a_step() {
    let forgotten = [
        (Forget::OneCpu, false, Rule::C1),
        (Forget::CatchUp, false, Rule::C1),
        (Forget::LazyExit, false, Rule::C1),
        (Forget::Links, false, Rule::C3),
        (Forget::Links, true, Rule::C3),
        (Forget::Sync, true, Rule::C1),
    ];
    for (forget, broadcast, rule) in forgotten {
        let caught = (0..100)
            .filter(|&seed| run(seed, forget, broadcast).rules().contains(&rule))
            .count();
        assert!(caught >= 60, "{forget:?}: {caught} of 100");
    }
}
