//! From a machine model to the parameters of the simulated machine, its hardware and its kernel.
//!
//! Owns the translation of names and units, with cycles rounded as each part requires. Its only own numbers are sizes
//! of host memory.

use crate::hw::{Aarch64, ArmErrata, Costs, Hw, HwConfig, Isa, Riscv64};
use crate::machine::{Config, CoreCosts, Machine as SimulatedMachine, Topology};
use crate::model::{Arch, Model};
use crate::os::{HookCosts, HostConfig, IdleStates, OsCosts, OsSettings, RemoteCosts, Spinning, System};
use shootdown::{BroadcastLimits, Departure, Design, Errata, Machine, Policy, Reach, Requests, USER_HALF};
use std::rc::Rc;

/// A design as it can run on a machine: without broadcast hardware nothing is broadcast; slots and tags from the model;
/// with the workarounds that the processor needs, and pairs of tags under page-table isolation.
pub(crate) fn fit_design(design: Design, model: &Model) -> Design {
    let reach = match design.policy.reach {
        Reach::Broadcast if !model.broadcasts() => Reach::Ipi,
        reach => reach,
    };
    let most = match model.arch {
        Arch::X86_64 => 12,
        Arch::Aarch64(_) | Arch::Riscv64(_) => 16,
    };
    let tag_limit = 1 << model.tags.bits.min(most);
    Policy {
        reach,
        slots: model.tags.slots as u8,
        ..design.policy
    }
    .on(Machine {
        tag_limit,
        split: design.machine.split || model.kernel.isolation > 0.0 && tag_limit >= 2 * u32::from(USER_HALF),
        errata: workarounds(design.machine.errata, model),
        ..design.machine
    })
}

pub(crate) fn workarounds(errata: Errata, model: &Model) -> Errata {
    let needed = needed_errata(model);
    Errata {
        never_broadcast: errata.never_broadcast || needed.never_broadcast,
        interrupt_too: errata.interrupt_too || needed.interrupt_too,
        repeat: errata.repeat || needed.repeat,
    }
}

/// The workarounds that the processor's errata require.
pub(crate) fn needed_errata(model: &Model) -> Errata {
    match model.arch {
        Arch::Aarch64(arm) => Errata {
            never_broadcast: arm.erratum_never_broadcast,
            interrupt_too: arm.erratum_early_sync,
            repeat: arm.erratum_repeat,
        },
        Arch::X86_64 | Arch::Riscv64(_) => Errata::NONE,
    }
}

/// The instruction set as the hardware has it.
fn isa(model: &Model) -> Isa {
    let cycles = |cycles: f64| cycles.round() as u32;
    match model.arch {
        Arch::X86_64 => Isa::X86_64,
        Arch::Aarch64(arm) => Isa::Aarch64(Aarch64 {
            range: arm.range,
            store_barrier_drains: arm.store_barrier_drains,
            store_barrier: cycles(arm.store_barrier),
            local_barrier: cycles(arm.local_barrier),
            sync_per_cpu: cycles(arm.sync_per_cpu),
            errata: ArmErrata {
                repeat: arm.erratum_repeat,
                early_sync: arm.erratum_early_sync,
            },
        }),
        Arch::Riscv64(riscv) => Isa::Riscv64(Riscv64 {
            svinval: riscv.svinval,
            sbi_call: cycles(riscv.sbi_call),
            sbi_per_hart: cycles(riscv.sbi_per_hart),
            // Assumed, as the specification permits both: published figures are of harts that keep entries under ASIDs
            // across switches.
            root_load_ends_walks: true,
        }),
    }
}

/// Added cost of an interrupt under a hypervisor, cycles; 0 without one.
#[derive(Default)]
struct Exits {
    first: f64,
    next: f64,
    kick: f64,
    inject: f64,
}

impl Exits {
    fn of(model: &Model) -> Self {
        let Some(vm) = model.vm else {
            return Exits::default();
        };
        let unless = |free: bool, cost: f64| if free { 0.0 } else { cost };
        Exits {
            first: unless(vm.ipi_virtualised, vm.ipi_exit),
            next: unless(vm.ipi_virtualised, vm.ipi_exit_more),
            kick: unless(vm.posted, vm.kick),
            inject: unless(vm.posted, vm.inject),
        }
    }
}

/// Machines that are simulated: virtual ones on one host, or one.
pub(crate) fn machines(model: &Model) -> usize {
    model.vm.map_or(1, |vm| vm.machines)
}

/// The CPUs of all of them.
pub(crate) fn all_cpus(model: &Model) -> usize {
    model.topology.cpus() * machines(model)
}

/// For each of them the hardware of `model` and a kernel around the engine, on `machine`, in the order of their CPUs.
/// All are on one host if the model is a virtual machine.
pub(crate) fn systems_on<const W: usize>(
    machine: &SimulatedMachine,
    model: &Model,
    design: Design,
    settings: OsSettings,
    seed: u64,
) -> Vec<Rc<System<W>>> {
    let system = |number: usize| {
        let hardware = Hw::new(hardware_config(model, seed + number as u64));
        let costs = hook_costs(model, &design);
        System::new(machine, hardware, costs, design, os_costs(model), settings)
    };
    let systems: Vec<_> = (0..machines(model)).map(system).collect();
    if let Some(host) = host(model) {
        System::run_on_host(&systems, host);
    }
    systems
}

