//! The conformance shapes as one table, on all three instruction sets: forbidden outcomes are never seen, allowed ones
//! are. `cargo test -p shootdown-sim --test hw table -- --nocapture` prints it.

use crate::aarch64::arm;
use crate::bed::*;
use crate::riscv64::riscv;
use shootdown::facade::{Facade, Word};
use shootdown::{Broadcast, Local, Tag};
use shootdown_sim::hw::*;
use shootdown_sim::machine::{self, Config, Machine, Outcome, SimWord, SimWorld, StoreBuffer, Topology};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

const SEEDS: u64 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    X86,
    Arm,
    RiscV,
}

const SETS: [Set; 3] = [Set::X86, Set::Arm, Set::RiscV];

/// The expected outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Forbidden.
    Never,
    /// Allowed, and seen in some runs at least.
    Seen,
}
use Expected::{Never, Seen};

/// Count over the seeds; `None` where an instruction set has no such shape.
type Count = fn(Set) -> Option<u64>;

struct Shape {
    name: &'static str,
    expected: Expected,
    count: Count,
}

fn bed(set: Set, seed: u64) -> Bed {
    Bed::new(match set {
        Set::X86 => HwConfig { seed, ..config(3) },
        Set::Arm => HwConfig {
            seed,
            ..arm(ArmErrata::default())
        },
        Set::RiscV => riscv(true, seed),
    })
}

fn over_seeds(mut run: impl FnMut(u64) -> bool) -> u64 {
    (0..SEEDS).filter(|&seed| run(seed)).count() as u64
}

fn page_of(tag: u16) -> Local {
    Local::Page {
        address: VA,
        stride: shootdown::Stride::Size4K,
        tag: Tag(tag),
        leaf_only: true,
    }
}

fn publish(set: Set, b: &mut Bed) {
    match set {
        Set::X86 => {}
        Set::Arm => b.hw.dsb_stores(0, Scope::InnerShareable),
        Set::RiscV => b.hw.sfence_w_inval(0),
    }
}

fn broadcast(set: Set, b: &mut Bed, what: Broadcast) {
    let now = b.now;
    match set {
        Set::X86 => drop(b.hw.broadcast(0, what, now).expect("a valid operand")),
        Set::Arm => drop(b.hw.tlbi_is(0, what, now).expect("a valid operand")),
        Set::RiscV => b.hw.sbi_remote_fence(what).expect("a valid operand"),
    }
}

/// The call to the firmware returns when every hart is done: nothing to wait for on RISC-V.
fn synchronise(set: Set, b: &mut Bed, cpu: usize) {
    b.now = b.hw.sync_ready_at(cpu, b.now);
    match set {
        Set::X86 => b.hw.sync_done(cpu),
        Set::Arm => b.hw.dsb(cpu, Scope::InnerShareable, b.now),
        Set::RiscV => {}
    }
}

/// An invalidation on one CPU; `whole` with what completes it.
fn local(set: Set, b: &mut Bed, cpu: usize, tag: u16, whole: bool) {
    let now = b.now;
    match set {
        Set::X86 => b.page(cpu, VA, tag),
        Set::Arm => drop(b.hw.tlbi(cpu, page_of(tag), now).expect("a valid operand")),
        Set::RiscV => drop(b.hw.sinval(cpu, page_of(tag), now).expect("it has Svinval")),
    }
    match set {
        Set::Arm if whole => b.hw.dsb(cpu, Scope::Local, now),
        Set::RiscV if whole => b.hw.sfence_inval_ir(cpu),
        _ => {}
    }
}

/// How often CPU `reader` still reads a page that CPU 0 has unmapped and passed to `flush`. With `late`, it also reads
/// between the store and its visibility.
fn stale(set: Set, reader: usize, late: bool, flush: impl Fn(&mut Bed)) -> Option<u64> {
    Some(over_seeds(|seed| {
        let mut b = bed(set, seed);
        let f = b.hw.alloc_data();
        b.map(VA, f);
        publish(set, &mut b);
        if !late {
            b.read(reader, VA).expect("mapped");
        }
        let table = b.hw.table_at(b.root, VA, 1).expect("mapped");
        let issued = b.hw.store_issued(0, b.now);
        if late {
            b.read(reader, VA).expect("still mapped");
        }
        b.now += 10;
        b.hw.set_entry(table, table_index(VA, 1), Entry::NONE, issued, b.now);
        flush(&mut b);
        b.now += (seed * 7) % 900;
        b.read(reader, VA).is_ok()
    }))
}

