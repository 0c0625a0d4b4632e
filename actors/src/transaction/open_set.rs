//! A set of offsets that come in ascending order and go in any, some of which are taken: two bits for each between the
//! first and the last.
//!
//! Invariants:
//! - words without a bit are dropped at the front, so the oldest offset bounds the memory;
//! - what is not in the set is not taken.

use std::collections::VecDeque;

const WORD: i64 = 64;

/// The set.
#[derive(Debug, Default)]
pub(super) struct OpenSet {
    /// Number of the first word: its bits are the offsets from 64 times that on.
    first_word: i64,
    words: VecDeque<Word>,
    count: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// Those that are there.
    open: u64,
    /// Those of them that are taken.
    taken: u64,
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
            self.words.resize(at + 1, Word::default());
        }
        let bit = bit_of(offset);
        self.count += usize::from(self.words[at].open & bit == 0);
        self.words[at].open |= bit;
    }

    /// Removes an offset, if it is there.
    pub(super) fn remove(&mut self, offset: i64) {
        let bit = bit_of(offset);
        let Some(word) = self.word_of(offset).filter(|word| word.open & bit != 0) else { return };
        word.open &= !bit;
        word.taken &= !bit;
        self.count -= 1;
        while self.words.front().is_some_and(|word| word.open == 0) {
            self.words.pop_front();
            self.first_word += 1;
        }
    }

    /// Takes an offset; false if it is not there or taken already.
    pub(super) fn take(&mut self, offset: i64) -> bool {
        let bit = bit_of(offset);
        let free = self.word_of(offset).filter(|word| word.open & !word.taken & bit != 0);
        free.map(|word| word.taken |= bit).is_some()
    }

    /// Gives an offset back.
    pub(super) fn give_back(&mut self, offset: i64) {
        if let Some(word) = self.word_of(offset) {
            word.taken &= !bit_of(offset);
        }
    }

    /// Whether an offset is there.
    pub(super) fn contains(&self, offset: i64) -> bool {
        let word = self.index(offset).and_then(|at| self.words.get(at));
        word.is_some_and(|word| word.open & bit_of(offset) != 0)
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
        self.bits_from(offset, |word| word.open)
    }

    /// Those of them that are not taken.
    pub(super) fn free_from(&self, offset: i64) -> impl Iterator<Item = i64> {
        self.bits_from(offset, |word| word.open & !word.taken)
    }

    fn bits_from(&self, offset: i64, bits: impl Fn(&Word) -> u64) -> impl Iterator<Item = i64> {
        let skipped = self.index(offset).unwrap_or(0).min(self.words.len());
        let words = self.words.iter().skip(skipped).enumerate();
        let first = self.first_word + i64::try_from(skipped).unwrap_or(i64::MAX);
        let numbered =
            words.map(move |(at, word)| (first + i64::try_from(at).unwrap_or(i64::MAX), bits(word)));
        numbered.flat_map(|(number, word)| bits_of(number, word)).filter(move |at| *at >= offset)
    }

    fn word_of(&mut self, offset: i64) -> Option<&mut Word> {
        let at = self.index(offset)?;
        self.words.get_mut(at)
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
        let (mut set, mut plain, mut taken) = (OpenSet::default(), BTreeSet::new(), BTreeSet::new());
        for offset in 0..20_000_i64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if dice >> 62 != 0 {
                set.insert(offset);
                plain.insert(offset);
            }
            let [gone, busy, idle] =
                [20, 13, 7].map(|low| (dice >> low).cast_signed().rem_euclid(offset + 1));
            assert_eq!(set.take(busy), plain.contains(&busy) && taken.insert(busy));
            set.give_back(idle);
            taken.remove(&idle);
            set.remove(gone);
            plain.remove(&gone);
            taken.remove(&gone);
            assert_eq!((set.len(), set.first()), (plain.len(), plain.first().copied()));
            assert_eq!(set.contains(gone - 1), plain.contains(&(gone - 1)));
        }
        for from in [-1, 0, 63, 64, 777, 19_999, 20_000] {
            let wanted: Vec<i64> = plain.range(from..).copied().collect();
            assert_eq!(set.from(from).collect::<Vec<_>>(), wanted);
            let wanted: Vec<i64> = wanted.into_iter().filter(|at| !taken.contains(at)).collect();
            assert_eq!(set.free_from(from).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn a_million_cost_two_bits_each_and_the_old_give_their_memory_back() {
        let mut set = OpenSet::default();
        (5_000_000_000..5_001_000_000).for_each(|offset| set.insert(offset));
        assert!(set.words.len() <= 15_626, "{} words", set.words.len());
        (5_000_000_000..5_000_999_999).for_each(|offset| set.remove(offset));
        assert_eq!((set.words.len(), set.first()), (1, Some(5_000_999_999)));
    }
}
