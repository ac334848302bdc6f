//! What the machine can do, found at boot.

/// Workarounds for processors that do not invalidate correctly. Read in `flush` and `transport/broadcast.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errata {
    /// Never broadcast, regardless of the reach: use interrupts (ThunderX pass 1, ThunderX 27456).
    pub never_broadcast: bool,
    /// Interrupt in addition to the broadcast: the synchronisation is acknowledged too early (C1-Pro 4193714).
    pub interrupt_too: bool,
    /// Invalidate and synchronise twice (Falkor 1009, A76 1286807, A55 2441007, A510 2441009).
    pub repeat: bool,
}

impl Errata {
    /// A processor without errata.
    pub const NONE: Errata = Errata {
        never_broadcast: false,
        interrupt_too: false,
        repeat: false,
    };
}

/// The limits and errata of a machine. Given to the engine when it is built.
///
/// `..Machine::PCID` fills in the other fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// First tag that the engine may use, at least 1. Lower tags belong to the kernel, whose root is loaded under tag
    /// 0.
    pub first_tag: u16,
    /// One past the last tag of the hardware: 4096 for PCIDs, 256 or 65,536 for ASIDs, half as many for split Arm
    /// pairs. 0 or 1 where there are no usable tags: see [`has_tags`](Machine::has_tags).
    pub tag_limit: u32,
    /// User and kernel halves under a pair of tags that differ in [`USER_HALF`] (PTI style). Hooks receive both tags of
    /// a pair. Where the hardware pairs tags otherwise, the hook translates: on Arm an even ASID and the next one
    /// (`AsidPair::of_tag` of `shootdown-arch`). That gives half as many pairs as there are ASIDs, which `tag_limit`
    /// states.
    pub split: bool,
    /// Workarounds for the processor.
    pub errata: Errata,
}

/// The tag bit that marks the user half of a split pair (bit 11 of the PCID, as in Linux's PTI).
pub const USER_HALF: u16 = 1 << 11;

impl Machine {
    /// x86 with PCIDs: 4096 tags, no errata.
    pub const PCID: Machine = Machine {
        first_tag: 1,
        tag_limit: 1 << 12,
        split: false,
        errata: Errata::NONE,
    };

    /// A machine without usable tags (x86 without PCIDs, RISC-V with an ASID width of 0), no errata.
    ///
    /// Every hook receives tag 0, and [`load_root`](crate::Kernel::load_root) never receives `keep`, not even for the
    /// kernel's root: no entry of one space survives the load of another (C4). [`Policy::slots`](crate::Policy::slots),
    /// [`first_tag`](Machine::first_tag) and [`split`](Machine::split) have no meaning.
    pub const NO_TAGS: Machine = Machine {
        tag_limit: 1,
        ..Machine::PCID
    };

    /// A machine with tags of `bits` bits, at most 16, and no errata. 0 for no tags.
    pub const fn with_tag_bits(bits: u32) -> Machine {
        assert!(bits <= 16, "a tag has at most 16 bits");
        Machine {
            tag_limit: 1 << bits,
            ..Machine::PCID
        }
    }

    /// The same machine, using at most `tags` tags: as many as [`Storage`](crate::Storage) has room for.
    pub const fn limited_to(self, tags: u32) -> Machine {
        Machine {
            tag_limit: if tags < self.tag_limit { tags } else { self.tag_limit },
            ..self
        }
    }

    /// Whether spaces can have tags; see [`NO_TAGS`](Self::NO_TAGS).
    #[inline]
    pub const fn has_tags(&self) -> bool {
        self.tag_limit > 1
    }

    /// The same machine. One without tags has one number for every root, 0, and no pairs.
    pub(crate) const fn normalised(mut self) -> Machine {
        if !self.has_tags() {
            self.first_tag = 0;
            self.split = false;
        }
        self
    }

    /// One past the last tag that may be allocated.
    #[inline]
    pub(crate) const fn end_of_tags(&self) -> u32 {
        if self.split && self.tag_limit > USER_HALF as u32 {
            USER_HALF as u32
        } else {
            self.tag_limit
        }
    }
}

/// Whether one instruction is enough to invalidate one page. Computed once: a flush then tests one byte in place of
/// four.
#[derive(Clone, Copy)]
pub(crate) struct OneInstruction {
    /// On this CPU: tags are not split, and no erratum repeats it.
    pub(crate) here: bool,
    /// By broadcast: also no erratum forbids it, or needs interrupts too.
    pub(crate) everywhere: bool,
}

impl OneInstruction {
    pub(crate) const fn on(machine: &Machine) -> OneInstruction {
        let Errata {
            never_broadcast,
            interrupt_too,
            repeat,
        } = machine.errata;
        let here = !machine.split && !repeat;
        OneInstruction {
            here,
            everywhere: here && !never_broadcast && !interrupt_too,
        }
    }
}
