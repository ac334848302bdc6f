//! A model as a virtual machine: the source of the numbers of `vm.*`, and the limits on its CPUs.

use super::Model;
use super::costs::VmModel;
use super::file::{self, ModelError, Table};
use super::topology::Topology;

/// The table of a hypervisor's costs, and its file for models without one.
pub(super) const VM: &str = "vm";
const VM_FILE: (&str, &str) = ("machines/vm.toml", include_str!("../../../../machines/vm.toml"));

impl Model {
    /// Checks that a virtual machine has no more CPUs than the machine that it runs on, and that all of them can be
    /// simulated.
    ///
    /// # Errors
    /// One line naming both numbers and the remedy.
    pub fn check_vcpus(&self) -> Result<(), String> {
        let most = self.topology.hardware_threads().min(Topology::MAX_CPUS);
        match self.vm {
            Some(vm) if vm.vcpus > most => Err(format!(
                "--vm {}: {} has {most} CPUs, and virtual CPUs are laid out as its first; \
                 give at most {most}, or a larger machine with --cpus {}",
                vm.vcpus, self.name, vm.vcpus
            )),
            Some(vm) if vm.vcpus * vm.machines > Topology::MAX_CPUS => Err(format!(
                "vm.machines={}: with {} virtual CPUs each that is more than the {} that can be simulated; give fewer",
                vm.machines,
                vm.vcpus,
                Topology::MAX_CPUS
            )),
            _ => Ok(()),
        }
    }

    /// The same machine with the numbers of `vm.*` among its parameters: those of its own table `[vm]`, or else those
    /// of `machines/vm.toml`. It is virtual once `vm.vcpus` is above 0; its CPUs are then the first of the machine.
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
