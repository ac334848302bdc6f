//! The `list` command: the names that the command line accepts.

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use shootdown_sim::model::Model;
use shootdown_sim::run;

use crate::args::ListArgs;
use crate::catalog::{self, Entry};
use crate::failure::{Failure, SUCCESS};
use crate::print::json;
use crate::print::output;
use crate::print::schema;
use crate::print::terminal::{self, broken};

/// Fewest columns of a description beside its name.
const NARROWEST: usize = 40;

/// The names that the command line accepts.
#[derive(Debug, Serialize, JsonSchema)]
struct Listing {
    /// Workloads of this program.
    workloads: Vec<Line>,
    /// Machine models of this program.
    machines: Vec<Line>,
    /// Designs.
    designs: Vec<Line>,
    /// Numbers of workloads, for `--set`.
    parameters: Vec<ParameterLine>,
    /// Settings of designs, for `--set`.
    design_settings: Vec<SettingLine>,
}

/// A workload, machine or design.
#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    /// Its name.
    name: String,
    /// Its description.
    description: String,
    /// CPUs of a machine. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<usize>,
    /// The instruction set of a machine. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    arch: Option<&'static str>,
    /// Whether a machine invalidates by broadcast. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    broadcast: Option<bool>,
}

/// A number of a workload, for `--set`.
#[derive(Debug, Serialize, JsonSchema)]
struct ParameterLine {
    /// Its path.
    name: &'static str,
    /// Its default value.
    default: f64,
    /// Its least value.
    least: f64,
    /// Its largest value.
    most: f64,
    /// Its description.
    description: &'static str,
}

/// A setting of a design, for `--set`.
#[derive(Debug, Serialize, JsonSchema)]
struct SettingLine {
    /// Its path.
    name: &'static str,
    /// The values that it can have.
    values: String,
    /// Its description.
    description: &'static str,
    /// Where it has an effect. Absent if under every design.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<&'static str>,
}

/// Prints the workloads and their parameters, the machines and the designs.
///
/// # Errors
/// When stdout cannot be written or a built-in machine model does not load.
pub fn command(args: &ListArgs) -> Result<u8, Failure> {
    let listing = Listing {
        workloads: lines(catalog::workloads().chain([catalog::RECORDED])),
        machines: machines()?,
        designs: lines(catalog::designs()),
        parameters: run::parameters()
            .map(|parameter| ParameterLine {
                name: parameter.path,
                default: parameter.default,
                least: parameter.least,
                most: parameter.most,
                description: parameter.about,
            })
            .collect(),
        design_settings: run::AXES
            .iter()
            .map(|axis| SettingLine {
                name: axis.path,
                values: axis.values.to_string(),
                description: axis.about,
                read: axis.read.map(|(place, _)| place),
            })
            .collect(),
    };
    output::print_as(
        args.json,
        &if args.json {
            json::pretty(&listing)
        } else {
            text(&listing)
        },
    )?;
    Ok(SUCCESS)
}

/// What `list --json` prints.
pub fn schema() -> Schema {
    schema::of::<Listing>("list")
}

fn lines(entries: impl Iterator<Item = Entry>) -> Vec<Line> {
    entries
        .map(|entry| Line {
            name: entry.name.to_string(),
            description: entry.description.to_string(),
            cpus: None,
            arch: None,
            broadcast: None,
        })
        .collect()
}

fn machines() -> Result<Vec<Line>, Failure> {
    Model::builtin_names()
        .iter()
        .map(|name| {
            let model = Model::find(name).map_err(|error| Failure::Input(error.to_string()))?;
            Ok(Line {
                name: model.name.clone(),
                description: model.description.clone(),
                cpus: Some(model.topology.cpus()),
                arch: Some(model.arch.name()),
                broadcast: Some(model.broadcasts()),
            })
        })
        .collect()
}

fn text(listing: &Listing) -> String {
    let sections = [
        ("Workloads", &listing.workloads),
        ("Machines", &listing.machines),
        ("Designs", &listing.designs),
    ];
    let width = sections
        .iter()
        .flat_map(|(_, lines)| lines.iter())
        .map(|line| line.name.chars().count())
        .max()
        .unwrap_or(0);
    let sections = sections.map(|(title, lines)| {
        let mut text = format!("{title}\n");
        for line in lines {
            let cpus = line.cpus.map(|cpus| format!("{cpus:>3} CPUs, ")).unwrap_or_default();
            let arch = line.arch.map(|arch| format!("{arch}; ")).unwrap_or_default();
            text.push_str(&described(
                &line.name,
                width,
                &format!("{cpus}{arch}{}", line.description),
            ));
        }
        text
    });
    let mut text = sections.join("\n");
    let cannot = listing
        .machines
        .iter()
        .filter(|machine| machine.broadcast == Some(false));
    let cannot: Vec<&str> = cannot.map(|machine| &*machine.name).collect();
    let note = format!(
        "Every design runs on every machine that has tags enough. On aarch64 those of real kernels are arm-broadcast, \
         arm-ipi, arm-local-first and, with errata, never-broadcast and broadcast+ipi. \
         Without hardware for it nothing is broadcast, and interrupts are sent instead: {}.",
        cannot.join(", ")
    );
    let columns = terminal::get().prose();
    text.push_str(&format!("{}\n", broken(&format!("  {note}"), columns, 2).join("\n")));
    text.push_str("\nWorkload parameters (--set NAME=VALUE)\n");
    let width = listing.parameters.iter().map(|line| line.name.len()).max().unwrap_or(0);
    for line in &listing.parameters {
        let about = format!(
            "{} [{} to {}]; {}",
            line.default, line.least, line.most, line.description
        );
        text.push_str(&described(line.name, width, &about));
    }
    text + &design_settings(listing)
}

fn design_settings(listing: &Listing) -> String {
    let names = listing.design_settings.iter().map(|line| line.name.len()).max();
    let width = names.unwrap_or(0);
    let mut text = "\nDesign settings (--set NAME=VALUE), of every design but ideal and none\n".to_string();
    for line in &listing.design_settings {
        let read = line.read.map(|place| format!("; read {place}")).unwrap_or_default();
        let about = format!("{}; {}{read}", line.values, line.description);
        text.push_str(&described(line.name, width, &about));
    }
    text
}

/// A name with its description beside it; below it where the terminal is too narrow for both.
fn described(name: &str, names: usize, about: &str) -> String {
    let columns = terminal::get().prose();
    let (beside, indent) = (names + 4, 6);
    if columns < beside + NARROWEST {
        let about = broken(&format!("{}{about}", " ".repeat(indent)), columns, indent).join("\n");
        return format!("  {name}\n{about}\n");
    }
    broken(&format!("  {name:names$}  {about}"), columns, beside).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_fits_the_terminal_and_is_complete() {
        let listing = Listing {
            workloads: lines(catalog::workloads()),
            machines: machines().unwrap(),
            designs: lines(catalog::designs()),
            parameters: Vec::new(),
            design_settings: Vec::new(),
        };
        let text = text(&listing);
        assert!(
            text.contains("milan-72") && text.contains(" 72 CPUs, x86_64; AMD Milan"),
            "{text}"
        );
        let width = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= 80, "{width}:\n{text}");
        for entry in catalog::workloads().chain(catalog::designs()) {
            assert!(text.contains(&format!("\n  {} ", entry.name)), "{}", entry.name);
        }
    }
}
