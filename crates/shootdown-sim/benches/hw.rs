//! Host time of the operations of a run. The ratios matter, and the growth with the number of CPUs.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use shootdown::Stride;
use shootdown::{Broadcast, BroadcastLimits, Local, Tag};
use shootdown_sim::hw::*;
use std::hint::black_box;

const VA: u64 = 0x40_0000;
const PAGE: u64 = 4096;

struct Machine {
    hw: Hw,
    table: u32,
    frame: u32,
}

fn machine(cpus: usize) -> Machine {
    let mut hw = Hw::new(HwConfig {
        cpus,
        broadcast: Some(BroadcastLimits {
            max_pages: 8,
            max_large_pages: 8,
        }),
        ..HwConfig::default()
    });
    let root = hw.new_space(1);
    let table = hw.ensure_table(root, VA, 1, 0, 0);
    let frame = hw.alloc_data();
    for i in 0..512 {
        hw.store_entry(table, i, leaf(frame), 0, 0);
    }
    for cpu in 0..cpus {
        hw.load_root(cpu, root, 1, true, 1, 0).unwrap();
        hw.caught_up(cpu, 0);
    }
    Machine { hw, table, frame }
}

fn leaf(frame: u32) -> Entry {
    Entry::page(frame).with(Entry::USER | Entry::WRITE | Entry::DIRTY)
}

fn page(i: u64) -> Local {
    Local::Page {
        address: VA + i * PAGE,
        stride: Stride::Size4K,
        tag: Tag(1),
        leaf_only: true,
    }
}

fn read(hw: &mut Hw, cpu: usize, i: u64, now: u64) {
    let _ = black_box(hw.translate(cpu, VA + (i & 511) * PAGE, Access::Read, Privilege::User, now));
}

fn operations(c: &mut Criterion) {
    for cpus in [1, 72] {
        let mut m = machine(cpus);
        let mut i = 0u64;
        c.bench_function(&format!("{cpus} cpus/translate hit"), |b| {
            b.iter(|| {
                i += 1;
                read(&mut m.hw, i as usize % cpus, i / cpus as u64 % 128, i);
            })
        });
        c.bench_function(&format!("{cpus} cpus/page invalidation, nothing cached"), |b| {
            b.iter(|| {
                i += 1;
                black_box(m.hw.local(0, page(300 + i % 100), i)).unwrap();
            })
        });
        c.bench_function(&format!("{cpus} cpus/page invalidation + refill"), |b| {
            b.iter(|| {
                i += 1;
                black_box(m.hw.local(0, page(i % 128), i)).unwrap();
                read(&mut m.hw, 0, i % 128, i);
            })
        });
        let what = Broadcast::Pages {
            address: VA,
            stride: Stride::Size4K,
            count: 1,
            tag: Tag(1),
            leaf_only: true,
        };
        c.bench_function(&format!("{cpus} cpus/broadcast + sync + refill"), |b| {
            b.iter(|| {
                i += 1;
                m.hw.broadcast(0, what, i).unwrap();
                m.hw.sync_done(0);
                read(&mut m.hw, 0, 0, i);
            })
        });
        let mut m = machine(cpus);
        c.bench_function(&format!("{cpus} cpus/unmap, flush, complete, map, refill"), |b| {
            b.iter(|| {
                i += 1;
                let index = (i % 128) as u32;
                m.hw.store_entry(m.table, index, Entry::NONE, 0, i);
                let stamp = m.hw.request_begins(0, i);
                for cpu in 0..cpus.min(2) {
                    m.hw.local(cpu, page(i % 128), i).unwrap();
                }
                m.hw.completed(1, VA + (i % 128) * PAGE..VA + (i % 128 + 1) * PAGE, stamp, 0, i);
                m.hw.store_entry(m.table, index, leaf(m.frame), 0, i);
                read(&mut m.hw, 0, i % 128, i);
            })
        });
        assert_eq!(m.hw.violation_count(), 0);
    }
    c.bench_function("a machine of 8192 cpus", |b| {
        b.iter_batched(
            || (),
            |()| {
                black_box(Hw::new(HwConfig {
                    cpus: 8192,
                    ..HwConfig::default()
                }))
            },
            BatchSize::PerIteration,
        )
    });
}

criterion_group!(benches, operations);
criterion_main!(benches);