/// Whether a flush after an unmap that met another one covers the whole space. A design with a log knows the range of
/// every unmap in progress. Under paravirtual flush an idle CPU is descheduled, and flushes at its next entry.
///
/// Hosts since Linux 5.19 interrupt it. That is not simulated: the engine also waits for preempted CPUs where tables
/// are freed, and Linux does not.
fn nested_flushes(model: &Model, design: &Design, ideal: bool) -> bool {
    let paravirtual = model.vm.is_some_and(|vm| vm.pv_flush);
    model.linux.nested_flushes && !ideal && !paravirtual && design.policy.requests != Requests::Log
}

/// The host under a virtual machine, if the model is one.
fn host(model: &Model) -> Option<HostConfig> {
    let cycles = |cycles: f64| cycles.round() as u64;
    model.vm.map(|vm| HostConfig {
        cpus: vm.host_cpus,
        others: vm.others,
        slice: cycles(vm.slice),
        latency: cycles(vm.latency),
        wakeup: cycles(vm.wakeup),
        spread: vm.spread,
        switch: cycles(vm.switch),
        wake: cycles(vm.wake),
        pv_flush: vm.pv_flush,
        halted_flush: vm.pv_flush && vm.halted_flush,
        spinning: Spinning {
            window: cycles(vm.spin_window),
            exit: cycles(vm.spin_exit),
            boost: vm.boost as u32,
            yield_on_send: vm.yield_on_send,
            lock_threshold: cycles(vm.lock_spins as f64 * vm.pause),
            lock_gives_up: vm.lock_gives_up,
            lock_kick: cycles(vm.ipi_exit),
        },
    })
}

/// The core machine of a model.
pub(crate) fn machine_config(model: &Model, threads: usize, extra_tasks: usize, seed: u64) -> Config {
    let cpus = all_cpus(model);
    // Virtual machines lie side by side on the host, and from its start again when it is full.
    let host = model.topology.whole();
    let places = host
        .cpus()
        .min(model.topology.cpus().max(model.vm.map_or(0, |vm| vm.host_cpus)));
    let numbers = |of: &dyn Fn(usize) -> usize| (0..cpus).map(|cpu| of(cpu % places) as u16).collect();
    let topology = Topology {
        cpus,
        core_of: numbers(&|cpu| host.core_of(cpu)),
        cluster_of: numbers(&|cpu| host.cluster_of(cpu)),
        socket_of: numbers(&|cpu| host.socket_of(cpu)),
    };
    let (costs, exits) = (&model.costs, Exits::of(model));
    let mut config = Config::new(topology);
    config.kernels = machines(model);
    config.costs = CoreCosts {
        l1: costs.l1_hit,
        rmw: costs.rmw,
        cold_line: costs.transfer_cluster,
        transfer: [
            costs.transfer_core,
            costs.transfer_cluster,
            costs.transfer_socket,
            costs.transfer_remote,
        ],
        prefetches: costs.prefetches,
        line_hold: model.lines.hold * costs.transfer_cluster,
        line_batches: model.lines.batches,
        line_contended: model.lines.contended,
        load_window: model.lines.window,
        fence: costs.full_barrier,
        ipi_first: costs.ipi_send + exits.first,
        ipi_next: costs.ipi_send_more + exits.next,
        ipi_latency: [
            costs.ipi_deliver_cluster + exits.kick,
            costs.ipi_deliver_cluster + exits.kick,
            costs.ipi_deliver_socket + exits.kick,
            costs.ipi_deliver_remote + exits.kick,
        ],
        ipi_late: costs.ipi_late,
        interrupt_entry: costs.interrupt_entry + exits.inject,
        interrupt_exit: costs.interrupt_exit,
        smt_slowdown: model.smt.slowdown,
        smt_spin_slowdown: model.smt.spin_slowdown,
    };
    if model.vm.is_none() {
        config.ipi_groups = model.topology.ipi_groups(model.linux.ipi_cluster);
    }
    config.seed = seed;
    config.extra_tasks = extra_tasks;
    // Per-CPU words, spaces, page-table lines; lazily committed.
    config.arena_bytes = (64 << 20) + cpus * machines(model) * (16 << 10) + threads * (16 << 10);
    config
}

/// Most simulated memory of one process, bytes: a line per CPU to be woken at, its locks and table lines, and the
/// engine's space. Its memory is lazily committed.
pub(crate) fn process_bytes(model: &Model, bytes: u64) -> usize {
    let tables = bytes.div_ceil(2 << 20) as usize;
    all_cpus(model) * 128 + tables * (8 << 10) + (32 << 10)
}

