//! The values that a run was given for axes of its design.

use super::axes::{AXES, Axis, axis};
use super::setting::Setting;
use shootdown::Design;

/// Values given to axes; other axes keep the design's values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(Vec<(&'static Axis, Setting)>);

impl Settings {
    /// The same with the axis at `path` set to `text`; an earlier value is replaced.
    ///
    /// # Errors
    /// One line with the axes, or with the values that the axis takes.
    pub fn with(&self, path: &str, text: &str) -> Result<Settings, String> {
        let Some(axis) = axis(path) else {
            let known: Vec<_> = AXES.iter().map(|axis| axis.path).collect();
            return Err(format!(
                "`{}` is no axis of a design; use one of: {}",
                path.escape_debug(),
                known.join(", ")
            ));
        };
        let setting = axis.read(text)?;
        let mut given = self.clone();
        given.0.retain(|(earlier, _)| *earlier != axis);
        given.0.push((axis, setting));
        Ok(given)
    }

    /// Whether no value is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values given, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Axis, Setting)> + '_ {
        self.0.iter().copied()
    }

    /// The value given to the axis at `path`, if one is.
    pub(super) fn given(&self, path: &str) -> Option<Setting> {
        self.iter()
            .find(|(axis, _)| axis.path == path)
            .map(|(_, setting)| setting)
    }

    /// `design` with these values.
    pub(super) fn apply(&self, mut design: Design) -> Design {
        self.iter().for_each(|(axis, setting)| (axis.set)(&mut design, setting));
        design
    }
}
