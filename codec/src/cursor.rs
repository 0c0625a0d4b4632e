//! Reads big-endian numbers and counted pieces from bytes that may lie about their lengths.
//!
//! Invariants:
//! - the position never passes the end; what is not there is [`CodecError::Short`];
//! - no length is trusted: a negative or too large one is an error before anything is taken.

use crate::error::CodecError;

/// A position in bytes that are being read.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes, at: 0 }
    }

    /// Bytes that were read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else { return Err(self.short(what, len)) };
        self.rest = rest;
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }

    #[cold]
    fn short(&self, what: &'static str, need: usize) -> CodecError {
        CodecError::Short { what, need, have: self.rest.len() }
    }

    /// The next bytes as an array.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else { return Err(self.short(what, N)) };
        self.rest = rest;
        self.at = self.at.saturating_add(N);
        Ok(*taken)
    }

    /// One byte.
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, CodecError> {
        self.array::<1>(what).map(u8::from_be_bytes)
    }

    /// Two bytes, signed.
    pub(crate) fn i16(&mut self, what: &'static str) -> Result<i16, CodecError> {
        self.array(what).map(i16::from_be_bytes)
    }

    /// Four bytes, signed.
    pub(crate) fn i32(&mut self, what: &'static str) -> Result<i32, CodecError> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// Eight bytes, signed.
    pub(crate) fn i64(&mut self, what: &'static str) -> Result<i64, CodecError> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// A length of one signed byte that must fit into what is left.
    #[inline]
    pub(crate) fn len8(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let len = self.array(what).map(i8::from_be_bytes)?;
        self.checked_len(i64::from(len), what)
    }

    /// A length of four bytes that must fit into what is left.
    #[inline]
    pub(crate) fn len32(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let len = self.i32(what)?;
        self.checked_len(i64::from(len), what)
    }

    /// A length of two bytes that must fit into what is left.
    #[inline]
    pub(crate) fn len16(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let len = self.i16(what)?;
        self.checked_len(i64::from(len), what)
    }

    /// A piece that begins with its size, a four-byte word that counts itself; the word stays part of it.
    #[inline]
    pub(crate) fn sized(&mut self, what: &'static str) -> Result<&'a [u8], CodecError> {
        let size = self.clone().i32(what)?;
        let Ok(size) = usize::try_from(size) else {
            return Err(CodecError::invalid(what, size.to_string()));
        };
        self.take(size, what)
    }

    #[inline]
    fn checked_len(&self, len: i64, what: &'static str) -> Result<usize, CodecError> {
        let Ok(len) = usize::try_from(len) else {
            return Err(CodecError::invalid(what, len.to_string()));
        };
        if len > self.rest.len() {
            return Err(self.short(what, len));
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_end_or_below_zero_is_an_error() {
        assert!(matches!(
            Cursor::new(&[0, 0, 0, 5, 1]).len32("body"),
            Err(CodecError::Short { need: 5, .. })
        ));
        assert!(matches!(Cursor::new(&[0xff, 0xff, 0, 0]).len16("key"), Err(CodecError::Invalid { .. })));
        assert_eq!(Cursor::new(&[0, 1, 7]).len16("key"), Ok(1));
    }

    #[test]
    fn a_number_that_is_cut_is_an_error_and_moves_nothing() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert!(cursor.i32("opaque").is_err());
        assert_eq!((cursor.at(), cursor.left()), (0, 3));
        assert_eq!(cursor.i16("code"), Ok(0x0102));
        assert_eq!(cursor.u8("language"), Ok(3));
    }
}
