//! Events per second: reading trace text, and writing the columnar file. Text reading alone limits the speed of an
//! import.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shootdown_trace::{columns, text};
use std::hint::black_box;

/// Lines in the kernel's format, with rising times.
fn recording(events: u64) -> String {
    (0..events)
        .map(|number| {
            let (seconds, micros) = (5862 + number / 100_000, number % 100_000);
            match number % 4 {
                0 => format!(
                    "             cc1-27692   (  27680) [001] d..2.  \
                    {seconds}.{micros:06}: sched_switch: prev_comm=cc1 prev_pid=27692 \
                    prev_prio=120 prev_state=R+ ==> next_comm=make next_pid=27674 next_prio=120\n"
                ),
                1 => format!(
                    "            make-27674   (  27674) [001] ...2.  {seconds}.{micros:06}: csd_queue_cpu: \
                    cpu=0 callsite=on_each_cpu_cond_mask+0x20/0x60 func=flush_tlb_func csd=00000000247cb77d\n"
                ),
                _ => format!(
                    "            make-27674   (  27674) [001] d..2.  \
                    {seconds}.{micros:06}: tlb_flush: pages:1 reason:local MM shootdown (3)\n"
                ),
            }
        })
        .collect()
}

fn import(c: &mut Criterion) {
    const EVENTS: u64 = 100_000;
    let recording = recording(EVENTS);
    let mut group = c.benchmark_group("import");
    group.throughput(Throughput::Elements(EVENTS)).sample_size(10);
    group.bench_function("text", |b| {
        b.iter(|| {
            let mut seen = 0_u64;
            let metadata = text::read(recording.as_bytes(), |event| {
                seen += event.time_ns & 1;
                Ok(())
            });
            black_box((metadata.expect("a recording"), seen))
        });
    });
    group.bench_function("text_to_columns", |b| {
        b.iter(|| {
            let mut writer = columns::Writer::new(Vec::new()).expect("begins");
            let metadata = text::read(recording.as_bytes(), |event| {
                writer.add(event).map_err(|error| error.to_string())
            });
            black_box(writer.finish(&metadata.expect("a recording")).expect("finished").1)
        });
    });
    group.finish();
}

criterion_group!(benches, import);
criterion_main!(benches);
