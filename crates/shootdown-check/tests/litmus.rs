//! Conformance of the machine that races are explored on: on each instruction set what is forbidden never comes out, and
//! what is allowed does. The first shapes are those of the literature, by their names there; the verdicts are those of the
//! Armv8 and RVWMO models, and of x86-TSO. Those of walkers and invalidations are the specification's.
//! `cargo test -p shootdown-check --test litmus -- --nocapture` prints the table.

use shootdown_check::Architecture;
use shootdown_check::litmus::{Do::*, ENTRY, Outcome, Program, TAG, outcomes};

/// The word of data that comes first, and the others.
const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;

/// Whether an outcome is one of the kind that the shape is about.
type About = fn(&Outcome) -> bool;

/// By instruction set, x86, Arm, RISC-V: whether it may come out.
type May = [bool; 3];

const NEVER: May = [false; 3];
const WEAK: May = [false, true, true];
const ALWAYS: May = [true; 3];
const ARM: May = [false, true, false];

const fn of(cpus: &'static [&'static [shootdown_check::litmus::Do]]) -> Program {
    Program { cpus, handlers: &[] }
}

/// The n-th register of a CPU.
fn register(outcome: &Outcome, cpu: usize, n: usize) -> u64 {
    outcome.registers[cpu][n]
}

fn is_stale(outcome: &Outcome) -> bool {
    outcome.registers.iter().any(|registers| registers.last() == Some(&1))
}

/// CPU 1 has seen 1 and then 0.
fn passed(outcome: &Outcome) -> bool {
    outcome.registers[1] == [1, 0]
}

/// Both have read 0.
fn both_missed(outcome: &Outcome) -> bool {
    outcome.registers[..2]
        .iter()
        .all(|registers| registers.last() == Some(&0))
}

/// The two readers disagree on the order.
fn disagree(outcome: &Outcome) -> bool {
    register(outcome, 2, 0) == 1
        && register(outcome, 2, 1) == 0
        && register(outcome, 3, 0) == 1
        && register(outcome, 3, 1) == 0
}

