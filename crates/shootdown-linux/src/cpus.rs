//! The online CPUs, their topology, and which of them this process may use.

use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One online CPU. Numbers of cores, clusters and sockets are dense from 0, in the order of their first CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub cpu: usize,
    /// Core.
    pub core: usize,
    /// CPUs that share the last-level cache.
    pub cluster: usize,
    /// Socket.
    pub socket: usize,
}

/// Distance between two CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// Hardware threads of one core.
    Core,
    /// Cores that share the last-level cache.
    Cluster,
    /// Clusters of one socket.
    Socket,
    /// Different sockets.
    Remote,
}

/// The online CPUs of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// By number.
    pub cpus: Vec<Cpu>,
}

impl Machine {
    /// From sysfs.
    ///
    /// # Errors
    /// When sysfs lacks it.
    pub fn read() -> Result<Machine, String> {
        Machine::read_from(Path::new("/sys/devices/system/cpu"))
    }

    fn read_from(folder: &Path) -> Result<Machine, String> {
        let text = |path: &str| {
            let path = folder.join(path);
            fs::read_to_string(&path)
                .map(|text| text.trim().to_owned())
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let online = text("online")?;
        let mut groups: [Vec<String>; 3] = Default::default();
        let mut dense = |kind: usize, key: String| {
            let known: &mut Vec<String> = &mut groups[kind];
            known.iter().position(|other| *other == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            })
        };
        let mut cpus = Vec::new();
        for cpu in list(&online).ok_or_else(|| format!("{}: not a list of CPUs: {online}", folder.display()))? {
            let package = text(&format!("cpu{cpu}/topology/physical_package_id"))?;
            let core = text(&format!("cpu{cpu}/topology/thread_siblings_list"))?;
            let cluster = (0..8)
                .filter_map(|index| text(&format!("cpu{cpu}/cache/index{index}/shared_cpu_list")).ok())
                .next_back()
                .unwrap_or_else(|| package.clone());
            cpus.push(Cpu {
                cpu,
                core: dense(0, core),
                // A cache that spans sockets is not supported; a virtual machine may nevertheless report one.
                cluster: dense(1, format!("{package} {cluster}")),
                socket: dense(2, package),
            });
        }
        Ok(Machine { cpus })
    }

    /// Distance between two CPUs.
    pub fn apart(&self, a: &Cpu, b: &Cpu) -> Apart {
        if a.core == b.core {
            Apart::Core
        } else if a.cluster == b.cluster {
            Apart::Cluster
        } else if a.socket == b.socket {
            Apart::Socket
        } else {
            Apart::Remote
        }
    }

    /// Those in `allowed`, in the order in which threads are placed: one of each core first, then their siblings.
    pub fn placement(&self, allowed: &[usize]) -> Vec<usize> {
        let mut placed: Vec<_> = self.cpus.iter().filter(|cpu| allowed.contains(&cpu.cpu)).collect();
        let nth = |cpu: &Cpu| {
            let earlier = |other: &&Cpu| other.core == cpu.core && other.cpu < cpu.cpu;
            self.cpus.iter().filter(earlier).count()
        };
        placed.sort_by_key(|cpu| (nth(cpu), cpu.socket, cpu.cluster, cpu.core, cpu.cpu));
        placed.iter().map(|cpu| cpu.cpu).collect()
    }
}

/// A list such as `0-3,7`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (usize, usize) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        all.extend(low..=high);
    }
    Some(all)
}

/// The CPUs that this process may run on.
///
/// # Errors
/// When the kernel does not report them.
pub fn allowed() -> Result<Vec<usize>, String> {
    let set = sched_getaffinity(None).map_err(|error| format!("sched_getaffinity: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When it may not run there.
pub fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// CPU time limit of this process's control group, in CPUs; `None` for no limit.
pub fn quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (kinds, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let read = |folder: &str, file: &str| fs::read_to_string(Path::new(folder).join(path).join(file)).ok();
        if kinds.is_empty() {
            return quota_of(&read("/sys/fs/cgroup", "cpu.max")?);
        }
        kinds.split(',').find(|&kind| kind == "cpu")?;
        let folder = "/sys/fs/cgroup/cpu";
        let (quota, period) = (read(folder, "cpu.cfs_quota_us")?, read(folder, "cpu.cfs_period_us")?);
        quota_of(&format!("{} {}", quota.trim(), period.trim()))
    };
    groups.lines().filter_map(limit).min_by(f64::total_cmp)
}

/// `150000 100000` is a CPU and a half, `max 100000` and `-1 100000` are no limit.
fn quota_of(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_and_quotas_are_parsed() {
        assert_eq!(list("0-2,7\n").unwrap(), [0, 1, 2, 7]);
        assert_eq!(list("x"), None);
        assert_eq!(quota_of("150000 100000\n"), Some(1.5));
        assert_eq!(quota_of("max 100000"), None);
        assert_eq!(quota_of("-1 100000"), None);
    }

    #[test]
    fn cpus_are_grouped_by_topology_and_placed_core_by_core() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("online".into(), "0-7\n");
        // Two sockets, a cache for each, two cores with two threads in each; siblings are four apart.
        for cpu in 0..8 {
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            write(format!("cpu{cpu}/topology/physical_package_id"), &format!("{socket}\n"));
            write(
                format!("cpu{cpu}/topology/thread_siblings_list"),
                &format!("{core},{}\n", core + 4),
            );
            write(
                format!("cpu{cpu}/cache/index0/shared_cpu_list"),
                &format!("{core},{}\n", core + 4),
            );
            let cache = if socket == 0 { "0-1,4-5" } else { "2-3,6-7" };
            write(format!("cpu{cpu}/cache/index3/shared_cpu_list"), cache);
        }
        let machine = Machine::read_from(folder.path()).unwrap();
        let at = |cpu: usize| &machine.cpus[cpu];
        assert_eq!(machine.apart(at(0), at(4)), Apart::Core);
        assert_eq!(machine.apart(at(0), at(5)), Apart::Cluster);
        assert_eq!(machine.apart(at(0), at(2)), Apart::Remote);
        assert_eq!(machine.placement(&[0, 1, 3, 4, 5, 6]), [0, 1, 3, 4, 5, 6]);
        assert_eq!(machine.placement(&[4, 1, 0]), [0, 1, 4]);
    }
}
