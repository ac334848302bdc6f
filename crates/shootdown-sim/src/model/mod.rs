//! Machine models: the topology of a machine and the cost of every operation on it, each number with its provenance.
//!
//! A model comes from a TOML file. Models under `machines/` are built into the library; any other file is read by path.
//! Each number is written as `{ cycles = 180, source = "..." }`, with `ns` or `value` in place of `cycles` where that
//! is the natural unit, and with exactly one of `source` (a published document, optionally with `range = "low..high"`),
//! `fitted` (the published rows it was fitted on) or `assumed` (the range to sweep).
//!
//! This module owns reading, checking and overriding. It is independent of the engine and of the simulation.

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use arch::Arch;
pub use costs::{
    Aarch64Model, BroadcastModel, Costs, KernelCosts, LineModel, LinuxModel, RarModel, Riscv64Model, Simulation, Smt,
    Tags, Tlb, VmModel,
};
pub use file::ModelError;
pub use linux::{KERNEL_CHANGES, KernelChange, release};
pub use provenance::{Parameter, Provenance, Range, Unit};
pub use topology::{Distance, Numbering, Topology};

use crate::numeral::written;
use costs::{Field, Rule};
use file::Table;
use hypervisor::VM;

mod arch;
mod build;
mod costs;
mod file;
mod hypervisor;
mod linux;
mod provenance;
mod topology;
mod write;

#[cfg(test)]
mod tests;

/// A model under `machines/`, by name.
macro_rules! builtin {
    ($name:literal) => {
        (
            $name,
            concat!("machines/", $name, ".toml"),
            include_str!(concat!("../../../../machines/", $name, ".toml")),
        )
    };
}

/// The models compiled into the library: name, file, text.
const BUILTIN: &[(&str, &str, &str)] = &[
    builtin!("milan-72"),
    builtin!("milan-128"),
    builtin!("turin-2p"),
    builtin!("icelake-128"),
    builtin!("sapphire-224"),
    builtin!("skylake-104"),
    builtin!("haswell-48"),
    builtin!("gup-64"),
    builtin!("zen5-vm-2"),
    builtin!("thunderx-48"),
    builtin!("ampere-32"),
    builtin!("generic-riscv-64"),
];

const BUILTIN_NAMES: &[&str] = &{
    let mut names = [""; BUILTIN.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = BUILTIN[i].0;
        i += 1;
    }
    names
};

/// Largest model file read, in bytes: rejects a device or a disk image.
const MAX_FILE_BYTES: u64 = 1 << 20;

const CLOCK: Field = Field {
    name: "ghz",
    path: "machine.ghz",
    rule: Rule::Clock,
};

const fn shape(name: &'static str, path: &'static str) -> Field {
    Field {
        name,
        path,
        rule: Rule::Whole(1, Topology::MAX_CPUS as u32),
    }
}

/// Every table of a model file, in the order of [`Model::parameters`].
const TABLES: &[Table] = &[
    Table {
        name: "machine",
        texts: &["name", "description", "arch"],
        numbers: &[CLOCK],
    },
    Table {
        name: "topology",
        texts: &["numbering"],
        numbers: &[
            shape("sockets", "topology.sockets"),
            shape("clusters_per_socket", "topology.clusters_per_socket"),
            shape("cores_per_cluster", "topology.cores_per_cluster"),
            shape("threads_per_core", "topology.threads_per_core"),
        ],
    },
    Table {
        name: "costs",
        texts: &[],
        numbers: Costs::FIELDS,
    },
    Table {
        name: "kernel",
        texts: &[],
        numbers: KernelCosts::FIELDS,
    },
    Table {
        name: "smt",
        texts: &[],
        numbers: Smt::FIELDS,
    },
    Table {
        name: "tlb",
        texts: &[],
        numbers: Tlb::FIELDS,
    },
    Table {
        name: "tags",
        texts: &[],
        numbers: Tags::FIELDS,
    },
    Table {
        name: "broadcast",
        texts: &[],
        numbers: BroadcastModel::FIELDS,
    },
    Table {
        name: "simulation",
        texts: &[],
        numbers: Simulation::FIELDS,
    },
];

/// Tables that a file has for its own instruction set only, and one that a machine may have.
const OPTIONAL_TABLES: &[Table] = &[
    Table {
        name: "aarch64",
        texts: &[],
        numbers: Aarch64Model::FIELDS,
    },
    Table {
        name: "riscv64",
        texts: &[],
        numbers: Riscv64Model::FIELDS,
    },
    Table {
        name: RAR,
        texts: &[],
        numbers: RarModel::FIELDS,
    },
    Table {
        name: VM,
        texts: &[],
        numbers: VmModel::FIELDS,
    },
    Table {
        name: "lines",
        texts: &[],
        numbers: LineModel::FIELDS,
    },
    Table {
        name: "linux",
        texts: &[],
        numbers: LinuxModel::FIELDS,
    },
];