const MEMORY: &[(&str, Program, About, May)] = &[
    (
        "MP, plain",
        of(&[&[Store(X, 1), Store(Y, 1)], &[Load(Y), Load(X)]]),
        passed,
        WEAK,
    ),
    (
        "MP, release alone",
        of(&[&[Store(X, 1), Release(Y, 1)], &[Load(Y), Load(X)]]),
        passed,
        WEAK,
    ),
    (
        "MP, acquire alone",
        of(&[&[Store(X, 1), Store(Y, 1)], &[Acquire(Y), Load(X)]]),
        passed,
        WEAK,
    ),
    (
        "MP, release and acquire",
        of(&[&[Store(X, 1), Release(Y, 1)], &[Acquire(Y), Load(X)]]),
        passed,
        NEVER,
    ),
    (
        "MP, barriers",
        of(&[&[Store(X, 1), Full, Store(Y, 1)], &[Load(Y), Full, Load(X)]]),
        passed,
        NEVER,
    ),
    (
        "MP, exchange",
        of(&[&[Store(X, 1), Swap(Y, 1)], &[Swap(Y, 2), Load(X)]]),
        passed,
        NEVER,
    ),
    (
        "SB, plain",
        of(&[&[Store(X, 1), Load(Y)], &[Store(Y, 1), Load(X)]]),
        both_missed,
        ALWAYS,
    ),
    (
        "SB, release and acquire",
        of(&[&[Release(X, 1), Acquire(Y)], &[Release(Y, 1), Acquire(X)]]),
        both_missed,
        ALWAYS,
    ),
    (
        "SB, one barrier",
        of(&[&[Store(X, 1), Full, Load(Y)], &[Store(Y, 1), Load(X)]]),
        both_missed,
        ALWAYS,
    ),
    (
        "SB, barriers",
        of(&[&[Store(X, 1), Full, Load(Y)], &[Store(Y, 1), Full, Load(X)]]),
        both_missed,
        NEVER,
    ),
    (
        "SB, exchanges",
        of(&[&[Swap(X, 1), Load(Y)], &[Swap(Y, 1), Load(X)]]),
        both_missed,
        NEVER,
    ),
    (
        "LB, plain (allowed by Arm and RISC-V; the machine does not do it)",
        of(&[&[Load(X), Store(Y, 1)], &[Load(Y), Store(X, 1)]]),
        |outcome| outcome.registers == [[1], [1]],
        NEVER,
    ),
    (
        "S, plain",
        of(&[&[Store(X, 2), Store(Y, 1)], &[Sees(Y, 1), Store(X, 1)]]),
        |outcome| outcome.words[X] == 2,
        WEAK,
    ),
    (
        "S, release",
        of(&[&[Store(X, 2), Release(Y, 1)], &[Sees(Y, 1), Store(X, 1)]]),
        |outcome| outcome.words[X] == 2,
        NEVER,
    ),
    (
        "R, plain",
        of(&[&[Store(X, 1), Store(Y, 1)], &[Store(Y, 2), Load(X)]]),
        |outcome| outcome.words[Y] == 2 && register(outcome, 1, 0) == 0,
        ALWAYS,
    ),
    (
        "R, barriers",
        of(&[&[Store(X, 1), Full, Store(Y, 1)], &[Store(Y, 2), Full, Load(X)]]),
        |outcome| outcome.words[Y] == 2 && register(outcome, 1, 0) == 0,
        NEVER,
    ),
    (
        "2+2W, plain",
        of(&[&[Store(X, 1), Store(Y, 2)], &[Store(Y, 1), Store(X, 2)]]),
        |outcome| outcome.words[X] == 1 && outcome.words[Y] == 1,
        WEAK,
    ),
    (
        "2+2W, releases",
        of(&[&[Store(X, 1), Release(Y, 2)], &[Store(Y, 1), Release(X, 2)]]),
        |outcome| outcome.words[X] == 1 && outcome.words[Y] == 1,
        NEVER,
    ),
    ("CoRR", of(&[&[Store(X, 1)], &[Load(X), Load(X)]]), passed, NEVER),
    (
        "CoWR",
        of(&[&[Store(X, 1), Load(X)], &[Store(X, 2)]]),
        |outcome| register(outcome, 0, 0) == 0 || register(outcome, 0, 0) == 2 && outcome.words[X] == 1,
        NEVER,
    ),
    (
        "IRIW, plain",
        of(&[&[Store(X, 1)], &[Store(Y, 1)], &[Load(X), Load(Y)], &[Load(Y), Load(X)]]),
        disagree,
        WEAK,
    ),
    (
        "IRIW, acquire",
        of(&[
            &[Store(X, 1)],
            &[Store(Y, 1)],
            &[Acquire(X), Load(Y)],
            &[Acquire(Y), Load(X)],
        ]),
        disagree,
        NEVER,
    ),
    (
        "IRIW, barriers",
        of(&[
            &[Store(X, 1)],
            &[Store(Y, 1)],
            &[Load(X), Full, Load(Y)],
            &[Load(Y), Full, Load(X)],
        ]),
        disagree,
        NEVER,
    ),
    (
        "WRC, release and acquire",
        of(&[&[Store(X, 1)], &[Sees(X, 1), Release(Y, 1)], &[Acquire(Y), Load(X)]]),
        |outcome| outcome.registers[2] == [1, 0],
        NEVER,
    ),
    (
        "WRC, plain store",
        of(&[&[Store(X, 1)], &[Sees(X, 1), Store(Y, 1)], &[Acquire(Y), Load(X)]]),
        |outcome| outcome.registers[2] == [1, 0],
        NEVER,
    ),
    (
        "ISA2, releases and acquires",
        of(&[
            &[Store(X, 1), Release(Y, 1)],
            &[Sees(Y, 1), Release(Z, 1)],
            &[Acquire(Z), Load(X)],
        ]),
        |outcome| outcome.registers[2] == [1, 0],
        NEVER,
    ),
    (
        "interrupt behind its barrier",
        Program {
            cpus: &[&[Store(X, 1), BeforeIpi, Send(1)], &[]],
            handlers: &[&[], &[Load(X)]],
        },
        |outcome| outcome.registers[1] == [0],
        NEVER,
    ),
    (
        "interrupt behind an exchange",
        Program {
            cpus: &[&[Swap(X, 1), Send(1)], &[]],
            handlers: &[&[], &[Load(X)]],
        },
        |outcome| outcome.registers[1] == [0],
        WEAK,
    ),
    (
        "interrupt behind nothing",
        Program {
            cpus: &[&[Store(X, 1), Send(1)], &[]],
            handlers: &[&[], &[Load(X)]],
        },
        |outcome| outcome.registers[1] == [0],
        ALWAYS,
    ),
];

