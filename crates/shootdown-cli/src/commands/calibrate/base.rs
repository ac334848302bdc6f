//! The model before any fitting: the nearest built-in model, with this machine's topology and its directly measured
//! costs.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use shootdown_linux::cpus::{Apart, Machine};
use shootdown_linux::work::probe;
use shootdown_sim::model::{Model, Numbering, Provenance, Range, Unit};

use super::MEASURED;
use crate::commands::host::Place;
use crate::failure::Failure;
use crate::print::number;
use crate::print::number::counted;

/// The start of a fit.
pub(super) struct Base {
    pub(super) model: Model,
    /// The built-in model that it is based on.
    pub(super) template: &'static str,
    /// The measurements, a line each.
    pub(super) facts: Vec<String>,
}

/// Measures and builds it; `caveat` says why the measurement is doubtful.
///
/// # Errors
/// When a cost cannot be measured, or the kernel does not describe the machine.
pub(super) fn model(name: &str, place: &Place, caveat: Option<&str>) -> Result<Base, Failure> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut base = from_template(nearest(std::env::consts::ARCH, &cpuinfo)?)?;
    base.shape(name, &place.machine, &cpuinfo, caveat)?;
    base.costs(place)
        .map_err(|error| Failure::Input(format!("measuring single costs: {error}")))??;
    Ok(base)
}

/// The built-in model that supplies the numbers that are not measured.
fn nearest(arch: &str, cpuinfo: &str) -> Result<&'static str, Failure> {
    match arch {
        "x86_64" if cpuinfo.contains("AuthenticAMD") => Ok("milan-72"),
        "x86_64" => Ok("skylake-104"),
        "aarch64" => Ok("ampere-32"),
        "riscv64" => Ok("generic-riscv-64"),
        other => Err(Failure::Input(format!(
            "there is no machine model for {other}; x86_64, aarch64 and riscv64 can be simulated"
        ))),
    }
}

/// A template whose costs of the kernel are to be taken as they stand.
fn from_template(template: &'static str) -> Result<Base, Failure> {
    let model = Model::find(template).map_err(|error| Failure::Input(error.to_string()))?;
    let mut base = Base {
        model: unfitted(model, template)?,
        template,
        facts: Vec::new(),
    };
    for (path, value, why) in [
        (
            "kernel.slowdown",
            1.0,
            "the costs of the kernel are those of this machine as they stand",
        ),
        (
            "kernel.isolation",
            0.0,
            "part of the measured system call and local flush",
        ),
    ] {
        base.set(path, value, why)?;
    }
    Ok(base)
}

/// The template with every number that was measured or fitted elsewhere marked as an assumption here.
fn unfitted(model: Model, template: &str) -> Result<Model, Failure> {
    let mut all = model.clone();
    for parameter in model.parameters() {
        let provenance = match &parameter.provenance {
            Provenance::Source { text, range: None } => Provenance::Source {
                text: format!("as {template}: {text}"),
                range: None,
            },
            Provenance::Fitted { range: None, .. } | Provenance::Overridden { .. } => Provenance::Assumed(Range {
                low: parameter.value / 2.0,
                high: parameter.value * 2.0,
            }),
            Provenance::Source { range: Some(range), .. }
            | Provenance::Fitted { range: Some(range), .. }
            | Provenance::Assumed(range) => Provenance::Assumed(*range),
        };
        all = explained(&all, parameter.path, parameter.value, provenance)?;
    }
    Ok(all)
}

pub(super) fn explained(model: &Model, path: &str, value: f64, provenance: Provenance) -> Result<Model, Failure> {
    let changed = model.explained(path, value, provenance);
    changed.map_err(|error| Failure::Input(format!("{path}: {}", error.expected)))
}

/// Three significant digits: the measurement supports no more.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

impl Base {
    fn set(&mut self, path: &str, value: f64, text: &str) -> Result<(), Failure> {
        let provenance = Provenance::Source {
            text: text.to_owned(),
            range: None,
        };
        self.model = explained(&self.model, path, value, provenance)?;
        Ok(())
    }

    /// A measured time, in the unit that the file uses for it.
    fn set_time(&mut self, path: &str, ns: f64, what: &str) -> Result<(), Failure> {
        let unit = self.model.parameter(path).map(|parameter| parameter.unit);
        let value = if unit == Some(Unit::Cycles) {
            self.model.cycles(ns)
        } else {
            ns
        };
        self.set(path, rounded(value), &format!("{MEASURED}: {what}"))
    }

