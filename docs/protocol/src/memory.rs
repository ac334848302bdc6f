//! Memory of the models: each CPU's stores are buffered before other CPUs see them.
//!
//! Weaker than x86: relaxed stores to different words become visible in any order, as on Arm and RISC-V. A release
//! store waits for every store before it. A full barrier empties the buffer. Two effects are not modelled: loads take
//! effect in program order, and all other CPUs see a store at the same time (which holds on x86, Armv8 and RISC-V).
//!
//! Page-table walkers are separate observers: they read memory and no buffer, not even their own CPU's.

/// Most CPUs of a model.
pub const CPUS: usize = 3;

/// Most words of a model.
pub const WORDS: usize = 18;

/// Most buffered stores of one CPU. Models never exceed it; [`Memory::store`] panics if one does.
const WAITING: usize = 6;

/// A store that only its own CPU sees so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Store {
    word: u8,
    value: u8,
    release: bool,
}

/// Words, all 0 at first, and a buffer for each CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Memory {
    words: [u8; WORDS],
    buffers: [[Option<Store>; WAITING]; CPUS],
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            words: [0; WORDS],
            buffers: [[None; WAITING]; CPUS],
        }
    }
}

impl Memory {
    /// Sets a word in the initial state.
    pub fn set(&mut self, word: usize, value: u8) {
        self.words[word] = value;
    }

    /// The value that walkers see, and every CPU without a buffered store to the word.
    pub fn visible(&self, word: usize) -> u8 {
        self.words[word]
    }

    /// A load: the CPU's own newest store, otherwise memory.
    pub fn load(&self, cpu: usize, word: usize) -> u8 {
        let own = self.buffers[cpu].iter().rev().flatten();
        own.into_iter()
            .find(|store| usize::from(store.word) == word)
            .map_or(self.words[word], |store| store.value)
    }

    fn push(&mut self, cpu: usize, word: usize, value: u8, release: bool) {
        let free = self.buffers[cpu].iter().position(Option::is_none);
        self.buffers[cpu][free.expect("a model's stores fit the buffer")] = Some(Store {
            word: word as u8,
            value,
            release,
        });
    }

    /// A relaxed store.
    ///
    /// # Panics
    /// If the buffer is full.
    pub fn store(&mut self, cpu: usize, word: usize, value: u8) {
        self.push(cpu, word, value, false);
    }

    /// A release store: visible after every earlier store.
    ///
    /// # Panics
    /// If the buffer is full.
    pub fn release(&mut self, cpu: usize, word: usize, value: u8) {
        self.push(cpu, word, value, true);
    }

    /// A full barrier: every store of this CPU is visible before its next load.
    pub fn barrier(&mut self, cpu: usize) {
        while self.buffers[cpu][0].is_some() {
            self.drain(cpu, 0);
        }
    }

    /// A read-modify-write that is a full barrier. Returns the old value.
    pub fn update(&mut self, cpu: usize, word: usize, change: impl FnOnce(u8) -> u8) -> u8 {
        self.barrier(cpu);
        self.update_relaxed(cpu, word, change)
    }

    /// A read-modify-write that orders only its own word. Mutants use it in place of [`update`](Self::update).
    pub fn update_relaxed(&mut self, cpu: usize, word: usize, change: impl FnOnce(u8) -> u8) -> u8 {
        let of_word = |store: &Option<Store>| store.is_some_and(|store| usize::from(store.word) == word);
        while let Some(index) = self.buffers[cpu].iter().position(of_word) {
            self.drain(cpu, index);
        }
        let old = self.words[word];
        self.words[word] = change(old);
        old
    }

    /// Sets a CPU's bit by an exchange, which is a full barrier. With `plain`, for mutants, by a plain store.
    ///
    /// # Panics
    /// If the buffer is full.
    pub fn enter(&mut self, cpu: usize, word: usize, plain: bool) {
        if plain {
            self.store(cpu, word, 1);
        } else {
            self.update(cpu, word, |_| 1);
        }
    }

    /// The stores of this CPU that may become visible next, by their place in its buffer.
    pub fn drainable(&self, cpu: usize) -> impl Iterator<Item = usize> + '_ {
        let buffer = &self.buffers[cpu];
        (0..WAITING).filter(|&index| {
            buffer[index].is_some_and(|store| {
                !store.release || index == 0 // after everything before it
            }) && buffer[..index]
                .iter()
                .flatten()
                .all(|earlier| Some(earlier.word) != buffer[index].map(|store| store.word))
        })
    }

    /// Makes that store visible.
    pub fn drain(&mut self, cpu: usize, index: usize) {
        if let Some(store) = self.buffers[cpu][index] {
            self.words[usize::from(store.word)] = store.value;
            self.buffers[cpu].copy_within(index + 1.., index);
            self.buffers[cpu][WAITING - 1] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relaxed_stores_are_reordered() {
        let mut memory = Memory::default();
        memory.store(0, 0, 1);
        memory.store(0, 1, 2);
        memory.release(0, 2, 3);
        assert_eq!(memory.drainable(0).collect::<Vec<_>>(), [0, 1]);
        memory.drain(0, 1);
        assert_eq!([0, 1, 2].map(|word| memory.load(1, word)), [0, 2, 0]);
        assert_eq!([0, 1, 2].map(|word| memory.load(0, word)), [1, 2, 3]);
        memory.drain(0, 0);
        assert_eq!(memory.drainable(0).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn stores_to_one_word_stay_ordered_and_a_barrier_drains() {
        let mut memory = Memory::default();
        memory.store(0, 0, 1);
        memory.store(0, 0, 2);
        assert_eq!(memory.drainable(0).collect::<Vec<_>>(), [0]);
        memory.store(0, 1, 7);
        assert_eq!(memory.update_relaxed(0, 0, |old| old + 1), 2);
        assert_eq!((memory.visible(0), memory.visible(1)), (3, 0));
        assert_eq!(memory.update(0, 0, |old| old), 3);
        assert_eq!(memory.visible(1), 7);
    }
}