/// The CPU that unmaps says so in X, as by giving the frame to somebody; another has seen it, and uses the page.
const TRANSLATION: &[(&str, Program, About, May)] = &[
    (
        "unmap, publish, broadcast, synchronise",
        of(&[
            &[Store(ENTRY, 0), Publish, Broadcast(TAG), BroadcastSync, Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        NEVER,
    ),
    (
        "without publishing",
        of(&[
            &[Store(ENTRY, 0), Broadcast(TAG), BroadcastSync, Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "a full barrier instead",
        of(&[
            &[Store(ENTRY, 0), Full, Broadcast(TAG), BroadcastSync, Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ARM,
    ),
    (
        "an exchange instead",
        of(&[
            &[
                Store(ENTRY, 0),
                Swap(Y, 1),
                Broadcast(TAG),
                BroadcastSync,
                Release(X, 1),
            ],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ARM,
    ),
    (
        "without the invalidation",
        of(&[
            &[Store(ENTRY, 0), Publish, BroadcastSync, Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "here only",
        of(&[
            &[Store(ENTRY, 0), Publish, Invalidate(TAG), LocalSync, Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "without synchronising",
        of(&[
            &[Store(ENTRY, 0), Publish, Broadcast(TAG), Release(X, 1)],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "synchronised by somebody else",
        of(&[
            &[Store(ENTRY, 0), Publish, Broadcast(TAG), Release(X, 1)],
            &[Sees(X, 1), BroadcastSync, Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "another tag",
        of(&[
            &[
                Store(ENTRY, 0),
                Publish,
                Broadcast(TAG + 1),
                BroadcastSync,
                Release(X, 1),
            ],
            &[Sees(X, 1), Uses],
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "here, and used here",
        of(&[&[Store(ENTRY, 0), Publish, Invalidate(TAG), LocalSync, Uses], &[]]),
        is_stale,
        NEVER,
    ),
    (
        "here, without waiting",
        of(&[&[Store(ENTRY, 0), Publish, Invalidate(TAG), Uses], &[]]),
        is_stale,
        ARM,
    ),
    (
        "here, behind a full barrier only",
        of(&[&[Store(ENTRY, 0), Full, Invalidate(TAG), LocalSync, Uses], &[]]),
        is_stale,
        ARM,
    ),
    (
        "messages: local invalidations on both, answered",
        of(&[
            &[Store(ENTRY, 0), Publish, Release(X, 1), Sees(Y, 1)],
            &[Sees(X, 1), Invalidate(TAG), LocalSync, Release(Y, 1), Uses],
        ]),
        is_stale,
        NEVER,
    ),
    (
        "messages: published after the message",
        of(&[
            &[Store(ENTRY, 0), Full, Store(X, 1), Publish, Sees(Y, 1)],
            &[Sees(X, 1), Invalidate(TAG), LocalSync, Release(Y, 1), Uses],
        ]),
        is_stale,
        ARM,
    ),
    (
        "messages: the other side publishes what it has seen",
        of(&[
            &[Store(ENTRY, 0), Full, Store(X, 1), Sees(Y, 1)],
            &[
                Sees(X, 1),
                BeforeRootLoad,
                Invalidate(TAG),
                LocalSync,
                Release(Y, 1),
                Uses,
            ],
        ]),
        is_stale,
        NEVER,
    ),
    (
        "an interrupt with the invalidation in the handler",
        Program {
            cpus: &[&[Store(ENTRY, 0), Publish, BeforeIpi, Send(1)], &[Sees(X, 1), Uses]],
            handlers: &[&[], &[Invalidate(TAG), LocalSync, Store(X, 1)]],
        },
        is_stale,
        NEVER,
    ),
    (
        "the root is loaded behind the exchange that says so",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[
                Leave,
                Invalidate(TAG),
                LocalSync,
                Swap(X, 1),
                BeforeRootLoad,
                LoadRoot(TAG),
                Sees(Y, 1),
                Uses,
            ],
        ]),
        |outcome| outcome.registers[0] == [0] && is_stale(outcome),
        NEVER,
    ),
    (
        "the same without the barrier for root loads",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[
                Leave,
                Invalidate(TAG),
                LocalSync,
                Swap(X, 1),
                LoadRoot(TAG),
                Sees(Y, 1),
                Uses,
            ],
        ]),
        |outcome| outcome.registers[0] == [0] && is_stale(outcome),
        ARM,
    ),
    (
        "the invalidation behind the exchange that says so",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[Swap(X, 1), Publish, Invalidate(TAG), LocalSync, Sees(Y, 1), Uses],
        ]),
        |outcome| outcome.registers[0] == [0] && is_stale(outcome),
        NEVER,
    ),
    (
        "the same without a barrier for invalidations",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[Swap(X, 1), Invalidate(TAG), LocalSync, Sees(Y, 1), Uses],
        ]),
        |outcome| outcome.registers[0] == [0] && is_stale(outcome),
        ARM,
    ),
    (
        "walker and freer: publish, full barrier, look, on both sides",
        of(&[&[Store(ENTRY, 0), Full, Load(X)], &[Store(X, 1), Full, Load(ENTRY)]]),
        |outcome| outcome.registers == [[0], [1]],
        NEVER,
    ),
    (
        "walker and freer: release and acquire",
        of(&[&[Release(ENTRY, 0), Acquire(X)], &[Release(X, 1), Acquire(ENTRY)]]),
        |outcome| outcome.registers == [[0], [1]],
        ALWAYS,
    ),
    (
        "walker and freer: one full barrier",
        of(&[&[Store(ENTRY, 0), Load(X)], &[Store(X, 1), Full, Load(ENTRY)]]),
        |outcome| outcome.registers == [[0], [1]],
        ALWAYS,
    ),
];

fn conform(shapes: &[(&str, Program, About, May)]) {
    let mut wrong = Vec::new();
    for &(name, program, about, may) in shapes {
        let mut line = format!("{name:<66}");
        for (architecture, may) in Architecture::ALL.into_iter().zip(may) {
            let outcomes = outcomes(program, architecture);
            let seen = outcomes.iter().filter(|&outcome| about(outcome)).count();
            line.push_str(&format!(" {architecture}: {seen:>2} of {:>2}", outcomes.len()));
            if (seen > 0) != may {
                wrong.push(format!("{name} on {architecture}: allowed {may}, seen {}", seen > 0));
            }
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn loads_and_stores_are_reordered_as_allowed_and_no_further() {
    conform(MEMORY);
}

#[test]
fn walkers_and_invalidations_do_as_allowed_and_no_more() {
    conform(TRANSLATION);
}
