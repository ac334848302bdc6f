//! Mutations of the engine, and what catches each: `cargo xtask mutants`.
//! How it works: `docs/src/verification/mutants.md`.
//!
//! 1. `enumerate.rs` finds, by syntax alone, every place in `crates/shootdown/src` that can be changed (`mutant.rs`
//!    names it). `rewrite.rs` makes a copy of the source that holds all changes at once, one of which is selected when
//!    a program starts (`runtime/mutation.rs`).
//! 2. `workspace.rs` puts that copy, with the crates that test it, into a workspace of its own under `target/mutants`,
//!    which is built once.
//! 3. `probe.rs` measures each test and each race without any mutation, and finds the mutations that would make a
//!    difference to it.
//! 4. `trial.rs` runs, for each mutation, the tests and races that it concerns, those with the most catches per unit of
//!    time first, until one fails; `journal.rs` keeps the results.
//! 5. `arguments.rs` reads which survivors are argued to be equivalent; `table.rs` shows all.

mod arguments;
mod conditions;
mod enumerate;
mod journal;
mod mutant;
mod probe;
mod process;
mod progress;
mod rewrite;
mod syntax;
mod table;
mod tool;
mod trial;
mod workspace;

use arguments::Arguments;
use clap::Parser;
use journal::{Entry, Journal};
use mutant::Mutant;
use probe::{Baselines, Probe};
use progress::Progress;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tool::{Program, Tool};
use trial::Trial;

/// Tries every mutation of the engine on its tests, the races, the simulation and the models.
#[derive(Parser)]
#[command(name = "cargo xtask mutants", after_help = EXAMPLES)]
struct Options {
    /// Only mutations whose name contains this; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Only one mutation in N, evenly over all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    one_in: Option<u32>,
    /// Only the slice that the test command tries, on the engine's own tests.
    #[arg(long, conflicts_with_all = ["only", "tools"])]
    slice: bool,
    /// Only these tools: engine, check, sim, loom.
    #[arg(long, value_name = "TOOLS", value_delimiter = ',', value_parser = tool)]
    tools: Vec<Tool>,
    /// Most seconds that probes for one mutation may take together, as measured without it.
    #[arg(long, value_name = "SECONDS", default_value_t = f64::MAX, hide_default_value = true)]
    budget: f64,
    /// Name the mutations and stop.
    #[arg(long)]
    list: bool,
    /// Show the known results and try nothing.
    #[arg(long)]
    known: bool,
    /// Try only the mutations that are argued to be equivalent or harmless; it is an error when one is caught.
    #[arg(long)]
    argued: bool,
    /// Sums and survivors only, not the whole table.
    #[arg(long)]
    brief: bool,
    /// Programs at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  cargo xtask mutants                        all, from where the last run stopped
  cargo xtask mutants --only 'switch.rs '    those of one file
  cargo xtask mutants --only 'log.rs append: relax' --tools loom
  cargo xtask mutants --slice                what the test command tries
  cargo xtask mutants --list --only relax    names, with lines
  cargo xtask mutants --known --brief        sums of what is known, without trying
  cargo xtask mutants --argued --tools engine
                                             whether the engine's tests catch what is argued about

Exit status: 0 when every mutation was caught or is argued about in crates/shootdown/mutants.toml, 1 when one survives,
2 on bad usage.";

fn tool(word: &str) -> Result<Tool, String> {
    let found = Tool::ALL.into_iter().find(|tool| tool.to_string() == word);
    found.ok_or_else(|| "expected engine, check, sim or loom".into())
}

/// FNV-1a, 64 bits.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Writes a file whole: to one beside it, then renamed.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let beside = path.with_extension("tmp");
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no mutation survives.
fn run(mut options: Options) -> Result<bool, String> {
    let root = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) => PathBuf::from(package).join("../.."),
        None => PathBuf::from("."),
    };
    let root = root.canonicalize().map_err(|error| format!("no workspace: {error}"))?;
    let instrumented = workspace::instrument(&root)?;
    let mutants = &instrumented.mutants;
    let argued = root.join("crates/shootdown/mutants.toml");
    let text =
        std::fs::read_to_string(&argued).map_err(|error| format!("cannot read {}: {error}", argued.display()))?;
    let arguments = Arguments::read(&text, mutants).map_err(|why| format!("{}:\n{why}", argued.display()))?;
    if options.slice {
        options.only.clone_from(&arguments.slice);
        options.tools = vec![Tool::Engine];
    }
    let options = &options;
    let numbers = selected(options, mutants);
    let chosen: Vec<&Mutant> = numbers.iter().map(|number| &mutants[*number as usize - 1]).collect();
    if options.list {
        for mutant in &chosen {
            println!("{}  (line {})", mutant.name(), mutant.line);
        }
        println!("{} mutations", chosen.len());
        return Ok(true);
    }
    let place = root.join("target/mutants");
    let cannot = |error| format!("cannot make {}: {error}", place.display());
    std::fs::create_dir_all(place.join("scratch")).map_err(cannot)?;
    let mut journal = Journal::open(&place.join("journal.jsonl"))?;
    if !options.known {
        instrumented.write(&root, &place.join("workspace"))?;
        let probes = probes(&place, options)?;
        let scratch = place.join("scratch");
        let trial = Trial::new(
            &probes,
            instrumented.fingerprint(),
            options.budget,
            &scratch,
            &mut journal,
        );
        let is_open = |number: &u32| {
            let mutant = &mutants[*number as usize - 1];
            options.argued == arguments.about(&mutant.name()).is_some() && !trial.settled(mutant, *number)
        };
        let open: Vec<u32> = numbers.iter().copied().filter(is_open).collect();
        try_all(&trial, mutants, &open, usize::from(options.jobs))?;
    }
    Ok(print_report(options, &chosen, &journal, &arguments))
}

