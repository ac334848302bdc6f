//! The shard of a sweep that one command runs.

/// The shard to run: `index` of `of`, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its index.
    pub index: usize,
    /// Number of shards.
    pub of: usize,
}

impl Shard {
    /// Reads `I/N`.
    ///
    /// # Errors
    /// When it is not two whole numbers with `I` from 1 to `N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(index, of)| Some((index.trim().parse().ok()?, of.trim().parse().ok()?)));
        match parts {
            Some((index, of)) if (1..=of).contains(&index) => Ok(Self { index, of }),
            _ => Err("expected I/N with I from 1 to N, for example 1/8".to_string()),
        }
    }
}
