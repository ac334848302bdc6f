//! Placement of CPUs: hardware threads in cores, cores in clusters that share a cache, clusters in sockets.
//!
//! CPU ids are dense from 0. [`Numbering`] says how an operating system assigns them to hardware threads, which decides
//! at which thread count a pinned benchmark starts to share cores.

/// Assignment of CPU ids to hardware threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numbering {
    /// First one thread of every core, then the second of every core: CPU `i` and `i + cores` are siblings.
    CoresFirst,
    /// All threads of core 0, then all threads of core 1.
    SiblingsAdjacent,
}

impl Numbering {
    /// The names used in model files.
    pub const NAMES: [&'static str; 2] = ["cores-first", "siblings-adjacent"];

    /// Reads a name used in model files.
    pub(super) fn parse(name: &str) -> Option<Numbering> {
        match name {
            "cores-first" => Some(Numbering::CoresFirst),
            "siblings-adjacent" => Some(Numbering::SiblingsAdjacent),
            _ => None,
        }
    }
}

/// Distance between two CPUs, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Hardware threads of one core.
    Core,
    /// Cores of one cluster.
    Cluster,
    /// Clusters of one socket.
    Socket,
    /// Different sockets.
    Remote,
}

/// The topology of a machine. Every count is at least 1 and [`cpus`](Topology::cpus) is at most
/// [`MAX_CPUS`](Topology::MAX_CPUS) in a model that was read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// Sockets in the machine.
    pub sockets: usize,
    /// Clusters (groups of cores that share a last-level cache) in a socket.
    pub clusters_per_socket: usize,
    /// Cores in a cluster.
    pub cores_per_cluster: usize,
    /// Hardware threads in a core.
    pub threads_per_core: usize,
    /// Which CPU id is which hardware thread.
    pub numbering: Numbering,
    /// CPUs beyond this number are off: [`MAX_CPUS`](Topology::MAX_CPUS), or the size of a virtual machine.
    pub most: usize,
}

impl Topology {
    /// Largest machine accepted, in CPUs. A bound on simulation cost, not on hardware.
    pub const MAX_CPUS: usize = 8192;

    /// Number of CPUs: all hardware threads up to [`most`](Self::most); the last ones of a larger machine are off.
    pub const fn cpus(&self) -> usize {
        let all = self.hardware_threads();
        if all < self.most { all } else { self.most }
    }

    /// The same machine with all of its CPUs on.
    pub const fn whole(&self) -> Topology {
        Topology {
            most: Self::MAX_CPUS,
            ..*self
        }
    }

