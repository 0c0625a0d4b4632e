//! The hash of a key: Java's hash of `topic#key`, without ever building that text.
//!
//! Invariants:
//! - the hash of a text is the hash of its front carried over its rest, so the topic is hashed once for all keys;
//! - the result is never negative: −2^31 has no positive twin and becomes 0.

/// Hash of `topic#`, the front of all keys of a topic.
pub(crate) fn topic_seed(topic: &str) -> i32 {
    carry(carry(0, topic.as_bytes()), b"#")
}

/// Hash of a key, text as bytes, of the topic with this seed, as the index stores it.
pub(crate) fn key_hash(seed: i32, key: &[u8]) -> u32 {
    let hash = carry(seed, key);
    hash.checked_abs().unwrap_or(0).cast_unsigned()
}

/// The hashes of all keys of a record: its unique key, and each of `keys`, which have blanks between. `seed` is the
/// hash of the topic's front.
#[inline]
pub(crate) fn key_hashes<'a>(
    seed: i32,
    unique_key: Option<&'a [u8]>,
    keys: Option<&'a [u8]>,
) -> impl Iterator<Item = u32> + use<'a> {
    let keys = keys.unwrap_or_default().split(|byte| *byte == b' ').filter(|key| !key.is_empty());
    unique_key.into_iter().chain(keys).map(move |key| key_hash(seed, key))
}

/// Hashes keys of which each is like the one before but for its end, as ids of one producer are: what they have in
/// front is hashed once.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher {
    seed: i32,
    front: Vec<u8>,
    /// The hash of the topic's front carried over that of the key.
    carried: i32,
}

impl KeyHasher {
    /// The same as [`key_hash`].
    pub(crate) fn hash(&mut self, seed: i32, key: &[u8]) -> u32 {
        let parts = key.len().checked_sub(END_BYTES).and_then(|at| key.split_at_checked(at));
        // Elsewhere a character may stand across the place.
        let Some((front, end)) = parts.filter(|_| key.is_ascii()) else { return key_hash(seed, key) };
        if seed != self.seed || front != self.front {
            (self.seed, self.carried) = (seed, carry(seed, front));
            self.front.clear();
            self.front.extend_from_slice(front);
        }
        key_hash(self.carried, end)
    }
}

/// Characters in which a key may differ from the one before: the counter of an id.
const END_BYTES: usize = 4;

/// 31 to the power of 0 … 8, wrapping.
const POWERS: [u32; 9] = {
    let mut powers = [1_u32; 9];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1].wrapping_mul(31);
        at += 1;
    }
    powers
};

/// Carries Java's `String.hashCode` on over more text.
fn carry(hash: i32, text: &[u8]) -> i32 {
    let mut hash = hash.cast_unsigned();
    if !text.is_ascii() {
        for unit in String::from_utf8_lossy(text).encode_utf16() {
            hash = hash.wrapping_mul(31).wrapping_add(u32::from(unit));
        }
        return hash.cast_signed();
    }
    // Eight characters at once: the products do not wait for each other.
    let (eights, rest) = text.as_chunks::<8>();
    for eight in eights {
        let mut sum = hash.wrapping_mul(POWERS[8]);
        for (byte, power) in eight.iter().zip(POWERS[..8].iter().rev()) {
            sum = sum.wrapping_add(u32::from(*byte).wrapping_mul(*power));
        }
        hash = sum;
    }
    for byte in rest {
        hash = hash.wrapping_mul(31).wrapping_add(u32::from(*byte));
    }
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use troupemq_codec::filter::java_hash;

    use super::*;

    #[test]
    fn a_carried_hash_is_javas_hash_of_the_whole() {
        assert_eq!(key_hash(topic_seed("TopicTest"), b"KeyA"), 1_656_937_756);
        for topic in ["", "T", "TopicTest", "主题", "%RETRY%group"] {
            for key in ["", "a", "1234567", "12345678", "7F0000015B334E0E2F2A939017EE0002", "订单 7", "ü"]
            {
                let whole = java_hash(&format!("{topic}#{key}"));
                assert_eq!(carry(topic_seed(topic), key.as_bytes()), whole, "{topic}#{key}");
            }
        }
    }

    #[test]
    fn keys_hashed_one_after_the_other_have_the_hashes_that_each_has_alone() {
        let mut hasher = KeyHasher::default();
        let ids =
            ["7F0000015B334E0E2F2A939017EE0002", "7F0000015B334E0E2F2A939017EE0003", "7F0000015B334E0E2F2A"];
        for key in ids.into_iter().chain(["", "a", "0002", "0003", "订单 0002", "订单 0003", "a订", ids[0]])
        {
            for topic in ["", "T", "T", "主题"] {
                let seed = topic_seed(topic);
                assert_eq!(
                    hasher.hash(seed, key.as_bytes()),
                    key_hash(seed, key.as_bytes()),
                    "{topic}#{key}"
                );
            }
        }
        for key in ids.into_iter().cycle().take(7) {
            assert_eq!(hasher.hash(0, key.as_bytes()), key_hash(0, key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn the_hash_without_a_positive_twin_is_zero() {
        assert_eq!(carry(0, b"polygenelubricants"), i32::MIN);
        assert_eq!(key_hash(0, b"polygenelubricants"), 0);
    }
}
