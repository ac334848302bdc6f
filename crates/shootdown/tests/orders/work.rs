//! Counts the engine's operations in the runs of `at_random`, for each design, and compares them with `work.txt`. An
//! extra interrupt, invalidation or access to a shared word breaks no rule and would go unnoticed otherwise. To accept
//! an intended change, run `cargo test -p shootdown --test orders -- --ignored`. The change then shows in the history
//! of that file.

use std::cell::Cell;
use std::fmt::Write as _;

/// The counted operations: the columns of the file.
#[derive(Debug, Clone, Copy)]
pub enum Did {
    /// CPUs interrupted.
    Ipi,
    /// Local invalidations, and waits for them.
    Page,
    Tag,
    Kpage,
    All,
    Sync,
    /// Root loads that keep the entries of the tag, and root loads that flush it.
    Load,
    Fload,
    /// Broadcasts, and waits for them.
    Bpage,
    Btag,
    Ball,
    Bsync,
    /// Notifications of a device, and waits for it.
    Notify,
    Await,
    Promote,
    Demote,
    Roll,
    /// Words read and written; a read-modify-write counts as both.
    Read,
    Write,
}

const ALL: [Did; 19] = {
    use Did::*;
    [
        Ipi, Page, Tag, Kpage, All, Sync, Load, Fload, Bpage, Btag, Ball, Bsync, Notify, Await, Promote, Demote, Roll,
        Read, Write,
    ]
};

/// How often each operation was done.
pub type Work = [u32; ALL.len()];

std::thread_local! {
    static WORDS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

/// A word is read, written, or both.
pub fn on_word(reads: bool, writes: bool) {
    let [read, written] = WORDS.get();
    WORDS.set([read + u32::from(reads), written + u32::from(writes)]);
}

/// Words read and written since the last call.
pub fn on_words() -> [u32; 2] {
    WORDS.take()
}

const FILE: &str = include_str!("work.txt");

fn row(name: &str, work: &Work) -> String {
    let mut row = format!("{name:58}");
    work.iter().for_each(|count| write!(row, "{count:>8}").expect("memory"));
    row
}

/// Asserts that the work is as in the file. Words are compared only in debug builds, whose assertions read some.
pub fn is_as_written(name: &str, work: &Work) {
    let written = FILE
        .lines()
        .find(|line| line.get(..58).is_some_and(|head| head.trim_end() == name));
    let (columns, done) = (row("", &[0; ALL.len()]), row(name, work));
    let compared = if cfg!(debug_assertions) {
        done.len()
    } else {
        done.len() - 16
    };
    assert_eq!(
        written.unwrap_or(&columns)[..compared],
        done[..compared],
        "other work is done (tests/orders/work.rs)"
    );
}

#[test]
#[ignore = "writes the file that the others compare with"]
fn write_work() {
    let mut text = format!("{:58}", "");
    ALL.iter()
        .for_each(|did| write!(text, "{:>8}", format!("{did:?}").to_lowercase()).expect("memory"));
    for part in 0..crate::at_random::PARTS {
        for (name, work) in crate::at_random::play(part, false) {
            text = text + "\n" + &row(&name, &work);
        }
    }
    std::fs::write(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/orders/work.txt"),
        text + "\n",
    )
    .expect("it can be written");
}
