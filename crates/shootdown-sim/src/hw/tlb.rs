//! The translation caches of all CPUs as flat, lazily zeroed arrays.
//!
//! Owns where an entry is stored and which one is evicted. Does not decide whether an entry is live (`cpu.rs`) or
//! correct (`oracle.rs`), and keeps no counts.

use super::entry::Entry;
use shootdown::Stride;

/// Bits of a key: valid, global, size, tag, virtual page number. One word holds everything that a lookup compares.
pub(super) const VALID: u64 = 1 << 63;
pub(super) const GLOBAL: u64 = 1 << 62;
const SIZE_SHIFT: u32 = 60;
const TAG_SHIFT: u32 = 44;
const TAG: u64 = 0xffff << TAG_SHIFT;
const VPN: u64 = (1 << TAG_SHIFT) - 1;
const PAGE: u64 = VALID | (3 << SIZE_SHIFT) | VPN;

/// Virtual addresses have 48 significant bits.
pub(super) const VA_MASK: u64 = (1 << 48) - 1;

/// Body flag: the fill went through a table no longer linked where the walk found it.
pub(super) const SUSPECT: u32 = 1 << 15;

/// The key of the page of size `size` holding `va`, under `tag`.
#[inline]
pub(super) fn key(va: u64, size: Stride, tag: u16) -> u64 {
    VALID | ((size as u64) << SIZE_SHIFT) | ((tag as u64) << TAG_SHIFT) | ((va & VA_MASK) >> size.shift())
}

/// The tag in a key (0 in a global one).
#[inline]
pub(super) fn key_tag(key: u64) -> u16 {
    (key >> TAG_SHIFT) as u16
}

/// The part of an entry that is not its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    /// Machine sequence number of the fill.
    pub(super) fill: u64,
    /// Time of the fill, cycles.
    pub(super) at: u64,
    /// The oracle's slot for (space, page).
    pub(super) slot: u32,
    /// Frame mapped.
    pub(super) frame: u32,
    /// Space whose tables it came from (0: the kernel's).
    pub(super) space: u32,
    /// Low 12 bits: entry flags. Bit 15: [`SUSPECT`]. High 16: life of the frame at the fill.
    pub(super) bits: u32,
}

impl Body {
    #[inline]
    fn pack(self) -> [u64; 4] {
        let two = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        [
            self.fill,
            self.at,
            two(self.slot, self.frame),
            two(self.space, self.bits),
        ]
    }

    #[inline]
    fn unpack(w: &[u64; 4]) -> Body {
        Body {
            fill: w[0],
            at: w[1],
            slot: w[2] as u32,
            frame: (w[2] >> 32) as u32,
            space: w[3] as u32,
            bits: (w[3] >> 32) as u32,
        }
    }

    /// The cached translation, as an entry.
    #[inline]
    pub(super) fn entry(&self) -> Entry {
        Entry::page(self.frame).with((self.bits & 0xfff) as u64)
    }
}

/// Position of an entry: bank and index in its arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) large: bool,
    pub(super) index: usize,
}

/// One set-associative array for every CPU.
#[derive(Debug, Clone)]
struct Bank {
    sets: usize,
    ways: usize,
    keys: Vec<u64>,
    bodies: Vec<[u64; 4]>,
    hands: Vec<u8>,
}

impl Bank {
    fn new(cpus: usize, entries: usize, ways: usize) -> Bank {
        let ways = ways.clamp(1, 128);
        let sets = (entries / ways).max(1).next_power_of_two();
        let sets = if sets * ways > entries.max(ways) {
            (sets / 2).max(1)
        } else {
            sets
        };
        let n = cpus * sets * ways;
        Bank {
            sets,
            ways,
            keys: vec![0; n],
            bodies: vec![[0; 4]; n],
            hands: vec![0; cpus * sets],
        }
    }

    #[inline]
    fn set(&self, cpu: usize, key: u64) -> usize {
        cpu * self.sets + (key as usize & (self.sets - 1))
    }
}

/// The TLBs: one bank for 4 KiB pages, one for 2 MiB and 1 GiB pages.
#[derive(Debug, Clone)]
pub(super) struct Tlb {
    small: Bank,
    large: Bank,
    /// Large keys present per CPU; 0 lets lookups skip that bank.
    large_keys: Vec<u32>,
}

impl Tlb {
    pub(super) fn new(cpus: usize, entries: usize, ways: usize, large: usize) -> Tlb {
        Tlb {
            small: Bank::new(cpus, entries, ways),
            large: Bank::new(cpus, large.max(1), ways.min(large.max(1))),
            large_keys: vec![0; cpus],
        }
    }

    #[inline]
    fn bank(&self, large: bool) -> &Bank {
        if large { &self.large } else { &self.small }
    }