/// The translation hardware of a model.
fn hardware_config(model: &Model, seed: u64) -> HwConfig {
    let cycles = |cycles: f64| cycles.round() as u32;
    let costs = &model.costs;
    HwConfig {
        cpus: all_cpus(model),
        tlb_entries: model.tlb.entries,
        tlb_ways: model.tlb.ways,
        large_entries: model.tlb.large_entries,
        psc_entries: model.tlb.paging_structure_entries,
        tags: model.tags.bits > 0,
        tag_bits: model.tags.bits,
        broadcast: limits(model),
        speculation: model.simulation.speculation,
        costs: Costs {
            tlb_hit: cycles(costs.tlb_hit),
            walk_step: cycles(costs.walk_step * model.vm.map_or(1.0, |vm| vm.walk)),
            invlpg: cycles(costs.invlpg),
            invpcid_address: cycles(costs.invpcid_address),
            invpcid_tag: cycles(costs.invpcid_tag),
            invpcid_all: cycles(costs.invpcid_all),
            root_load_keep: cycles(costs.root_load_keep),
            root_load_flush: cycles(costs.root_load_flush),
            broadcast_issue: cycles(costs.broadcast_issue),
            broadcast_min: cycles(costs.broadcast_sync / 4.0),
            broadcast_spread: cycles(costs.broadcast_sync * 0.75),
        },
        seed,
        tce: model.tlb.tce,
        // The leaf-only form keeps the links on the path to the address too.
        leaf_only_keeps_psc: matches!(model.arch, Arch::Aarch64(_)),
        isa: isa(model),
        ..HwConfig::default()
    }
}

fn limits(model: &Model) -> Option<BroadcastLimits> {
    model.broadcast.available.then_some(BroadcastLimits {
        max_pages: model.broadcast.max_pages,
        max_large_pages: model.broadcast.max_large_pages,
    })
}

fn remote_costs(model: &Model) -> Option<RemoteCosts> {
    let cycles = |cycles: f64| cycles.round() as u64;
    model.rar.map(|rar| RemoteCosts {
        entries: rar.entries,
        max_pages: rar.max_pages,
        action: cycles(rar.action),
        page: cycles(model.costs.invpcid_address),
        tag: cycles(model.costs.invpcid_tag),
        all: cycles(model.costs.invpcid_all),
    })
}

fn hook_costs(model: &Model, design: &Design) -> HookCosts {
    // The log needs no descriptor per target.
    let calls = design.policy.requests != Requests::Log;
    let trims = matches!(design.policy.departure, Departure::WhenAsked { .. });
    let trim_lines = if trims { model.linux.trim_lines } else { 0 };
    HookCosts {
        call_target: if calls {
            (model.kernel.call_target + trim_lines as f64 * model.costs.transfer_socket).round() as u64
        } else {
            0
        },
        answer_lines: calls && model.linux.answer_lines,
        ghz: model.ghz,
        broadcast_sync: model.costs.broadcast_sync.round() as u64,
        broadcast_interval: model.costs.broadcast_interval.round() as u64,
        broadcast_received: model.costs.broadcast_received.round() as u64,
        limits: limits(model),
        remote: remote_costs(model),
    }
}

pub(crate) fn os_settings(model: &Model, design: &Design, lru_drain: bool, ideal: bool) -> OsSettings {
    OsSettings {
        lru_drain,
        ideal,
        region_faults: model.linux.region_faults,
        region_drops: model.linux.region_drops,
        nested_flushes: nested_flushes(model, design, ideal),
        lru_locks: if model.linux.node_lru {
            model.topology.sockets
        } else {
            1
        },
        lru_batch: model.linux.lru_batch,
    }
}

fn os_costs(model: &Model) -> OsCosts {
    let kernel = &model.kernel;
    let cycles = |cycles: f64| (cycles * kernel.slowdown).round() as u64;
    let isolation = kernel.isolation.round() as u64;
    OsCosts {
        syscall: cycles(kernel.syscall) + isolation,
        fault: cycles(kernel.fault) + isolation,
        page_alloc: cycles(kernel.page_alloc),
        page_zero: cycles(kernel.page_zero),
        page_free: cycles(kernel.page_free),
        map_entry: cycles(kernel.map_entry),
        unmap_entry: cycles(kernel.unmap_entry),
        madvise: cycles(kernel.madvise),
        mmap: cycles(kernel.mmap),
        munmap: cycles(kernel.munmap),
        lru_add: cycles(kernel.lru_add),
        lru_hold: kernel.lru_hold.round() as u64,
        lru_page: kernel.lru_page.round() as u64,
        around_page: cycles(model.linux.around_page),
        idle: idle_states(model),
        user_access: kernel.user_access.round() as u64,
        sleep: kernel.sleep.round() as u64,
        wake: kernel.wake.round() as u64,
        wake_latency: kernel.wake_latency.round() as u64,
        switch: kernel.switch.round() as u64,
        microsecond: model.cycles(1e3).round() as u64,
        isolation,
    }
}

fn idle_states(model: &Model) -> IdleStates {
    let cycles = |cycles: f64| cycles.round() as u64;
    IdleStates {
        exit: cycles(model.kernel.idle_exit),
        // A host CPU whose virtual CPU halts: part of `vm.wake`.
        deep_exit: model.vm.map_or(cycles(model.kernel.deep_idle_exit), |_| 0),
        deep_after: cycles(model.kernel.deep_idle_after),
    }
}
