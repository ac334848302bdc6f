//! A machine of a sweep: the model, and the values of its parameters, of the workloads' parameters and of the axes of
//! designs.

use shootdown_sim::model::Model;
use shootdown_sim::numeral::written;
use shootdown_sim::run::{self, Axis, DESIGN_PREFIX, PARAMETER_PREFIX, Parameters, Settings, Values, axis};

use super::combine::{MOST_RUNS, hypercube, once, one_at_a_time, product};
use super::results::Value;
use super::values::{self, Item};
use crate::args::SweepArgs;
use crate::failure::Failure;

/// Stands for every parameter whose value the machine model assumes.
const ASSUMED: &str = "assumed";

/// Stands for each design's own value of an axis that varies elsewhere. Below every value that an axis takes.
const AS_DESIGNED: f64 = -1.0;

/// The request of one `--set`.
#[derive(Debug)]
pub(super) struct Assigned {
    path: String,
    items: Vec<Item>,
    /// For an axis that takes words: the given words, which the items index from 0.
    words: Vec<String>,
}

/// Reads `PATH=VALUES`.
pub(super) fn assignment(text: &str, points: usize) -> Result<Assigned, Failure> {
    let Some((path, list)) = text.split_once('=').filter(|(path, _)| !path.trim().is_empty()) else {
        return Err(Failure::Input(format!(
            "--set {}: expected PATH=VALUES, for example costs.ipi_send=200..4000:log:8",
            text.escape_debug()
        )));
    };
    let path = path.trim();
    if let Some(words) = words(path, list).map_err(|error| Failure::Input(format!("--set {path}: {error}")))? {
        return Ok(Assigned {
            path: path.to_string(),
            items: (0..words.len()).map(|index| Item::Value(index as f64)).collect(),
            words,
        });
    }
    let items = values::parse(list, points).map_err(|error| Failure::Input(format!("--set {path}: {error}")))?;
    if path == ASSUMED && !matches!(items[..], [Item::Stated { .. }]) {
        return Err(Failure::Input(format!(
            "--set {ASSUMED}={list}: expected the range that the model states for each, for example assumed=range:2"
        )));
    }
    Ok(Assigned {
        path: path.to_string(),
        items,
        words: Vec::new(),
    })
}

/// The words in `list`, each once, if `path` is an axis of designs that takes words.
fn words(path: &str, list: &str) -> Result<Option<Vec<String>>, String> {
    if !path.starts_with(DESIGN_PREFIX) {
        return Ok(None);
    }
    let Some(axis) = axis(path) else {
        return Err(Settings::default().with(path, "").err().unwrap_or_default());
    };
    let Values::Choices(_) = axis.values else {
        return Ok(None);
    };
    let mut words = Vec::new();
    for word in list.split(',') {
        let word = axis.read(word)?.to_string();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    Ok(Some(words))
}

/// A machine and the values its parameters take.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) model: Model,
    /// Swept parameters.
    pub(super) paths: Vec<String>,
    /// For each: the words that its values index; none if they are numbers.
    pub(super) words: Vec<Vec<String>>,
    /// Values of `paths`, by combination.
    pub(super) combinations: Vec<Vec<f64>>,
}

impl Machine {
    pub(super) fn build(&self, combination: usize, cpus: Option<usize>) -> Result<(Model, Parameters), String> {
        let (mut model, mut parameters) = (None, Parameters::default());
        for (index, (path, &value)) in self.paths.iter().zip(&self.combinations[combination]).enumerate() {
            if path.starts_with(DESIGN_PREFIX) {
                if value == AS_DESIGNED {
                    continue;
                }
                let text = self.words[index]
                    .get(value as usize)
                    .map_or_else(|| value.to_string(), String::clone);
                parameters = parameters
                    .with_setting(path, &text)
                    .map_err(|error| format!("--set {path}={text}: {error}"))?;
                continue;
            }
            if path.starts_with(PARAMETER_PREFIX) {
                parameters = parameters
                    .with(path, value)
                    .map_err(|error| format!("--set {path}={}: {error}", written(value)))?;
                continue;
            }
            let changed = model.as_ref().unwrap_or(&self.model).with(path, value);
            model = Some(changed.map_err(|error| format!("--set {path}={}: {error}", written(value)))?);
        }
        let model = model.unwrap_or_else(|| self.model.clone());
        let model = match cpus {
            Some(cpus) => model
                .scaled_to(cpus)
                .map_err(|error| format!("--cpus {cpus}: {error}"))?,
            None => model,
        };
        Ok((model, parameters))
    }

    /// The value of a swept parameter as a cell of the results; null if it is each design's own.
    pub(super) fn cell(&self, index: usize, combination: usize) -> Value {
        let value = self.combinations[combination][index];
        match self.words[index].get(value as usize) {
            _ if value == AS_DESIGNED && self.paths[index].starts_with(DESIGN_PREFIX) => Value::Null,
            Some(word) => Value::Text(word.clone()),
            None => Value::Number(value),
        }
    }
}

