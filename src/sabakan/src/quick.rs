//! A fast hash for addresses. The standard hash withstands chosen keys, and takes as long as the rest of a pass that
//! finds nothing to do.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map with the fast hash.
pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// Hasher that multiplies and rotates, eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FastHasher(u64);

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        // a loop is quicker than a copy of a few bytes
        self.write_u64(rest.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(ODD);
    }

    fn write_i64(&mut self, word: i64) {
        self.write_u64(word.cast_unsigned());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // the table uses the lowest and the highest bits
        self.0 ^ (self.0 >> 29)
    }
}