fn selected(options: &Options, mutants: &[Mutant]) -> Vec<u32> {
    let is_selected = |mutant: &Mutant| {
        let name = mutant.name();
        let in_sample = options
            .one_in
            .is_none_or(|n| fingerprint(name.as_bytes()).is_multiple_of(u64::from(n)));
        in_sample && (options.only.is_empty() || options.only.iter().any(|part| name.contains(part)))
    };
    (1..)
        .zip(mutants)
        .filter(|(_, mutant)| is_selected(mutant))
        .map(|(number, _)| number)
        .collect()
}

/// Builds the copy and measures the missing baselines.
fn probes(place: &Path, options: &Options) -> Result<Vec<Probe>, String> {
    let is_selected = |tool: Tool| options.tools.is_empty() || options.tools.contains(&tool);
    eprintln!("building the engine with all its mutations");
    let mut programs = Vec::new();
    for tool in Tool::ALL.into_iter().filter(|tool| is_selected(*tool)) {
        programs.extend(build(tool, place)?);
    }
    let scratch = place.join("scratch/baseline");
    let kept = place.join("baselines.json");
    let mut baselines = Baselines::read(&kept);
    let mut all = Vec::new();
    for program in programs {
        for name in probe::names(&program, &scratch)? {
            all.push((program.clone(), name));
        }
    }
    let progress = Progress::new(all.len(), "tests measured");
    let mut probes = Vec::new();
    for (program, name) in &all {
        match baselines.probe(program, name, &scratch) {
            Ok(probe) => probes.push(probe),
            // It has no information about mutations; `cargo xtask test` reports that it fails.
            Err(why) => progress.say(&format!("left out: {why}")),
        }
        baselines.write(&kept)?;
        progress.advance();
    }
    drop(progress);
    probes.retain(|probe| !probe.baseline.reached.is_empty());
    Ok(probes)
}

/// Builds one tool in the copy. Separately, so that none gets the others' features.
fn build(tool: Tool, place: &Path) -> Result<Vec<Program>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(place.join("workspace"))
        .args(["build", "--message-format=json"]);
    // Not `cargo test --no-run`, which makes a test of every example that is named.
    cargo
        .args(["--profile", "test"])
        .arg("--target-dir")
        .arg(place.join("build"));
    cargo.args(match tool {
        Tool::Engine => ["-p", "shootdown", "--tests"].as_slice(),
        Tool::Check => &["-p", "shootdown-check", "--example", "race"],
        Tool::Sim => &["-p", "shootdown-sim", "--test", "regressions"],
        Tool::Loom => &["-p", "shootdown-loom", "--features", "models", "--test", "models"],
    });
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.status.success() {
        return Err("the engine with its mutations does not build: see `enumerate.rs`".into());
    }
    probe::programs(&String::from_utf8_lossy(&built.stdout))
}

fn try_all(trial: &Trial, mutants: &[Mutant], open: &[u32], jobs: usize) -> Result<(), String> {
    let progress = Progress::new(open.len(), "mutations tried");
    let survivors = std::sync::atomic::AtomicUsize::new(0);
    let done = |entry: &Entry| {
        if entry.caught.is_none() {
            let count = survivors.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            progress.note(format!("survivors: {count}"));
        }
        progress.advance();
    };
    trial.run(mutants, open, jobs, &done)
}

/// Shows the known results. Whether no mutation survives.
fn print_report(options: &Options, chosen: &[&Mutant], journal: &Journal, arguments: &Arguments) -> bool {
    let rows = table::rows(chosen, |name| journal.known(name), arguments);
    let survivors: Vec<_> = rows.iter().filter(|row| row.survives()).map(|row| row.mutant).collect();
    let refuted: Vec<_> = rows
        .iter()
        .filter(|row| matches!(row.outcome, table::Outcome::Tried(entry) if entry.caught.is_some()))
        .filter(|row| arguments.about(&row.mutant.name()).is_some())
        .map(|row| row.mutant)
        .collect();
    if options.json {
        println!("{}", table::as_json(&rows));
        return survivors.is_empty() && refuted.is_empty();
    }
    if !options.brief {
        println!("{}\n", table::whole(&rows));
    }
    println!("{}\n\n{}", table::sums(&rows), table::speeds(&rows));
    let list = |what: &str, mutants: &[&Mutant]| {
        if !mutants.is_empty() {
            println!("\n{what}:");
        }
        for mutant in mutants {
            println!("  {}  (line {})", mutant.name(), mutant.line);
        }
    };
    list("survivors", &survivors);
    list("caught, although argued about in mutants.toml", &refuted);
    println!("\n{} mutations, {} survive", rows.len(), survivors.len());
    survivors.is_empty() && refuted.is_empty()
}
