//! What a kernel complains of in its log.

use std::path::Path;

use super::sources::at;

/// Words of a complaint, in the log of a kernel that prints all of it (`ignore_loglevel`).
const WORDS: [&str; 8] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection fault",
    "detected stall",
    "lockup",
    "Bad page",
    "shootdown: CPU",
];

/// The complaints in the file of a guest's console, each once.
///
/// # Errors
/// When it cannot be read.
pub fn complaints(console: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(console).map_err(|error| at(console, error))?;
    Ok(complaints_in(&String::from_utf8_lossy(&bytes)))
}

fn complaints_in(log: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in log.lines() {
        // Without the time.
        let text = line.split_once("] ").map_or(line, |(_, text)| text).trim();
        if WORDS.iter().any(|word| text.contains(word)) && !found.iter().any(|known| known == text) {
            found.push(text.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_once_and_the_rest_is_not() {
        let log = "[    1.0] Linux version 6.12\n[    2.0] WARNING: CPU: 0 PID: 1 at mm/rmap.c:1\n\
                   [    3.0] WARNING: CPU: 0 PID: 1 at mm/rmap.c:1\r\n[    4.0] a[9]: segfault at 0\n\
                   [    5.0] shootdown: CPU 1 waits for CPU 0\n";
        assert_eq!(
            complaints_in(log),
            [
                "WARNING: CPU: 0 PID: 1 at mm/rmap.c:1",
                "shootdown: CPU 1 waits for CPU 0"
            ]
        );
    }
}