    /// Finds the small entry that a lookup of `key` hits: same page, and same tag or global.
    #[inline]
    pub(super) fn find_small(&self, cpu: usize, key: u64) -> Option<At> {
        Self::find_in(&self.small, cpu, key).map(|index| At { large: false, index })
    }

    #[inline]
    fn find_in(bank: &Bank, cpu: usize, key: u64) -> Option<usize> {
        let base = bank.set(cpu, key) * bank.ways;
        for (way, &k) in bank.keys[base..base + bank.ways].iter().enumerate() {
            let differ = k ^ key;
            if differ & PAGE == 0 && (differ & TAG == 0 || k & GLOBAL != 0) {
                return Some(base + way);
            }
        }
        None
    }

    /// Finds the entry of 2 MiB or 1 GiB that a lookup of `va` under `tag` hits.
    #[inline]
    pub(super) fn find_large(&self, cpu: usize, va: u64, tag: u16) -> Option<At> {
        if self.large_keys[cpu] == 0 {
            return None;
        }
        [Stride::Size2M, Stride::Size1G]
            .into_iter()
            .find_map(|size| Self::find_in(&self.large, cpu, key(va, size, tag)))
            .map(|index| At { large: true, index })
    }

    /// Finds from position `from` in its set on the next entry for the page of `key` under any tag.
    #[inline]
    pub(super) fn find_page(&self, cpu: usize, size: Stride, key: u64, from: usize) -> Option<(usize, At)> {
        let large = size != Stride::Size4K;
        let bank = self.bank(large);
        let base = bank.set(cpu, key) * bank.ways;
        bank.keys[base..base + bank.ways][from..]
            .iter()
            .position(|k| (k ^ key) & PAGE == 0)
            .map(|way| {
                (
                    from + way,
                    At {
                        large,
                        index: base + from + way,
                    },
                )
            })
    }

    /// Whether the CPU has any key for a large page.
    #[inline]
    pub(super) fn has_large(&self, cpu: usize) -> bool {
        self.large_keys[cpu] > 0
    }

    #[inline]
    pub(super) fn key(&self, at: At) -> u64 {
        self.bank(at.large).keys[at.index]
    }

    #[inline]
    pub(super) fn body(&self, at: At) -> Body {
        Body::unpack(&self.bank(at.large).bodies[at.index])
    }

    /// Changes the fill time of an entry.
    pub(super) fn set_fill(&mut self, at: At, fill: u64) {
        let bank = if at.large { &mut self.large } else { &mut self.small };
        bank.bodies[at.index][0] = fill;
    }

    /// Clears a position; returns its entry.
    #[inline]
    pub(super) fn take(&mut self, cpu: usize, at: At) -> Body {
        let body = self.body(at);
        if at.large {
            self.large.keys[at.index] = 0;
            self.large_keys[cpu] -= 1;
        } else {
            self.small.keys[at.index] = 0;
        }
        body
    }

    /// Inserts an entry; returns the evicted one. An empty way is taken first, else the ways in rotation.
    #[inline]
    pub(super) fn put(&mut self, cpu: usize, size: Stride, key: u64, body: Body) -> Option<Body> {
        let large = size != Stride::Size4K;
        let bank = if large { &mut self.large } else { &mut self.small };
        let set = bank.set(cpu, key);
        let base = set * bank.ways;
        let empty = bank.keys[base..base + bank.ways].iter().position(|&k| k == 0);
        let way = empty.unwrap_or_else(|| {
            let way = bank.hands[set] as usize;
            bank.hands[set] = ((way + 1) % bank.ways) as u8;
            way
        });
        let old = empty.is_none().then(|| Body::unpack(&bank.bodies[base + way]));
        bank.keys[base + way] = key;
        bank.bodies[base + way] = body.pack();
        if large && old.is_none() {
            self.large_keys[cpu] += 1;
        }
        old
    }

    /// The positions of one CPU, both banks: for scans.
    pub(super) fn positions(&self, cpu: usize) -> impl Iterator<Item = At> + use<> {
        let (small, large) = (self.small.sets * self.small.ways, self.large.sets * self.large.ways);
        (0..small)
            .map(move |i| At {
                large: false,
                index: cpu * small + i,
            })
            .chain((0..large).map(move |i| At {
                large: true,
                index: cpu * large + i,
            }))
    }

    /// The first byte of the page a key names, sign-extended, and its size.
    pub(super) fn page_of(key: u64) -> (u64, Stride) {
        let size = match (key >> SIZE_SHIFT) & 3 {
            0 => Stride::Size4K,
            1 => Stride::Size2M,
            _ => Stride::Size1G,
        };
        (super::canonical((key & VPN) << size.shift()), size)
    }
}
