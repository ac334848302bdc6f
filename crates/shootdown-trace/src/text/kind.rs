//! Identifies a file that is not trace text, and names the command that converts it.

use super::fault::Lack;

/// The events that a recording needs, as a sentence lists them.
pub const NEEDED_EVENTS: &str = "sched:sched_switch, tlb:tlb_flush and csd:csd_queue_cpu";

/// The kind of a file that is not usable trace text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An unknown kind.
    Other,
    /// An empty file.
    Empty,
    /// Recorded by perf, not printed.
    PerfData,
    /// Recorded by trace-cmd, not printed.
    TraceDat,
    /// A Zip archive.
    Zip,
    /// A Tar archive.
    Tar,
    /// Compressed by LZ4.
    Lz4,
    /// A recording of this program.
    Parquet,
    /// A program.
    Elf,
    /// Text of two bytes a character.
    Utf16,
    /// Events as JSON.
    Json,
    /// The function graph tracer's text.
    FunctionGraph,
    /// tracefs with `options/raw`, `options/hex` or `options/bin`.
    RawTracefs,
    /// tracefs without `options/context-info`.
    NoContext,
    /// Tables of `perf report` or `perf stat`.
    PerfReport,
    /// Binary data.
    Binary,
    /// Events without a CPU.
    NoCpu,
    /// Events without a time.
    NoTime,
    /// Times without a unit.
    NoUnit,
    /// Times that run backwards.
    Unordered,
}

impl Kind {
    pub(super) fn of_lack(lack: Lack) -> Kind {
        match lack {
            Lack::Cpu => Kind::NoCpu,
            Lack::Time => Kind::NoTime,
            Lack::Unit => Kind::NoUnit,
        }
    }

