//! Reading big-endian numbers and slices off the front of a byte slice.
//!
//! Invariants:
//! - nothing is read past the end: what is missing is an error that names the field;
//! - a negative length is an error.

use crate::error::CodecError;

/// What is left to read.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let Some((first, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(CodecError::Short { what, need: N, have: self.0.len() });
        };
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let Some((first, rest)) = self.0.split_at_checked(len) else {
            return Err(CodecError::Short { what, need: len, have: self.0.len() });
        };
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn i32(&mut self, what: &'static str) -> Result<i32, CodecError> {
        Ok(i32::from_be_bytes(self.array(what)?))
    }

    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, CodecError> {
        Ok(i64::from_be_bytes(self.array(what)?))
    }

    /// A length word of 1, 2 or 4 bytes, read as a signed number as Java does.
    pub(crate) fn length<const N: usize>(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let bytes = self.array::<N>(what)?;
        if bytes.first().is_some_and(|first| first & 0x80 != 0) {
            return Err(CodecError::Invalid { what, value: "a negative length".to_owned() });
        }
        Ok(bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)))
    }
}
