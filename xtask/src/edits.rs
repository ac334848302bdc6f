//! Edits of sources that are not ours, as `linux/edits.json` and `examples/ostd/edits.json` list them. Each names a
//! place by text that must be there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One edit: the text to find, and the text that replaces it, or comes before or after it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Its reason.
    why: String,
    /// The file, from the top of the sources.
    file: String,
    anchor: String,
    /// The end of the replaced text, which stays; without it the anchor alone is replaced.
    until: Option<String>,
    /// How often the anchor occurs.
    #[serde(default = "once")]
    times: usize,
    replace: Option<String>,
    before: Option<String>,
    after: Option<String>,
}

fn once() -> usize {
    1
}

/// Reads a list of edits.
///
/// # Errors
/// When it is not one.
pub fn parse(text: &str) -> Result<Vec<Edit>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The files that the edits change, with their new text. Nothing is written.
///
/// # Errors
/// Every anchor that is not found as often as expected, with its file.
pub fn apply<'a>(
    edits: impl IntoIterator<Item = &'a Edit>,
    sources: &Path,
) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for edit in edits {
        let path = PathBuf::from(&edit.file);
        let text = match files.get(&path) {
            Some(text) => text.clone(),
            None => match std::fs::read_to_string(sources.join(&path)) {
                Ok(text) => text,
                Err(error) => {
                    wrong.push(format!("{}: {error}", edit.file));
                    continue;
                }
            },
        };
        match edit.on(&text) {
            Ok(text) => drop(files.insert(path, text)),
            Err(why) => wrong.push(format!("{}: {why}", edit.file)),
        }
    }
    if wrong.is_empty() {
        Ok(files)
    } else {
        Err(wrong.join("\n"))
    }
}

impl Edit {
    /// The file that it changes, from the top of the sources.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text that it adds.
    pub fn added(&self) -> String {
        [&self.before, &self.after, &self.replace]
            .map(|text| text.as_deref().unwrap_or_default())
            .concat()
    }

    /// Whether it says why, and either replaces or adds.
    #[cfg(test)]
    pub fn is_complete(&self) -> bool {
        let around = self.before.is_some() || self.after.is_some();
        !self.why.is_empty() && self.replace.is_some() != around
    }

    fn on(&self, text: &str) -> Result<String, String> {
        let found = text.matches(&self.anchor).count();
        if found != self.times {
            return Err(format!(
                "{:?} was expected {} times and found {found} times; the edit is for: {}",
                self.anchor, self.times, self.why
            ));
        }
        let keep = |part: &Option<String>| part.clone().unwrap_or_default();
        let new = match &self.replace {
            Some(new) => new.clone(),
            None => format!("{}{}{}", keep(&self.before), self.anchor, keep(&self.after)),
        };
        let Some(until) = &self.until else {
            return Ok(text.replace(&self.anchor, &new));
        };
        let start = text.find(&self.anchor).ok_or("no anchor")?;
        let length = text[start..]
            .find(until.as_str())
            .ok_or_else(|| format!("{until:?} was expected after {:?}", self.anchor))?;
        Ok(format!("{}{new}{}", &text[..start], &text[start + length..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test, with these files.
    fn sources(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("shootdown-edits-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn edits_of_one_file_apply_in_order() {
        let edits = parse(
            r#"[{"why": "", "file": "a/b.c", "anchor": "two\n", "before": "1.5\n", "after": "2.5\n"},
                {"why": "", "file": "a/b.c", "anchor": "1.5", "until": "three", "replace": "x\n"},
                {"why": "", "file": "a/b.c", "anchor": "o", "times": 2, "replace": "0"}]"#,
        );
        let folder = sources("order", &[("a/b.c", "one\ntwo\nthree\no\n")]);
        let files = apply(&edits.unwrap(), &folder).unwrap();
        assert_eq!(files[Path::new("a/b.c")], "0ne\nx\nthree\n0\n");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn bad_anchors_are_all_named_before_any_file_is_changed() {
        let edits = parse(
            r#"[{"why": "", "file": "good.c", "anchor": "one", "replace": "1"},
                {"why": "", "file": "other.c", "anchor": "static int x;", "replace": ""},
                {"why": "", "file": "good.c", "anchor": "1", "until": "never", "replace": ""},
                {"why": "", "file": "missing.c", "anchor": "x", "replace": ""}]"#,
        );
        let folder = sources(
            "anchors",
            &[("good.c", "one"), ("other.c", "static int x; static int x;")],
        );
        let why = apply(&edits.unwrap(), &folder).unwrap_err();
        let lines: Vec<&str> = why.lines().collect();
        assert_eq!(lines.len(), 3, "{why}");
        assert!(lines[0].contains("other.c") && lines[0].contains("static int x;") && lines[0].contains("found 2"));
        assert!(lines[1].contains("never") && lines[2].contains("missing.c"));
        assert_eq!(std::fs::read_to_string(folder.join("good.c")).unwrap(), "one");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn edits_of_linux_are_complete() {
        let path = crate::workspace::root().join("linux/edits.json");
        let edits = parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(!edits.is_empty() && edits.iter().all(Edit::is_complete));
    }
}
