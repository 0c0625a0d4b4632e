//! One unit of a consume queue: where a message lies in the commit log.
//!
//! Invariants:
//! - a plain queue has one unit for each message, so a unit's place is its queue offset;
//! - a unit is valid exactly if its log offset is not negative and its size is positive;
//! - pre-blank units are valid, point at nothing, and stand only in front of the first message of a queue;
//! - a hole keeps the place of a message that a damaged log has lost; like any unit it never points back.
//!
//! Plain unit (20 bytes, RocketMQ's `ConsumeQueue`):
//!
//! | at | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | log offset |
//! | 8 | 4 | size of the record |
//! | 12 | 8 | tags code, or an address in the extension of the queue |
//!
//! Batch unit (46 bytes, RocketMQ's `BatchConsumeQueue`): one unit for each record, which may hold many messages.
//!
//! | at | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | log offset |
//! | 8 | 4 | size of the record |
//! | 12 | 8 | tags code |
//! | 20 | 8 | store timestamp (ms) |
//! | 28 | 8 | queue offset of the first message |
//! | 36 | 2 | number of messages |
//! | 38 | 4 | compacted offset, −1 |
//! | 42 | 4 | reserved, 0 |

/// Bytes of a unit of a plain queue.
pub(crate) const UNIT_BYTES: usize = 20;
/// Bytes of a unit of a batch queue.
pub(crate) const BATCH_UNIT_BYTES: usize = 46;
/// Size in units that have no record.
const NO_RECORD_SIZE: u32 = i32::MAX.cast_unsigned();

/// What a queue knows of one record: where it lies, and which messages of the queue are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Queue offset of the (first) message.
    pub queue_offset: i64,
    /// Byte position of the record in the commit log.
    pub log_offset: u64,
    /// Bytes of the record.
    pub size: u32,
    /// Hash of the tags; in the schedule topic the time of delivery (ms); or an address in the extension.
    pub tags_code: i64,
    /// Messages in the record: 1, except in batch queues.
    pub count: u16,
}

impl Unit {
    /// Queue offset behind the last message of this unit.
    pub fn next_offset(&self) -> i64 {
        self.queue_offset.saturating_add(i64::from(self.count))
    }

    /// Position in the log behind the record.
    pub fn log_end(&self) -> u64 {
        if self.is_hole() { self.log_offset } else { self.log_offset.saturating_add(u64::from(self.size)) }
    }

    /// Whether the message is lost: the unit only keeps its place, there is no record to read.
    pub fn is_hole(&self) -> bool {
        self.size == NO_RECORD_SIZE
    }

    /// The same place without a record: what stands where the unit points is not its record.
    pub fn without_record(self) -> Unit {
        Unit { size: NO_RECORD_SIZE, ..self }
    }

    /// The unit that keeps the place of a lost message, behind a record that ends at `log_end`.
    pub(crate) fn hole(queue_offset: i64, log_end: u64) -> Unit {
        Unit { queue_offset, log_offset: log_end, size: NO_RECORD_SIZE, tags_code: 0, count: 1 }
    }
}

/// A plain unit as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainUnit {
    pub(crate) log_offset: i64,
    pub(crate) size: i32,
    pub(crate) tags_code: i64,
}

impl PlainUnit {
    /// The filler in front of the first message of a queue whose older messages are gone.
    pub(crate) const PRE_BLANK: PlainUnit =
        PlainUnit { log_offset: 0, size: NO_RECORD_SIZE.cast_signed(), tags_code: 0 };

    /// Reads the five words of a unit.
    pub(crate) fn from_words(words: [u32; 5]) -> PlainUnit {
        PlainUnit {
            log_offset: long(words[0], words[1]),
            size: words[2].cast_signed(),
            tags_code: long(words[3], words[4]),
        }
    }

    /// The five words of the unit, in the order of the file.
    pub(crate) fn words(&self) -> [u32; 5] {
        let [log_high, log_low] = halves(self.log_offset);
        let [tags_high, tags_low] = halves(self.tags_code);
        [log_high, log_low, self.size.cast_unsigned(), tags_high, tags_low]
    }

