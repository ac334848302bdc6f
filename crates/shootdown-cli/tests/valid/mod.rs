//! Validates a document against the schema that the program prints for it.

use std::process::Command;

use serde_json::Value;

/// The schema that the program prints for `command`.
pub fn schema(command: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(["schema", command])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a schema is JSON")
}

/// Checks `document` against the schema of `command`.
pub fn assert_valid(command: &str, document: &Value) {
    let mistakes = mistakes(&schema(command), document);
    assert!(mistakes.is_empty(), "{command}: {}", mistakes.join("\n"));
}

/// The errors of the document, each with its place.
pub fn mistakes(schema: &Value, document: &Value) -> Vec<String> {
    let validator = jsonschema::draft202012::new(schema).expect("a JSON Schema");
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}
