//! The machine that a comparison runs on: a model, some of its numbers replaced (`--set`), made larger (`--cpus`).

use std::fmt;
use std::sync::Arc;

use shootdown_sim::model::{Model, Topology};
use shootdown_sim::run::{self, DESIGN_PREFIX, PARAMETER_PREFIX, Parameters};

pub use crate::args::with_vm;

use crate::args::{MachineArgs, VM_PATHS};
use crate::failure::Failure;
use crate::print::number::written;

/// A machine model with the changes of the command line.
#[derive(Debug, Clone)]
pub struct Target {
    /// The model as given: a built-in name or a path.
    pub on: String,
    /// CPUs of the machine, when it was made larger.
    pub cpus: Option<usize>,
    /// The replaced numbers of the model, the workload and the design, by dotted path, in the order given; values in
    /// the form that reads back.
    pub set: Vec<(String, String)>,
    /// Those of the workload and of the design.
    pub parameters: Parameters,
    /// The resulting model.
    pub machine: Arc<Model>,
    /// Whether the machine still has the topology of its file, so that measurements of the real one can be shown beside
    /// it.
    pub as_measured: bool,
}

impl Target {
    /// The machine of a command line.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn of(args: &MachineArgs) -> Result<Self, Failure> {
        Target::new(&args.on, args.cpus, &with_vm(args.vm, &args.set))
    }

    /// Finds the model `on`, applies `set` in order, then makes the machine large enough for `cpus`.
    ///
    /// The scaling rule is that of [`Model::scaled_to`]: as many sockets of the same kind as `cpus` CPUs need, with the
    /// model's distance between two sockets. It never removes any, so 1,024 CPUs of a model with 72 per socket are 15
    /// sockets, 1,080 CPUs.
    ///
    /// # Errors
    /// One line with the option or the place in the file, the error and a correct form.
    pub fn new(on: &str, cpus: Option<u64>, set: &[String]) -> Result<Self, Failure> {
        if let Some(remedy) = not_simulated(on) {
            return Err(Failure::Input(format!("--on {on}: is no simulated machine; {remedy}")));
        }
        let model = Model::find(on).map_err(|error| Failure::Input(error.to_string()))?;
        let shape = model.topology;
        let set = set.iter().map(|text| assignment(text)).collect::<Result<Vec<_>, _>>()?;
        let mut set = with_releases(set)?;
        for (index, (path, _)) in set.iter().enumerate() {
            if set[..index].iter().any(|(other, _)| other == path) {
                return Err(Failure::Input(format!("--set {path}: given twice; give one value")));
            }
        }
        let mut machine = model;
        let mut parameters = Parameters::default();
        for (path, value) in &mut set {
            let fail = |error: String| Failure::Input(format!("--set {path}={}: {error}", value.escape_debug()));
            if path.starts_with(DESIGN_PREFIX) {
                parameters = parameters.with_setting(path, value).map_err(fail)?;
                continue;
            }
            let number = number(path, value)?;
            let fail = |error: String| Failure::Input(format!("--set {path}={}: {error}", written(number)));
            if path.starts_with(PARAMETER_PREFIX) {
                parameters = parameters.with(path, number).map_err(fail)?;
            } else {
                machine = machine.with(path, number).map_err(|error| fail(error.to_string()))?;
            }
            *value = written(number);
        }
        for (axis, setting) in parameters.design().iter() {
            set.iter_mut()
                .filter(|(path, _)| path == axis.path)
                .for_each(|(_, value)| *value = setting.to_string());
        }
        if set.iter().any(|(path, _)| path.starts_with("vm.")) && machine.vm.is_none() {
            return Err(Failure::Input(
                "--set vm.*: the machine is not virtual; add --vm VCPUS[:HOST_CPUS]".to_string(),
            ));
        }
        let all = |machine: &Model| machine.topology.hardware_threads().min(Topology::MAX_CPUS);
        let before = all(&machine);
        if let Some(cpus) = cpus {
            let most = Topology::MAX_CPUS;
            if cpus == 0 || cpus > most as u64 {
                return Err(Failure::Input(format!("--cpus {cpus}: expected 1 to {most} CPUs")));
            }
            machine = machine
                .scaled_to(cpus as usize)
                .map_err(|error| Failure::Input(format!("--cpus {cpus}: {error}")))?;
        }
        let after = all(&machine);
        Ok(Self {
            on: on.to_string(),
            cpus: (after != before).then_some(after),
            set,
            parameters,
            as_measured: machine.topology == shape,
            machine: Arc::new(machine),
        })
    }

    /// Settings of the design without effect under one of `designs`, a sentence each.
    pub fn without_effect<'a>(&self, designs: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        designs
            .into_iter()
            .filter_map(|name| run::designs().find(|entry| entry.name == name))
            .flat_map(|entry| entry.without_effect(&self.machine, self.parameters.design()))
            .collect()
    }

    /// The given number of threads, or else `most`, or the number of CPUs.
    pub fn threads(&self, requested: Option<u64>, most: usize) -> usize {
        match requested {
            Some(requested) => usize::try_from(requested).unwrap_or(usize::MAX),
            None => most.min(self.machine.topology.cpus()),
        }
    }

    /// The options that select this target on a command line.
    pub fn options(&self) -> String {
        format!("{}{}", quoted(&self.on), self.changes())
    }

    /// The same except for the number of CPUs.
    pub fn options_without_cpus(&self) -> String {
        format!("{}{}", quoted(&self.on), self.sets())
    }

    /// Its displayed name, except for the number of CPUs.
    pub fn without_cpus(&self) -> String {
        format!("{}{}", self.machine.name, self.sets())
    }

    fn sets(&self) -> String {
        let value = |path: &str| self.set.iter().find(|(known, _)| known == path).map(|(_, value)| value);
        let vm = match VM_PATHS.map(value) {
            [Some(vcpus), Some(host_cpus)] => format!(" --vm {vcpus}:{host_cpus}"),
            [Some(vcpus), None] => format!(" --vm {vcpus}"),
            _ => String::new(),
        };
        let is_in_vm_option = |path: &str| !vm.is_empty() && VM_PATHS.contains(&path);
        let set = self.set.iter().filter(|(path, _)| !is_in_vm_option(path));
        vm.clone()
            + &set
                .map(|(path, value)| format!(" --set {path}={value}"))
                .collect::<String>()
    }

    fn changes(&self) -> String {
        let cpus = self.cpus.map(|cpus| format!(" --cpus {cpus}"));
        self.sets() + &cpus.unwrap_or_default()
    }
}