/// Tables with defaults: a file without one has that of [`DEFAULTS_FILE`].
const DEFAULTED: [&str; 2] = ["lines", "linux"];
const DEFAULTS_FILE: (&str, &str) = (
    "machines/defaults.toml",
    include_str!("../../../../machines/defaults.toml"),
);

/// The table of machines with remote actions.
const RAR: &str = "rar";

/// A machine that can be simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Short name, as given to `--on`.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// Instruction set.
    pub arch: Arch,
    /// Clock in GHz: cycles per nanosecond.
    pub ghz: f64,
    /// Sockets, clusters, cores, threads.
    pub topology: Topology,
    /// Costs of machine operations, in cycles.
    pub costs: Costs,
    /// Costs of the kernel around the engine, in cycles.
    pub kernel: KernelCosts,
    /// Costs of sharing a core.
    pub smt: Smt,
    /// Translation caches.
    pub tlb: Tlb,
    /// Hardware tags.
    pub tags: Tags,
    /// Broadcast invalidation.
    pub broadcast: BroadcastModel,
    /// Remote Action Requests, where the machine has them.
    pub rar: Option<RarModel>,
    /// The hypervisor under the kernel, where the machine is a virtual one.
    pub vm: Option<VmModel>,
    /// Movement of contended lines.
    pub lines: LineModel,
    /// The release of Linux that the kernel follows.
    pub linux: LinuxModel,
    /// Properties of the simulation.
    pub simulation: Simulation,
    /// The file that the model was read from, as named in errors.
    pub source_text_name: String,
    parameters: Vec<Parameter>,
    texts: Vec<(String, String, usize)>,
}

