//! The fixed-size records of timed delivery: slots of the wheel, units and blanks of the timer log, its check
//! point.
//!
//! Invariants:
//! - each record has one size; reading a shorter slice is an error, what follows is left alone;
//! - a slot counts only for the time whose quotient it stores: the caller compares.
//!
//! | slot | size | field |
//! |---|---|---|
//! | 0 | 8 | time / precision |
//! | 8 | 8 | timer-log position of the oldest unit |
//! | 16 | 8 | timer-log position of the newest unit |
//! | 24 | 4 | pending units |
//! | 28 | 4 | unused |
//!
//! | unit | size | field |
//! |---|---|---|
//! | 0 | 4 | 52 |
//! | 4 | 8 | position of the slot's unit before this one, −1 for none |
//! | 12 | 4 | kind bits: 1 always, 2 rolled, 4 delete |
//! | 16 | 8 | when it was written: epoch ms |
//! | 24 | 4 | due time less that: ms |
//! | 28 | 8 | log offset of the message |
//! | 36 | 4 | bytes of the message |
//! | 40 | 4 | hash of the target topic |
//! | 44 | 8 | unused |
//!
//! RocketMQ's names for it: `Slot`, `TimerLog`, `TimerCheckpoint`.

use bytes::{Buf, BufMut};

use crate::error::CodecError;

/// Bytes of a slot of the wheel.
pub const SLOT_BYTES: usize = 32;
/// Bytes of a unit of the timer log.
pub const UNIT_BYTES: usize = 52;
/// Bytes of the blank at the end of a timer-log segment; so many stay free behind the last unit.
pub const UNIT_BLANK_BYTES: usize = 16;
/// Bytes of the check point.
pub const CHECKPOINT_BYTES: usize = 56;
/// Bytes of the check point of old brokers: no data version.
pub const CHECKPOINT_OLD_BYTES: usize = 32;

/// Kind bit that every unit has.
pub const UNIT_DEFAULT: i32 = 1;
/// Kind bit: due beyond the wheel, goes round again.
pub const UNIT_ROLL: i32 = 2;
/// Kind bit: cancels another unit.
pub const UNIT_DELETE: i32 = 4;
/// Magic of the blank at the end of a timer-log segment.
pub const UNIT_BLANK_MAGIC: i32 = -875_286_124;

/// One slot of the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerSlot {
    /// Due time divided by the precision.
    pub time: i64,
    /// Timer-log position of the oldest unit; −1 for none.
    pub first: i64,
    /// Timer-log position of the newest unit; −1 for none.
    pub last: i64,
    /// Pending units; delete units take one off.
    pub count: i32,
}

impl TimerSlot {
    /// Reads the slot at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<TimerSlot, CodecError> {
        let mut input: &[u8] = fixed::<SLOT_BYTES>(bytes, "timer slot")?;
        Ok(TimerSlot {
            time: input.get_i64(),
            first: input.get_i64(),
            last: input.get_i64(),
            count: input.get_i32(),
        })
    }

    /// The bytes of the slot.
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let mut out = &mut bytes[..];
        out.put_i64(self.time);
        out.put_i64(self.first);
        out.put_i64(self.last);
        out.put_i32(self.count);
        bytes
    }
}

/// One unit of the timer log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerUnit {
    /// Timer-log position of the slot's unit before this one; −1 for none.
    pub previous: i64,
    /// [`UNIT_DEFAULT`], with [`UNIT_ROLL`] or [`UNIT_DELETE`].
    pub kind: i32,
    /// When it was written: epoch ms.
    pub written_ms: i64,
    /// Due time less `written_ms`: ms.
    pub delay_ms: i32,
    /// Log offset of the message.
    pub log_offset: i64,
    /// Bytes of the message's record.
    pub size: i32,
    /// Hash of the target topic, for the metrics.
    pub topic_hash: i32,
}

/// What stands at a position of the timer log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerScan {
    /// A unit.
    Unit(TimerUnit),
    /// The end of a segment: a blank that says of all that remains of it that it does.
    Blank,
    /// Neither.
    Nothing,
}

impl TimerUnit {
    /// Whether the unit cancels another.
    pub fn is_delete(&self) -> bool {
        self.kind & UNIT_DELETE != 0
    }

