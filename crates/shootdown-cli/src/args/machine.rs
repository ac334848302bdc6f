//! The machine of a command that has one.

use clap::Args;

use super::whole_number;

/// A machine model, and what is changed of it.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Machine model: a name as in `shootdown list`, or the path of a .toml file
    #[arg(long, value_name = "MACHINE", default_value = crate::catalog::FLAGSHIP_MACHINE)]
    pub on: String,

    /// Make the machine large enough for N CPUs, with more sockets of the same kind
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    pub cpus: Option<u64>,

    /// Run in a virtual machine of VCPUS CPUs that share HOST_CPUS CPUs of a host [default: as many]; its costs are
    /// `vm.*`, see machines/vm.toml
    #[arg(long, value_name = "VCPUS[:HOST_CPUS]", value_parser = super::virtual_machine)]
    pub vm: Option<super::VirtualMachine>,

    /// Replace one number of the machine model, in the unit of its file, or set an axis of the design (`design.NAME`,
    /// as in `shootdown list`); repeatable
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}
