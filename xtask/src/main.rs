//! Project commands, run as `cargo xtask COMMAND`.
//!
//! `cargo xtask test` runs everything that must pass and ends with a table and one line, `N passed, N failed`. Exit
//! status: 0 when everything passed, 1 when a step failed, 2 on bad usage.

mod bochs;
mod book;
mod c_library;
mod c_machine;
mod cases;
mod child;
mod debian;
mod edits;
mod embed;
mod fuzz;
mod iso;
mod kernel;
mod kernel_case;
mod linux;
mod linux_baseline;
mod minimal_c;
mod miri;
mod needs;
mod ostd;
mod ports;
mod presets;
mod programs;
mod publish;
mod size;
mod stack;
mod steps;
mod stream;
mod suite;
mod times;
mod torture;
mod tsan;
mod verdict;
mod workloads;
mod workspace;

use std::process::ExitCode;
use std::time::Instant;

use shootdown_qemu::Arch;

use ports::Part;
use suite::BUDGET;

const USAGE: &str = "usage: cargo xtask test [STEP...]   run all steps, or only those named
       cargo xtask steps            list the steps and the command each one runs
       cargo xtask book             build the book of docs/ and check its links
       cargo xtask ostd             the engine inside OSTD, a Rust framework for kernels, beside stock
       cargo xtask tsan             run the engine on real threads under ThreadSanitizer
       cargo xtask miri             run the engine's own tests under Miri
       cargo xtask kernel           run the bare-metal kernel in QEMU: torture, determinism, known bugs
       cargo xtask kernel --arch A [all]  the same on A (aarch64, riscv64); all: longer, and the next two
       cargo xtask kernel --arch A presets  torture of every preset on A with 22 seeds, clocks and CPUs
       cargo xtask kernel --arch A bugs   every known bug on A: whether it shows, and after how many steps
       cargo xtask embed            run the minimal kernels of examples/ in QEMU, with the engine and without
       cargo xtask c-machine        run the machine written in C on AArch64 and RISC-V, by QEMU
       cargo xtask c-library        build the library for kernels in C, check its names and sections, measure it
       cargo xtask size             measure the engine's code with a policy compiled in, on three instruction sets
       cargo xtask stack [WORDS] [why]  compute the stack of the engine's calls, on three instruction sets,
                                    for sets of 64 CPUs, or of WORDS times 64; why: the chain of each
       cargo xtask bochs [all]      run it in Bochs, which has PCID and INVPCID; all: with every known bug
       cargo xtask workloads        build the programs of workloads/, static, for Linux and for kernel/
       cargo xtask programs [DESIGN...]  run them, and some that misbehave, on kernel/ in QEMU
       cargo xtask publish          pack what a registry would be given; build, document and test that
       cargo xtask programs --arch A [DESIGN...]  the same on A (aarch64, riscv64)
       cargo xtask linux-baseline   run them on Debian's own kernel in QEMU and count (--help for more)
       cargo xtask linux build|test|compare  Linux with the engine in place of its tlb.c (--help for more)
       cargo xtask fuzz TARGET [--seconds N]
                                    look for bytes that break a reader or an encoder (60 s)
       cargo xtask soak [--minutes N] [--seed S] [--accesses N] [--jobs N] [--case N]
                                    random runs of the simulator under its oracle (10 minutes)
       cargo xtask mutants [...]    try every mutation of the engine; --help says more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test", names @ ..] => match suite::select(names) {
            Ok(steps) => suite::test(&steps),
            Err(message) => refuse(&message),
        },
        ["steps"] => {
            for step in steps::all() {
                println!("{:<8} {}", step.name, step.shown());
            }
            ExitCode::SUCCESS
        }
        ["book"] => chore(book::run(Instant::now() + BUDGET)),
        ["tsan"] => chore(tsan::run(Instant::now() + BUDGET)),
        ["kernel"] => chore(kernel::run(Instant::now() + BUDGET)),
        ["kernel", "--arch", name] => chore(ports::main(name, Part::Short, Instant::now() + BUDGET)),
        ["kernel", "--arch", name, "all"] => chore(ports::main(name, Part::All, Instant::now() + BUDGET)),
        ["kernel", "--arch", name, "presets"] => chore(ports::main(name, Part::Presets, Instant::now() + BUDGET)),
        ["kernel", "--arch", name, "bugs"] => chore(ports::main(name, Part::Bugs, Instant::now() + BUDGET)),
        ["embed"] => chore(
            needs::Need::Embed
                .meet(Instant::now() + BUDGET)
                .and_then(|()| embed::run(Instant::now() + BUDGET)),
        ),
        ["c-machine"] => chore(
            needs::Need::CMachine
                .meet(Instant::now() + BUDGET)
                .and_then(|()| c_machine::run(Instant::now() + BUDGET)),
        ),
        ["c-library"] => chore(
            needs::Need::CMachine
                .meet(Instant::now() + BUDGET)
                .and_then(|()| c_library::run(Instant::now() + BUDGET)),
        ),
        ["miri"] => chore(
            needs::Need::Miri
                .meet(Instant::now() + BUDGET)
                .and_then(|()| miri::run(Instant::now() + BUDGET)),
        ),
        ["bochs"] => chore(bochs::run(false, Instant::now() + BUDGET)),
        ["bochs", "all"] => chore(bochs::run(true, Instant::now() + BUDGET)),
        ["size"] => chore(
            needs::Need::BareTargets
                .meet(Instant::now() + BUDGET)
                .and_then(|()| size::run(Instant::now() + BUDGET)),
        ),
        ["stack"] => stack_of("1", false),
        ["stack", "why"] => stack_of("1", true),
        ["stack", words] => stack_of(words, false),
        ["stack", words, "why"] => stack_of(words, true),
        ["workloads"] => {
            let built = workloads::build(Arch::X86_64, Instant::now() + BUDGET);
            chore(built.map(|built| println!("{}", built.display())))
        }
        ["programs", "--arch", name, designs @ ..] => {
            chore(Arch::named(name).and_then(|arch| programs::run(arch, designs, Instant::now() + BUDGET)))
        }
        ["programs", designs @ ..] => chore(programs::run(Arch::X86_64, designs, Instant::now() + BUDGET)),
        ["ostd"] => chore(
            needs::Need::Programs(Arch::X86_64)
                .meet(Instant::now() + BUDGET)
                .and_then(|()| ostd::run(Instant::now() + BUDGET)),
        ),
        ["publish"] => chore(
            needs::Need::Publish
                .meet(Instant::now() + BUDGET)
                .and_then(|()| publish::run(Instant::now() + BUDGET)),
        ),
        ["linux", rest @ ..] => linux::main(rest),
        ["linux-baseline", rest @ ..] => linux_baseline::main(rest),
        ["fuzz", rest @ ..] => match fuzz::Order::of(rest) {
            Ok(order) => chore(order.run()),
            Err(message) => refuse(&message),
        },
        ["soak", options @ ..] => soak(options),
        ["mutants", options @ ..] => mutants(options),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => refuse("no chore named"),
        [other, ..] => refuse(&format!("unknown chore {other:?}")),
    }
}

/// `cargo xtask stack` for CPU sets of so many words.
fn stack_of(words: &str, why: bool) -> ExitCode {
    chore(stack::words(words).and_then(|words| {
        needs::Need::BareTargets.meet(Instant::now() + BUDGET)?;
        stack::run(words, why, Instant::now() + BUDGET)
    }))
}

fn chore(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the example of that name, optimised and with debug assertions, as tests are.
fn soak(options: &[&str]) -> ExitCode {
    let mut command = workspace::cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "test",
        "-p",
        "shootdown-sim",
        "--example",
        "soak",
        "--",
    ]);
    command.args(options);
    pass_on(command)
}

/// A separate program: it needs a parser of Rust, which the other commands do not.
fn mutants(options: &[&str]) -> ExitCode {
    let mut command = workspace::cargo();
    command
        .args(["run", "--quiet", "-p", "shootdown-mutants", "--"])
        .args(options);
    pass_on(command)
}

/// Runs `command` and returns its exit status.
fn pass_on(mut command: std::process::Command) -> ExitCode {
    match command.status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("xtask: {message}\n{USAGE}");
    ExitCode::from(2)
}
