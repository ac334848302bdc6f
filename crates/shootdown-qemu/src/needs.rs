//! Required programs and files, each with its package.

use std::path::Path;

/// Whether a program is on the search path, or a file with an absolute path exists.
pub fn is_there(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    name.starts_with('/') && Path::new(name).exists()
        || !name.starts_with('/') && std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// # Errors
/// The packages that are missing, and the command that installs all.
pub(crate) fn are_met(needs: &[(&str, &str)], install: &str) -> Result<(), String> {
    let missing = needs.iter().filter(|(name, _)| !is_there(name));
    let missing: Vec<&str> = missing.map(|need| need.1).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("not installed: {}; run: sudo {install}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_on_path_and_files_by_path() {
        assert!(is_there("sh") && is_there("/") && !is_there("/nowhere/file") && !is_there("no-such-program-anywhere"));
    }

    #[test]
    fn missing_packages_are_named_with_the_command() {
        assert_eq!(are_met(&[("/", "base")], "apt-get install base"), Ok(()));
        assert_eq!(
            are_met(&[("/", "base"), ("/no/such/file", "left-out")], "apt-get install all"),
            Err("not installed: left-out; run: sudo apt-get install all".into())
        );
    }
}