/// The store-buffering shape: how often both sides miss each other. The store buffers belong to the machine, on every
/// instruction set.
fn missed([first, second]: [fn(); 2]) -> Option<u64> {
    Some(over_seeds(|seed| {
        let mut machine = Machine::new(Config {
            seed,
            store_buffer: StoreBuffer::Random { max_cycles: 400 },
            slack_cycles: seed % 2 * 60,
            ..Config::new(Topology::flat(2))
        });
        let words = machine.alloc([0; 16].map(SimWord::new));
        let read = Rc::new(RefCell::new([1; 2]));
        for (cpu, between) in [first, second].into_iter().enumerate() {
            let (words, read) = (words.clone(), read.clone());
            machine.spawn(cpu, move || {
                machine::charge(machine::random_below(300));
                words[8 * cpu].store(1, Release);
                between();
                let value = words[8 * (1 - cpu)].load(Acquire);
                read.borrow_mut()[cpu] = value;
            });
        }
        assert_eq!(machine.run(u64::MAX, |_| true), Outcome::Finished);
        *read.borrow() == [0, 0]
    }))
}

/// How often CPU 1 uses a translation of the space before, when another is loaded under its tag with `between` before.
fn foreign(set: Set, between: fn(Set, &mut Bed)) -> Option<u64> {
    Some(over_seeds(|seed| {
        let mut b = bed(set, seed);
        b.hw.new_space(2);
        let f = b.hw.alloc_data();
        b.map(VA, f);
        b.read(1, VA).expect("mapped");
        between(set, &mut b);
        b.load(1, 2, TAG, true);
        let _ = b.read(1, VA);
        b.rules().contains(&Rule::C4)
    }))
}

/// How often two CPUs see the old and the new frame of one page at a time, with or without break-before-make.
fn both(set: Set, breaks: bool) -> Option<u64> {
    Some(over_seeds(|seed| {
        let mut b = bed(set, seed);
        let (f, g) = (b.hw.alloc_data(), b.hw.alloc_data());
        b.map(VA, f);
        b.read(1, VA).expect("mapped");
        if breaks {
            b.unmap(VA);
            publish(set, &mut b);
            broadcast(set, &mut b, broadcast_page(TAG, true));
            synchronise(set, &mut b, 0);
        }
        b.map(VA, g);
        let seen = [1, 2].map(|cpu| b.read(cpu, VA).map(|found| found.frame));
        seen == [Ok(f), Ok(g)]
    }))
}

/// How often an access that the tables allow by now faults once.
fn faults(set: Set, was_mapped: bool, flushed: bool) -> Option<u64> {
    Some(over_seeds(|seed| {
        let mut b = Bed::new(HwConfig {
            stale_faults: true,
            ..bed(set, seed).hw.config().clone()
        });
        let f = b.hw.alloc_data();
        if was_mapped {
            b.set(b.root, VA, 1, ro(f));
            b.read(1, VA).expect("mapped");
        } else {
            assert!(b.read(1, VA).is_err());
        }
        b.map(VA, f);
        if flushed {
            local(set, &mut b, 1, TAG, true);
        }
        if was_mapped {
            b.write(1, VA).is_err()
        } else {
            b.read(1, VA).is_err()
        }
    }))
}

fn shape(name: &'static str, expected: Expected, count: Count) -> Shape {
    Shape { name, expected, count }
}

fn unmapped_and(steps: fn(Set, &mut Bed)) -> impl Fn(Set, usize, bool) -> Option<u64> {
    move |set, reader, late| stale(set, reader, late, |b| steps(set, b))
}

