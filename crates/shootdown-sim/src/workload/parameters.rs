//! Numbers of a workload that a run may change: `workload.NAME.PARAMETER`.
//!
//! Owns the declaration of a parameter, the values that a run was given and their check; settings of the design come
//! with them. Each workload documents its own parameters.

use super::Workload;
use crate::design::{PREFIX as DESIGN_PREFIX, Settings};
use crate::numeral::written;

/// A number of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// Dotted path, `workload.NAME.PARAMETER`.
    pub path: &'static str,
    /// Default value.
    pub default: f64,
    /// Smallest value accepted.
    pub least: f64,
    /// Largest value accepted.
    pub most: f64,
    /// Whether only whole numbers are accepted.
    pub whole: bool,
    /// One-line description, unit included.
    pub about: &'static str,
}

/// Prefix of every workload parameter's path; no path of a machine model has it.
pub const PREFIX: &str = "workload.";

/// Values given to parameters of workloads and to axes of designs; those not given have their defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    numbers: Vec<(&'static Parameter, f64)>,
    design: Settings,
}

impl Parameters {
    /// The same with the parameter at `path` set to `value`; an earlier value is replaced.
    ///
    /// # Errors
    /// When there is no such parameter, with those of its workload, or the value is outside its bounds.
    pub fn with(&self, path: &str, value: f64) -> Result<Parameters, String> {
        if path.starts_with(DESIGN_PREFIX) {
            return self.with_setting(path, &written(value));
        }
        let Some(parameter) = all().find(|parameter| parameter.path == path) else {
            return Err(unknown(path));
        };
        let fits = (parameter.least..=parameter.most).contains(&value) && !(parameter.whole && value.fract() != 0.0);
        if !fits {
            let kind = if parameter.whole { "a whole value" } else { "a value" };
            return Err(format!(
                "{path}: expected {kind} from {} to {}, asked for {}",
                written(parameter.least),
                written(parameter.most),
                written(value)
            ));
        }
        let mut given = self.clone();
        given.numbers.retain(|(earlier, _)| earlier.path != path);
        given.numbers.push((parameter, value));
        Ok(given)
    }

    /// The same with the axis of the design at `path` set to `text`; an earlier value is replaced.
    ///
    /// # Errors
    /// When there is no such axis, with all axes, or it does not take the value, with those that it takes.
    pub fn with_setting(&self, path: &str, text: &str) -> Result<Parameters, String> {
        Ok(Parameters {
            design: self.design.with(path, text)?,
            ..self.clone()
        })
    }

    /// Whether a number of a workload is given.
    pub fn of_workload(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Settings of the design.
    pub fn design(&self) -> &Settings {
        &self.design
    }

    /// The value of a parameter.
    pub fn get(&self, parameter: &Parameter) -> f64 {
        let given = self.numbers.iter().find(|(known, _)| known.path == parameter.path);
        given.map_or(parameter.default, |&(_, value)| value)
    }

    /// The value of a parameter that is a whole number.
    pub fn count(&self, parameter: &Parameter) -> u64 {
        self.get(parameter) as u64
    }

    /// Checks that every value given is for `workload`.
    ///
    /// # Errors
    /// With the first that is not, and the workload's parameters.
    pub(crate) fn check_for(&self, workload: Workload) -> Result<(), String> {
        let own = workload.parameters();
        match self
            .numbers
            .iter()
            .find(|(given, _)| !own.iter().any(|p| p.path == given.path))
        {
            None => Ok(()),
            Some((stray, _)) if own.is_empty() => {
                Err(format!("{}: `{}` has no parameters", stray.path, workload.name()))
            }
            Some((stray, _)) => Err(format!(
                "{}: not a parameter of `{}`, which has {}",
                stray.path,
                workload.name(),
                paths(own.iter())
            )),
        }
    }
}

/// The parameters of all workloads.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    Workload::ALL.iter().flat_map(|&(_, workload, _)| workload.parameters())
}

fn unknown(path: &str) -> String {
    let workload = |path: &str| path.split('.').nth(1).map(str::to_string);
    let near: Vec<_> = all().filter(|p| workload(p.path) == workload(path)).collect();
    let known = if near.is_empty() {
        paths(all())
    } else {
        paths(near.into_iter())
    };
    format!("{}: unknown parameter; expected one of {known}", path.escape_debug())
}

fn paths<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> String {
    parameters
        .map(|parameter| parameter.path)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_parameters_have_valid_defaults_and_paths() {
        for &(name, workload, _) in &Workload::ALL {
            for parameter in workload.parameters() {
                Parameters::default().with(parameter.path, parameter.default).unwrap();
                assert!(
                    parameter.path.starts_with(&format!("{PREFIX}{name}.")),
                    "{}",
                    parameter.path
                );
                assert_eq!(
                    all().filter(|p| p.path == parameter.path).count(),
                    1,
                    "{}",
                    parameter.path
                );
            }
        }
    }

    #[test]
    fn parameter_value_can_be_set_and_replaced() {
        let parameter = all().next().expect("some workload has one");
        let once = Parameters::default().with(parameter.path, parameter.most).unwrap();
        assert_eq!(once.get(parameter), parameter.most);
        let twice = once.with(parameter.path, parameter.least).unwrap();
        assert_eq!(twice.get(parameter), parameter.least);
        assert_eq!(Parameters::default().get(parameter), parameter.default);
    }

    #[test]
    fn bad_parameter_names_the_remedy() {
        let parameter = all().next().expect("some workload has one");
        let none = Parameters::default();
        let unknown = none.with("workload.nothing.at_all", 1.0).unwrap_err();
        assert!(unknown.contains(parameter.path), "{unknown}");
        let bounds = none.with(parameter.path, parameter.most + 1.0).unwrap_err();
        assert!(bounds.contains("expected"), "{bounds}");
        assert!(none.with(parameter.path, f64::NAN).is_err());
        let given = none.with(parameter.path, parameter.default).unwrap();
        assert!(given.check_for(Workload::TlbShared).is_err());
    }
}
