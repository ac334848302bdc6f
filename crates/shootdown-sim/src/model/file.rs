//! Reading a model file: TOML, with a line number in every error.
//!
//! The document is walked by hand instead of being deserialised, because an error must name the line, the dotted path
//! and the remedy, also for a missing field. Owns syntax and units; `costs` owns the meaning of numbers.

use crate::numeral::written;
use std::fmt;
use std::ops::Range as Span;

use toml::de::{DeTable, DeValue};

use super::costs::{Field, Rule};
use super::provenance::{Parameter, Provenance, Range, Unit};

/// Why a model could not be read: `file:line: dotted path: what is expected`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    /// The file as the user named it.
    pub file: String,
    /// Line from 1; `None` when there is no text.
    pub line: Option<usize>,
    /// Dotted path of the offending entry; `None` when the text is not TOML.
    pub path: Option<String>,
    /// What was expected, and the remedy.
    pub expected: String,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(path) = &self.path {
            write!(f, ": {path}")?;
        }
        write!(f, ": {}", self.expected)
    }
}

impl std::error::Error for ModelError {}

/// One table that a file must have.
pub(super) struct Table {
    /// Its name.
    pub name: &'static str,
    /// Keys that hold plain text.
    pub texts: &'static [&'static str],
    /// Keys that hold numbers with provenance.
    pub numbers: &'static [Field],
}

/// The contents of a file, every entry checked on its own but not against the others.
pub(super) struct Document {
    /// Plain texts by dotted path, with their lines.
    pub texts: Vec<(String, String, usize)>,
    /// Numbers, in the order of the tables.
    pub parameters: Vec<Parameter>,
}

/// Reads `text` against `tables`, which are required, and `optional`, which are not; `file` names it in errors.
pub(super) fn read(text: &str, file: &str, tables: &[Table], optional: &[Table]) -> Result<Document, ModelError> {
    let known = || tables.iter().chain(optional);
    let reader = Reader { text, file };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        reader.error(at, None, format!("expected TOML: {what}"))
    })?;
    let root = root.get_ref();
    for key in root.keys() {
        if !known().any(|table| table.name == key.get_ref().as_ref()) {
            let known = known()
                .map(|table| format!("[{}]", table.name))
                .collect::<Vec<_>>()
                .join(", ");
            let expected = format!("unknown table; expected one of {known}");
            return Err(reader.error(key.span().start, Some(key.get_ref()), expected));
        }
    }
    let mut document = Document {
        texts: Vec::new(),
        parameters: Vec::new(),
    };
    for (table, required) in
        (tables.iter().map(|table| (table, true))).chain(optional.iter().map(|table| (table, false)))
    {
        let Some((key, value)) = root.get_key_value(table.name) else {
            if !required {
                continue;
            }
            let expected = format!("missing table; add [{}]", table.name);
            return Err(reader.error(text.len(), Some(table.name), expected));
        };
        let at = key.span().start;
        let DeValue::Table(entries) = value.get_ref() else {
            return Err(reader.error(
                at,
                Some(table.name),
                format!("expected a table; write [{}]", table.name),
            ));
        };
        reader.table(table, entries, at, &mut document)?;
    }
    Ok(document)
}

