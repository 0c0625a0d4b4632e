//! Hashes of the names by which timers are cancelled: each timer has two, and hardly any is cancelled.
//!
//! Invariants:
//! - the keys are random and leave the process in no form: who chooses names cannot choose their hashes.

use std::hash::{BuildHasher, RandomState};

/// Hashes names with one set of keys.
#[derive(Debug, Clone)]
pub struct NameHashes {
    keys: [u64; 4],
}

impl NameHashes {
    /// With new keys.
    pub fn random() -> NameHashes {
        let random = RandomState::new();
        NameHashes { keys: [1, 2, 3, 4].map(|number| random.hash_one(number)) }
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let [first, second, third, fourth] = self.keys;
        let mut hash = first;
        let mut mix = |piece: &[u8; 16]| {
            let (words, _) = piece.as_chunks::<8>();
            hash = folded(hash ^ second ^ u64::from_be_bytes(words[0]), third ^ u64::from_be_bytes(words[1]));
        };
        let (pieces, rest) = name.as_chunks::<16>();
        pieces.iter().for_each(&mut mix);
        match name.last_chunk::<16>() {
            _ if rest.is_empty() => {}
            // The length is mixed in at the end: a byte that is mixed in twice makes no two names one.
            Some(last) => mix(last),
            None => {
                let mut padded = [0; 16];
                padded.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
                mix(&padded);
            }
        }
        folded(hash ^ fourth, second ^ name.len() as u64)
    }
}

/// Both halves of a product, each bit of which depends on all bits of both factors below it.
fn folded(left: u64, right: u64) -> u64 {
    let high = (u128::from(left) * u128::from(right)) >> 64;
    high as u64 ^ left.wrapping_mul(right)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_that_differ_in_a_byte_or_in_their_length_have_other_hashes() {
        let hashes = NameHashes::random();
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        for bytes in 0..70 {
            let name = vec![b'a'; bytes];
            names.extend((0..bytes).map(|at| {
                let mut other = name.clone();
                other[at] ^= 1;
                other
            }));
            names.insert(name);
            names.insert(vec![0; bytes]);
        }
        let found: HashSet<u64> = names.iter().map(|name| hashes.hash(name)).collect();
        assert_eq!(found.len(), names.len());
        let again = names.iter().filter(|name| found.contains(&NameHashes::random().hash(name)));
        assert_eq!(again.count(), 0, "other keys make other hashes");
    }
}
