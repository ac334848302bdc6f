use super::{Error, read};
use crate::{Call, Function, Metadata, Reason, What};
use proptest::prelude::*;

/// The number of events of a text, and its metadata.
fn events(text: &str) -> (usize, Metadata) {
    let mut found = 0;
    let metadata = read(text.as_bytes(), |_| {
        found += 1;
        Ok(())
    });
    (found, metadata.expect("a recording"))
}

fn only(text: &str, check: impl Fn(&crate::Event<'_>)) {
    let mut seen = 0;
    let metadata = read(text.as_bytes(), |event| {
        seen += 1;
        check(event);
        Ok(())
    });
    let metadata = metadata.expect("a recording");
    assert_eq!(
        (seen, metadata.damage.skipped()),
        (1, 0),
        "{text}: {:?}",
        metadata.damage
    );
}

#[test]
fn flush_reads_the_same_from_all_three_tools() {
    for text in [
        "     cc1 -x-27692   (  27680) [001] dN.6.  5862.018656: tlb_flush: pages:-1 reason:remote shootdown (1)\n",
        "     cc1 -x-27692   [001]  5862.018656: tlb_flush:            pages:-1 reason:flush on remote (1)\n",
        "     cc1 -x-27692   [001] d..2.  5862.018656: tlb_flush:            pages:-1 reason:flush on remote (1)\n",
        "cc1 -x 27680/27692 [001]  5862.018656: tlb:tlb_flush: pages:-1 reason:remote shootdown (1)\n",
        "cc1 -x 27692 [001]  5862.018656000:       tlb:tlb_flush: pages:-1 reason:remote shootdown (1)\n",
    ] {
        only(text, |event| {
            assert_eq!((event.name, event.task, event.cpu), ("cc1 -x", 27692, 1), "{text}");
            assert_eq!(event.time_ns, 5_862_018_656_000);
            assert!(event.process.is_none_or(|process| process == 27680));
            assert_eq!(
                event.what,
                What::Flush {
                    pages: -1,
                    reason: Reason::Remote
                }
            );
        });
    }
}

#[test]
fn task_names_may_contain_separators() {
    let text = "  a [1] b-c-7   (      5) [000] d..2. 1.000001: sched_switch: prev_comm=a \
        prev_pid=9 x prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=3 next_pid=8 next_prio=120\n";
    only(text, |event| {
        assert_eq!((event.name, event.task, event.process), ("a [1] b-c", 7, Some(5)));
        assert_eq!(
            event.what,
            What::Switch {
                from: 7,
                state: "R+",
                to: 8
            }
        );
    });
    only(
        "swapper 0 [001] 1.5: sched:sched_switch: swapper/1:0 [120] R ==> kworker/1:2-mm:55 [120]\n",
        |event| {
            assert_eq!(
                event.what,
                What::Switch {
                    from: 0,
                    state: "R",
                    to: 55
                }
            )
        },
    );
}

#[test]
fn queued_shootdowns_and_other_calls_are_distinguished() {
    let shootdown = "r-1 ( 1) [000] ...2. 1.1: csd_queue_cpu: cpu=1 callsite=x+0x20/0x60 func=flush_tlb_func csd=00\n";
    only(shootdown, |e| {
        assert_eq!(
            e.what,
            What::Queued {
                target: 1,
                function: Function::Shootdown
            }
        )
    });
    let other = shootdown.replace("flush_tlb_func", "nohz_csd_func");
    only(&other, |e| {
        assert_eq!(
            e.what,
            What::Queued {
                target: 1,
                function: Function::Other
            }
        )
    });
    let reschedule = "r-1 ( 1) [000] ...2. 1.1: ipi_send_cpu: cpu=3 callsite=y+0x1/0x2 callback=0x0\n";
    only(reschedule, |e| {
        assert_eq!(e.what, What::Interrupt { target: 3, call: false })
    });
}

#[test]
fn system_calls_carry_address_and_length() {
    for text in [
        "r-1 ( 1) [000] ..... 1.1: sys_madvise(start: 0x7f35e8fa6000, len_in: 0x8000, behavior: 4)\n",
        "r 1/1 [000] 1.1: syscalls:sys_enter_madvise: start: \
         0x7f35e8fa6000, len_in: 0x00008000, behavior: 0x00000004\n",
    ] {
        only(text, |event| {
            assert_eq!(
                event.what,
                What::Call {
                    call: Call::Madvise,
                    address: 0x7f35_e8fa_6000,
                    length: 0x8000,
                    argument: 4
                }
            );
        });
    }
}

#[test]
fn damaged_lines_are_counted_by_kind_and_skipped() {
    let good = "r-1 ( 1) [000] d..2. 2.000000: tlb_flush: pages:1 reason:x (3)\n";
    let text = format!(
        "# cmd: make\n{good}garbage\nr-1 ( 1) [000] d..2. 2.1: tlb_flush: pages:one reason:x (3)\n\
         r-1 ( 1) [000] d..2. 2.2: some_event: a=1\nr-1 ( 1) [000] d..2. 1.0: tlb_flush: pages:1 reason:x (3)\n{good}\
         r-1 ( 1) [000] d..2. 2.5: tlb_flush: pages:1 reason:x (3)"
    );
    let (found, metadata) = events(&text);
    assert_eq!(found, 2);
    let damage = &metadata.damage;
    assert_eq!((damage.damaged, damage.unknown, damage.out_of_order), (3, 1, 1));
    let first: Vec<_> = damage.first.iter().map(|first| first.line).collect();
    assert_eq!(first, [3, 5, 6]);
    assert_eq!(metadata.command.as_deref(), Some("make"));
}

#[test]
fn headers_and_lost_events_are_kept() {
    let text = "# cmd: a b\n\
                # kernel: 6.18.44 cpus: 2 clock: mono window_s: 2.0\n\
                # events: sched/sched_switch tlb/tlb_flush\n\
                # cpu0 entries: 9 overrun: 2 commit overrun: 1 dropped events: 4\n\
                CPU:1 [LOST 35 EVENTS]\n\
                CPU:0 [10 EVENTS DROPPED]\n\
                r-1 ( 1) [000] d..2. 2.0: tlb_flush: pages:1 reason:x (3)\n";
    let (_, metadata) = events(text);
    assert_eq!(metadata.lost_events, 2 + 1 + 4 + 35 + 10);
    assert_eq!((metadata.cpus, metadata.clock.as_deref()), (Some(2), Some("mono")));
    assert_eq!(metadata.events.len(), 2);
}

#[test]
fn file_that_is_no_recording_is_refused() {
    for text in ["", "hello\nworld\n", "# only: a header\n"] {
        assert!(
            matches!(read(text.as_bytes(), |_| Ok(())), Err(Error::NotARecording(_))),
            "{text}"
        );
    }
}

proptest! {
    /// Reading any file ends in a count or a refusal, and every line is accounted for.
    #[test]
    fn reader_does_not_panic_on_any_text(
        lines in proptest::collection::vec("[ -~\\t\u{e9}]{0,80}", 0..30),
        good in 0_usize..3,
    ) {
        let mut text = "r-1 ( 1) [000] d..2. 2.0: tlb_flush: pages:1 reason:x (3)\n".repeat(good);
        text.push_str(&lines.join("\n"));
        let mut taken = 0_u64;
        if let Ok(metadata) = read(text.as_bytes(), |_| { taken += 1; Ok(()) }) {
            prop_assert!(taken + metadata.damage.skipped() <= metadata.damage.lines);
        }
    }

    /// A line cut anywhere is never taken for another event than it is.
    #[test]
    fn truncated_line_is_damaged_or_the_same_event(cut in 0_usize..200) {
        let line = "     cc1-27692   (  27680) [001] dN.6.  \
            5862.018656: tlb_flush: pages:-1 reason:remote shootdown (1)";
        let good = "a-1 ( 1) [000] d..2. 2.0: tlb_flush: pages:1 reason:x (3)\n";
        let cut = &line[..cut.min(line.len())];
        let mut seen = Vec::new();
        let text = format!("{good}{cut}\n");
        read(text.as_bytes(), |event| { seen.push(format!("{:?}", event.what)); Ok(()) }).expect("a recording");
        prop_assert!(seen.len() == 1 || cut.len() == line.len());
    }
}
