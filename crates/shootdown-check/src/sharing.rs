//! Which words more than one CPU has ever accessed, and which CPUs are interrupted. That knowledge persists from run to
//! run of an exploration: a word that only one CPU accesses in any run needs no interleaving. When a second CPU
//! accesses one, the exploration restarts.

use crate::word::{Address, MAX_CPUS};

/// Knowledge from all runs of an exploration: which CPUs access which word, and which are interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharing {
    /// For each word, bit *c*: CPU *c* has accessed it.
    touched: Vec<u8>,
    /// For each word, bit *c*: CPU *c* has written it.
    written: Vec<u8>,
    /// Bit *c*: CPU *c* was sent an interrupt.
    interrupted: u8,
    /// For each word and CPU: the last [`Place`] in its script that accesses the word.
    last: Vec<[Place; MAX_CPUS]>,
    /// For each word, bit *c*: CPU *c* accesses it in its handler.
    handled: Vec<u8>,
    /// This run has shown that more steps depend on each other.
    pub(crate) learnt: bool,
}

/// The position of a CPU in its script: the actions that it has ended, and accesses since then.
pub(crate) type Place = u32;

/// Most accesses between two ends of actions.
pub(crate) const ACCESSES: Place = 1 << 12;

/// The kind of access to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

impl Sharing {
    /// For `words` words, with no knowledge yet.
    pub(crate) fn new(words: usize) -> Self {
        Sharing {
            touched: vec![0; words],
            written: vec![0; words],
            interrupted: 0,
            last: vec![[0; MAX_CPUS]; words],
            handled: vec![0; words],
            learnt: false,
        }
    }

    /// Limits the number of words.
    pub(crate) fn truncate(&mut self, words: usize) {
        self.touched.truncate(words);
        self.written.truncate(words);
        self.last.truncate(words);
        self.handled.truncate(words);
    }

    /// The CPUs that have ever accessed the word: bit *c* for CPU *c*.
    #[inline]
    pub(crate) fn touched_by(&self, address: Address) -> u8 {
        self.touched[address as usize]
    }

    /// Whether an operation of `cpu` on the word depends on another CPU in some run. Records the operation.
    #[inline]
    pub(crate) fn depends(&mut self, address: Address, cpu: usize, touch: Touch) -> bool {
        let own = 1 << cpu;
        let (touched, written) = (&mut self.touched[address as usize], &mut self.written[address as usize]);
        let before = (*touched, *written);
        *touched |= own;
        if touch == Touch::Write {
            *written |= own;
        }
        if (*touched, *written) != before {
            // The CPUs that accessed the word before may have been treated as its only users.
            let others_read = before.0 & !own != 0 && touch == Touch::Write;
            let others_wrote = before.1 & !own != 0;
            self.learnt |= others_read || others_wrote;
        }
        match touch {
            Touch::Read => *written & !own != 0,
            Touch::Write => *touched & !own != 0,
        }
    }

    /// `cpu` accesses the word, in its handler or at that place of its script.
    pub(crate) fn reaches(&mut self, address: Address, cpu: usize, at: Option<Place>) {
        let others_wrote = self.written[address as usize] & !(1 << cpu) != 0;
        match at {
            None => {
                let handled = &mut self.handled[address as usize];
                self.learnt |= others_wrote && *handled >> cpu & 1 == 0;
                *handled |= 1 << cpu;
            }
            Some(at) => {
                let last = &mut self.last[address as usize][cpu];
                if at > *last {
                    *last = at;
                    self.learnt |= others_wrote;
                }
            }
        }
    }

    /// The CPUs that may still access the word, one bit each, given the position of each CPU.
    pub(crate) fn reached_by(&self, address: Address, places: &[Place]) -> u8 {
        let last = self.last[address as usize].iter().zip(places).enumerate();
        let by_scripts = last.fold(0, |bits, (cpu, (last, at))| bits | u8::from(at <= last) << cpu);
        by_scripts | self.handled[address as usize]
    }

    /// Whether `cpu` receives interrupts in some run.
    #[inline]
    pub(crate) fn is_interrupted(&self, cpu: usize) -> bool {
        self.interrupted >> cpu & 1 == 1
    }

    /// `cpu` receives an interrupt.
    pub(crate) fn interrupts(&mut self, cpu: usize) {
        self.learnt |= !self.is_interrupted(cpu);
        self.interrupted |= 1 << cpu;
    }
}