/// Finds a machine and the values of its parameters.
pub(super) fn machine(on: &str, sets: &[Assigned], args: &SweepArgs) -> Result<Machine, Failure> {
    let mut model = Model::find(on).map_err(|error| Failure::Input(error.to_string()))?;
    if sets.iter().any(|set| set.path.starts_with("vm.")) {
        let virtual_one = model.with_hypervisor();
        model = virtual_one.map_err(|error| Failure::Input(error.to_string()))?;
    }
    let mut axes: Vec<(String, Vec<Item>)> = Vec::new();
    for Assigned { path, items, .. } in sets {
        let fail = |error: String| Failure::Input(format!("--set {path}: {error}"));
        if path == ASSUMED {
            let assumed = model
                .parameters()
                .filter(|parameter| parameter.provenance.kind() == "assumed");
            for parameter in assumed {
                let range = parameter.provenance.range().filter(|range| range.low < range.high);
                // A parameter with values from the user keeps them.
                let given = sets.iter().any(|set| set.path == parameter.path);
                if let Some(range) = range.filter(|_| !given) {
                    let items = values::resolved(items, Some((range.low, range.high)));
                    let items = items.map_err(|error| fail(format!("{}: {error}", parameter.path)))?;
                    axes.push((parameter.path.to_string(), items));
                }
            }
            continue;
        }
        let range = model.parameter(path).and_then(|parameter| parameter.provenance.range());
        let items = match base_value(&model, path) {
            Some(_) => values::resolved(items, range.map(|range| (range.low, range.high))).map_err(fail)?,
            // The model and the workloads define which parameters exist.
            None if path.starts_with(PARAMETER_PREFIX) => {
                return Err(fail(Parameters::default().with(path, 1.0).err().unwrap_or_default()));
            }
            None => {
                return Err(fail(
                    model
                        .with(path, 1.0)
                        .err()
                        .map_or(String::new(), |error| error.to_string()),
                ));
            }
        };
        if axes.iter().any(|(known, _)| known == path) {
            return Err(fail("given twice; put all its values into one list".to_string()));
        }
        axes.push((path.clone(), items));
    }
    let whole = |axis: usize, value: f64| whole_if_needed(&model, &axes[axis].0, value);
    let lists: Vec<Vec<f64>> = axes
        .iter()
        .enumerate()
        .map(|(axis, (_, items))| once(values::listed(items).into_iter().map(|value| whole(axis, value))))
        .collect();
    // A --set with one value describes the machine, and is not a swept axis.
    let base: Vec<f64> = axes
        .iter()
        .zip(&lists)
        .map(|((path, _), list)| match list[..] {
            [only] => only,
            _ => base_value(&model, path).unwrap_or(0.0),
        })
        .collect();
    let combinations = if let Some(sample) = args.sample {
        if !(1..=MOST_RUNS as u64).contains(&sample) {
            return Err(Failure::Input(format!(
                "--sample {sample}: expected 1 to {MOST_RUNS} samples"
            )));
        }
        if axes.is_empty() {
            return Err(Failure::Input(
                "--sample: there is nothing to draw from; add --set PATH=LOW..HIGH".to_string(),
            ));
        }
        hypercube(&axes, sample as usize, args.run.seed)
            .into_iter()
            .map(|values| {
                values
                    .into_iter()
                    .enumerate()
                    .map(|(axis, value)| whole(axis, value))
                    .collect()
            })
            .collect()
    } else if args.one_at_a_time {
        one_at_a_time(&base, &lists)
    } else {
        product(&lists).ok_or_else(|| {
            Failure::Input(format!(
                "--set: more than {MOST_RUNS} combinations; use --one-at-a-time, --sample N or fewer --points"
            ))
        })?
    };
    let words = |path: &String| sets.iter().find(|set| set.path == *path).map(|set| set.words.clone());
    Ok(Machine {
        model,
        words: axes.iter().map(|(path, _)| words(path).unwrap_or_default()).collect(),
        paths: axes.into_iter().map(|(path, _)| path).collect(),
        combinations,
    })
}

/// The default value of a parameter, of the machine or of a workload.
pub(super) fn base_value(model: &Model, path: &str) -> Option<f64> {
    let of_workload = || run::parameters().find(|parameter| parameter.path == path);
    let of_machine = model.parameter(path).map(|parameter| parameter.value);
    let of_design = || axis(path).map(|_: &Axis| AS_DESIGNED);
    of_machine
        .or_else(|| of_workload().map(|parameter| parameter.default))
        .or_else(of_design)
}

/// Points of a range are rounded where only whole numbers are taken.
fn whole_if_needed(model: &Model, path: &str, value: f64) -> f64 {
    let rounded = value.round();
    if path.starts_with(DESIGN_PREFIX) {
        return rounded;
    }
    if path.starts_with(PARAMETER_PREFIX) {
        let whole = run::parameters().any(|parameter| parameter.path == path && parameter.whole);
        return if whole { rounded } else { value };
    }
    if rounded != value && model.with(path, value).is_err() && model.with(path, rounded).is_ok() {
        rounded
    } else {
        value
    }
}
