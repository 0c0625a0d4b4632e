//! Cuts the byte stream of a connection into frames.
//!
//! Invariants:
//! - a length is checked before a frame is waited for; a bad one closes the connection;
//! - a frame is split off the buffer, never copied.
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 4 | length of what follows: 4 + header + body |
//! | 4 | 4 | header word: top byte the form (0 JSON, 1 binary), 24 bits the length of the header |
//! | 8 | header | header |
//! | | rest | body, may be empty |

use bytes::{Buf, Bytes, BytesMut};

use crate::error::CodecError;

/// Longest frame, its length word included (RocketMQ's `frameMaxLength`).
pub const FRAME_MAX_BYTES: usize = 16_777_216;

/// Bytes of the length word.
pub const LENGTH_BYTES: usize = 4;

/// Bytes of the header word.
pub(crate) const HEADER_WORD_BYTES: usize = 4;

/// The next whole frame at the front of the bytes, without its length word; `None` until all of it is there.
///
/// # Errors
/// [`CodecError::TooLong`] or [`CodecError::Invalid`] if the length cannot be one: the stream is lost then.
pub fn first_frame(bytes: &[u8]) -> Result<Option<&[u8]>, CodecError> {
    let Some((word, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let claimed = i32::from_be_bytes(*word);
    let Ok(len) = usize::try_from(claimed) else {
        return Err(CodecError::invalid("frame length", claimed.to_string()));
    };
    let max = FRAME_MAX_BYTES.saturating_sub(LENGTH_BYTES);
    if len > max {
        return Err(CodecError::TooLong { what: "frame", len, max });
    }
    if len < HEADER_WORD_BYTES {
        return Err(CodecError::Short { what: "frame", need: HEADER_WORD_BYTES, have: len });
    }
    Ok(rest.get(..len))
}

/// Splits the next whole frame off the buffer, without its length word; `None` until all of it is there.
///
/// # Errors
/// As [`first_frame`].
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, CodecError> {
    let Some(len) = first_frame(buffer)?.map(<[u8]>::len) else { return Ok(None) };
    buffer.advance(LENGTH_BYTES);
    Ok(Some(buffer.split_to(len).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_out_only_when_all_of_it_is_there() {
        let stream = [0, 0, 0, 6, 0, 0, 0, 2, b'{', b'}', 0, 0, 0, 4, 1, 2, 3, 4];
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for byte in stream {
            buffer.extend_from_slice(&[byte]);
            frames.extend(take_frame(&mut buffer).unwrap());
        }
        assert_eq!(
            frames,
            [Bytes::from_static(&[0, 0, 0, 2, b'{', b'}']), Bytes::from_static(&[1, 2, 3, 4])]
        );
        assert!(buffer.is_empty());
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_at_once() {
        let first = |bytes: &[u8]| take_frame(&mut BytesMut::from(bytes));
        assert!(matches!(first(&[0xff, 0, 0, 0]), Err(CodecError::Invalid { .. })));
        assert!(matches!(first(&[1, 0, 0, 0]), Err(CodecError::TooLong { len: 16_777_216, .. })));
        assert!(matches!(first(&[0, 0, 0, 3]), Err(CodecError::Short { .. })));
        assert_eq!(first(&[0, 0xff, 0xff, 0xfc]), Ok(None));
    }
}
