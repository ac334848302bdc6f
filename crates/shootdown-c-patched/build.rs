//! Copies the library for C. No known bug is in it: they are in the engine.

#[path = "../shootdown-known-bugs/patch.rs"]
mod patch;

fn main() {
    patch::copy("../shootdown-c/src", Some("c"));
}
