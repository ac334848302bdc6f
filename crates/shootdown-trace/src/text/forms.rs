//! Forms of single lines, and files that are not trace text.

use super::{Error, read};
use crate::{Event, Function, Reason, What};

fn all(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    read(text.as_bytes(), |event: &Event<'_>| {
        found.push(format!("{} {} {:?}", event.name, event.task, event.what));
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{text}: {error}"));
    found
}

fn one(text: &str) -> String {
    let found = all(text);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found[0].clone()
}

fn refused(text: &[u8]) -> String {
    read(text, |_| Ok(())).unwrap_err().to_string()
}

#[test]
fn a_flush_is_read_in_every_form() {
    let what = What::Flush {
        pages: -1,
        reason: Reason::Sent,
    };
    for fields in [
        "pages:-1 reason:remote IPI send (4)",
        "pages=-1 reason= (4)",
        "pages=-1 reason=local mm shootdown (4)",
        "reason=4 pages=-1",
        " reason=0x4 (4) pages=0xffffffffffffffff (-1)",
        "pages:-1 reason:remote IPI send (4) ffffffff8133b671 trace+0x1 ([kernel.kallsyms])",
    ] {
        for head in [
            "a-7 [001] d..2. 1.000001: tlb_flush: ",
            "inst:                a-7     [001]     1.000001: tlb_flush:            ",
            "     a-7 1d..2. 18us+: tlb_flush: ",
            "     a-7 1d..2.     1.000001: tlb_flush: ",
            "a 7 [001] 1.000001: 1 tlb:tlb_flush: ",
            "a 7/7 [001] 1.000001000: tlb:tlb_flush: ",
            "a-7 [001] 1.000001: (+12) tlb_flush: ",
            "a-7 ( 7) [001] 1.000001: tlb_flush: ",
        ] {
            assert_eq!(
                one(&format!("{head}{fields}\n")),
                format!("a 7 {what:?}"),
                "{head}{fields}"
            );
        }
    }
}

#[test]
fn a_switch_is_read_in_every_form() {
    for (fields, state) in [
        (
            "prev_comm=a:1 prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=b next_pid=9 next_prio=1",
            "S",
        ),
        (
            "prev_comm=a prev_pid=7 prev_prio=120 prev_state=1 next_comm=b next_pid=9 next_prio=120",
            "S",
        ),
        (
            "prev_comm=a prev_pid=7 prev_prio=120 prev_state=256 next_comm=b next_pid=9 next_prio=120",
            "R+",
        ),
        (
            "prev_comm=a prev_pid=0x7 (7) prev_prio=0x78 (120) prev_state=0x80 (128) next_comm=b next_pid=0x9 (9)",
            "I",
        ),
        ("a:7 [120] S ==> b:9 [120]", "S"),
        ("kworker/1:1H:7 [120] W ==> b:9 [120]", "I"),
        ("task a:7 [120] (D) ==> b:9 [120]", "D"),
    ] {
        let what = What::Switch { from: 7, state, to: 9 };
        let text = format!("a-7 [001] 1.000001: sched_switch: {fields}\n");
        assert_eq!(one(&text), format!("a 7 {what:?}"), "{fields}");
    }
}

#[test]
fn function_field_is_a_name_an_address_or_absent() {
    for (name, function) in [
        ("func=flush_tlb_func", Function::Shootdown),
        ("func=flush_tlb_func+0x0/0x30 (-212)", Function::Shootdown),
        ("func=do_sync_core", Function::Other),
        ("func=0xffffffff813424a0", Function::Unnamed(0xffff_ffff_8134_24a0)),
        ("func=ffffffff813424a0", Function::Unnamed(0xffff_ffff_8134_24a0)),
        ("func=0x0", Function::Unnamed(0)),
        ("csd=1", Function::Unnamed(0)),
    ] {
        let text = format!("a-7 [001] 1.000001: csd_queue_cpu: cpu=1 callsite=x {name}\n");
        let what = What::Queued { target: 1, function };
        assert_eq!(one(&text), format!("a 7 {what:?}"), "{name}");
    }
}

#[test]
fn line_without_a_task_gets_the_task_of_its_cpu() {
    let text = "[001] 1.000001: tlb:tlb_flush: pages:1 reason:x (3)\n\
        [001] 1.000002: sched:sched_switch: \
        prev_comm=a prev_pid=7 prev_prio=1 prev_state=S ==> next_comm=b next_pid=9 next_prio=1\n\
        :-1    -1 [001] 1.000003: tlb:tlb_flush: pages:1 reason:x (3)\n";
    let tasks: Vec<_> = all(text)
        .iter()
        .map(|line| line.split(' ').nth(1).unwrap().to_string())
        .collect();
    assert_eq!(tasks, [u32::MAX.to_string(), "7".into(), "9".into()]);
}

#[test]
fn a_page_of_systrace_and_stacks_are_read_without_damage() {
    let page = "<!DOCTYPE html>\n<html>\n<script>\nvar a = {b: 1};\n</script>\n\
        <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n\
        a-7 ( 7) [000] d..2 1.000001: tlb_flush: pages:1 reason:x (3)\n\
        </script>\n<script>junk\n</script>\n</html>\n";
    let stack =
        "a 7 [000] 1.000001: tlb:tlb_flush: pages:1 reason:x (3)\n\tffffffff8133b671 a+0x1 ([kernel.kallsyms])\n\n";
    for text in [page, stack] {
        let metadata = read(text.as_bytes(), |_| Ok(())).unwrap();
        assert_eq!(metadata.damage.skipped(), 0, "{text}: {:?}", metadata.damage);
    }
}

#[test]
fn many_leading_lines_and_long_lines_are_accepted() {
    let mut text = "Dear all,\n".repeat(5000);
    text.push_str(&"x".repeat(1 << 20));
    text.push_str("\na-7 [000] 1.000001: tlb_flush: pages:1 reason:x (3)\n");
    assert_eq!(one(&text), "a 7 Flush { pages: 1, reason: LocalSpace }");
}

#[test]
fn loss_messages_of_every_tool_are_counted() {
    for (line, lost, times) in [
        ("CPU:1 [LOST 35 EVENTS]", 35, 1),
        ("CPU:1 [LOST EVENTS]", 0, 1),
        ("CPU:1 [12 EVENTS DROPPED]", 12, 1),
        ("inst: CPU:1 [12 EVENTS DROPPED]", 12, 1),
        ("a 7 [001] 1.000001: PERF_RECORD_LOST lost 9", 9, 1),
        ("# entries-in-buffer/entries-written: 10/30   #P:2", 20, 1),
        ("# entries-in-buffer/entries-written: 30/30   #P:2", 0, 0),
    ] {
        let text = format!("{line}\na-7 [000] 2.000001: tlb_flush: pages:1 reason:x (3)\n");
        let metadata = read(text.as_bytes(), |_| Ok(())).unwrap();
        let found = metadata.losses.iter().map(|loss| loss.times).sum::<u64>();
        assert_eq!((metadata.lost_events, found), (lost, times), "{line}");
        assert_eq!(metadata.damage.skipped(), 0, "{line}: {:?}", metadata.damage);
    }
}

#[test]
fn other_formats_are_named_with_the_conversion_command() {
    let utf16: Vec<u8> = "a-7 [000]".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let flush = "pages:1 reason:x (3)";
    let lines = |line: &str| format!("{line}\n{line}\n").into_bytes();
    for (text, said) in [
        (b"PERFILE2h".to_vec(), "perf script -F"),
        (b"\x17\x08\x44tracing7".to_vec(), "trace-cmd report -t"),
        (b"PK\x03\x04".to_vec(), "unzip -p"),
        (b"\x7fELF".to_vec(), "a program"),
        (utf16, "iconv"),
        (b"\x00\x01\x02\x03".to_vec(), "binary data"),
        (b"{\"traceEvents\": []}\n".to_vec(), "JSON"),
        (b"".to_vec(), "empty"),
        (lines(" 1)   0.412 us    |    flush_tlb_mm_range();"), "echo nop"),
        (lines("22194 1 821405733902 type: 188"), "echo 0 > raw"),
        (lines(&format!("tlb_flush: {flush}")), "context-info"),
        (lines(&format!("a 7 1.000001: tlb:tlb_flush: {flush}")), "lack the CPU"),
        (lines(&format!("a 7 [001] tlb:tlb_flush: {flush}")), "lack the time"),
        (
            lines(&format!("a-7 [001] d..2. 123456789: tlb_flush: {flush}")),
            "trace_clock",
        ),
    ] {
        let refusal = refused(&text);
        assert!(refusal.contains(said) && !refusal.contains('\n'), "{said}: {refusal}");
    }
    let backwards: String = (0..200)
        .map(|k| format!("a-7 [001] {}.5: tlb_flush: {flush}\n", 9 - k % 2 * 3))
        .collect();
    assert!(refused(backwards.as_bytes()).contains("backwards"));
}

#[test]
fn text_without_usable_events_lists_found_and_needed_events() {
    let text = "a-7 [001] 1.000001: irq_handler_entry: irq=1\na-7 [001] 1.000002: irq_handler_entry: irq=1\n\
        a-7 [001] 1.000003: flush_tlb_mm_range <-unmap\n";
    let Err(Error::NothingUsable(found)) = read(text.as_bytes(), |_| Ok(())) else {
        panic!("nothing is usable");
    };
    assert_eq!(
        found,
        [
            ("irq_handler_entry".to_string(), 2),
            ("(function calls)".to_string(), 1)
        ]
    );
    let said = refused(text.as_bytes());
    assert!(
        said.contains("irq_handler_entry (2)") && said.contains("tlb:tlb_flush"),
        "{said}"
    );
}
