//! Every command line in the documents and in the help pages must parse.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::Cli;

const PROGRAM: &str = "shootdown ";
const THROUGH_CARGO: &str = "cargo run --release -- ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The arguments of a command line, if it runs the program: the words after its name, up to a comment or a pipe.
fn arguments(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let rest = if let Some(rest) = line.strip_prefix(THROUGH_CARGO) {
        rest
    } else if let Some(rest) = line.strip_prefix(PROGRAM) {
        rest
    } else {
        // After `sudo` and similar commands.
        line.strip_prefix("sudo ")?.split_once(PROGRAM)?.1
    };
    let rest = rest.split(" #").next()?.split(" | ").next()?;
    let rest = rest.split(" > ").next()?;
    Some(
        rest.split_whitespace()
            .map(|word| word.replace(['"', '\''], ""))
            .collect(),
    )
}

/// Lines of shell blocks, and code within sentences that begins with a command's name.
fn commands(page: &str) -> Vec<Vec<String>> {
    let parts: Vec<&str> = page.split("```").collect();
    let blocks = parts
        .iter()
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("sh\n"));
    let mut found: Vec<_> = blocks.flat_map(str::lines).filter_map(arguments).collect();
    let known = Cli::command();
    let names_one = |words: &[String]| words.first().is_some_and(|word| known.find_subcommand(word).is_some());
    for part in parts.iter().step_by(2) {
        let prose = part.split_whitespace().collect::<Vec<_>>().join(" ");
        let code = prose.split('`').skip(1).step_by(2);
        found.extend(code.filter_map(arguments).filter(|words| names_one(words)));
    }
    found
}

/// The error of the program's parser, unless `words` is the name of a command without arguments.
fn refused(words: &[String]) -> Option<String> {
    let named_only = words.len() == 1 && Cli::command().find_subcommand(&words[0]).is_some();
    let line = std::iter::once("shootdown").chain(words.iter().map(String::as_str));
    let error = Cli::try_parse_from(line).err()?;
    (error.use_stderr() && !named_only).then(|| format!("shootdown {}: {error}", words.join(" ")))
}

#[test]
#[cfg(target_os = "linux")]
fn every_command_line_in_the_documents_parses() {
    let mut files = vec![root().join("README.md"), root().join("kernel/README.md")];
    pages(&root().join("docs/src"), &mut files);
    let mut seen = 0;
    let mut wrong = Vec::new();
    for file in files {
        for words in commands(&fs::read_to_string(&file).expect("a text")) {
            seen += 1;
            wrong.extend(refused(&words).map(|error| format!("{}: {error}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen} command lines: the pattern finds none");
}

#[test]
fn every_example_of_the_help_parses() {
    let command = Cli::command();
    let after = |command: &clap::Command| command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut helps = vec![after(&command)];
    helps.extend(command.get_subcommands().map(after));
    let mut seen = 0;
    let mut wrong = Vec::new();
    for help in helps {
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        // The description of an example follows it, two spaces away.
        let lines = examples
            .lines()
            .map(|line| line.trim().split("  ").next().unwrap_or_default());
        for words in lines.filter_map(arguments) {
            seen += 1;
            wrong.extend(refused(&words));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "{seen} examples: the pattern finds none");
}

#[test]
fn wrong_command_line_is_found() {
    let page = "`shootdown compare tlb_flush2 --no-such-option`";
    let all = commands(page);
    assert_eq!(all.len(), 1);
    assert!(refused(&all[0]).is_some());
}
