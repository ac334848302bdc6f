//! Reports of a kernel about itself, on its console: warnings, bugs, and those of lockdep and KCSAN.

use std::collections::BTreeSet;
use std::path::Path;

use super::sources::at;

/// Words of the kernel's command line with which its console has every report.
pub const WORDS: &str = "loglevel=7";

/// What the title of a report contains.
const TITLES: [&str; 12] = [
    "WARNING: ",
    "BUG: ",
    "INFO: task",
    "INFO: rcu",
    "rcu: INFO: ",
    "Oops",
    "Kernel panic",
    "detected stall",
    "lockup",
    "Bad page",
    "general protection fault",
    "does not answer (space",
];

/// The same of the file with a guest's console.
///
/// # Errors
/// When it cannot be read.
pub fn of_file(console: &Path) -> Result<BTreeSet<String>, String> {
    let bytes = std::fs::read(console).map_err(|error| at(console, error))?;
    Ok(of(&String::from_utf8_lossy(&bytes)))
}

/// The titles of the reports on a console, each once; without what differs from run to run.
pub fn of(console: &str) -> BTreeSet<String> {
    let titles = console.lines().map(without_time);
    let titles = titles.filter(|line| TITLES.iter().any(|title| line.contains(title)));
    titles.map(plain).collect()
}

/// What the title of a data race contains, before the names of one or two functions.
const RACE: &str = "KCSAN: data-race in ";

/// Whether a report concerns the source `glue`. A data race does if the source has a function that its title names:
/// races are rare and random, so those of the rest of Linux differ from one run to the next. Any other report may.
pub fn concerns(title: &str, glue: &str) -> bool {
    match title.split_once(RACE) {
        Some((_, functions)) => functions
            .split([' ', '/'])
            .any(|name| !name.is_empty() && defines(glue, name)),
        None => true,
    }
}

/// Whether the C source has a function of that name: on a line that is not indented, as calls are.
fn defines(source: &str, name: &str) -> bool {
    let begins = format!(" {name}(");
    let mut lines = source.lines();
    lines.any(|line| line.starts_with(|first: char| first.is_ascii_alphabetic()) && line.contains(&begins))
}

/// A line without `[    0.123456] ` before it.
fn without_time(line: &str) -> &str {
    match line.split_once("] ") {
        Some((time, rest)) if time.starts_with('[') => rest,
        _ => line,
    }
}

/// The title without the numbers of CPUs and processes: `WARNING: CPU: 1 PID: 7 at mm/x.c:9 f+0x1/0x2`.
fn plain(title: &str) -> String {
    let mut words = Vec::new();
    let mut is_number = false;
    for word in title.split_whitespace() {
        if !std::mem::take(&mut is_number) {
            words.push(word.split("+0x").next().unwrap_or_default());
        }
        is_number = ["CPU:", "PID:", "CPU"].contains(&word);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_title_omits_time_cpu_and_process() {
        let console = "[    0.1] Linux version 6.12\n\
            [    1.5] WARNING: CPU: 0 PID: 1 at arch/x86/mm/tlb.c:9 switch_mm+0x12/0x40\n\
            [    2.5] WARNING: CPU: 3 PID: 12 at arch/x86/mm/tlb.c:9 switch_mm+0x12/0x40\n\
            [    3.5] BUG: KCSAN: data-race in enter_lazy_tlb / unloaded\n";
        let found: Vec<String> = of(console).into_iter().collect();
        assert_eq!(
            found,
            [
                "BUG: KCSAN: data-race in enter_lazy_tlb / unloaded",
                "WARNING: CPU: PID: at arch/x86/mm/tlb.c:9 switch_mm"
            ]
        );
    }

    #[test]
    fn data_race_concerns_the_source_of_its_functions() {
        let glue = "void enter_lazy_tlb(struct mm_struct *mm)\n{\n\treturn flush();\n}\n";
        assert!(!concerns("BUG: KCSAN: data-race in flush / update", glue));
        assert!(concerns("BUG: KCSAN: data-race in enter_lazy_tlb / unmap", glue));
        assert!(concerns("BUG: KCSAN: data-race in unmap / enter_lazy_tlb", glue));
        assert!(!concerns("BUG: KCSAN: data-race in tick_nohz / lazy_tlb", glue));
        assert!(concerns("WARNING: CPU: PID: at mm/x.c:9 f", glue));
    }

    #[test]
    fn console_without_reports_has_no_titles() {
        assert!(of("[    0.0] shootdown: design adaptive, 2 CPUs, 1 PCIDs\n").is_empty());
    }
}
