//! Holds a document against the schema that the program prints for it.
//!
//! Reads the part of JSON Schema 2020-12 that these schemas use. A keyword that it does not read fails the test.

use std::process::Command;

use serde_json::Value;

/// Keywords that say nothing about what is valid.
const ANNOTATIONS: [&str; 5] = ["$schema", "title", "description", "format", "default"];

/// The schema that the program prints for `command`.
pub fn schema(command: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(["schema", command])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a schema is JSON")
}

/// `document` is what `command` says that it prints.
pub fn assert_valid(command: &str, document: &Value) {
    let mistakes = mistakes(&schema(command), document, command);
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

/// What is wrong with `value`, which stands at `place`.
pub fn mistakes(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let Value::Object(keywords) = schema else {
        return match schema {
            Value::Bool(true) => Vec::new(),
            _ => vec![format!("{place}: no value is allowed here")],
        };
    };
    let mut found = Vec::new();
    for (keyword, asked) in keywords {
        match keyword.as_str() {
            "type" => {
                let types = asked.as_array().cloned().unwrap_or_else(|| vec![asked.clone()]);
                if !types
                    .iter()
                    .any(|name| is(value, name.as_str().expect("a type's name")))
                {
                    found.push(format!("{place}: {value} is not of type {asked}"));
                }
            }
            "const" if value != asked => found.push(format!("{place}: {value} is not {asked}")),
            "enum" if !asked.as_array().expect("values").contains(value) => {
                found.push(format!("{place}: {value} is not in {asked}"));
            }
            "minimum" if value.as_f64() < asked.as_f64() && value.is_number() => {
                found.push(format!("{place}: {value} is below {asked}"));
            }
            "maximum" if value.as_f64() > asked.as_f64() => found.push(format!("{place}: {value} is above {asked}")),
            "anyOf" | "oneOf" => {
                let forms = asked.as_array().expect("schemas");
                let fitting = forms
                    .iter()
                    .filter(|form| mistakes(form, value, place).is_empty())
                    .count();
                if fitting == 0 || keyword == "oneOf" && fitting > 1 {
                    found.push(format!("{place}: {value} fits {fitting} of {} forms", forms.len()));
                }
            }
            "required" => {
                let Value::Object(fields) = value else { continue };
                let keys = asked
                    .as_array()
                    .expect("keys")
                    .iter()
                    .map(|key| key.as_str().expect("a key"));
                found.extend(
                    keys.filter(|key| !fields.contains_key(*key))
                        .map(|key| format!("{place}: {key} is missing")),
                );
            }
            "items" => {
                let first = keywords
                    .get("prefixItems")
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len);
                let rest = value.as_array().into_iter().flatten().enumerate().skip(first);
                found.extend(rest.flat_map(|(index, value)| mistakes(asked, value, &format!("{place}[{index}]"))));
            }
            "prefixItems" => {
                let pairs = asked
                    .as_array()
                    .into_iter()
                    .flatten()
                    .zip(value.as_array().into_iter().flatten());
                found.extend(pairs.flat_map(|(schema, value)| mistakes(schema, value, place)));
            }
            "minItems"
                if value
                    .as_array()
                    .is_some_and(|items| (items.len() as u64) < asked.as_u64().expect("a count")) =>
            {
                found.push(format!("{place}: fewer than {asked} items"));
            }
            "maxItems"
                if value
                    .as_array()
                    .is_some_and(|items| items.len() as u64 > asked.as_u64().expect("a count")) =>
            {
                found.push(format!("{place}: more than {asked} items"));
            }
            "properties" | "patternProperties" | "additionalProperties" => {}
            "const" | "enum" | "minimum" | "maximum" | "minItems" | "maxItems" => {}
            other if ANNOTATIONS.contains(&other) => {}
            other => found.push(format!("{place}: the keyword {other} is not read here")),
        }
    }
    found.extend(wrong_fields(schema, value, place));
    found
}

/// What is wrong with the fields of an object.
fn wrong_fields(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let Value::Object(fields) = value else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in fields {
        let place = format!("{place}.{key}");
        let named = schema["properties"].get(key);
        let patterns = schema["patternProperties"].as_object().into_iter().flatten();
        let mut known: Vec<&Value> = patterns
            .filter(|(pattern, _)| matches(pattern, key))
            .map(|(_, schema)| schema)
            .collect();
        known.extend(named);
        if known.is_empty() {
            known.extend(schema.get("additionalProperties"));
        }
        found.extend(known.into_iter().flat_map(|schema| mistakes(schema, value, &place)));
    }
    found
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}

/// The patterns of a sweep's columns.
fn matches(pattern: &str, key: &str) -> bool {
    match pattern {
        "^share_" => key.starts_with("share_"),
        "^latency_.+_count$" => key.starts_with("latency_") && key.ends_with("_count"),
        "^latency_.+_(p50|p99|max)_ns$" => {
            key.starts_with("latency_") && ["_p50_ns", "_p99_ns", "_max_ns"].iter().any(|end| key.ends_with(end))
        }
        "^[a-z_]+\\." => key.contains('.'),
        other => panic!("the pattern {other} is not read here"),
    }
}
