//! `--vm`: a virtual machine with a given number of CPUs.

use shootdown_sim::model::Topology;

/// The numbers of a model that `--vm` stands for.
pub const VM_PATHS: [&str; 2] = ["vm.vcpus", "vm.host_cpus"];

/// Reads `VCPUS[:HOST_CPUS]` and returns it in the form that [`with_vm`] takes.
///
/// # Errors
/// With the expected form.
pub fn virtual_machine(text: &str) -> Result<VirtualMachine, String> {
    let most = Topology::MAX_CPUS;
    let number = |text: &str| match text.trim().parse::<usize>() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "expected VCPUS[:HOST_CPUS], each from 1 to {most}, for example 64:32"
        )),
    };
    let (vcpus, host_cpus) = match text.split_once(':') {
        Some((vcpus, host_cpus)) => (vcpus, Some(number(host_cpus)?)),
        None => (text, None),
    };
    Ok(VirtualMachine([Some(number(vcpus)?), host_cpus]))
}

/// Virtual CPUs, and the CPUs of the host that they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualMachine([Option<usize>; 2]);

/// The assignments of `--set` with those that `--vm` stands for before them.
pub fn with_vm(vm: Option<VirtualMachine>, set: &[String]) -> Vec<String> {
    let numbers = vm.map(|VirtualMachine(numbers)| VM_PATHS.into_iter().zip(numbers));
    let assigned = numbers
        .into_iter()
        .flatten()
        .filter_map(|(path, value)| Some(format!("{path}={}", value?)));
    assigned.chain(set.iter().cloned()).collect()
}
