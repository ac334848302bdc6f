//! JSON Schemas of the `--json` output, made from its types and their comments.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The schema of the documents of type `T` that `command` prints.
pub fn of<T: JsonSchema>(command: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    tidy(&mut schema);
    schema.insert("title".into(), format!("shootdown {command} --json").into());
    schema
}

/// Objects have no keys but those of their type, and a description is one paragraph.
fn tidy(schema: &mut Schema) {
    transform_subschemas(&mut |schema: &mut Schema| tidy(schema), schema);
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    /// Outer
    /// words.
    #[derive(Serialize, JsonSchema)]
    struct Outer {
        /// Some [`Inner`].
        inner: Option<Inner>,
    }

    /// Inner words.
    #[derive(Serialize, JsonSchema)]
    struct Inner {
        /// A time.
        time_ns: f64,
    }

    #[test]
    fn schema_objects_are_closed_and_described() {
        let schema = of::<Outer>("test").to_value();
        assert_eq!(schema["title"], "shootdown test --json");
        assert_eq!(schema["description"], "Outer words.");
        assert_eq!(schema["additionalProperties"], false);
        let inner = &schema["properties"]["inner"];
        assert_eq!(inner["description"], "Some [`Inner`].");
        assert!(inner.to_string().contains("\"additionalProperties\":false"), "{inner}");
        assert_eq!(schema["required"], serde_json::json!(["inner"]), "null is not absent");
    }
}
