//! Writing a model file, and deriving a model of a machine from another.

use std::fmt::Write;

use super::costs::Rule;
use super::provenance::{Parameter, Provenance, Unit};
use super::topology::Numbering;
use super::{Model, ModelError, OPTIONAL_TABLES, TABLES, fields};

impl Model {
    /// The model with one number replaced and given a new provenance; [`with`](Model::with) keeps the old one instead.
    ///
    /// # Errors
    /// As [`with`](Model::with).
    pub fn explained(&self, path: &str, value: f64, provenance: Provenance) -> Result<Model, ModelError> {
        let mut model = self.with(path, value)?;
        for parameter in &mut model.parameters {
            if parameter.path == path {
                parameter.provenance = provenance.clone();
            }
        }
        Ok(model)
    }

    /// The model under another name, with another description and another numbering of its CPUs.
    ///
    /// # Errors
    /// Never for a model that was read from a file.
    pub fn titled(&self, name: &str, description: &str, numbering: Numbering) -> Result<Model, ModelError> {
        let numbering = match numbering {
            Numbering::CoresFirst => Numbering::NAMES[0],
            Numbering::SiblingsAdjacent => Numbering::NAMES[1],
        };
        let mut texts = self.texts.clone();
        for (path, text, _) in &mut texts {
            let new = match path.as_str() {
                "machine.name" => name,
                "machine.description" => description,
                "topology.numbering" => numbering,
                _ => continue,
            };
            *text = new.to_owned();
        }
        Model::build(texts, self.parameters.clone(), &self.source_text_name)
    }

    /// The text of a file that [`parse`](Model::parse) reads back as this model. `heading` becomes comment lines above
    /// it. A number replaced by [`with`](Model::with) is written as assumed, over a range that includes the old value
    /// and the new.
    pub fn to_toml(&self, heading: &str) -> String {
        let mut text = String::new();
        for line in heading.lines() {
            let _ = writeln!(text, "# {line}");
        }
        for table in TABLES.iter().chain(OPTIONAL_TABLES) {
            let own = |path: &str| path.split_once('.').is_some_and(|(first, _)| first == table.name);
            let mut numbers = self
                .parameters
                .iter()
                .filter(|parameter| own(parameter.path))
                .peekable();
            if numbers.peek().is_none() {
                continue;
            }
            let _ = writeln!(text, "\n[{}]", table.name);
            for (path, value, _) in self.texts.iter().filter(|(path, ..)| own(path)) {
                let _ = writeln!(text, "{} = {}", key(path), quoted(value));
            }
            for parameter in numbers {
                let _ = writeln!(text, "{}", line(parameter));
            }
        }
        text
    }
}

fn key(path: &str) -> &str {
    path.split_once('.').map_or(path, |(_, key)| key)
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// `ipi_send = { cycles = 300, assumed = "100..700" }`
fn line(parameter: &Parameter) -> String {
    let flag = fields().any(|field| field.path == parameter.path && field.rule == Rule::Flag);
    let unit = parameter.unit.key();
    let number = match (parameter.unit, flag) {
        (Unit::Value, true) => (parameter.value != 0.0).to_string(),
        _ => parameter.value.to_string(),
    };
    let because = match &parameter.provenance {
        Provenance::Source { text, range } => because("source", text, range.map(|range| range.to_string())),
        Provenance::Fitted { rows, range } => because("fitted", rows, range.map(|range| range.to_string())),
        Provenance::Assumed(range) => because("assumed", &range.to_string(), None),
        Provenance::Overridden { was, .. } => {
            let (low, high) = (was.min(parameter.value), was.max(parameter.value));
            because("assumed", &format!("{low}..{high}"), None)
        }
    };
    format!("{} = {{ {unit} = {number}, {because} }}", key(parameter.path))
}

fn because(kind: &str, text: &str, range: Option<String>) -> String {
    let range = range.map_or(String::new(), |range| format!(", range = {}", quoted(&range)));
    format!("{kind} = {}{range}", quoted(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Range;

    fn bare(model: &Model) -> Vec<(&'static str, f64, Unit, Provenance)> {
        let all = model.parameters();
        all.map(|p| (p.path, p.value, p.unit, p.provenance.clone())).collect()
    }

    #[test]
    fn every_built_in_model_round_trips() {
        for name in Model::builtin_names() {
            let model = Model::find(name).unwrap();
            let again = Model::parse(&model.to_toml("about it\nand more"), "again.toml").unwrap();
            assert_eq!(bare(&again), bare(&model), "{name}");
            assert_eq!((&again.name, &again.description), (&model.name, &model.description));
            assert_eq!((again.topology, again.arch), (model.topology, model.arch));
        }
    }

    #[test]
    fn parameter_can_be_replaced_with_provenance() {
        let measured = Provenance::Source {
            text: "measured with \"quotes\"".into(),
            range: Some(Range { low: 1.0, high: 500.0 }),
        };
        let model = Model::find("milan-72").unwrap();
        let model = model.explained("costs.invlpg", 300.5, measured.clone()).unwrap();
        let model = model.titled("mine", "a box", Numbering::SiblingsAdjacent).unwrap();
        let model = model.with("kernel.slowdown", 3.25).unwrap();
        let again = Model::parse(&model.to_toml(""), "mine.toml").unwrap();
        let invlpg = again.parameter("costs.invlpg").unwrap();
        assert_eq!((invlpg.value, &invlpg.provenance), (300.5, &measured));
        assert_eq!(
            (again.name.as_str(), again.topology.numbering),
            ("mine", Numbering::SiblingsAdjacent)
        );
        assert_eq!(again.kernel.slowdown, 3.25);
        assert_eq!(again.parameter("kernel.slowdown").unwrap().provenance.kind(), "assumed");
    }
}
