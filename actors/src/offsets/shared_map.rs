//! `SharedMap`: a sorted map from text, of which a copy costs next to nothing and stays as it is.
//!
//! Invariants:
//! - copies share what none of them has changed since;
//! - a change copies the chunk it falls into, if another copy has that too, and one value: its time does not follow the
//!   size of the map but for one pointer for each chunk;
//! - chunks are sorted, none is empty, none has more than [`CHUNK_MAX`] entries.

use std::sync::Arc;

use troupemq_codec::Text;

/// Entries of a chunk: to copy so many takes some tens of microseconds.
const CHUNK_MAX: usize = 256;

type Chunk<V> = Vec<(Text, Arc<V>)>;

/// A map with cheap copies.
#[derive(Debug)]
pub(super) struct SharedMap<V> {
    chunks: Vec<Arc<Chunk<V>>>,
}

impl<V> Default for SharedMap<V> {
    fn default() -> SharedMap<V> {
        SharedMap { chunks: Vec::new() }
    }
}

impl<V> Clone for SharedMap<V> {
    fn clone(&self) -> SharedMap<V> {
        SharedMap { chunks: self.chunks.clone() }
    }
}

impl<V> SharedMap<V> {
    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What stands under a key.
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        search(chunk, key).ok().map(|at| &*chunk[at].1)
    }

    /// All of it, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Text, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, &**value)))
    }

    /// Takes out what stands under a key.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<V>> {
        let of_key = self.chunk_of(key);
        let chunk = self.chunks.get_mut(of_key)?;
        let at = search(chunk, key).ok()?;
        let chunk = Arc::make_mut(chunk);
        let (_, removed) = chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(of_key);
        }
        Some(removed)
    }

    /// The chunk in which a key stands, if it stands in any.
    fn chunk_of(&self, key: &str) -> usize {
        let begin_before = |chunk: &Arc<Chunk<V>>| {
            chunk.first().is_some_and(|(first, _)| first.as_bytes() <= key.as_bytes())
        };
        self.chunks.partition_point(begin_before).saturating_sub(1)
    }
}

impl<V: Clone + Default> SharedMap<V> {
    /// What stands under a key, to be changed.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let of_key = self.chunk_of(key);
        let chunk = self.chunks.get_mut(of_key)?;
        let at = search(chunk, key).ok()?;
        Some(Arc::make_mut(&mut Arc::make_mut(chunk)[at].1))
    }

    /// What stands under a key, to be changed; a value without content, if nothing did.
    pub(super) fn get_or_default(&mut self, key: &Text) -> &mut V {
        let of_key = self.make_room(key);
        let chunk = Arc::make_mut(&mut self.chunks[of_key]);
        let at = search(chunk, key).unwrap_or_else(|at| {
            chunk.insert(at, (key.clone(), Arc::default()));
            at
        });
        Arc::make_mut(&mut chunk[at].1)
    }

    /// Sees to it that the chunk of a key takes one entry more.
    fn make_room(&mut self, key: &str) -> usize {
        let of_key = self.chunk_of(key);
        match self.chunks.get_mut(of_key) {
            None => self.chunks.push(Arc::default()),
            Some(chunk) if chunk.len() < CHUNK_MAX => {}
            Some(chunk) => {
                let upper = Arc::make_mut(chunk).split_off(CHUNK_MAX / 2);
                self.chunks.insert(of_key + 1, Arc::new(upper));
                return self.chunk_of(key);
            }
        }
        of_key
    }
}

fn search<V>(chunk: &Chunk<V>, key: &str) -> Result<usize, usize> {
    chunk.binary_search_by(|(known, _)| known.as_bytes().cmp(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use troupemq_store::testing::Random;

    use super::*;

    fn entries(map: &SharedMap<u32>) -> Vec<(&str, u32)> {
        map.iter().map(|(key, value)| (key.as_str(), *value)).collect()
    }

    fn check(map: &SharedMap<u32>, model: &BTreeMap<String, u32>, seed: u64) {
        let wanted: Vec<_> = model.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        assert_eq!(entries(map), wanted, "seed {seed}");
        assert!(map.chunks.iter().all(|chunk| (1..=CHUNK_MAX).contains(&chunk.len())), "seed {seed}");
        assert_eq!(map.is_empty(), model.is_empty(), "seed {seed}");
    }

    #[test]
    fn it_holds_what_a_plain_map_holds_and_its_copies_stay_as_they_were() {
        for seed in 1..6_u64 {
            let mut random = Random::seeded(seed);
            let (mut map, mut model) = (SharedMap::<u32>::default(), BTreeMap::<String, u32>::new());
            let mut copies = Vec::new();
            for step in 0..8_000 {
                let key = random.below(1_500).to_string();
                // It grows first and shrinks then.
                if random.below(8_000) < step {
                    assert_eq!(map.remove(&key).map(|value| *value), model.remove(&key), "seed {seed}");
                } else {
                    *map.get_or_default(&Text::from(key.as_str())) += 1;
                    *model.entry(key.clone()).or_default() += 1;
                }
                if let Some(value) = map.get_mut(&key) {
                    *value += 10;
                    *model.entry(key.clone()).or_default() += 10;
                }
                assert_eq!(map.get(&key), model.get(&key), "seed {seed}");
                if step % 1_000 == 0 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            copies.iter().for_each(|(map, model)| check(map, model, seed));
        }
    }

    #[test]
    fn a_change_copies_one_chunk_and_one_value_and_shares_the_rest() {
        let mut map = SharedMap::<u32>::default();
        (0..10_000).for_each(|key| *map.get_or_default(&Text::from(format!("{key:04}"))) = key);
        let copy = map.clone();
        *map.get_mut("5000").unwrap() = 0;
        let pairs = || map.chunks.iter().zip(&copy.chunks);
        let changed: Vec<_> = pairs().filter(|(ours, theirs)| !Arc::ptr_eq(ours, theirs)).collect();
        let [(ours, theirs)] = changed[..] else { panic!("{} chunks were copied", changed.len()) };
        let values = ours.iter().zip(theirs.iter());
        assert_eq!(values.filter(|(one, other)| !Arc::ptr_eq(&one.1, &other.1)).count(), 1);
        assert_eq!((map.get("5000"), copy.get("5000")), (Some(&0), Some(&5000)));
    }
}
