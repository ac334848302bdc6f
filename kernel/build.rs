//! Tells the linker where the linker script of the instruction set is.

fn main() {
    let of_cargo = |name| std::env::var(name).expect("cargo says so");
    let (here, arch) = (of_cargo("CARGO_MANIFEST_DIR"), of_cargo("CARGO_CFG_TARGET_ARCH"));
    let script = format!("src/arch/{arch}/kernel.ld");
    println!("cargo::rustc-link-arg-bins=-T{here}/{script}");
    println!("cargo::rerun-if-changed={script}");
}
