//! `shootdown qemu` from a user's point of view where a requirement is missing. `cargo xtask kernel` tests runs of the
//! kernel.

use std::process::{Command, Output};

fn shootdown(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shootdown"))
        .args(arguments)
        // An empty search path.
        .env("PATH", "/nowhere")
        .output()
        .unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = shootdown(arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn missing_qemu_names_package_version_and_command() {
    for arguments in [&["qemu"][..], &["compare", "tlb_flush2", "--on", "qemu-x86_64"]] {
        let error = refused(arguments);
        assert_eq!(error.lines().count(), 1, "{error}");
        for word in ["qemu-system-x86 7.2 or newer", "apt-get install"] {
            assert!(error.contains(word), "{error}");
        }
    }
}

#[test]
fn simulation_options_are_refused_under_qemu() {
    let error = refused(&[
        "compare",
        "tlb_flush2",
        "--on",
        "qemu-x86_64",
        "--set",
        "costs.invlpg=1",
    ]);
    assert!(error.contains("--set is for simulated machines"), "{error}");
}