    /// Whether the unit goes round the wheel again.
    pub fn is_roll(&self) -> bool {
        self.kind & UNIT_ROLL != 0
    }

    /// When the message is due: epoch ms.
    pub fn due_ms(&self) -> i64 {
        self.written_ms.saturating_add(i64::from(self.delay_ms))
    }

    /// Reads the unit at the front of `bytes`.
    ///
    /// # Errors
    /// `Short`, or `Invalid` for a size other than 52 and for unknown kind bits.
    pub fn decode(bytes: &[u8]) -> Result<TimerUnit, CodecError> {
        let mut input: &[u8] = fixed::<UNIT_BYTES>(bytes, "timer unit")?;
        let size = input.get_i32();
        if usize::try_from(size) != Ok(UNIT_BYTES) {
            return Err(CodecError::invalid("size of a timer unit", size.to_string()));
        }
        let previous = input.get_i64();
        let kind = input.get_i32();
        if kind & !0xF != 0 {
            return Err(CodecError::invalid("kind of a timer unit", format!("{kind:#x}")));
        }
        Ok(TimerUnit {
            previous,
            kind,
            written_ms: input.get_i64(),
            delay_ms: input.get_i32(),
            log_offset: input.get_i64(),
            size: input.get_i32(),
            topic_hash: input.get_i32(),
        })
    }

    /// The bytes of the unit.
    pub fn encode(&self) -> [u8; UNIT_BYTES] {
        let mut bytes = [0; UNIT_BYTES];
        let mut out = &mut bytes[..];
        out.put_i32(52);
        out.put_i64(self.previous);
        out.put_i32(self.kind);
        out.put_i64(self.written_ms);
        out.put_i32(self.delay_ms);
        out.put_i64(self.log_offset);
        out.put_i32(self.size);
        out.put_i32(self.topic_hash);
        bytes
    }
}

/// Looks at the front of `bytes`, which are timer log from some position to the end of its segment.
pub fn scan_timer_log(bytes: &[u8]) -> TimerScan {
    if let Ok(unit) = TimerUnit::decode(bytes) {
        return TimerScan::Unit(unit);
    }
    let number = |at: usize| bytes.get(at..)?.first_chunk().map(|number| i32::from_be_bytes(*number));
    let remaining = number(0).filter(|_| number(12) == Some(UNIT_BLANK_MAGIC));
    match remaining.and_then(|remaining| usize::try_from(remaining).ok()) {
        Some(remaining) if remaining == bytes.len() => TimerScan::Blank,
        _ => TimerScan::Nothing,
    }
}

/// The bytes that end a timer-log segment.
pub fn timer_blank(remaining: i32) -> [u8; UNIT_BLANK_BYTES] {
    let mut bytes = [0; UNIT_BLANK_BYTES];
    let mut out = &mut bytes[..];
    out.put_i32(remaining);
    out.put_i64(0);
    out.put_i32(UNIT_BLANK_MAGIC);
    bytes
}

/// How far timed delivery has come: `config/timercheck`, and the reply to the slave's question for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimerCheckpoint {
    /// Slot time that is wholly delivered: epoch ms.
    pub last_read_ms: i64,
    /// Timer-log position that is on disk.
    pub flushed_to: i64,
    /// Queue offset of the timer topic that is read next.
    pub queue_offset: i64,
    /// The same of the master.
    pub master_queue_offset: i64,
    /// Data version: state.
    pub state_version: i64,
    /// Data version: epoch ms.
    pub version_timestamp_ms: i64,
    /// Data version: counter.
    pub version_counter: i64,
}

impl TimerCheckpoint {
    /// Reads the check point; the old form of 32 bytes has no data version.
    pub fn decode(bytes: &[u8]) -> Result<TimerCheckpoint, CodecError> {
        let mut input: &[u8] = fixed::<CHECKPOINT_OLD_BYTES>(bytes, "timer check point")?;
        let mut checkpoint = TimerCheckpoint {
            last_read_ms: input.get_i64(),
            flushed_to: input.get_i64(),
            queue_offset: input.get_i64(),
            master_queue_offset: input.get_i64(),
            ..TimerCheckpoint::default()
        };
        if bytes.len() == CHECKPOINT_OLD_BYTES {
            return Ok(checkpoint);
        }
        let whole = fixed::<CHECKPOINT_BYTES>(bytes, "timer check point")?;
        let mut input = whole.get(CHECKPOINT_OLD_BYTES..).unwrap_or_default();
        checkpoint.state_version = input.get_i64();
        checkpoint.version_timestamp_ms = input.get_i64();
        checkpoint.version_counter = input.get_i64();
        Ok(checkpoint)
    }

