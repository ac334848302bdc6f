//! Tells the linker where the linker script is.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package lies");
    println!("cargo::rustc-link-arg-bins=-T{here}/kernel.ld");
    println!("cargo::rerun-if-changed=kernel.ld");
}