    fn shape(&mut self, name: &str, machine: &Machine, cpuinfo: &str, caveat: Option<&str>) -> Result<(), Failure> {
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let processor = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let caveat = caveat.map_or(String::new(), |why| format!(", measured while {why}"));
        let description = format!(
            "{processor}, {}, this machine{caveat}",
            counted(machine.cpus.len(), "CPU")
        );
        let adjacent = machine.cpus.len() > 1 && machine.cpus[0].core == machine.cpus[1].core;
        let numbering = if adjacent {
            Numbering::SiblingsAdjacent
        } else {
            Numbering::CoresFirst
        };
        let titled = self.model.titled(name, &description, numbering);
        self.model = titled.map_err(|error| Failure::Input(error.to_string()))?;

        let count =
            |of: fn(&shootdown_linux::cpus::Cpu) -> usize| machine.cpus.iter().map(of).collect::<BTreeSet<_>>().len();
        let (sockets, clusters, cores) = (count(|cpu| cpu.socket), count(|cpu| cpu.cluster), count(|cpu| cpu.core));
        let sysfs = "/sys/devices/system/cpu of this machine";
        for (path, value) in [
            ("topology.sockets", sockets),
            ("topology.clusters_per_socket", clusters.div_ceil(sockets)),
            ("topology.cores_per_cluster", cores.div_ceil(clusters)),
            ("topology.threads_per_core", machine.cpus.len().div_ceil(cores)),
        ] {
            self.set(path, value as f64, sysfs)?;
        }
        let (modelled, real) = (self.model.topology.cpus(), machine.cpus.len());
        if modelled != real {
            self.facts.push(format!(
                "the model has {modelled} CPUs, the machine {real}: its cores or clusters are not all alike"
            ));
        }
        let khz = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
        let clock = match (
            field("cpu MHz"),
            khz.ok().and_then(|khz| khz.trim().parse::<f64>().ok()),
        ) {
            (_, Some(khz)) => Some((khz / 1e6, "cpufreq of this machine, highest clock")),
            (Some(mhz), None) => mhz
                .parse()
                .ok()
                .map(|mhz: f64| (mhz / 1e3, "/proc/cpuinfo of this machine")),
            (None, None) => None,
        };
        if let Some((ghz, source)) = clock.filter(|(ghz, _)| *ghz > 0.0) {
            self.set("machine.ghz", rounded(ghz), source)?;
        }
        if std::env::consts::ARCH == "x86_64" {
            // A feature that the kernel may not use is not part of the measurement.
            let has = cpuinfo.contains(" invlpgb");
            self.set(
                "broadcast.available",
                f64::from(u8::from(has)),
                "/proc/cpuinfo of this machine: flag invlpgb",
            )?;
        }
        Ok(())
    }

    /// Costs that are measured alone.
    fn costs(&mut self, place: &Place) -> io::Result<Result<(), Failure>> {
        let call = probe::system_call_ns()?;
        // Mapping and unmapping are measured together, and split as the template splits them.
        let costs = &self.model.kernel;
        let mapping = costs.mmap / (costs.mmap + costs.munmap);
        let pair = probe::map_unmap_ns()? - 2.0 * call;
        let mut measured = vec![
            ("kernel.syscall", call, "the shortest system call"),
            (
                "kernel.madvise",
                probe::madvise_ns()? - call,
                "MADV_DONTNEED of an absent page, less the system call",
            ),
            (
                "kernel.mmap",
                pair * mapping,
                "its part of mapping and unmapping 1 MiB, less the system calls",
            ),
            (
                "kernel.munmap",
                pair * (1.0 - mapping),
                "its part of mapping and unmapping 1 MiB, less the system calls",
            ),
            (
                "costs.walk_step",
                probe::refill_ns()?,
                "an access that misses the TLB, less one that hits; upper levels cached",
            ),
            (
                "costs.invlpg",
                probe::local_flush_ns()?,
                "mprotect of a resident page, less that of an absent one",
            ),
        ];
        for (path, apart) in [
            ("costs.transfer_core", Apart::Core),
            ("costs.transfer_cluster", Apart::Cluster),
            ("costs.transfer_socket", Apart::Socket),
            ("costs.transfer_remote", Apart::Remote),
        ] {
            if let Some((a, b)) = two(place, apart) {
                measured.push((
                    path,
                    probe::line_transfer_ns(a, b)?,
                    "half a round trip of a line between two CPUs",
                ));
            }
        }
        // Linux broadcasts on AArch64: nobody is interrupted.
        if std::env::consts::ARCH != "aarch64"
            && let [a, b, ..] = place.cpus[..]
        {
            measured.push((
                "costs.ipi_late",
                probe::flush_tail_ns(a, b)?,
                "a flush beside a thread that spins, one in a hundred less one in four",
            ));
        }
        Ok(measured.into_iter().try_for_each(|(path, ns, what)| {
            // No cost is zero: one that was too short to measure is half a cycle.
            let ns = ns.max(0.5 / self.model.ghz);
            self.facts.push(format!("{path}: {}, {what}", number::time(ns)));
            self.set_time(path, ns, what)
        }))
    }
}

/// Two CPUs that far apart on which this process may run.
fn two(place: &Place, apart: Apart) -> Option<(usize, usize)> {
    let usable = || place.machine.cpus.iter().filter(|cpu| place.cpus.contains(&cpu.cpu));
    usable().find_map(|a| {
        let b = usable().find(|b| a.cpu < b.cpu && place.machine.apart(a, b) == apart)?;
        Some((a.cpu, b.cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_parameters_are_not_marked_as_measured() {
        for template in ["skylake-104", "milan-72", "ampere-32", "generic-riscv-64"] {
            let model = unfitted(Model::find(template).unwrap(), template).unwrap();
            assert!(
                model
                    .parameters()
                    .all(|parameter| parameter.provenance.kind() != "fitted")
            );
            let text = model.to_toml("");
            Model::parse(&text, "again.toml").unwrap_or_else(|error| panic!("{template}: {error}"));
        }
    }

    /// The template of Intel's processors has page-table isolation; a measured system call includes that of the host.
    #[test]
    fn measured_costs_are_neither_multiplied_nor_increased() {
        let kernel = from_template("skylake-104").unwrap().model.kernel;
        assert_eq!((kernel.slowdown, kernel.isolation), (1.0, 0.0));
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!((rounded(1234.56), rounded(0.012_345)), (1230.0, 0.0123));
    }
}
