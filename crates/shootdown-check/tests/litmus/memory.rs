//! Loads, stores, barriers and interrupts: the shapes of the literature, under their usual names.

use crate::{ALWAYS, NEVER, Shape, WEAK, X, Y, Z, of};
use shootdown_check::litmus::{Do::*, Outcome, Program};

/// The n-th register of a CPU.
fn register(outcome: &Outcome, cpu: usize, n: usize) -> u64 {
    outcome.registers[cpu][n]
}

/// CPU 1 has seen 1 and then 0.
fn passed(outcome: &Outcome) -> bool {
    outcome.registers[1] == [1, 0]
}

/// Both CPUs have read 0.
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

pub const SHAPES: &[Shape] = &[
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
