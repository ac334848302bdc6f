//! `cargo xtask linux test --bugs`: known bugs of the engine, which the programs must notice inside Linux.

use std::time::{Duration, Instant};

use super::{BUGS, Config, Mode, boot, guest, planned, programs};

/// Virtual CPUs, and threads.
const CPUS: u32 = 2;

/// Time limit of a run with a bug, beside five times that of the run without: some keep the program from ending.
const MOST: Duration = Duration::from_secs(60);

/// A known bug (crates/shootdown-known-bugs/bugs.toml) and what shows it: a design and a program.
struct Case {
    bug: &'static str,
    design: &'static str,
    program: &'static str,
    ops: u64,
}

const CASES: [Case; 5] = [
    Case {
        bug: "LazyLeavesSet",
        design: "ipi",
        program: "drop_shared",
        ops: 300,
    },
    Case {
        bug: "SkipWhenNotCurrent",
        design: "ipi",
        program: "poke",
        ops: 100,
    },
    Case {
        bug: "FilterByRequester",
        design: "ipi",
        program: "poke",
        ops: 100,
    },
    Case {
        bug: "DepartsWithoutLooking",
        design: "ipi-trim",
        program: "drop_shared",
        ops: 300,
    },
    Case {
        bug: "SendBeforePublish",
        design: "ipi",
        program: "drop_shared",
        ops: 100,
    },
];

/// Each case must pass without its bug and fail with it.
///
/// # Errors
/// The first that does not.
pub fn run(config: Option<&str>, end: Instant) -> Result<(), String> {
    let programs = programs(end)?;
    let guest = guest(BUGS, &Config::read(config)?, end)?;
    for case in CASES {
        let attempt = |words: &str, end: Instant| {
            let words = format!("shootdown={} {words}", case.design);
            let plan = [planned(case.program, CPUS, case.ops)];
            boot(&guest, &programs, &plan, CPUS, Mode::Turns(None), words.trim_end(), end)
        };
        let begun = Instant::now();
        attempt("", end).map_err(|why| format!("without a bug: {why}"))?;
        let limit = Instant::now() + MOST + 5 * begun.elapsed();
        let what = format!("{} under {}, {}", case.bug, case.design, case.program);
        match attempt(&format!("shootdown.bug={}", case.bug), end.min(limit)) {
            Err(why) => println!("{what}: passes without the bug; with it: {}", cause(&why)),
            Ok(_) => return Err(format!("{what}: nothing was noticed")),
        }
    }
    Ok(())
}

/// A message without where its console is, and without the boot.
fn cause(why: &str) -> &str {
    let why = why.split("; its console").next().unwrap_or(why);
    why.split_once(": ").map_or(why, |(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_omits_the_boot_and_the_path_of_the_console() {
        let why = "bugs, 2 CPUs, shootdown=ipi: poke with 2 threads: 13 reads were stale; its console is in /x";
        assert_eq!(cause(why), "poke with 2 threads: 13 reads were stale");
        assert_eq!(cause("alone"), "alone");
    }
}
