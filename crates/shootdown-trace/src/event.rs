//! One event of a recording, independent of its source format.

/// An event on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'t> {
    /// Time in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// CPU it happened on.
    pub cpu: u32,
    /// Task that the CPU was running (Linux: pid of the thread), 0 for idle, [`Event::UNKNOWN_TASK`] when the recording
    /// does not say.
    pub task: u32,
    /// Process of that task (Linux: tgid), if the recording has it. Stands for the address space.
    pub process: Option<u32>,
    /// Name of the task, as recorded.
    pub name: &'t str,
    /// The kind of event.
    pub what: What<'t>,
}

impl Event<'_> {
    /// The task of a line that names none.
    pub const UNKNOWN_TASK: u32 = u32::MAX;
}

/// The kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'t> {
    /// The CPU switches from one task to another (`sched_switch`).
    Switch {
        /// Previous task.
        from: u32,
        /// Its state, as the kernel prints it: `R` runnable, `S`, `D`, `I` asleep, `X`, `Z` dead, ...
        state: &'t str,
        /// Next task, 0 for idle.
        to: u32,
    },
    /// Translations of the running process were invalidated (`tlb_flush`).
    Flush {
        /// Pages, -1 for all; 0 with [`Reason::TaskSwitch`] is a switch that kept the tag.
        pages: i64,
        /// Why.
        reason: Reason,
    },
    /// A function call was queued to another CPU (`csd_queue_cpu`).
    Queued {
        /// The other CPU.
        target: u32,
        /// The function.
        function: Function,
    },
    /// An interrupt was sent to one CPU (`ipi_send_cpu`).
    Interrupt {
        /// The other CPU.
        target: u32,
        /// Whether it is for function calls; else a reschedule or another kind.
        call: bool,
    },
    /// An interrupt was sent to several CPUs (`ipi_send_cpumask`).
    Interrupts {
        /// The CPUs, as a list such as `0-3,7`.
        targets: &'t str,
        /// Whether it is for function calls.
        call: bool,
    },
    /// The handler of function calls was entered (`call_function*_entry`).
    HandlerEntry,
    /// A task or process was created (`sched_process_fork`).
    Fork {
        /// The new task.
        child: u32,
    },
    /// A task was created (`task_newtask`).
    NewTask {
        /// The new task.
        child: u32,
        /// Flags of clone (Linux: `CLONE_THREAD` and others).
        flags: u64,
    },
    /// A new program was loaded (`sched_process_exec`).
    Exec,
    /// A task ended (`sched_process_exit`).
    Exit,
    /// A page fault of user code (`page_fault_user`).
    Fault {
        /// Address.
        address: u64,
    },
    /// A memory system call was entered.
    Call {
        /// The call.
        call: Call,
        /// First byte.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// `behavior` of madvise, `prot` of mprotect, new length of mremap; else 0.
        argument: u64,
    },
}

/// The function of a call to another CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// The kernel's remote TLB flush.
    Shootdown,
    /// Another one.
    Other,
    /// The recording has no name: its address, 0 if it has none either.
    Unnamed(u64),
}

/// A memory system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// madvise
    Madvise,
    /// munmap
    Munmap,
    /// mprotect
    Mprotect,
    /// mremap
    Mremap,
}

impl Call {
    /// All, with their names.
    pub const ALL: [(&'static str, Call); 4] = [
        ("madvise", Call::Madvise),
        ("munmap", Call::Munmap),
        ("mprotect", Call::Mprotect),
        ("mremap", Call::Mremap),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, call)| *call == self)
            .map_or("", |(name, _)| name)
    }
}

/// Why translations were invalidated: Linux's `enum tlb_flush_reason`, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// At a task switch.
    TaskSwitch = 0,
    /// On another CPU's request.
    Remote = 1,
    /// A flush of this CPU's own.
    Local = 2,
    /// This CPU's part of a flush of its own process.
    LocalSpace = 3,
    /// A request is sent to other CPUs: counted by the sender; this event invalidates nothing.
    Sent = 4,
    /// A request reached a CPU that no longer has the process loaded.
    WrongCpu = 5,
}

impl Reason {
    /// All, by number.
    pub const ALL: [Reason; 6] = [
        Reason::TaskSwitch,
        Reason::Remote,
        Reason::Local,
        Reason::LocalSpace,
        Reason::Sent,
        Reason::WrongCpu,
    ];

    /// In words, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TaskSwitch => "at a task switch",
            Reason::Remote => "on another CPU's request",
            Reason::Local => "local",
            Reason::LocalSpace => "local part of a flush",
            Reason::Sent => "(request sent)",
            Reason::WrongCpu => "request at a CPU that had left",
        }
    }

    /// The reason of that number.
    pub fn numbered(number: u64) -> Option<Reason> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}