    /// Reads a unit from the bytes of a file.
    pub(crate) fn from_bytes(bytes: &[u8; UNIT_BYTES]) -> PlainUnit {
        let mut words = [0; 5];
        for (word, four) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*four);
        }
        PlainUnit::from_words(words)
    }

    /// Whether the place in the file holds a unit at all.
    pub(crate) fn is_valid(&self) -> bool {
        self.log_offset >= 0 && self.size > 0
    }

    /// Whether this is filler in front of the first message.
    pub(crate) fn is_pre_blank(&self) -> bool {
        *self == PlainUnit::PRE_BLANK
    }

    /// The unit for readers.
    pub(crate) fn at(&self, queue_offset: i64) -> Unit {
        Unit {
            queue_offset,
            log_offset: self.log_offset.cast_unsigned(),
            size: self.size.cast_unsigned(),
            tags_code: self.tags_code,
            count: 1,
        }
    }
}

/// A batch unit as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchUnit {
    pub(crate) log_offset: i64,
    pub(crate) size: i32,
    pub(crate) tags_code: i64,
    pub(crate) store_timestamp_ms: i64,
    pub(crate) first_offset: i64,
    pub(crate) count: i16,
}

impl BatchUnit {
    /// Reads a unit from the bytes of a file.
    pub(crate) fn from_bytes(bytes: &[u8; BATCH_UNIT_BYTES]) -> BatchUnit {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        BatchUnit {
            log_offset: long(word(0), word(4)),
            size: word(8).cast_signed(),
            tags_code: long(word(12), word(16)),
            store_timestamp_ms: long(word(20), word(24)),
            first_offset: long(word(28), word(32)),
            count: i16::from_be_bytes([bytes[36], bytes[37]]),
        }
    }

    /// The bytes of the unit.
    pub(crate) fn bytes(&self) -> [u8; BATCH_UNIT_BYTES] {
        let mut bytes = [0; BATCH_UNIT_BYTES];
        bytes[0..8].copy_from_slice(&self.log_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.store_timestamp_ms.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.first_offset.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.count.to_be_bytes());
        bytes[38..42].copy_from_slice(&(-1_i32).to_be_bytes());
        bytes
    }

    /// Whether the place in the file holds a unit at all.
    pub(crate) fn is_valid(&self) -> bool {
        self.log_offset >= 0 && self.size > 0 && self.first_offset >= 0 && self.count > 0
    }

    /// The unit for readers.
    pub(crate) fn unit(&self) -> Unit {
        Unit {
            queue_offset: self.first_offset,
            log_offset: self.log_offset.cast_unsigned(),
            size: self.size.cast_unsigned(),
            tags_code: self.tags_code,
            count: self.count.cast_unsigned(),
        }
    }
}

/// The number whose upper and lower halves these are.
fn long(high: u32, low: u32) -> i64 {
    ((u64::from(high) << 32) | u64::from(low)).cast_signed()
}

/// The upper and the lower half of a number.
fn halves(value: i64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_unit_keeps_its_bytes() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x80, 0, 0, 0];
        let unit = PlainUnit::from_bytes(&bytes);
        assert_eq!(unit, PlainUnit { log_offset: 0x1_0000_0002, size: 256, tags_code: -2_147_483_648 });
        let back: Vec<u8> = unit.words().iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(back, bytes);
        assert_eq!(unit.at(7).log_end(), 0x1_0000_0102);
    }

    #[test]
    fn zeros_are_no_unit_and_filler_is_one() {
        assert!(!PlainUnit::from_bytes(&[0; UNIT_BYTES]).is_valid());
        assert!(!BatchUnit::from_bytes(&[0; BATCH_UNIT_BYTES]).is_valid());
        assert!(PlainUnit::PRE_BLANK.is_valid() && PlainUnit::PRE_BLANK.is_pre_blank());
        assert_eq!(PlainUnit::PRE_BLANK.words(), [0, 0, 0x7fff_ffff, 0, 0]);
    }

    #[test]
    fn a_batch_unit_keeps_its_bytes() {
        let unit = BatchUnit {
            log_offset: 800,
            size: 562,
            tags_code: -5,
            store_timestamp_ms: 1_795_967_657_346,
            first_offset: 1,
            count: 3,
        };
        let bytes = unit.bytes();
        assert_eq!(BatchUnit::from_bytes(&bytes), unit);
        assert_eq!(bytes[36..], [0, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(unit.unit().next_offset(), 4);
    }
}
