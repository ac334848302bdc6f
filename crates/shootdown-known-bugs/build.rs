//! Makes the list of bugs from the manifest.

use std::fmt::Write as _;

fn main() {
    println!("cargo::rerun-if-changed=bugs.toml");
    let text = std::fs::read_to_string("bugs.toml").expect("bugs.toml beside build.rs");
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("bugs.toml: {error}"));
    let mut rows = String::new();
    for bug in table["bug"].as_array().expect("[[bug]]") {
        let name = bug["name"].as_str().expect("a name");
        let what = bug["what"].as_str().expect("what goes wrong");
        let number = bug
            .get("number")
            .map_or("None".into(), |number| format!("Some({number})"));
        let text = |key: &str| {
            bug.get(key).map_or("None".into(), |value| {
                format!("Some({value:?})", value = value.as_str().expect("a text"))
            })
        };
        let (source, qemu, why_not) = (text("source"), text("qemu"), text("not_in_qemu"));
        writeln!(rows, "    {name}: {number}, {source}, {what:?}, {qemu}, {why_not};").expect("memory");
    }
    writeln!(rows, "}}\n\nmistakes! {{").expect("memory");
    for mistake in table["mistake"].as_array().expect("[[mistake]]") {
        let text = |key: &str| mistake.get(key).map(|value| value.as_str().expect("a text"));
        let number = mistake
            .get("number")
            .map(|number| number.as_integer().expect("a number"));
        let by = mistake["caught_by"].as_array().expect("a list");
        writeln!(
            rows,
            "    {kind:?}, {name:?}, {place:?}, {number:?}, {breaks:?}, {what:?}, {by:?};",
            kind = text("kind").expect("a kind"),
            name = text("name").expect("a name"),
            place = text("place"),
            breaks = text("breaks"),
            what = text("what").expect("what goes wrong"),
            by = by.iter().map(|by| by.as_str().expect("a text")).collect::<Vec<_>>(),
        )
        .expect("memory");
    }
    let to = std::path::Path::new(&std::env::var_os("OUT_DIR").expect("cargo's")).join("bugs.rs");
    std::fs::write(to, format!("bugs! {{\n{rows}}}\n")).expect("cargo's folder is writable");
}
