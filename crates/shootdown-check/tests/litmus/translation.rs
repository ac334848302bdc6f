//! Page-table writes, walkers and invalidations, as specified. The CPU that unmaps sets X, as if it freed the frame.
//! Another CPU that has seen X uses the page.

use crate::{ALWAYS, ARM, NEVER, Shape, X, Y, of};
use shootdown_check::litmus::{Do, Do::*, ENTRY, Outcome, Program, TAG};

/// The other CPU.
const OTHER_USES: &[Do] = &[Sees(X, 1), Uses];

/// A CPU could use the page.
fn is_stale(outcome: &Outcome) -> bool {
    outcome.registers.iter().any(|registers| registers.last() == Some(&1))
}

/// The same, although the unmapping CPU had not seen the other one.
fn is_stale_unseen(outcome: &Outcome) -> bool {
    outcome.registers[0] == [0] && is_stale(outcome)
}

/// Each CPU has missed the other.
fn both_missed(outcome: &Outcome) -> bool {
    outcome.registers == [[0], [1]]
}

pub const SHAPES: &[Shape] = &[
    (
        "unmap, publish, broadcast, synchronise",
        of(&[
            &[Store(ENTRY, 0), Publish, Broadcast(TAG), BroadcastSync, Release(X, 1)],
            OTHER_USES,
        ]),
        is_stale,
        NEVER,
    ),
    (
        "without publishing",
        of(&[
            &[Store(ENTRY, 0), Broadcast(TAG), BroadcastSync, Release(X, 1)],
            OTHER_USES,
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "a full barrier instead",
        of(&[
            &[Store(ENTRY, 0), Full, Broadcast(TAG), BroadcastSync, Release(X, 1)],
            OTHER_USES,
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
            OTHER_USES,
        ]),
        is_stale,
        ARM,
    ),
    (
        "without the invalidation",
        of(&[&[Store(ENTRY, 0), Publish, BroadcastSync, Release(X, 1)], OTHER_USES]),
        is_stale,
        ALWAYS,
    ),
    (
        "here only",
        of(&[
            &[Store(ENTRY, 0), Publish, Invalidate(TAG), LocalSync, Release(X, 1)],
            OTHER_USES,
        ]),
        is_stale,
        ALWAYS,
    ),
    (
        "without synchronising",
        of(&[&[Store(ENTRY, 0), Publish, Broadcast(TAG), Release(X, 1)], OTHER_USES]),
        is_stale,
        ALWAYS,
    ),
    (
        "synchronised by another CPU",
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
            OTHER_USES,
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
            cpus: &[&[Store(ENTRY, 0), Publish, BeforeIpi, Send(1)], OTHER_USES],
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
        is_stale_unseen,
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
        is_stale_unseen,
        ARM,
    ),
    (
        "the invalidation behind the exchange that says so",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[Swap(X, 1), Publish, Invalidate(TAG), LocalSync, Sees(Y, 1), Uses],
        ]),
        is_stale_unseen,
        NEVER,
    ),
    (
        "the same without a barrier for invalidations",
        of(&[
            &[Store(ENTRY, 0), Publish, Full, Load(X), Release(Y, 1)],
            &[Swap(X, 1), Invalidate(TAG), LocalSync, Sees(Y, 1), Uses],
        ]),
        is_stale_unseen,
        ARM,
    ),
    (
        "walker and freer: publish, full barrier, look, on both sides",
        of(&[&[Store(ENTRY, 0), Full, Load(X)], &[Store(X, 1), Full, Load(ENTRY)]]),
        both_missed,
        NEVER,
    ),
    (
        "walker and freer: release and acquire",
        of(&[&[Release(ENTRY, 0), Acquire(X)], &[Release(X, 1), Acquire(ENTRY)]]),
        both_missed,
        ALWAYS,
    ),
    (
        "walker and freer: one full barrier",
        of(&[&[Store(ENTRY, 0), Load(X)], &[Store(X, 1), Full, Load(ENTRY)]]),
        both_missed,
        ALWAYS,
    ),
];