    /// The bytes of the check point.
    pub fn encode(&self) -> [u8; CHECKPOINT_BYTES] {
        let mut bytes = [0; CHECKPOINT_BYTES];
        let mut out = &mut bytes[..];
        out.put_i64(self.last_read_ms);
        out.put_i64(self.flushed_to);
        out.put_i64(self.queue_offset);
        out.put_i64(self.master_queue_offset);
        out.put_i64(self.state_version);
        out.put_i64(self.version_timestamp_ms);
        out.put_i64(self.version_counter);
        bytes
    }
}

fn fixed<'a, const N: usize>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8; N], CodecError> {
    bytes.first_chunk::<N>().ok_or(CodecError::Short { what, need: N, have: bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: TimerUnit = TimerUnit {
        previous: -1,
        kind: UNIT_DEFAULT | UNIT_DELETE,
        written_ms: 1_795_968_371_000,
        delay_ms: 8000,
        log_offset: 341,
        size: 394,
        topic_hash: -5,
    };

    #[test]
    fn slots_units_and_check_points_read_back() {
        let slot = TimerSlot { time: 1_795_968_379, first: 0, last: 52, count: 2 };
        assert_eq!(TimerSlot::decode(&slot.encode()), Ok(slot));
        assert_eq!(TimerUnit::decode(&UNIT.encode()), Ok(UNIT));
        assert!(UNIT.is_delete() && !UNIT.is_roll());
        assert_eq!(UNIT.due_ms(), 1_795_968_379_000);
        let checkpoint =
            TimerCheckpoint { last_read_ms: 1, version_counter: 7, ..TimerCheckpoint::default() };
        assert_eq!(TimerCheckpoint::decode(&checkpoint.encode()), Ok(checkpoint));
    }

    #[test]
    fn every_truncation_is_an_error_but_the_old_check_point() {
        let slot = TimerSlot { time: 1, first: 2, last: 3, count: 4 }.encode();
        assert!((0..SLOT_BYTES).all(|len| TimerSlot::decode(&slot[..len]).is_err()));
        let unit = UNIT.encode();
        assert!((0..UNIT_BYTES).all(|len| TimerUnit::decode(&unit[..len]).is_err()));
        let checkpoint =
            TimerCheckpoint { queue_offset: 9, version_counter: 1, ..TimerCheckpoint::default() };
        let bytes = checkpoint.encode();
        for len in 0..CHECKPOINT_BYTES {
            assert_eq!(TimerCheckpoint::decode(&bytes[..len]).is_ok(), len == CHECKPOINT_OLD_BYTES, "{len}");
        }
        let old = TimerCheckpoint::decode(&bytes[..CHECKPOINT_OLD_BYTES]).unwrap();
        assert_eq!((old.queue_offset, old.version_counter), (9, 0));
    }

    #[test]
    fn a_scan_sees_units_and_blanks_and_stops_at_the_rest() {
        assert_eq!(scan_timer_log(&UNIT.encode()), TimerScan::Unit(UNIT));
        let closed = |remaining: i32| [&timer_blank(remaining)[..], &[0; 44]].concat();
        assert_eq!(scan_timer_log(&closed(60)), TimerScan::Blank);
        for of_another_length in [-60, 0, 16, 59, 61] {
            assert_eq!(scan_timer_log(&closed(of_another_length)), TimerScan::Nothing, "{of_another_length}");
        }
        assert_eq!(scan_timer_log(&[0; 100]), TimerScan::Nothing);
        assert_eq!(scan_timer_log(&[]), TimerScan::Nothing);
        let mut unknown = UNIT.encode();
        unknown[12] = 0x10;
        assert_eq!(scan_timer_log(&unknown), TimerScan::Nothing);
    }
}
