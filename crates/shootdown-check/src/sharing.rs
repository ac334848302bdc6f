//! Which words more than one CPU has ever touched, and who is interrupted. That knowledge lasts from run to run of an
//! exploration: a word that only one CPU touches in any run needs no interleaving at its accesses. When a second CPU
//! touches one, whoever explores starts over.

use crate::memory::Address;

/// What is learnt over all runs of an exploration: who touches which word, and who is interrupted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharing {
    /// Of each word, bit *c*: CPU *c* has touched it.
    touched: Vec<u8>,
    /// Of each word, bit *c*: CPU *c* has written it.
    written: Vec<u8>,
    /// Bit *c*: CPU *c* was sent an interrupt.
    interrupted: u8,
    /// Something was learnt in this run that makes more steps depend on each other.
    pub(crate) learnt: bool,
}

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
            learnt: false,
        }
    }

    /// There are no more than so many words.
    pub(crate) fn truncate(&mut self, words: usize) {
        self.touched.truncate(words);
        self.written.truncate(words);
    }

    /// Who has ever touched the word: bit *c* for CPU *c*.
    #[inline]
    pub(crate) fn touched_by(&self, address: Address) -> u8 {
        self.touched[address as usize]
    }

    /// Whether what `cpu` does with the word depends on what another CPU does with it in some run; notes that `cpu` does it.
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
