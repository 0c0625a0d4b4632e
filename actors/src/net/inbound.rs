//! Frames in a buffer of bytes that came in, and the buffers themselves.
//!
//! Invariants:
//! - a length word is checked before anything is done with it: shorter than a header word or longer than the
//!   largest frame is an error that closes the connection;
//! - a frame is looked at where it lies; nothing is copied here;
//! - a buffer belongs to a connection only while it works: an idle connection holds none.

use bytes::BytesMut;
use troupemq_codec::CodecError;
use troupemq_codec::frame::FRAME_MAX_BYTES;

/// Bytes asked for by one read.
pub const READ_BYTES: usize = 128 << 10;
/// Bytes of the length word.
const LENGTH_BYTES: usize = 4;
/// Spare buffers kept by one arbiter.
const SPARE_MAX: usize = 64;
/// A spare buffer that has grown beyond this is given back to the system.
const SPARE_MAX_BYTES: usize = 1 << 20;

/// The whole frame at the start of `bytes` without its length word, and the bytes it takes with it; none
/// while it is incomplete.
pub fn first_frame(bytes: &[u8]) -> Result<Option<&[u8]>, CodecError> {
    match announced(bytes)? {
        Some(length) => Ok(bytes.get(LENGTH_BYTES..LENGTH_BYTES + length)),
        None => Ok(None),
    }
}

/// Bytes that the frame at the start of `bytes` takes, its length word included; none while not even that is
/// there.
pub fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, CodecError> {
    Ok(announced(bytes)?.map(|length| LENGTH_BYTES + length))
}

fn announced(bytes: &[u8]) -> Result<Option<usize>, CodecError> {
    let Some(word) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*word)).unwrap_or(usize::MAX);
    if length > FRAME_MAX_BYTES - LENGTH_BYTES {
        return Err(CodecError::TooLong { what: "frame", len: length, max: FRAME_MAX_BYTES - LENGTH_BYTES });
    }
    if length < LENGTH_BYTES {
        return Err(CodecError::Short { what: "frame", need: LENGTH_BYTES, have: length });
    }
    Ok(Some(length))
}

/// Spare buffers of one arbiter.
#[derive(Debug, Default)]
pub struct Spare(Vec<BytesMut>);

impl Spare {
    /// An empty buffer with room for a read.
    pub fn take(&mut self) -> BytesMut {
        self.0.pop().unwrap_or_else(|| BytesMut::with_capacity(READ_BYTES))
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: BytesMut) {
        if self.0.len() < SPARE_MAX && (1..=SPARE_MAX_BYTES).contains(&buffer.capacity()) {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_seen_when_it_is_complete() {
        let bytes = [0, 0, 0, 5, 0, 0, 0, 0, 9, 7];
        for short in 0..9 {
            assert_eq!(first_frame(&bytes[..short]).expect("a good length"), None);
        }
        assert_eq!(first_frame(&bytes).expect("a good length"), Some(&bytes[4..9]));
        assert_eq!(frame_bytes(&bytes).expect("a good length"), Some(9));
        assert_eq!(frame_bytes(&bytes[..3]).expect("nothing to judge"), None);
    }

    #[test]
    fn a_length_that_lies_is_an_error_before_memory_is_asked_for() {
        assert!(first_frame(&[0x7f, 0xff, 0xff, 0xff]).is_err());
        assert!(first_frame(&[0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(first_frame(&[0, 0, 0, 3]).is_err());
        assert!(first_frame(&[0, 0xff, 0xff, 0xfc]).is_ok());
        assert!(first_frame(&[0, 0xff, 0xff, 0xfd]).is_err());
    }

    #[test]
    fn spare_buffers_are_used_again_and_large_ones_are_not_kept() {
        let mut spare = Spare::default();
        let mut buffer = spare.take();
        buffer.extend_from_slice(b"old");
        spare.give(buffer);
        assert!(spare.take().is_empty());
        spare.give(BytesMut::with_capacity(2 << 20));
        assert_eq!(spare.take().capacity(), READ_BYTES);
    }

    #[test]
    fn so_many_spare_buffers_are_kept_and_the_next_is_freed() {
        let mut spare = Spare::default();
        (0..=SPARE_MAX).for_each(|_| spare.give(BytesMut::with_capacity(READ_BYTES)));
        assert_eq!(spare.0.len(), SPARE_MAX);
    }
}
