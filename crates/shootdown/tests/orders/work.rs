//! What the engine asks of a machine in the runs of `at_random`, design by design, compared with `work.txt`: an interrupt or an
//! invalidation too many breaks no rule, and nobody would see it otherwise. A change that is meant is written down by
//! `cargo test -p shootdown --test orders -- --ignored`, and shows in the history of that file.

use std::fmt::Write as _;

/// What is counted: the columns of the file.
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
    /// Root loads that keep what the tag has, and that flush it.
    Load,
    Fload,
    /// Broadcasts, and waits for them.
    Bpage,
    Btag,
    Ball,
    Bsync,
    /// What a device was told, and was waited for.
    Told,
    Await,
    Promote,
    Demote,
    Roll,
}

const ALL: [Did; 17] = {
    use Did::*;
    [
        Ipi, Page, Tag, Kpage, All, Sync, Load, Fload, Bpage, Btag, Ball, Bsync, Told, Await, Promote, Demote, Roll,
    ]
};

/// How often each was done.
pub type Work = [u32; ALL.len()];

const FILE: &str = include_str!("work.txt");

fn row(name: &str, work: &Work) -> String {
    let mut row = format!("{name:58}");
    work.iter().for_each(|count| write!(row, "{count:>8}").expect("memory"));
    row
}

/// Whether what was done is what the file says.
pub fn is_as_written(name: &str, work: &Work) {
    let written = FILE
        .lines()
        .find(|line| line.get(..58).is_some_and(|head| head.trim_end() == name));
    let columns = row("", &[0; ALL.len()]);
    assert_eq!(
        written.unwrap_or(&columns),
        row(name, work),
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
