//! Copies the simulation with every known bug in it.

#[path = "../shootdown-known-bugs/patch.rs"]
mod patch;

fn main() {
    patch::copy("../shootdown-sim/src", Some("sim"));
}
