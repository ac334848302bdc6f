//! Which words more than one CPU has ever touched, and who is interrupted. That knowledge lasts from run to run of an
//! exploration: a word that only one CPU touches in any run needs no interleaving at its accesses. When a second CPU
//! touches one, whoever explores starts over.

use crate::word::{Address, MAX_CPUS};

/// What is learnt over all runs of an exploration: who touches which word, and who is interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharing {
    /// Of each word, bit *c*: CPU *c* has touched it.
    touched: Vec<u8>,
    /// Of each word, bit *c*: CPU *c* has written it.
    written: Vec<u8>,
    /// Bit *c*: CPU *c* was sent an interrupt.
    interrupted: u8,
    /// Of each word and CPU: the last [`Place`] of its script that touches the word.
    last: Vec<[Place; MAX_CPUS]>,
    /// Of each word, bit *c*: CPU *c* touches it in its handler.
    handled: Vec<u8>,
    /// Something was learnt in this run that makes more steps depend on each other.
    pub(crate) learnt: bool,
}

/// How far a CPU is in its script: what it has ended, and accesses since then.
pub(crate) type Place = u32;

/// Accesses between one end and the next, at most.
pub(crate) const ACCESSES: Place = 1 << 12;

/// What an operation does with a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

impl Sharing {
    /// Of so many words, nothing yet.
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

    /// There are no more than so many words.
    pub(crate) fn truncate(&mut self, words: usize) {
        self.touched.truncate(words);
        self.written.truncate(words);
        self.last.truncate(words);
        self.handled.truncate(words);
    }

    /// Who has ever touched the word: bit *c* for CPU *c*.
    #[inline]
    pub(crate) fn touched_by(&self, address: Address) -> u8 {
        self.touched[address as usize]
    }

    /// Whether what `cpu` does with the word depends on what another CPU does with it in some run; notes that `cpu`
    /// does it.
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
            // Whoever has touched the word before may have been taken to be alone with it.
            let others_read = before.0 & !own != 0 && touch == Touch::Write;
            let others_wrote = before.1 & !own != 0;
            self.learnt |= others_read || others_wrote;
        }
        match touch {
            Touch::Read => *written & !own != 0,
            Touch::Write => *touched & !own != 0,
        }
    }

    /// `cpu` touches the word, in its handler or at that place of its script.
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

    /// Who may still touch the word, as one bit each, when that is how far each CPU is.
    pub(crate) fn reached_by(&self, address: Address, places: &[Place]) -> u8 {
        let last = self.last[address as usize].iter().zip(places).enumerate();
        let by_scripts = last.fold(0, |bits, (cpu, (last, at))| bits | u8::from(at <= last) << cpu);
        by_scripts | self.handled[address as usize]
    }

    /// Whether `cpu` is sent interrupts in some run.
    #[inline]
    pub(crate) fn is_interrupted(&self, cpu: usize) -> bool {
        self.interrupted >> cpu & 1 == 1
    }

    /// `cpu` is sent an interrupt.
    pub(crate) fn interrupts(&mut self, cpu: usize) {
        self.learnt |= !self.is_interrupted(cpu);
        self.interrupted |= 1 << cpu;
    }
}
