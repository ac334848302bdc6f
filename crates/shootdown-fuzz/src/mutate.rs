//! Changes to seeds, made by a seeded generator: the same at every run.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Numbers that are often wrong.
const NUMBERS: [u64; 10] = [
    0,
    1,
    0x7F,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 47,
    i64::MAX as u64,
    u64::MAX,
];

/// Words that mean something in one of the texts.
const WORDS: [&[u8]; 12] = [
    b"-1",
    b"18446744073709551616",
    b"nan",
    b"-inf",
    b"1e400",
    b"\n",
    b"[",
    b"==>",
    b"_ns = ",
    b"\xFF\xFE",
    b"pages:",
    b"\0",
];

/// Changes to some seeds.
pub struct Mutations<'s> {
    seeds: &'s [Vec<u8>],
    random: Xoshiro256PlusPlus,
    longest: usize,
}

impl<'s> Mutations<'s> {
    /// Changes of `seeds`, none longer than `longest` bytes.
    ///
    /// # Panics
    /// When there are no seeds.
    pub fn new(seeds: &'s [Vec<u8>], seed: u64, longest: usize) -> Self {
        assert!(!seeds.is_empty(), "a corpus has seeds");
        Mutations {
            seeds,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            longest,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end.max(1) as u64) as usize
    }

    /// Puts `with` in place of up to `gone` bytes somewhere.
    fn replace(&mut self, bytes: &mut Vec<u8>, gone: usize, with: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + gone).min(bytes.len());
        bytes.splice(at..end, with.iter().copied());
    }
}

impl Iterator for Mutations<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let seed = self.below(self.seeds.len());
        let mut bytes = self.seeds[seed].clone();
        for _ in 0..=self.below(4) {
            match self.below(7) {
                0 if !bytes.is_empty() => {
                    let (at, bit) = (self.below(bytes.len()), self.below(8));
                    bytes[at] ^= 1 << bit;
                }
                1 => {
                    let byte = self.random.next_u64() as u8;
                    self.replace(&mut bytes, 1, &[byte]);
                }
                2 => {
                    let (number, length) = (self.below(NUMBERS.len()), 1 << self.below(4));
                    let number = NUMBERS[number].to_le_bytes();
                    self.replace(&mut bytes, length, &number[..length]);
                }
                3 => {
                    let (word, gone) = (self.below(WORDS.len()), self.below(8));
                    self.replace(&mut bytes, gone, WORDS[word]);
                }
                4 => {
                    let gone = self.below(bytes.len() / 4 + 1);
                    self.replace(&mut bytes, gone, &[]);
                }
                5 => {
                    // A piece of another seed.
                    let other = self.below(self.seeds.len());
                    let other = &self.seeds[other];
                    let (from, length) = (self.below(other.len()), self.below(other.len() / 2 + 1));
                    let piece = other[from..(from + length).min(other.len())].to_vec();
                    self.replace(&mut bytes, 0, &piece);
                }
                _ => bytes.truncate(self.below(bytes.len() + 1)),
            }
        }
        bytes.truncate(self.longest);
        Some(bytes)
    }
}