struct Reader<'a> {
    text: &'a str,
    file: &'a str,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        line_of(self.text.as_bytes(), at)
    }

    fn error(&self, at: usize, path: Option<&str>, expected: String) -> ModelError {
        ModelError {
            file: self.file.into(),
            line: Some(self.line(at)),
            path: path.map(Into::into),
            expected,
        }
    }

    fn table(&self, table: &Table, entries: &DeTable<'_>, at: usize, out: &mut Document) -> Result<(), ModelError> {
        let known = || {
            table
                .texts
                .iter()
                .copied()
                .chain(table.numbers.iter().map(|field| field.name))
        };
        for key in entries.keys() {
            let name = key.get_ref().as_ref();
            if !known().any(|known| known == name) {
                let path = format!("{}.{}", table.name, name.escape_debug());
                let expected = format!(
                    "unknown field; expected one of {}",
                    known().collect::<Vec<_>>().join(", ")
                );
                return Err(self.error(key.span().start, Some(&path), expected));
            }
        }
        for &name in table.texts {
            let path = format!("{}.{name}", table.name);
            let Some((key, value)) = entries.get_key_value(name) else {
                return Err(self.error(
                    at,
                    Some(&path),
                    format!("missing; add {name} = \"...\" under [{}]", table.name),
                ));
            };
            let line = key.span().start;
            match value.get_ref() {
                DeValue::String(text) if is_line(text) => out.texts.push((path, text.to_string(), self.line(line))),
                _ => return Err(self.error(line, Some(&path), "expected one line of text in quotes".into())),
            }
        }
        for field in table.numbers {
            let Some((key, value)) = entries.get_key_value(field.name) else {
                let example = format!("{} = {{ {} = ..., source = \"...\" }}", field.name, units(field.rule));
                let expected = format!("missing; add {example} under [{}]", table.name);
                return Err(self.error(at, Some(field.path), expected));
            };
            out.parameters
                .push(self.parameter(field, value.get_ref(), key.span().start)?);
        }
        Ok(())
    }

    fn parameter(&self, field: &Field, value: &DeValue<'_>, at: usize) -> Result<Parameter, ModelError> {
        let fail = |at: usize, expected: String| Err(self.error(at, Some(field.path), expected));
        let DeValue::Table(entries) = value else {
            let shape = format!("expected {{ {} = ..., source = \"...\" }}", units(field.rule));
            return fail(at, format!("{shape}, or fitted or assumed in place of source"));
        };
        let mut number: Option<(Unit, f64, Span<usize>)> = None;
        let mut reason: Option<(&str, String, Span<usize>)> = None;
        let mut range = None;
        for (key, value) in entries {
            let (name, at) = (key.get_ref().as_ref(), key.span());
            match name {
                "cycles" | "ns" | "value" => {
                    let unit = match name {
                        "cycles" => Unit::Cycles,
                        "ns" => Unit::Ns,
                        _ => Unit::Value,
                    };
                    if field.rule.is_time() == (unit == Unit::Value) {
                        return fail(at.start, format!("expected {} in place of {name}", units(field.rule)));
                    }
                    if number.is_some() {
                        return fail(at.start, "expected cycles or ns, not both; remove one".into());
                    }
                    let found = match number_of(value.get_ref(), field.rule) {
                        Ok(found) => found,
                        Err(expected) => return fail(at.start, format!("expected {expected} for {name}")),
                    };
                    if let Err(expected) = field.rule.check(found, name) {
                        return fail(at.start, expected);
                    }
                    number = Some((unit, found, at));
                }
                "source" | "fitted" | "assumed" => {
                    if let Some((other, ..)) = &reason {
                        return fail(at.start, format!("expected {other} or {name}, not both; remove one"));
                    }
                    match value.get_ref() {
                        DeValue::String(text) if is_line(text) => {
                            let kind = ["source", "fitted", "assumed"].into_iter().find(|kind| *kind == name);
                            reason = Some((kind.unwrap_or("source"), text.to_string(), at));
                        }
                        _ => return fail(at.start, format!("expected one line of text in quotes for {name}")),
                    }
                }
                "range" => match value.get_ref() {
                    DeValue::String(text) => match Range::parse(text) {
                        Some(parsed) => range = Some((parsed, at)),
                        None => return fail(at.start, "expected range = \"low..high\"".into()),
                    },
                    _ => return fail(at.start, "expected range = \"low..high\"".into()),
                },
                unknown => {
                    let known = format!(
                        "{}, source, fitted, assumed, range",
                        units(field.rule).replace(" or ", ", ")
                    );
                    return fail(
                        at.start,
                        format!("unknown key {}; expected one of {known}", unknown.escape_debug()),
                    );
                }
            }
        }
        let Some((unit, value, number_at)) = number else {
            return fail(at, format!("missing {}; add it", units(field.rule)));
        };
        let Some((kind, text, reason_at)) = reason else {
            return fail(
                at,
                "missing provenance; add one of source, fitted, assumed = \"...\"".into(),
            );
        };
        if let Some((range, at)) = &range
            && !range.contains(value)
        {
            return fail(at.start, format!("expected a range that contains {}", written(value)));
        }
        let provenance = match (kind, range) {
            ("source", range) => Provenance::Source {
                text,
                range: range.map(|(range, _)| range),
            },
            ("fitted", range) => Provenance::Fitted {
                rows: text,
                range: range.map(|(range, _)| range),
            },
            (_, Some((_, at))) => return fail(at.start, "expected the range in assumed; remove range".into()),
            (_, None) => match Range::parse(&text) {
                Some(range) if range.contains(value) => Provenance::Assumed(range),
                Some(_) => {
                    return fail(
                        reason_at.start,
                        format!("expected an assumed range that contains {}", written(value)),
                    );
                }
                None => {
                    return fail(
                        reason_at.start,
                        "expected assumed = \"low..high\", the range to sweep".into(),
                    );
                }
            },
        };
        Ok(Parameter {
            path: field.path,
            value,
            unit,
            provenance,
            line: self.line(number_at.start),
        })
    }
}

/// The keys that a number under `rule` may have.
fn units(rule: Rule) -> &'static str {
    if rule.is_time() { "cycles or ns" } else { "value" }
}

/// Text that may appear in a report: not blank, no control characters.
fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.chars().any(char::is_control)
}

/// The number in a TOML value; `Err` names what was expected.
fn number_of(value: &DeValue<'_>, rule: Rule) -> Result<f64, &'static str> {
    let parsed = match value {
        DeValue::Boolean(flag) if rule == Rule::Flag => return Ok(f64::from(u8::from(*flag))),
        _ if rule == Rule::Flag => return Err("true or false"),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .map(|n| n as f64),
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        _ => None,
    };
    parsed.filter(|number| number.is_finite()).ok_or("a finite number")
}

/// Line, from 1, of byte `at` of `text`; past the end, the last non-empty line.
pub(super) fn line_of(text: &[u8], at: usize) -> usize {
    let mut before = &text[..at.min(text.len())];
    if before.len() == text.len() {
        before = before.trim_ascii_end();
    }
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}
