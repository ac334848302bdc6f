//! The workspace: its root, and cargo in it.

use std::path::PathBuf;
use std::process::Command;

/// Cargo, in the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    // `cargo run`, and so `cargo xtask`, sets the package's folder; the workspace is one level up.
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) => PathBuf::from(package).join(".."),
        None => PathBuf::from("."),
    }
}

/// Cargo's target directory.
pub fn built() -> PathBuf {
    let root = root();
    let root = root.canonicalize().unwrap_or(root);
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), |folder| root.join(folder))
}

/// The triple of this host.
///
/// # Errors
/// When rustc does not report it.
pub fn host() -> Result<String, String> {
    let answer = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|error| format!("cannot start rustc: {error}"))?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).ok_or_else(|| "rustc -vV names no host".into())
}