impl Model {
    /// Names of the models compiled into the library.
    pub const fn builtin_names() -> &'static [&'static str] {
        BUILTIN_NAMES
    }

    /// The model with a built-in name, else the file at a path. A name with a path separator or the ending `.toml` is a
    /// path; so is the name of any existing file.
    ///
    /// # Errors
    /// An unknown name lists the known ones; a file is refused as in [`parse`](Model::parse).
    pub fn find(name_or_path: &str) -> Result<Model, ModelError> {
        if let Some((_, file, text)) = BUILTIN.iter().find(|(name, ..)| *name == name_or_path) {
            return Model::parse(text, file);
        }
        let looks_like_path =
            name_or_path.contains(['/', std::path::MAIN_SEPARATOR]) || name_or_path.ends_with(".toml");
        if looks_like_path || Path::new(name_or_path).is_file() {
            return Model::load(Path::new(name_or_path));
        }
        Err(ModelError {
            file: if name_or_path.is_empty() {
                "(empty name)".into()
            } else {
                name_or_path.escape_debug().to_string()
            },
            line: None,
            path: None,
            expected: format!(
                "unknown machine; expected one of {}, or the path of a model file such as ./my-machine.toml",
                BUILTIN_NAMES.join(", ")
            ),
        })
    }

    /// Reads the model file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 1 MiB or is not UTF-8; else as in [`parse`](Model::parse).
    pub fn load(path: &Path) -> Result<Model, ModelError> {
        let file = path.display().to_string();
        let fail = |line, expected: String| ModelError {
            file: file.clone(),
            line,
            path: None,
            expected,
        };
        let mut bytes = Vec::new();
        if path.is_dir() {
            return Err(fail(
                None,
                "expected a model file, found a directory; name a .toml file in it".into(),
            ));
        }
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| {
                let builtin = BUILTIN_NAMES.join(", ");
                fail(
                    None,
                    format!("expected a readable model file ({error}); check the path, or use a built-in: {builtin}"),
                )
            })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(fail(
                None,
                "expected a model file of at most 1 MiB; is this the right file?".into(),
            ));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = file::line_of(&bytes, error.valid_up_to());
            fail(Some(line), "expected UTF-8 text; save the file as UTF-8".into())
        })?;
        Model::parse(text, &file)
    }

    /// Reads a model from text; `file_label` names it in errors.
    ///
    /// # Errors
    /// The first error, as `file:line: dotted path: what is expected`: not TOML, an unknown or missing field, a number
    /// out of bounds, a unit or a provenance missing or given twice, or numbers that contradict each other.
    pub fn parse(text: &str, file_label: &str) -> Result<Model, ModelError> {
        let mut document = file::read(text, file_label, TABLES, OPTIONAL_TABLES)?;
        let (file, text) = DEFAULTS_FILE;
        let defaults = file::read(text, file, &[], OPTIONAL_TABLES)?.parameters;
        let given = |table| document.parameters.iter().any(|parameter| parameter.table() == table);
        let missing = DEFAULTED.map(|table| (table, !given(table)));
        let is_missing = |parameter: &Parameter| missing.contains(&(parameter.table(), true));
        document.parameters.extend(defaults.into_iter().filter(is_missing));
        Model::build(document.texts, document.parameters, file_label)
    }

    /// Whether translations of other CPUs can be invalidated without interrupting them: by broadcasts, or by remote
    /// actions.
    pub fn broadcasts(&self) -> bool {
        self.broadcast.available || self.rar.is_some()
    }

    /// The same machine without either feature.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn without_broadcasts(&self) -> Result<Model, ModelError> {
        let path = if self.rar.is_some() {
            "rar.entries"
        } else {
            "broadcast.available"
        };
        self.with(path, 0.0)
    }

    /// Every number of the model with unit and provenance, in the order of the file's tables.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.parameters.iter()
    }

    /// One number by dotted path.
    pub fn parameter(&self, path: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.path == path)
    }

    /// The model with one number replaced: `value` is in the unit that the file uses for it (see
    /// [`parameter`](Model::parameter)); flags are 0 or 1. It may leave the range stated in the file, not the bounds of
    /// the field. A path `vm.*` exists for every model, see [`with_hypervisor`](Model::with_hypervisor). Changing
    /// `machine.ghz` changes how numbers given in ns convert.
    ///
    /// # Errors
    /// An unknown path (the message names the parameters of its table), a value out of bounds, or a contradiction.
    pub fn with(&self, path: &str, value: f64) -> Result<Model, ModelError> {
        if path.strip_prefix(VM).is_some_and(|rest| rest.starts_with('.')) && self.parameter("vm.vcpus").is_none() {
            return self.with_hypervisor()?.with(path, value);
        }
        let mut parameters = self.parameters.clone();
        let Some(parameter) = parameters.iter_mut().find(|parameter| parameter.path == path) else {
            return Err(self.unknown_path(path));
        };
        let rule = fields()
            .find(|field| field.path == parameter.path)
            .map_or(Rule::TimeOrZero, |field| field.rule);
        let checked = if value.is_finite() {
            rule.check(value, parameter.unit.key())
        } else {
            Err("expected a finite number".into())
        };
        checked.map_err(|expected| ModelError {
            file: self.source_text_name.clone(),
            line: Some(parameter.line),
            path: Some(path.into()),
            expected: format!("{expected}, asked for {}", written(value)),
        })?;
        parameter.provenance = match &parameter.provenance {
            again @ Provenance::Overridden { .. } => again.clone(),
            written => Provenance::Overridden {
                was: parameter.value,
                because: Box::new(written.clone()),
            },
        };
        parameter.value = value;
        Model::build(self.texts.clone(), parameters, &self.source_text_name)
    }

    /// The same machine with at least `cpus` CPUs. It gets as many more sockets of the same kind as needed, with
    /// `transfer_remote` and `ipi_deliver_remote` between any two of them. It never has fewer sockets than the file
    /// gives. Of a last socket that exceeds [`Topology::MAX_CPUS`] CPUs only those up to it are on.
    ///
    /// # Errors
    /// When that needs a whole socket or more beyond [`Topology::MAX_CPUS`] CPUs.
    pub fn scaled_to(&self, cpus: usize) -> Result<Model, ModelError> {
        let per_socket = self.topology.hardware_threads() / self.topology.sockets;
        let sockets = cpus.div_ceil(per_socket).max(self.topology.sockets);
        self.with("topology.sockets", sockets as f64)
    }

    /// Duration of `cycles` in nanoseconds.
    pub fn ns(&self, cycles: f64) -> f64 {
        cycles / self.ghz
    }

    /// Cycles in `ns` nanoseconds.
    pub fn cycles(&self, ns: f64) -> f64 {
        ns * self.ghz
    }

    fn unknown_path(&self, path: &str) -> ModelError {
        let table = path.split('.').next().unwrap_or_default();
        let near: Vec<_> = self
            .parameters
            .iter()
            .map(|p| p.path)
            .filter(|p| p.split('.').next() == Some(table))
            .collect();
        let known = if near.is_empty() {
            TABLES
                .iter()
                .map(|table| format!("{}.*", table.name))
                .collect::<Vec<_>>()
                .join(", ")
        } else {
            near.join(", ")
        };
        ModelError {
            file: self.source_text_name.clone(),
            line: None,
            path: Some(path.escape_debug().to_string()),
            expected: format!("unknown parameter; expected one of {known}"),
        }
    }
}

fn fields() -> impl Iterator<Item = &'static Field> {
    TABLES.iter().chain(OPTIONAL_TABLES).flat_map(|table| table.numbers)
}