/// As in `milan-72 --cpus 1080`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.machine.name, self.changes())
    }
}

/// The remedy when a target of another command was given.
fn not_simulated(on: &str) -> Option<&'static str> {
    match on {
        "linux" => Some("`shootdown host` measures this machine's own kernel"),
        "host" => Some(
            "`cargo bench -p shootdown-host` measures the engine on host threads, \
             `shootdown host` this machine's own kernel",
        ),
        "qemu-x86_64" | "qemu-aarch64" | "qemu-riscv64" => {
            Some("`shootdown compare` and `shootdown qemu` run the bare-metal kernel there")
        }
        _ => None,
    }
}

/// The assignments, with a release of Linux replaced by the values it implies. Explicit assignments take precedence.
fn with_releases(set: Vec<(String, String)>) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    for (path, value) in &set {
        if path != RELEASE {
            all.push((path.clone(), value.clone()));
            continue;
        }
        let fail = |error| Failure::Input(format!("--set {path}={}: {error}", value.escape_debug()));
        let numbers = shootdown_sim::model::release(value).map_err(fail)?.into_iter();
        let own = |path: &str| set.iter().any(|(other, _)| other == path);
        all.extend(
            numbers
                .filter(|(path, _)| !own(path))
                .map(|(path, value)| (path.to_string(), value.to_string())),
        );
    }
    Ok(all)
}

/// The name by which `--set` selects the release of Linux that the simulated kernel follows.
pub const RELEASE: &str = "linux.release";

/// Reads `PATH=VALUE`.
fn assignment(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => Ok((path.trim().to_string(), value.trim().to_string())),
        _ => Err(not_an_assignment(text, "PATH=VALUE")),
    }
}

