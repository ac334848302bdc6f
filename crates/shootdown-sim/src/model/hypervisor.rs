//! A model as a virtual machine: where the numbers of `vm.*` come from, and what CPUs it may have.

use super::Model;
use super::costs::VmModel;
use super::file::{self, ModelError, Table};
use super::topology::Topology;

/// The table of what a hypervisor costs, and where it stands for models without one.
pub(super) const VM: &str = "vm";
const VM_FILE: (&str, &str) = ("machines/vm.toml", include_str!("../../../../machines/vm.toml"));

impl Model {
    /// Checks that a virtual machine has no more CPUs than the machine whose first CPUs they are.
    ///
    /// # Errors
    /// One line naming both numbers and the remedy.
    pub fn check_vcpus(&self) -> Result<(), String> {
        let most = self.topology.hardware_threads().min(Topology::MAX_CPUS);
        match self.vm {
            Some(vm) if vm.vcpus > most => Err(format!(
                "--vm {}: {} has {most} CPUs, and virtual CPUs are laid out as its first; give at most {most}, or a larger machine with \
                 --cpus {}",
                vm.vcpus, self.name, vm.vcpus
            )),
            _ => Ok(()),
        }
    }

    /// The same machine with the numbers of `vm.*` among its parameters: those of its own table `[vm]`, or else those
    /// of `machines/vm.toml`. It is a virtual one from when `vm.vcpus` is above 0: then its CPUs are the first of the
    /// machine.
    ///
    /// # Errors
    /// None: the table is part of the library.
    pub fn with_hypervisor(&self) -> Result<Model, ModelError> {
        if self.parameters.iter().any(|parameter| parameter.table() == VM) {
            return Ok(self.clone());
        }
        let (file, text) = VM_FILE;
        let table = Table {
            name: VM,
            texts: &[],
            numbers: VmModel::FIELDS,
        };
        let mut parameters = self.parameters.clone();
        parameters.extend(file::read(text, file, &[table], &[])?.parameters);
        Model::build(self.texts.clone(), parameters, &self.source_text_name)
    }
}