    /// Number of hardware threads, those that are off included.
    pub const fn hardware_threads(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// Number of cores.
    pub const fn cores(&self) -> usize {
        self.clusters() * self.cores_per_cluster
    }

    /// Number of clusters.
    pub const fn clusters(&self) -> usize {
        self.sockets * self.clusters_per_socket
    }

    /// The core of `cpu`, from 0, dense over the machine.
    ///
    /// # Panics
    /// In debug builds when `cpu` is out of range; so do the functions below.
    pub const fn core_of(&self, cpu: usize) -> usize {
        debug_assert!(cpu < self.cpus(), "CPU id out of range");
        match self.numbering {
            Numbering::CoresFirst => cpu % self.cores(),
            Numbering::SiblingsAdjacent => cpu / self.threads_per_core,
        }
    }

    /// Which hardware thread of its core `cpu` is, from 0.
    pub const fn thread_of(&self, cpu: usize) -> usize {
        debug_assert!(cpu < self.cpus(), "CPU id out of range");
        match self.numbering {
            Numbering::CoresFirst => cpu / self.cores(),
            Numbering::SiblingsAdjacent => cpu % self.threads_per_core,
        }
    }

    /// The cluster of `cpu`, from 0, dense over the machine.
    pub const fn cluster_of(&self, cpu: usize) -> usize {
        self.core_of(cpu) / self.cores_per_cluster
    }

    /// The socket of `cpu`, from 0.
    pub const fn socket_of(&self, cpu: usize) -> usize {
        self.cluster_of(cpu) / self.clusters_per_socket
    }

    /// The CPU id of one hardware thread of one core: the inverse of [`core_of`](Self::core_of) and
    /// [`thread_of`](Self::thread_of). Not below [`cpus`](Self::cpus) for one that is off.
    pub const fn cpu_at(&self, core: usize, thread: usize) -> usize {
        debug_assert!(
            core < self.cores() && thread < self.threads_per_core,
            "core or thread out of range"
        );
        match self.numbering {
            Numbering::CoresFirst => thread * self.cores() + core,
            Numbering::SiblingsAdjacent => core * self.threads_per_core + thread,
        }
    }

    /// The group of each CPU if one write of the interrupt register reaches `cluster` CPUs with consecutive hardware
    /// ids: neighbouring cores of one cluster. Empty if it reaches one.
    pub fn ipi_groups(&self, cluster: usize) -> Vec<u16> {
        let cores = (cluster / self.threads_per_core).clamp(1, self.cores_per_cluster);
        let in_cluster = self.cores_per_cluster.div_ceil(cores);
        let group = |cpu: usize| self.cluster_of(cpu) * in_cluster + self.core_of(cpu) % self.cores_per_cluster / cores;
        match cluster {
            0 | 1 => Vec::new(),
            _ => (0..self.cpus()).map(|cpu| group(cpu) as u16).collect(),
        }
    }

    /// CPUs in the order in which pinned threads are placed: the first hardware thread of every core, cluster by
    /// cluster, then the second ones.
    pub fn placement(&self) -> impl Iterator<Item = usize> + use<> {
        let topology = *self;
        (0..self.threads_per_core)
            .flat_map(move |thread| (0..topology.cores()).map(move |core| topology.cpu_at(core, thread)))
            .filter(move |&cpu| cpu < topology.cpus())
    }

    /// The other hardware threads of the core of `cpu`.
    pub fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> + use<> {
        let (topology, core) = (*self, self.core_of(cpu));
        (0..self.threads_per_core)
            .map(move |thread| topology.cpu_at(core, thread))
            .filter(move |&other| other != cpu && other < topology.cpus())
    }

    /// Distance between two CPUs.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        if a == b {
            Distance::Same
        } else if self.core_of(a) == self.core_of(b) {
            Distance::Core
        } else if self.cluster_of(a) == self.cluster_of(b) {
            Distance::Cluster
        } else if self.socket_of(a) == self.socket_of(b) {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILAN: Topology = Topology {
        sockets: 1,
        clusters_per_socket: 6,
        cores_per_cluster: 6,
        threads_per_core: 2,
        numbering: Numbering::CoresFirst,
        most: Topology::MAX_CPUS,
    };

    #[test]
    fn cores_first_puts_siblings_half_the_machine_apart() {
        assert_eq!(MILAN.cpus(), 72);
        assert_eq!((MILAN.core_of(35), MILAN.core_of(36), MILAN.core_of(71)), (35, 0, 35));
        assert_eq!(MILAN.siblings(3).collect::<Vec<_>>(), [39]);
        assert_eq!(
            (MILAN.cluster_of(5), MILAN.cluster_of(6), MILAN.cluster_of(41)),
            (0, 1, 0)
        );
        assert_eq!(MILAN.distance(0, 36), Distance::Core);
        assert_eq!(MILAN.distance(0, 41), Distance::Cluster);
        assert_eq!(MILAN.distance(0, 6), Distance::Socket);
    }

    /// 16 hardware ids are 8 cores with their siblings, and no group has cores of two clusters.
    #[test]
    fn one_write_interrupts_neighbouring_cores() {
        let skylake = Topology {
            sockets: 2,
            clusters_per_socket: 1,
            cores_per_cluster: 26,
            ..MILAN
        };
        let groups = skylake.ipi_groups(16);
        let of = |core: usize| (groups[core], groups[core + 52]);
        assert_eq!((of(0), of(7), of(8)), ((0, 0), (0, 0), (1, 1)));
        assert_eq!((of(25), of(26), of(51)), ((3, 3), (4, 4), (7, 7)));
        let milan = MILAN.ipi_groups(16);
        assert_eq!((milan[5], milan[6], milan[71]), (0, 1, 5));
        assert!(MILAN.ipi_groups(1).is_empty());
    }

    #[test]
    fn hardware_threads_beyond_the_cpu_limit_are_unused() {
        for numbering in [Numbering::CoresFirst, Numbering::SiblingsAdjacent] {
            let many = Topology {
                sockets: 114,
                numbering,
                ..MILAN
            };
            assert_eq!((many.hardware_threads(), many.cpus()), (8208, 8192));
            let mut placed: Vec<_> = many.placement().collect();
            placed.sort_unstable();
            assert_eq!(placed, Vec::from_iter(0..8192));
            assert!((0..8192).all(|cpu| many.siblings(cpu).all(|other| other < 8192)));
            assert_eq!((0..8192).filter(|&cpu| many.siblings(cpu).count() == 0).count() % 16, 0);
        }
    }

    #[test]
    fn adjacent_siblings_fill_a_core_before_the_next() {
        let two = Topology {
            sockets: 2,
            numbering: Numbering::SiblingsAdjacent,
            ..MILAN
        };
        assert_eq!((two.core_of(0), two.core_of(1), two.core_of(2)), (0, 0, 1));
        assert_eq!((two.socket_of(71), two.socket_of(72)), (0, 1));
        assert_eq!(two.distance(71, 72), Distance::Remote);
    }

    proptest! {
        #[test]
        fn every_cpu_is_one_thread_of_one_core(
            sockets in 1usize..4, clusters in 1usize..4, cores in 1usize..5, threads in 1usize..5, adjacent: bool,
        ) {
            let numbering = if adjacent { Numbering::SiblingsAdjacent } else { Numbering::CoresFirst };
            let topology = Topology {
                sockets, clusters_per_socket: clusters, cores_per_cluster: cores, threads_per_core: threads, numbering,
                most: Topology::MAX_CPUS,
            };
            for cpu in 0..topology.cpus() {
                prop_assert_eq!(topology.cpu_at(topology.core_of(cpu), topology.thread_of(cpu)), cpu);
                prop_assert!(topology.socket_of(cpu) < sockets);
                prop_assert_eq!(topology.siblings(cpu).count(), threads - 1);
                for other in topology.siblings(cpu) {
                    prop_assert_eq!(topology.distance(cpu, other), Distance::Core);
                }
            }
        }
    }
}
