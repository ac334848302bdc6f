//! A recording survives its file: events are read back as written.

use proptest::prelude::*;
use shootdown_trace::columns::{Error, GROUP_ROWS, Reader, Writer};
use shootdown_trace::{Call, Event, Function, Metadata, Reason, What};
use std::fs::File;

fn file_of(events: &[Event<'_>], metadata: &Metadata) -> File {
    let mut writer = Writer::new(tempfile::tempfile().expect("a file")).expect("begins");
    for event in events {
        writer.add(event).expect("added");
    }
    let (file, count) = writer.finish(metadata).expect("finished");
    assert_eq!(count, events.len() as u64);
    file
}

fn any_event() -> impl Strategy<Value = (u64, u32, u32, Option<u32>, usize, u64, i64)> {
    (
        0..1_u64 << 62,
        0..8192_u32,
        0..4_000_000_u32,
        proptest::option::of(0..4_000_000_u32),
        0..15_usize,
        any::<u64>(),
        any::<i64>(),
    )
}

fn what(kind: usize, number: u64, pages: i64) -> What<'static> {
    let small = (number % 8192) as u32;
    match kind {
        0 => What::Switch {
            from: small,
            state: "R+",
            to: small / 2,
        },
        1 => What::Flush {
            pages,
            reason: Reason::ALL[number as usize % 6],
        },
        2 => What::Queued {
            target: small,
            function: [Function::Shootdown, Function::Other, Function::Unnamed(number)][number as usize % 3],
        },
        3 => What::Interrupt {
            target: small,
            call: number & 2 == 2,
        },
        4 => What::Interrupts {
            targets: "0-3,9",
            call: true,
        },
        5 => What::HandlerEntry,
        6 => What::Fork { child: small },
        7 => What::Exec,
        8 => What::Exit,
        9 => What::Fault { address: number },
        10 => What::NewTask {
            child: small,
            flags: number,
        },
        kind => What::Call {
            call: Call::ALL[kind - 11].1,
            address: number,
            length: number / 3,
            argument: number & 7,
        },
    }
}

proptest! {
    #[test]
    fn events_round_trip_through_parquet(rows in proptest::collection::vec(any_event(), 0..200)) {
        let events: Vec<_> = rows.iter().map(|&(time_ns, cpu, task, process, kind, number, pages)| Event {
            time_ns, cpu, task, process, name: ["make", "cc1 -x", ""][kind % 3], what: what(kind, number, pages),
        }).collect();
        let metadata = Metadata { lost_events: rows.len() as u64, cpus: Some(3), ..Metadata::default() };
        let reader = Reader::open(file_of(&events, &metadata)).expect("opens");
        prop_assert_eq!(reader.metadata(), &metadata);
        prop_assert_eq!(reader.events(), events.len() as u64);
        let mut at = 0;
        reader.for_each(|event| {
            assert_eq!(event, &events[at]);
            at += 1;
            true
        }).expect("reads");
        prop_assert_eq!(at, events.len());
    }
}

#[test]
fn several_row_groups_are_read_in_order() {
    let event = |number: u64| Event {
        time_ns: number,
        cpu: 0,
        task: 1,
        process: None,
        name: "a",
        what: What::Flush {
            pages: 1,
            reason: Reason::Local,
        },
    };
    let count = 2 * GROUP_ROWS as u64 + 7;
    let events: Vec<_> = (0..count).map(event).collect();
    let reader = Reader::open(file_of(&events, &Metadata::default())).expect("opens");
    let mut next = 0;
    reader
        .for_each(|event| {
            assert_eq!(event.time_ns, next);
            next += 1;
            true
        })
        .expect("reads");
    assert_eq!(next, count);
}

#[test]
fn damaged_parquet_is_refused() {
    let mut text = tempfile::tempfile().expect("a file");
    std::io::Write::write_all(&mut text, b"not a Parquet file at all").expect("written");
    assert!(matches!(Reader::open(text), Err(Error::Damaged(_))));
}