    /// The kind, and the remedy.
    fn words(self) -> &'static str {
        match self {
            Kind::Other => {
                "not a recording: no line like `task-1234 [000] .... 12.345678: sched_switch: ...`; give the text of a \
                 trace file, of `perf script`, or of `trace-cmd report`"
            }
            Kind::Empty => {
                "empty; give the text of a trace file, of `perf script`, or of `trace-cmd report`, and copy it before \
                 tracing is reset"
            }
            Kind::PerfData => {
                "a perf.data file; print it on the machine that recorded it: `perf script -F \
                 comm,pid,tid,cpu,time,event,trace -i FILE | shootdown import - -o trace.parquet`"
            }
            Kind::TraceDat => {
                "a trace.dat file of trace-cmd; print it: `trace-cmd report -t -i FILE | shootdown import - -o \
                 trace.parquet`"
            }
            Kind::Zip => "a Zip archive; unpack it: `unzip -p FILE | shootdown import - -o trace.parquet`",
            Kind::Tar => "a Tar archive; unpack it: `tar xf FILE`, then import the trace text in it",
            Kind::Lz4 => "packed by LZ4; unpack it: `lz4 -dc FILE | shootdown import - -o trace.parquet`",
            Kind::Parquet => "a Parquet file already; give the text of a trace",
            Kind::Elf => "a program, not a recording; give the text of a trace",
            Kind::Utf16 => {
                "UTF-16 text; convert it: `iconv -f UTF-16 -t UTF-8 FILE | shootdown import - -o trace.parquet`"
            }
            Kind::Json => {
                "JSON; give trace text instead: `perf script -F comm,pid,tid,cpu,time,event,trace`, or of Perfetto \
                 `traceconv systrace FILE trace.txt`"
            }
            Kind::FunctionGraph => {
                "text of the function_graph tracer, whose events have neither task nor time; record events alone: \
                 `echo nop > /sys/kernel/tracing/current_tracer`, or `trace-cmd record -e sched:sched_switch -e \
                 tlb:tlb_flush -e csd:csd_queue_cpu`"
            }
            Kind::Binary => {
                "binary data in no format that is known here; print the recording as text: `trace-cmd report`, `perf \
                 script`, or of Perfetto `traceconv systrace FILE trace.txt`"
            }
            kind => kind.lacks(),
        }
    }

    /// The same for trace text that lacks a field.
    fn lacks(self) -> &'static str {
        match self {
            Kind::RawTracefs => {
                "tracefs text with options/raw, options/hex or options/bin, which has no fields; print it without: \
                 `cd /sys/kernel/tracing/options; echo 0 > raw; echo 0 > hex; echo 0 > bin; cat ../trace`"
            }
            Kind::NoContext => {
                "tracefs text without task, CPU and time; print them: `cd /sys/kernel/tracing; echo 1 > \
                 options/context-info; cat trace`"
            }
            Kind::PerfReport => {
                "a table of perf, not its events; print these: `perf script -F comm,pid,tid,cpu,time,event,trace`"
            }
            Kind::NoCpu => {
                "trace text whose events lack the CPU; print it: `perf script -F comm,pid,tid,cpu,time,event,trace`"
            }
            Kind::NoTime => {
                "trace text whose events lack the time; print it: `perf script -F comm,pid,tid,cpu,time,event,trace`"
            }
            Kind::NoUnit => {
                "trace text whose times are counts of a clock without a unit (x86-tsc, counter, uptime); \
                 record with `echo mono > /sys/kernel/tracing/trace_clock` or `trace-cmd record -C mono`, \
                 or print seconds: `trace-cmd report --ts2secs HZ`"
            }
            _ => {
                "trace text whose times run backwards at many lines: differences between lines (print without \
                 --deltatime), or several files in one (print them together: `cat trace`, not per_cpu/*/trace)"
            }
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

/// The kind of a file by its first bytes; `None` when it may be text.
pub(super) fn of_bytes(bytes: &[u8]) -> Option<Kind> {
    const MAGIC: [(&[u8], Kind); 9] = [
        (b"PERFILE2", Kind::PerfData),
        (b"2ELIFREP", Kind::PerfData),
        (b"\x17\x08\x44tracing", Kind::TraceDat),
        (b"PK\x03\x04", Kind::Zip),
        (b"\x04\x22\x4d\x18", Kind::Lz4),
        (b"PAR1", Kind::Parquet),
        (b"\x7fELF", Kind::Elf),
        (b"\xff\xfe", Kind::Utf16),
        (b"\xfe\xff", Kind::Utf16),
    ];
    if bytes.is_empty() {
        return Some(Kind::Empty);
    }
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(*kind);
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Some(Kind::Tar);
    }
    let head = &bytes[..bytes.len().min(512)];
    let zeros = head.iter().filter(|&&byte| byte == 0).count();
    if zeros == 0 {
        return None;
    }
    // Latin text in UTF-16 without a mark: every other byte is 0.
    let every_other = |first: usize| head.iter().skip(first).step_by(2).all(|&byte| byte == 0);
    Some(if head.len() >= 4 && (every_other(0) || every_other(1)) {
        Kind::Utf16
    } else {
        Kind::Binary
    })
}

/// The kind of the text by one of its lines, if that is not readable.
pub(super) fn of_line(text: &str, number: u64) -> Option<Kind> {
    let line = text.trim_start();
    if number == 1 && (line.starts_with('{') || line.starts_with("[{") || line == "[") {
        return Some(Kind::Json);
    }
    if text.starts_with("# tracer: function_graph") {
        return Some(Kind::FunctionGraph);
    }
    if text.starts_with("# Samples: ")
        || text.starts_with("# Overhead")
        || line.starts_with("Performance counter stats")
    {
        return Some(Kind::PerfReport);
    }
    let words = || line.split_ascii_whitespace();
    // `1) 0.412 us | ...` of the function graph.
    if words()
        .next()
        .is_some_and(|word| word.strip_suffix(')').is_some_and(|cpu| cpu.parse::<u32>().is_ok()))
        && line.contains('|')
    {
        return Some(Kind::FunctionGraph);
    }
    // `22194 1 821405733902 type: 188`
    if line.contains(" type: ")
        && words()
            .take(3)
            .all(|word| word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return Some(Kind::RawTracefs);
    }
    let (event, _) = line.split_once(": ").or_else(|| line.split_once('('))?;
    (line.len() == text.len() && super::fields::is_used(event)).then_some(Kind::NoContext)
}
