//! A set of offsets that come in ascending order and go in any: one bit for each between the first and the last.
//!
//! Invariants:
//! - words without a bit are dropped at the front, so the oldest offset bounds the memory.

use std::collections::VecDeque;

const WORD: i64 = 64;

/// The set.
#[derive(Debug, Default)]
pub(super) struct OpenSet {
    /// Number of the first word: its bits are the offsets from 64 times that on.
    first_word: i64,
    words: VecDeque<u64>,
    count: usize,
}

impl OpenSet {
    /// Adds an offset; those below the first of the set cannot come back.
    pub(super) fn insert(&mut self, offset: i64) {
        let word = offset.div_euclid(WORD);
        if self.words.is_empty() {
            self.first_word = word;
        }
        let Ok(at) = usize::try_from(word - self.first_word) else { return };
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = bit_of(offset);
        self.count += usize::from(self.words[at] & bit == 0);
        self.words[at] |= bit;
    }

    /// Removes an offset, if it is there.
    pub(super) fn remove(&mut self, offset: i64) {
        if !self.contains(offset) {
            return;
        }
        if let Some(word) = self.index(offset).and_then(|at| self.words.get_mut(at)) {
            *word &= !bit_of(offset);
            self.count -= 1;
        }
        while self.words.front() == Some(&0) {
            self.words.pop_front();
            self.first_word += 1;
        }
    }

    /// Whether an offset is there.
    pub(super) fn contains(&self, offset: i64) -> bool {
        let word = self.index(offset).and_then(|at| self.words.get(at));
        word.is_some_and(|word| word & bit_of(offset) != 0)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The smallest.
    pub(super) fn first(&self) -> Option<i64> {
        self.from(i64::MIN).next()
    }

    /// Those from an offset on, ascending.
    pub(super) fn from(&self, offset: i64) -> impl Iterator<Item = i64> {
        let skipped = self.index(offset).unwrap_or(0).min(self.words.len());
        let words = self.words.iter().skip(skipped).enumerate();
        let first = self.first_word + i64::try_from(skipped).unwrap_or(i64::MAX);
        let numbered = words.map(move |(at, word)| (first + i64::try_from(at).unwrap_or(i64::MAX), *word));
        numbered.flat_map(|(number, word)| bits_of(number, word)).filter(move |at| *at >= offset)
    }

    /// The index of the word of an offset; none below the first.
    fn index(&self, offset: i64) -> Option<usize> {
        usize::try_from(offset.div_euclid(WORD).checked_sub(self.first_word)?).ok()
    }
}

fn bit_of(offset: i64) -> u64 {
    1 << offset.rem_euclid(WORD)
}

fn bits_of(number: i64, mut word: u64) -> impl Iterator<Item = i64> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        let rest = word.checked_sub(1)?;
        word &= rest;
        Some(number * WORD + i64::from(bit))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_holds_what_a_plain_set_holds() {
        let mut dice: u64 = 7;
        let (mut set, mut plain) = (OpenSet::default(), BTreeSet::new());
        for offset in 0..20_000_i64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 62 != 0 {
                set.insert(offset);
                plain.insert(offset);
            }
            let gone = (dice >> 20).cast_signed().rem_euclid(offset + 1);
            set.remove(gone);
            plain.remove(&gone);
            assert_eq!((set.len(), set.first()), (plain.len(), plain.first().copied()));
            assert_eq!(set.contains(gone - 1), plain.contains(&(gone - 1)));
        }
        for from in [-1, 0, 63, 64, 777, 19_999, 20_000] {
            let wanted: Vec<i64> = plain.range(from..).copied().collect();
            assert_eq!(set.from(from).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn a_million_cost_a_bit_each_and_the_old_give_their_memory_back() {
        let mut set = OpenSet::default();
        (5_000_000_000..5_001_000_000).for_each(|offset| set.insert(offset));
        assert!(set.words.len() <= 15_626, "{} words", set.words.len());
        (5_000_000_000..5_000_999_999).for_each(|offset| set.remove(offset));
        assert_eq!((set.words.len(), set.first()), (1, Some(5_000_999_999)));
    }
}
