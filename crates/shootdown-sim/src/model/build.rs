//! From the contents of a file to a [`Model`]: numbers converted, and checked against each other.

use super::costs::{
    Aarch64Model, BroadcastModel, Costs, KernelCosts, LineModel, LinuxModel, RarModel, Riscv64Model, Simulation, Smt,
    Tags, Tlb, VmModel,
};
use super::file::ModelError;
use super::provenance::{Parameter, Unit};
use super::topology::{Numbering, Topology};
use super::{Arch, CLOCK, Model, OPTIONAL_TABLES, RAR};

/// The contents of a file, and its name for errors.
struct Entries<'a> {
    texts: &'a [(String, String, usize)],
    parameters: &'a [Parameter],
    file: &'a str,
}

impl Entries<'_> {
    fn fail<T>(&self, path: &str, line: usize, expected: String) -> Result<T, ModelError> {
        Err(ModelError {
            file: self.file.into(),
            line: Some(line),
            path: Some(path.into()),
            expected,
        })
    }

    /// Refuses the number at `path`.
    fn refuse<T>(&self, path: &str, expected: String) -> Result<T, ModelError> {
        let line = self.find(path).map_or(1, |parameter| parameter.line);
        self.fail(path, line, expected)
    }

    fn text(&self, path: &str) -> (&str, usize) {
        let found = self.texts.iter().find(|(known, ..)| known == path);
        found.map_or(("", 1), |(_, text, line)| (text.as_str(), *line))
    }

    fn find(&self, path: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.path == path)
    }

    /// The first number of a table.
    fn first_of(&self, table: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.table() == table)
    }

    /// In cycles, if it is a time.
    fn number(&self, path: &str) -> f64 {
        let ghz = self.find(CLOCK.path).map_or(1.0, |clock| clock.value);
        self.find(path).map_or(0.0, |parameter| match parameter.unit {
            Unit::Ns => parameter.value * ghz,
            Unit::Cycles | Unit::Value => parameter.value,
        })
    }

    fn arch(&self) -> Result<Arch, ModelError> {
        let number = |path: &'static str| self.number(path);
        Ok(match self.text("machine.arch") {
            ("x86_64", _) => Arch::X86_64,
            ("aarch64", _) => Arch::Aarch64(Aarch64Model::build(&number)),
            ("riscv64", _) => Arch::Riscv64(Riscv64Model::build(&number)),
            (_, line) => {
                let expected = format!("expected \"{}\"", Arch::NAMES.join("\" or \""));
                return self.fail("machine.arch", line, expected);
            }
        })
    }

    /// Tables of one kind of machine are required there and refused elsewhere.
    fn check_tables(&self, arch: Arch) -> Result<(), ModelError> {
        if let Some(parameter) = self.first_of(RAR) {
            if arch != Arch::X86_64 {
                let expected = "expected on x86_64 only; remove [rar]";
                return self.fail(parameter.path, parameter.line, expected.into());
            }
            if self.number("broadcast.available") != 0.0 {
                let expected = "expected no broadcasts as well; set broadcast.available to false, or remove [rar]";
                return self.fail(parameter.path, parameter.line, expected.into());
            }
        }
        for table in OPTIONAL_TABLES.iter().filter(|table| Arch::NAMES.contains(&table.name)) {
            match self.first_of(table.name) {
                Some(parameter) if table.name != arch.name() => {
                    let expected = format!("expected on {} only; remove [{}]", table.name, table.name);
                    return self.fail(parameter.path, parameter.line, expected);
                }
                None if table.name == arch.name() => {
                    let (_, line) = self.text("machine.arch");
                    return self.fail(table.name, line, format!("missing table; add [{}]", table.name));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn topology(&self, vm: Option<VmModel>) -> Result<Topology, ModelError> {
        let (numbering, line) = self.text("topology.numbering");
        let Some(numbering) = Numbering::parse(numbering) else {
            let expected = format!("expected \"{}\"", Numbering::NAMES.join("\" or \""));
            return self.fail("topology.numbering", line, expected);
        };
        let topology = Topology {
            most: vm.map_or(Topology::MAX_CPUS, |vm| vm.vcpus.min(Topology::MAX_CPUS)),
            sockets: self.number("topology.sockets") as usize,
            clusters_per_socket: self.number("topology.clusters_per_socket") as usize,
            cores_per_cluster: self.number("topology.cores_per_cluster") as usize,
            threads_per_core: self.number("topology.threads_per_core") as usize,
            numbering,
        };
        // The last socket may be partial. Otherwise a machine with an odd number of sockets could not have the most
        // CPUs.
        let all = topology.hardware_threads();
        if all - all / topology.sockets >= Topology::MAX_CPUS {
            let expected = format!("expected at most {} CPUs in all, found {all}", Topology::MAX_CPUS);
            return self.refuse("topology.sockets", expected);
        }
        Ok(topology)
    }

    fn tlb(&self) -> Result<Tlb, ModelError> {
        let tlb = Tlb::build(&|path| self.number(path));
        if !tlb.entries.is_multiple_of(tlb.ways) {
            let expected = format!("expected a divisor of tlb.entries ({})", tlb.entries);
            return self.refuse("tlb.ways", expected);
        }
        Ok(tlb)
    }

    fn tags(&self, arch: Arch) -> Result<Tags, ModelError> {
        let tags = Tags::build(&|path| self.number(path));
        if tags.bits > arch.tag_bits() {
            let expected = format!("expected at most {} on {}", arch.tag_bits(), arch.name());
            return self.refuse("tags.bits", expected);
        }
        if tags.bits == 0 && matches!(arch, Arch::Aarch64(_)) {
            return self.refuse("tags.bits", "expected 8 or 16: every Arm processor has ASIDs".into());
        }
        if tags.bits > 0 && tags.slots >= 1 << tags.bits {
            let expected = format!("expected fewer slots than {} tags", 1 << tags.bits);
            return self.refuse("tags.slots", expected);
        }
        Ok(tags)
    }
}

impl Model {
    pub(super) fn build(
        texts: Vec<(String, String, usize)>,
        parameters: Vec<Parameter>,
        file: &str,
    ) -> Result<Model, ModelError> {
        let entries = Entries {
            texts: &texts,
            parameters: &parameters,
            file,
        };
        let number = |path: &'static str| entries.number(path);
        let arch = entries.arch()?;
        entries.check_tables(arch)?;
        let vm = Some(VmModel::build(&number))
            .filter(|vm| vm.vcpus > 0)
            .map(|vm| VmModel {
                host_cpus: if vm.host_cpus == 0 { vm.vcpus } else { vm.host_cpus },
                ..vm
            });
        let topology = entries.topology(vm)?;
        let (tlb, tags) = (entries.tlb()?, entries.tags(arch)?);
        let may_broadcast = vm.is_none_or(|vm| vm.broadcast || matches!(arch, Arch::Aarch64(_)));
        let model = Model {
            name: entries.text("machine.name").0.into(),
            description: entries.text("machine.description").0.into(),
            arch,
            ghz: entries.find(CLOCK.path).map_or(1.0, |clock| clock.value),
            topology,
            costs: Costs::build(&number),
            kernel: KernelCosts::build(&number),
            smt: Smt::build(&number),
            tlb,
            tags,
            broadcast: BroadcastModel {
                available: number("broadcast.available") != 0.0 && may_broadcast,
                ..BroadcastModel::build(&number)
            },
            rar: entries
                .first_of(RAR)
                .map(|_| RarModel::build(&number))
                .filter(|rar| rar.entries > 0 && may_broadcast),
            vm,
            lines: LineModel::build(&number),
            linux: LinuxModel::build(&number),
            simulation: Simulation::build(&number),
            source_text_name: file.into(),
            parameters: Vec::new(),
            texts: Vec::new(),
        };
        Ok(Model {
            parameters,
            texts,
            ..model
        })
    }
}
