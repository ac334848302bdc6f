//! Configurations of Linux: `linux/config`, and the fragments `linux/config.NAME` that change it.

use std::path::PathBuf;

use super::sources::{self, at};
use crate::workspace;

/// The fragments.
pub const NAMES: [&str; 5] = ["debian", "debug", "kcsan", "preempt", "pti"];

/// What a line of a fragment begins with that names words of the kernel's command line.
const AT_BOOT: &str = "# At boot: ";

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of the fragment.
    name: Option<String>,
    /// The settings over `allnoconfig`, a line each.
    pub settings: String,
    /// Words of the kernel's command line.
    pub words: String,
    /// Whether the fragment changes no setting.
    is_base: bool,
}

impl Config {
    /// `linux/config` alone, or with a fragment.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(name: Option<&str>) -> Result<Config, String> {
        let folder = workspace::root().join("linux");
        let read = |file: PathBuf| std::fs::read_to_string(&file).map_err(|error| at(&file, error));
        let base = read(folder.join("config"))?;
        let fragment = match name {
            Some(name) => read(folder.join(format!("config.{name}")))?,
            None => String::new(),
        };
        Ok(Config {
            name: name.map(str::to_string),
            settings: merged(&base, &fragment),
            words: words(&fragment),
            is_base: merged("", &fragment).is_empty(),
        })
    }

    /// The file with its settings, for `KCONFIG_ALLCONFIG`, written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self) -> Result<PathBuf, String> {
        let file = sources::place()?.join(self.folder("config"));
        std::fs::write(&file, &self.settings).map_err(|error| at(&file, error))?;
        Ok(file)
    }

    /// The file that was read last: `config`, `config.debug`.
    pub fn file_name(&self) -> String {
        match &self.name {
            Some(name) => format!("config.{name}"),
            None => "config".into(),
        }
    }

    /// Whether the kernel may preempt itself. With PREEMPT_DYNAMIC a word at boot decides.
    pub fn is_preemptible(&self) -> bool {
        let says = |option: &str| self.settings.lines().any(|line| line == option);
        says("CONFIG_PREEMPT=y") || says("CONFIG_PREEMPT_DYNAMIC=y")
    }

    /// Whether the kernel checks itself at every lock, which takes several times as long.
    pub fn has_checks(&self) -> bool {
        self.settings.lines().any(|line| line == "CONFIG_PROVE_LOCKING=y")
    }

    /// The name of a folder of this configuration's own: `engine`, `engine-debug`.
    pub fn folder(&self, of: &str) -> String {
        match &self.name {
            Some(name) if !self.is_base => format!("{of}-{name}"),
            _ => of.into(),
        }
    }
}

/// The settings of the first, as the second changes them: the last line about an option holds.
fn merged(base: &str, fragment: &str) -> String {
    let option = |line: &str| line.split('=').next().unwrap_or_default().to_string();
    let settings = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("CONFIG_"));
        lines.map(str::to_string).collect()
    };
    let changed = settings(fragment);
    let kept = settings(base).into_iter();
    let kept = kept.filter(|line| changed.iter().all(|other| option(other) != option(line)));
    kept.chain(changed.iter().cloned())
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The words of the kernel's command line that a fragment names.
fn words(fragment: &str) -> String {
    let lines = fragment.lines().filter_map(|line| line.strip_prefix(AT_BOOT));
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_fragment_overrides_settings_of_the_base() {
        let base = "# comment\nCONFIG_SMP=y\nCONFIG_PREEMPT_VOLUNTARY=y\n";
        let fragment = "# At boot: pti=on\nCONFIG_PREEMPT_VOLUNTARY=n\nCONFIG_PREEMPT=y\n";
        assert_eq!(
            merged(base, fragment),
            "CONFIG_SMP=y\nCONFIG_PREEMPT_VOLUNTARY=n\nCONFIG_PREEMPT=y\n"
        );
        assert_eq!(words(fragment), "pti=on");
    }

    #[test]
    fn preemptible_kernels_are_known_by_their_settings() {
        let is_preemptible = |name| Config::read(name).unwrap().is_preemptible();
        assert!(!is_preemptible(None) && !is_preemptible(Some("pti")));
        assert!(["debian", "debug", "preempt"].map(Some).into_iter().all(is_preemptible));
    }

    #[test]
    fn kernels_with_checks_are_known_by_their_settings() {
        let has_checks = |name| Config::read(Some(name)).unwrap().has_checks();
        assert_eq!(NAMES.map(has_checks), [false, true, true, false, false]);
    }

    #[test]
    fn every_config_fragment_is_listed_and_changes_something() {
        for name in NAMES {
            let config = Config::read(Some(name)).unwrap();
            assert!(config.settings.contains("CONFIG_SMP=y"), "{name}");
            let changes = config.settings != Config::read(None).unwrap().settings;
            assert!(changes || !config.words.is_empty(), "{name} changes nothing");
            assert_eq!(config.folder("engine") != "engine", changes, "{name}");
        }
        let files = std::fs::read_dir(workspace::root().join("linux")).unwrap();
        let names = files.filter_map(|file| file.unwrap().file_name().into_string().ok());
        for fragment in names.filter_map(|name| name.strip_prefix("config.").map(str::to_string)) {
            assert!(NAMES.contains(&fragment.as_str()), "linux/config.{fragment}");
        }
    }
}