/// Reads a number; a flag may be given as `true` or `false`.
fn number(path: &str, value: &str) -> Result<f64, Failure> {
    match value {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        number => number
            .parse()
            .map_err(|_| not_an_assignment(&format!("{path}={value}"), "a number, true or false after `=`")),
    }
}

fn not_an_assignment(text: &str, expected: &str) -> Failure {
    Failure::Input(format!(
        "--set {}: expected {expected}, for example costs.ipi_send=300 or design.ceiling=64",
        text.escape_debug()
    ))
}

/// A word as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+".contains(c)) && !word.is_empty() {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::virtual_machine;

    #[test]
    fn scaled_machine_name_has_its_real_cpu_count() {
        let target = Target::new("milan-72", Some(1024), &[]).unwrap();
        assert_eq!(target.machine.topology.cpus(), 1080);
        assert_eq!(target.to_string(), "milan-72 --cpus 1080");
        assert!(!target.as_measured, "that machine was not measured");
        assert_eq!(Target::new("milan-72", Some(72), &[]).unwrap().to_string(), "milan-72");
    }

    #[test]
    fn overrides_are_part_of_the_target_name() {
        let target = Target::new("milan-72", None, &["costs.invlpg=200".to_string()]).unwrap();
        assert_eq!(target.machine.costs.invlpg, 200.0);
        assert_eq!(target.to_string(), "milan-72 --set costs.invlpg=200");
        assert!(target.as_measured);
    }

    #[test]
    fn vm_option_sets_vcpus_and_host_cpus() {
        let set = with_vm(
            Some(virtual_machine("64:32").unwrap()),
            &["vm.pv_flush=false".to_string()],
        );
        let target = Target::new("milan-72", None, &set).unwrap();
        let vm = target.machine.vm.unwrap();
        assert_eq!((vm.vcpus, vm.host_cpus, vm.pv_flush), (64, 32, false));
        assert_eq!(target.machine.topology.cpus(), 64);
        assert_eq!(target.to_string(), "milan-72 --vm 64:32 --set vm.pv_flush=0");
        assert!(!target.as_measured);
        assert!(!target.machine.broadcasts(), "the hypervisor does not show it");
        let alone = Target::new("milan-72", None, &with_vm(virtual_machine("8").ok(), &[])).unwrap();
        assert_eq!(
            (alone.machine.vm.unwrap().host_cpus, alone.options().as_str()),
            (8, "milan-72 --vm 8")
        );
        for wrong in ["", "0", "8:0", "8:", ":8", "1:2:3", "9000", "-1"] {
            assert!(virtual_machine(wrong).is_err(), "{wrong}");
        }
        let alone = Target::new("milan-72", None, &["vm.others=3".to_string()]);
        assert!(alone.is_err_and(|error| error.to_string().contains("--vm VCPUS")));
        let larger = with_vm(Some(virtual_machine("144:144").unwrap()), &[]);
        let target = Target::new("milan-72", Some(144), &larger).unwrap();
        assert_eq!(target.to_string(), "milan-72 --vm 144:144 --cpus 144");
        assert!(target.machine.check_vcpus().is_ok());
        assert!(
            Target::new("milan-72", None, &larger)
                .unwrap()
                .machine
                .check_vcpus()
                .is_err()
        );
    }

    #[test]
    fn design_settings_are_part_of_the_target_name() {
        let set = |text: &str| Target::new("milan-72", None, &[text.to_string()]);
        let target = set("design.departure=when_shared:8").unwrap();
        assert_eq!(target.to_string(), "milan-72 --set design.departure=when-shared:8");
        assert_eq!(
            target.without_effect(["ipi", "ideal"]),
            ["`ideal` stays as it is: design settings do not apply to it"]
        );
        for (text, expected) in [
            (
                "design.wait=sleep",
                "--set design.wait=sleep: expected spin, spin-serving, \
                 preemptible or preemptible-serving, found `sleep`",
            ),
            (
                "design.nothing=1",
                "is no axis of a design; use one of: design.tags, design.reach,",
            ),
            ("costs.invlpg=much", "expected a number, true or false after `=`"),
        ] {
            let message = set(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn printed_words_are_quoted_for_the_shell() {
        assert_eq!(quoted("milan-72"), "milan-72");
        assert_eq!(quoted("my box's.toml"), r"'my box'\''s.toml'");
    }
}
