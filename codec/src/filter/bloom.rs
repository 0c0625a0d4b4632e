//! The bits that stand for a consumer group in the bit map of a consume-queue extension unit.
//!
//! Invariants:
//! - the positions are those of RocketMQ, so that bit maps written by either are read by the other;
//! - positions are below the number of bits.
//!
//! A message's bit map has the bits of every group whose filter it passed when it was stored: a group whose bits
//! are not all set need not look at the message.
//!
//! RocketMQ's names for it: `BloomFilter`, `BloomFilterData`, `BitsArray`.

use serde::{Deserialize, Serialize};

/// Error rate of Java's default: per cent.
pub const ERROR_RATE_PERCENT: u32 = 20;
/// Filtering groups of one topic that Java's default expects.
pub const GROUPS_EXPECTED: u32 = 32;

/// How many bits a bit map has, and how many of them stand for one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomFilter {
    bits: u32,
    hashes: u32,
}

/// The bits of one group, as `consumerFilter.json` keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BloomFilterData {
    /// Bits of the filter that made them (RocketMQ: `bitNum`).
    pub bit_num: u32,
    /// Their positions (RocketMQ: `bitPos`).
    pub bit_pos: Vec<u32>,
}

impl Default for BloomFilter {
    fn default() -> BloomFilter {
        BloomFilter::new(ERROR_RATE_PERCENT, GROUPS_EXPECTED)
    }
}

impl BloomFilter {
    /// A filter for `expected` groups with this error rate: per cent, 1 to 99; both are brought into bounds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the numbers are small and positive"
    )]
    pub fn new(error_rate_percent: u32, expected: u32) -> BloomFilter {
        let error_rate = f64::from(error_rate_percent.clamp(1, 99)) / 100.0;
        let expected = f64::from(expected.clamp(1, 1 << 20));
        let hashes = (error_rate.ln() / 0.5_f64.ln()).ceil();
        let log2 = |value: f64| value.ln() / 2_f64.ln();
        let bits = (expected * log2(1.0 / error_rate) * log2(std::f64::consts::E)).ceil();
        BloomFilter { bits: ((bits / 8.0).ceil() * 8.0) as u32, hashes: hashes as u32 }
    }

    /// Bits of a bit map, a multiple of 8 (RocketMQ: `m`).
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The bits of a group that consumes a topic.
    pub fn of_group(&self, group: &str, topic: &str) -> BloomFilterData {
        self.of_text(&format!("{group}#{topic}"))
    }

    /// The bits of any text.
    pub fn of_text(&self, text: &str) -> BloomFilterData {
        let hash = murmur3_128(text.as_bytes()).to_be_bytes();
        let [a, b, c, d, e, f, g, h] = hash;
        let second = u32::from_be_bytes([a, b, c, d]);
        let first = u32::from_be_bytes([e, f, g, h]);
        let position = |turn: u32| {
            let combined = first.wrapping_add(turn.wrapping_mul(second));
            let positive = if combined >> 31 == 1 { !combined } else { combined };
            positive.checked_rem(self.bits).unwrap_or_default()
        };
        BloomFilterData { bit_num: self.bits, bit_pos: (1..=self.hashes).map(position).collect() }
    }

    /// Whether the bits were made by a filter like this one; others must be thrown away.
    pub fn made(&self, data: &BloomFilterData) -> bool {
        let is_inside = data.bit_pos.iter().all(|position| *position < self.bits);
        data.bit_num == self.bits && u32::try_from(data.bit_pos.len()) == Ok(self.hashes) && is_inside
    }

    /// An empty bit map.
    pub fn empty_map(&self) -> Vec<u8> {
        vec![0; usize::try_from(self.bits >> 3).unwrap_or_default()]
    }
}

impl BloomFilterData {
    /// Sets the bits in a bit map; those beyond its end are left out.
    pub fn set_in(&self, map: &mut [u8]) {
        for position in &self.bit_pos {
            let (byte, mask) = place(*position);
            if let Some(byte) = map.get_mut(byte) {
                *byte |= mask;
            }
        }
    }

    /// Whether all the bits are set in a bit map, so that the group may want the message. A map of another size
    /// says nothing: then it may.
    pub fn may_be_in(&self, map: &[u8]) -> bool {
        let is_set = |position: &u32| {
            let (byte, mask) = place(*position);
            map.get(byte).is_some_and(|byte| byte & mask != 0)
        };
        u32::try_from(map.len().saturating_mul(8)) != Ok(self.bit_num) || self.bit_pos.iter().all(is_set)
    }
}

fn place(position: u32) -> (usize, u8) {
    (usize::try_from(position >> 3).unwrap_or(usize::MAX), 1 << (position & 7))
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The first half of MurmurHash3 x64 128 with seed 0.
fn murmur3_128(bytes: &[u8]) -> u64 {
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        let (k1, k2) = words(block);
        h1 ^= mixed1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mixed2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (k1, k2) = words(blocks.remainder());
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    h1 ^= mixed1(k1) ^ len;
    h2 ^= mixed2(k2) ^ len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finished(h1).wrapping_add(finished(h2))
}

fn mixed1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mixed2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finished(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Up to 16 bytes as two numbers, the first byte lowest, zeros behind the end: the hash is defined so.
fn words(block: &[u8]) -> (u64, u64) {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
    let (low, high) = block.split_at_checked(8).unwrap_or((block, &[]));
    (number(low), number(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_112_bits_and_three_hashes() {
        let filter = BloomFilter::default();
        assert_eq!((filter.bits(), filter.hashes), (112, 3));
        assert_eq!(filter.empty_map().len(), 14);
    }

    #[test]
    fn the_bits_of_a_group_are_those_that_java_wrote() {
        let filter = BloomFilter::default();
        assert_eq!(filter.of_group("cg_sql_1", "GoldSql").bit_pos, [23, 66, 109]);
        assert_eq!(filter.of_group("cg_sql_2", "GoldSql").bit_pos, [25, 21, 17]);
    }

    #[test]
    fn set_bits_are_found_and_others_are_not() {
        let filter = BloomFilter::default();
        let (one, two) = (filter.of_group("one", "T"), filter.of_group("two", "T"));
        let mut map = filter.empty_map();
        assert!(!one.may_be_in(&map));
        one.set_in(&mut map);
        assert!(one.may_be_in(&map));
        assert!(!two.may_be_in(&map));
        assert!(two.may_be_in(&map[1..]), "a map of another size says nothing");
    }

    #[test]
    fn bits_of_another_filter_are_not_taken() {
        let filter = BloomFilter::default();
        let data = filter.of_group("g", "T");
        assert!(filter.made(&data));
        assert!(!BloomFilter::new(10, 128).made(&data));
        assert!(!filter.made(&BloomFilterData { bit_pos: vec![1, 2, 112], ..data }));
    }

    #[test]
    fn bits_are_json_as_java_writes_them() {
        let json = r#"{"bitNum":112,"bitPos":[23,66,109]}"#;
        let data: BloomFilterData = serde_json::from_str(json).unwrap();
        assert_eq!(data, BloomFilter::default().of_group("cg_sql_1", "GoldSql"));
        assert_eq!(serde_json::to_string(&data).unwrap(), json);
    }
}
