//! The `schema` command: the JSON Schema of what a command prints with `--json`.

use schemars::Schema;

#[cfg(target_os = "linux")]
use super::{calibrate, host, record};
use super::{check, compare, evidence, explain, import, list, qemu, replay, scoreboard, sweep, timeline, walkers};
use crate::args::SchemaArgs;
use crate::failure::{Failure, SUCCESS};
use crate::print::json;
use crate::print::output;

/// Makes a schema.
type Make = fn() -> Schema;

/// The schema of each command that has `--json`.
pub const SCHEMAS: &[(&str, Make)] = &[
    ("compare", compare::schema),
    ("sweep", sweep::schema),
    #[cfg(target_os = "linux")]
    ("record", record::schema),
    #[cfg(target_os = "linux")]
    ("host", host::schema),
    #[cfg(target_os = "linux")]
    ("calibrate", calibrate::schema),
    ("import", import::schema),
    ("replay", replay::schema),
    ("qemu", qemu::schema),
    ("timeline", timeline::schema),
    ("list", list::schema),
    ("explain", explain::schema),
    ("evidence", evidence::schema),
    ("walkers", walkers::schema),
    ("scoreboard", scoreboard::schema),
    ("check", check::schema),
];

/// Prints the schema.
///
/// # Errors
/// A name that is no command with `--json`; stdout that cannot be written.
pub fn command(args: &SchemaArgs) -> Result<u8, Failure> {
    let command = args.command.trim();
    let Some((_, schema)) = SCHEMAS.iter().find(|(name, _)| *name == command) else {
        let known: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Input(format!(
            "schema {command}: expected a command that has --json: {}",
            known.join(", ")
        )));
    };
    output::print(&json::pretty(&schema()))?;
    Ok(SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use serde_json::Value;

    /// Calls `each` with the path and the schema of every key.
    fn keys(schema: &Value, place: &str, each: &mut impl FnMut(&str, &str, &Value)) {
        match schema {
            Value::Object(fields) => {
                for (field, value) in fields {
                    let named = matches!(field.as_str(), "properties" | "patternProperties");
                    match value {
                        Value::Object(properties) if named => {
                            for (key, schema) in properties {
                                let place = format!("{place}.{key}");
                                each(&place, key, schema);
                                keys(schema, &place, each);
                            }
                        }
                        _ => keys(value, place, each),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| keys(value, place, each)),
            _ => {}
        }
    }

    fn every_key(mut each: impl FnMut(&str, &str, &Value)) {
        let mut seen = 0;
        for (command, schema) in SCHEMAS {
            keys(&schema().to_value(), command, &mut |place, key, schema| {
                seen += 1;
                each(place, key, schema);
            });
        }
        assert!(seen > 250, "{seen} keys: the search finds none");
    }

    #[test]
    fn every_command_that_prints_json_has_a_schema() {
        let cli = Cli::command();
        let with_json = cli
            .get_subcommands()
            .filter(|command| command.get_arguments().any(|argument| argument.get_id() == "json"))
            .map(|command| command.get_name().to_string());
        let known: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        assert_eq!(with_json.collect::<Vec<_>>(), known, "in the order of --help");
    }

    #[test]
    fn every_key_has_a_description() {
        let mut missing = Vec::new();
        every_key(|place, _, schema| {
            // The values of an enumeration's tag describe it.
            if schema.get("description").is_none() && schema.get("const").is_none() {
                missing.push(place.to_string());
            }
        });
        assert!(missing.is_empty(), "no comment at: {}", missing.join(", "));
    }

    #[test]
    fn every_key_is_explained_in_the_book() {
        let page = include_str!("../../../../../docs/src/tools/json.md");
        let mut missing = Vec::new();
        every_key(|place, key, _| {
            let name = match key {
                "^share_" => "share_*",
                "^latency_.+_count$" => "latency_*_count",
                "^latency_.+_(p50|p99|max)_ns$" => "latency_*_max_ns",
                "^[a-z_]+\\." => "costs.invlpg",
                key => key,
            };
            if !page.contains(&format!("`{name}`")) {
                missing.push(place.to_string());
            }
        });
        assert!(
            missing.is_empty(),
            "not in docs/src/tools/json.md: {}",
            missing.join(", ")
        );
    }

    #[test]
    fn times_are_in_nanoseconds_by_name() {
        let units = ["_s", "_ms", "_us", "_seconds", "_secs", "_time"];
        let mut wrong = Vec::new();
        every_key(|place, key, _| {
            let rate = key.ends_with("_per_s");
            if !rate && (units.iter().any(|unit| key.ends_with(unit)) || ["seconds", "ms"].contains(&key)) {
                wrong.push(place.to_string());
            }
        });
        assert!(wrong.is_empty(), "a time does not end in _ns: {}", wrong.join(", "));
    }
}