fn shapes() -> Vec<Shape> {
    vec![
        shape(
            "unmap, publish, broadcast, synchronise: another CPU is stale",
            Never,
            |set| {
                unmapped_and(|set, b| {
                    publish(set, b);
                    broadcast(set, b, broadcast_page(TAG, true));
                    synchronise(set, b, 0);
                })(set, 1, set == Set::Arm)
            },
        ),
        shape("  not published", Seen, |set| match set {
            // Stores come before an invalidation that serialises; INVLPGB is preceded by a locked operation.
            Set::X86 => None,
            Set::Arm => stale(set, 1, true, |b| {
                broadcast(set, b, broadcast_page(TAG, true));
                synchronise(set, b, 0);
            }),
            Set::RiscV => stale(set, 0, true, |b| local(set, b, 0, TAG, true)),
        }),
        shape("  not invalidated", Seen, |set| {
            unmapped_and(|set, b| {
                publish(set, b);
                synchronise(set, b, 0);
            })(set, 1, false)
        }),
        shape("  invalidated on the own CPU only", Seen, |set| {
            unmapped_and(|set, b| {
                publish(set, b);
                local(set, b, 0, TAG, true);
            })(set, 1, false)
        }),
        shape("  not synchronised", Seen, |set| match set {
            Set::RiscV => None,
            _ => unmapped_and(|set, b| {
                publish(set, b);
                broadcast(set, b, broadcast_page(TAG, true));
            })(set, 1, false),
        }),
        shape("  synchronised on another CPU", Seen, |set| match set {
            Set::RiscV => None,
            _ => unmapped_and(|set, b| {
                publish(set, b);
                broadcast(set, b, broadcast_page(TAG, true));
                synchronise(set, b, 2);
            })(set, 1, false),
        }),
        shape("  under another tag", Seen, |set| {
            unmapped_and(|set, b| {
                publish(set, b);
                broadcast(set, b, broadcast_page(TAG + 1, true));
                synchronise(set, b, 0);
            })(set, 1, false)
        }),
        // Simulated programs run in order: nothing is read before the message that permits the read.
        shape("  without the reader's own synchronisation", Seen, |_| None),
        shape(
            "unmap, publish, message, the other invalidates and answers: stale",
            Never,
            |set| {
                unmapped_and(|set, b| {
                    publish(set, b);
                    local(set, b, 1, TAG, true);
                })(set, 1, false)
            },
        ),
        shape("  answered before it is complete", Seen, |set| match set {
            Set::X86 => None,
            _ => unmapped_and(|set, b| {
                publish(set, b);
                local(set, b, 1, TAG, false);
            })(set, 1, false),
        }),
        shape(
            "other tables under the same tag, invalidated before: a foreign entry",
            Never,
            |set| {
                foreign(set, |set, b| match set {
                    Set::Arm => {
                        let now = b.now;
                        b.hw.tlbi(1, Local::Tag(Tag(TAG)), now).expect("a valid operand");
                        b.hw.dsb(1, Scope::Local, now);
                    }
                    Set::X86 => drop(b.local(1, Local::Tag(Tag(TAG)))),
                    Set::RiscV => drop(b.hw.sfence(1, Local::Tag(Tag(TAG)), b.now).expect("a valid operand")),
                })
            },
        ),
        shape("  not invalidated", Seen, |set| foreign(set, |_, _| ())),
        shape(
            "another frame by break-before-make: old and new at once",
            Never,
            |set| both(set, true),
        ),
        shape("  at once", Seen, |set| both(set, false)),
        shape(
            "publish and check, full barriers on both sides: both miss",
            Never,
            |_| missed([SimWorld::full_barrier, SimWorld::full_barrier]),
        ),
        shape("  one of them missing", Seen, |_| {
            missed([SimWorld::full_barrier, || ()])
        }),
        shape("  release stores and acquire loads only", Seen, |_| {
            missed([|| (), || ()])
        }),
        shape("more permissive, flushed: a fault", Never, |set| {
            faults(set, true, true)
        }),
        shape("  not flushed", Seen, |set| faults(set, true, false)),
        shape("valid from invalid, flushed: a fault", Never, |set| {
            faults(set, false, true)
        }),
        shape("  not flushed, where invalid entries may be cached", Seen, |set| {
            (set == Set::RiscV).then(|| faults(set, false, false))?
        }),
        shape("  not flushed, where they may not", Never, |set| {
            (set != Set::RiscV).then(|| faults(set, false, false))?
        }),
    ]
}

#[test]
fn every_litmus_shape_shows_exactly_the_allowed_outcomes() {
    let mut wrong = Vec::new();
    println!(
        "{:<70} {:<8} {:>7} {:>7} {:>7}   of {SEEDS} seeds",
        "shape", "must be", "x86-64", "AArch64", "RISC-V"
    );
    for Shape { name, expected, count } in shapes() {
        let counts = SETS.map(count);
        let shown = counts.map(|count| count.map_or("–".into(), |count| count.to_string()));
        let must = if expected == Never { "never" } else { "seen" };
        println!("{name:<70} {must:<8} {:>7} {:>7} {:>7}", shown[0], shown[1], shown[2]);
        for (set, count) in SETS.into_iter().zip(counts) {
            if count.is_some_and(|count| (count == 0) != (expected == Never)) {
                wrong.push(format!("{name} on {set:?}: {count:?} times, {must} expected"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
