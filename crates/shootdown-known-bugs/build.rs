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
    let to = std::path::Path::new(&std::env::var_os("OUT_DIR").expect("cargo's")).join("bugs.rs");
    std::fs::write(to, format!("bugs! {{\n{rows}}}\n")).expect("cargo's folder is writable");
}
