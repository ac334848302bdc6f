//! `cargo xtask linux selftests`: the kernel's own tests of its memory management and of x86, stock beside the engine.

mod list;
mod outcome;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::sources::{self, at, make_folder};
use super::{Mode, STOCK, guest, programs};
use crate::linux_baseline::boot::Boot;
use crate::linux_baseline::initramfs::GuestFile;
use crate::{child, debian};
use list::{EXTRA_CFLAGS, FOLDERS, Line, PLAN};
use outcome::Outcome;

/// Libraries that the tests of mm are linked with, each with its package.
const LIBRARIES: [(&str, &str); 3] = [
    ("/usr/include/sys/capability.h", "libcap-dev"),
    ("/usr/include/numa.h", "libnuma-dev"),
    ("/usr/include/liburing.h", "liburing-dev"),
];

/// Time limit of a boot.
const LIMIT: Duration = Duration::from_secs(75 * 60);

/// Runs the tests whose line contains `only`, so many times each, on stock Linux and with each of these designs.
///
/// # Errors
/// When there is no such test, when a test fails with the engine that passes without, or when something cannot be built
/// or booted.
pub fn run(designs: &[String], only: &str, times: usize, end: Instant) -> Result<(), String> {
    let chosen = |line: &&Line| match line {
        Line::Setting(_) => true,
        Line::Test(test, _) => test.contains(only),
    };
    let repeated = |line: &'static Line| match line {
        Line::Setting(_) => std::iter::repeat_n(line, 1),
        Line::Test(..) => std::iter::repeat_n(line, times),
    };
    let lines: Vec<&Line> = PLAN.iter().filter(chosen).flat_map(repeated).collect();
    let count = lines.iter().filter(|line| matches!(line, Line::Test(..))).count();
    if count == 0 {
        return Err(format!(
            "no test has {only:?} in its line; the lines are in xtask/src/linux/selftests/list.rs"
        ));
    }
    let programs = programs(end)?;
    let mut files = super::guest_files(end)?;
    let built = build(end)?;
    let mut plan = vec![super::busybox("sh /setup.sh")];
    plan.extend(lines.iter().map(|line| match line {
        Line::Setting(setting) => super::busybox(&format!("sysctl -q -w {setting}")),
        Line::Test(test, limit) => super::busybox(&format!("timeout -s KILL {limit} /{test}")),
    }));
    files.extend(names().into_iter().map(|name| GuestFile {
        path: name.into(),
        from: built.join(name),
    }));
    let mut all: Vec<(String, Vec<Outcome>)> = Vec::new();
    for name in std::iter::once(STOCK).chain(designs.iter().map(String::as_str)) {
        let guest = guest(name, &super::Config::read(None)?, end)?;
        let whole = if only.is_empty() { ", some twenty minutes" } else { "" };
        eprintln!("== {name}: {count} tests in QEMU{whole}");
        let boot = Boot {
            guest: &guest,
            programs: &programs,
            plan: &plan,
            cpus: super::LARGE_CPUS,
            mode: Mode::Turns(None),
            may_fail: true,
            words: "ignore_loglevel",
            files: &files,
            machine: &super::LARGE,
        };
        let report = super::run_boot(&boot, LIMIT, end)?;
        let ended = lines.iter().zip(&report.ended[1..]);
        let outcomes = ended.filter_map(|(line, ended)| match line {
            Line::Test(test, _) => Some(Outcome::of(test, ended)),
            Line::Setting(_) => None,
        });
        all.push((name.into(), outcomes.collect()));
    }
    print!("{}", table::text(&all));
    table::verdict(&all)
}

/// The programs of the plan.
fn names() -> BTreeSet<&'static str> {
    let words = PLAN.iter().flat_map(|line| match line {
        Line::Test(test, _) => test.split(' '),
        Line::Setting(_) => "".split(' '),
    });
    let words = words.map(|word| word.trim_start_matches('/'));
    words
        .filter(|word| {
            FOLDERS
                .iter()
                .any(|(folder, _)| word.split('/').next() == Some(folder) && word.contains('/'))
        })
        .collect()
}

/// Builds the tests; returns the folder of their folders.
fn build(end: Instant) -> Result<PathBuf, String> {
    debian::programs(&LIBRARIES, end)?;
    let sources = sources::debians(end)?;
    let place = sources::place()?;
    let (headers, out) = (place.join("headers"), place.join("selftests"));
    make_folder(&out)?;
    let path = place.join("selftests.log");
    let log = std::fs::File::create(&path).map_err(|error| at(&path, error))?;
    let failed = |why: String| format!("the kernel's tests were not built ({why}); see {}", path.display());
    let mut make = Command::new("make");
    make.args(["-s", "ARCH=x86", "headers", "-C"]).arg(&sources.folder);
    child::logged(make.arg(format!("O={}", headers.display())), &log, end).map_err(failed)?;
    for (folder, arguments) in FOLDERS {
        let out = out.join(folder);
        make_folder(&out)?;
        let mut make = Command::new("make");
        make.args(["-s", "-k", "-C"]);
        make.arg(sources.folder.join("tools/testing/selftests").join(folder));
        make.arg(format!("OUTPUT={}", out.display())).args(arguments);
        make.arg(format!("KHDR_INCLUDES=-isystem {}/usr/include", headers.display()));
        make.env("EXTRA_CFLAGS", EXTRA_CFLAGS);
        child::logged(&mut make, &log, end).map_err(failed)?;
    }
    Ok(out)
}
