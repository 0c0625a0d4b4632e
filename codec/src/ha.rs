//! The stream between a master and its slave: positions one way, stretches of log the other.
//!
//! Invariants:
//! - the stream has no frame around it: a slave's report is 8 bytes, a master's transfer is a head and a body;
//! - a transfer is any stretch of one segment, not of whole records; an empty one is a heart-beat.
//!
//! | slave → master | size | field |
//! |---|---|---|
//! | 0 | 8 | end of the slave's log |
//!
//! | master → slave | size | field |
//! |---|---|---|
//! | 0 | 8 | log offset of the first byte |
//! | 8 | 4 | bytes that follow, 0 for a heart-beat |
//! | 12 | n | log |
//!
//! RocketMQ's name for it: `DefaultHAConnection`, `DefaultHAClient`.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::CodecError;

/// Bytes of a slave's report.
pub const REPORT_BYTES: usize = 8;
/// Bytes before the body of a transfer.
pub const TRANSFER_HEAD_BYTES: usize = 12;
/// Largest body that a Java slave takes: its buffer of 4 MiB less the head.
pub const TRANSFER_BODY_MAX_BYTES: usize = (4 << 20) - TRANSFER_HEAD_BYTES;

/// A slave's report: the end of its log.
pub fn report(log_offset: i64) -> [u8; REPORT_BYTES] {
    log_offset.to_be_bytes()
}

/// Takes all whole reports off the front of `buffer`; the last one counts, as it is the newest.
pub fn take_last_report(buffer: &mut BytesMut) -> Option<i64> {
    let whole = buffer.len().saturating_sub(buffer.len() % REPORT_BYTES);
    let reports = buffer.split_to(whole);
    let last = reports.last_chunk::<REPORT_BYTES>()?;
    Some(i64::from_be_bytes(*last))
}

/// What a master sends before a stretch of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferHead {
    /// Log offset of the first byte.
    pub log_offset: i64,
    /// Bytes that follow; 0 for a heart-beat.
    pub body_len: u32,
}

impl TransferHead {
    /// The bytes of the head.
    pub fn encode(self) -> [u8; TRANSFER_HEAD_BYTES] {
        let mut bytes = [0; TRANSFER_HEAD_BYTES];
        bytes[0..8].copy_from_slice(&self.log_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body_len.to_be_bytes());
        bytes
    }
}

/// Takes one whole transfer off the front of `buffer`: its log offset and its body, which is not copied.
///
/// # Errors
/// `TooLong` for a body above `max`, `Invalid` for a negative length or log offset; the stream is then lost.
pub fn take_transfer(buffer: &mut BytesMut, max: usize) -> Result<Option<(i64, Bytes)>, CodecError> {
    let Some(head) = buffer.first_chunk::<TRANSFER_HEAD_BYTES>() else { return Ok(None) };
    let mut head = head.as_slice();
    let log_offset = head.get_i64();
    let body_len = head.get_i32();
    if log_offset < 0 {
        return Err(CodecError::invalid("log offset of a transfer", log_offset.to_string()));
    }
    let Ok(len) = usize::try_from(body_len) else {
        return Err(CodecError::invalid("length of a transfer", body_len.to_string()));
    };
    if len > max {
        return Err(CodecError::TooLong { what: "transfer", len, max });
    }
    if buffer.len() < TRANSFER_HEAD_BYTES.saturating_add(len) {
        return Ok(None);
    }
    buffer.advance(TRANSFER_HEAD_BYTES);
    Ok(Some((log_offset, buffer.split_to(len).freeze())))
}

#[cfg(test)]
mod golden_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_several_reports_counts_and_a_part_waits() {
        let mut buffer = BytesMut::new();
        assert_eq!(take_last_report(&mut buffer), None);
        for position in [0, 4096, 8192] {
            buffer.extend_from_slice(&report(position));
        }
        buffer.extend_from_slice(&report(-1)[..5]);
        assert_eq!(take_last_report(&mut buffer), Some(8192));
        assert_eq!(buffer.len(), 5);
        assert_eq!(take_last_report(&mut buffer), None);
    }

    #[test]
    fn a_transfer_is_taken_once_it_is_whole() {
        let mut sent = BytesMut::new();
        sent.extend_from_slice(&TransferHead { log_offset: 65_536, body_len: 5 }.encode());
        sent.extend_from_slice(b"bytes");
        sent.extend_from_slice(&TransferHead { log_offset: 65_541, body_len: 0 }.encode());
        let mut buffer = BytesMut::new();
        for byte in &sent[..16] {
            buffer.extend_from_slice(&[*byte]);
            assert_eq!(take_transfer(&mut buffer, 5), Ok(None));
        }
        buffer.extend_from_slice(&sent[16..]);
        assert_eq!(take_transfer(&mut buffer, 5), Ok(Some((65_536, Bytes::from_static(b"bytes")))));
        assert_eq!(take_transfer(&mut buffer, 5), Ok(Some((65_541, Bytes::new()))));
        assert_eq!(take_transfer(&mut buffer, 5), Ok(None));
    }

    #[test]
    fn a_head_that_lies_ends_the_stream() {
        let take = |log_offset: i64, body_len: u32| {
            let mut buffer = BytesMut::from(&TransferHead { log_offset, body_len }.encode()[..]);
            take_transfer(&mut buffer, 1000)
        };
        assert!(matches!(take(0, 1001), Err(CodecError::TooLong { len: 1001, .. })));
        assert!(take(0, u32::MAX).is_err());
        assert!(take(-1, 0).is_err());
        assert_eq!(take(0, 1000), Ok(None));
    }
}
