//! JSON output for programs.

use serde::Serialize;

/// Indented JSON with a final newline.
pub fn pretty(value: &impl Serialize) -> String {
    // Neither maps with odd keys nor failing serializers occur here; numbers that are not finite become null.
    let mut text = serde_json::to_string_pretty(value).expect("plain data serializes");
    text.push('\n');
    text
}

/// Whether a count of missing runs is omitted from a document.
pub(crate) fn is_none(missing: &usize) -> bool {
    *missing == 0
}

/// Every key of a document is explained in the book.
#[cfg(test)]
pub(crate) fn assert_explained(document: &str) {
    fn keys(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                found.push(key.clone());
                keys(value, found);
            }),
            serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    keys(&serde_json::from_str(document).expect("it is JSON"), &mut found);
    let words = include_str!("../../../../docs/src/tools/json.md");
    for key in found {
        assert!(
            words.contains(&format!("`{key}`")),
            "docs/src/tools/json.md does not explain {key}"
        );
    }
}
