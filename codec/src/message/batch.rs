//! The body of a batch send, which is also the body of an inner batch: items one after the other.
//!
//! Invariants:
//! - an item's lengths agree with its size, or the walk ends with an error;
//! - magic and CRC of an item are neither trusted nor written.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | item size |
//! | 4 | 4 | magic, 0 |
//! | 8 | 4 | body CRC, 0 |
//! | 12 | 4 | the user's flag |
//! | 16 | 4 + n | body |
//! | 20 + n | 2 + p | properties |
//!
//! RocketMQ's name for it: `MessageDecoder#encodeMessage`.

use bytes::{BufMut, BytesMut};

use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::message::properties::{PROPERTIES_MAX_BYTES, PropertiesView};

/// Bytes of an item without body and properties.
pub const ITEM_HEAD_BYTES: usize = 22;

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchItem<'a> {
    /// The user's flag.
    pub flag: i32,
    /// The body; batches are not compressed.
    pub body: &'a [u8],
    /// The item's own properties.
    pub properties: PropertiesView<'a>,
}

impl BatchItem<'_> {
    /// Bytes of the encoded item.
    pub fn encoded_len(&self) -> usize {
        ITEM_HEAD_BYTES.saturating_add(self.body.len()).saturating_add(self.properties.0.len())
    }

    /// Appends the item to a batch body.
    ///
    /// # Errors
    /// `TooLong` for properties above 32,767 bytes or an item above `i32::MAX`.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        let properties = self.properties.0;
        let too_long = |what, len, max| CodecError::TooLong { what, len, max };
        let properties_len = i16::try_from(properties.len())
            .map_err(|_| too_long("properties", properties.len(), PROPERTIES_MAX_BYTES))?;
        let size = i32::try_from(self.encoded_len())
            .map_err(|_| too_long("batch item", self.encoded_len(), 0x7FFF_FFFF))?;
        let body_len =
            i32::try_from(self.body.len()).map_err(|_| too_long("body", self.body.len(), 0x7FFF_FFFF))?;
        out.reserve(self.encoded_len());
        let mut head = [0_u8; 20];
        head[0..4].copy_from_slice(&size.to_be_bytes());
        head[12..16].copy_from_slice(&self.flag.to_be_bytes());
        head[16..20].copy_from_slice(&body_len.to_be_bytes());
        out.put_slice(&head);
        out.put_slice(self.body);
        out.put_i16(properties_len);
        out.put_slice(properties);
        Ok(())
    }
}

/// Walks the items of a batch body; ends behind the first error.
#[derive(Debug, Clone)]
pub struct BatchItems<'a> {
    rest: &'a [u8],
}

/// The items of a batch body.
pub fn items(body: &[u8]) -> BatchItems<'_> {
    BatchItems { rest: body }
}

impl<'a> Iterator for BatchItems<'a> {
    type Item = Result<BatchItem<'a>, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.item();
        if item.is_err() {
            self.rest = &[];
        }
        Some(item)
    }
}

impl<'a> BatchItems<'a> {
    fn item(&mut self) -> Result<BatchItem<'a>, CodecError> {
        let whole = Cursor::new(self.rest).sized("batch item")?;
        let mut input = Cursor::new(whole);
        input.take(12, "head of a batch item")?;
        let flag = input.i32("flag of a batch item")?;
        let body_len = input.len32("body length of a batch item")?;
        let body = input.take(body_len, "body of a batch item")?;
        let properties_len = input.len16("properties length of a batch item")?;
        let properties = PropertiesView(input.take(properties_len, "properties of a batch item")?);
        if input.left() != 0 {
            let value = format!("{}, {} more than its fields", whole.len(), input.left());
            return Err(CodecError::Invalid { what: "size of a batch item", value });
        }
        self.rest = self.rest.get(whole.len()..).unwrap_or_default();
        Ok(BatchItem { flag, body, properties })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: BatchItem<'static> =
        BatchItem { flag: -7, body: b"one", properties: PropertiesView(b"TAGS\x01A\x02") };
    const SECOND: BatchItem<'static> = BatchItem { flag: 0, body: b"", properties: PropertiesView(b"") };

    fn body() -> BytesMut {
        let mut body = BytesMut::new();
        FIRST.encode(&mut body).unwrap();
        SECOND.encode(&mut body).unwrap();
        body
    }

    #[test]
    fn items_read_back_in_order() {
        let body = body();
        assert_eq!(body.len(), FIRST.encoded_len() + SECOND.encoded_len());
        let read: Vec<_> = items(&body).map(Result::unwrap).collect();
        assert_eq!(read, [FIRST, SECOND]);
        assert!(items(&[]).next().is_none());
    }

    #[test]
    fn every_truncation_is_an_error_or_a_whole_item_less() {
        let body = body();
        for len in 0..body.len() {
            let read: Vec<_> = items(&body[..len]).collect();
            if len == 0 || len == FIRST.encoded_len() {
                assert!(read.iter().all(Result::is_ok), "{len}");
            } else {
                assert!(read.last().unwrap().is_err(), "{len}");
            }
        }
    }

    #[test]
    fn a_size_that_disagrees_with_the_lengths_is_an_error() {
        for size in [0, 1, 21, 22, 24, 31, 33, 1000, u32::MAX] {
            let mut body = body();
            body[..4].copy_from_slice(&size.to_be_bytes());
            assert!(items(&body).next().unwrap().is_err(), "{size}");
            assert!(items(&body).nth(1).is_none(), "{size}");
        }
    }

    #[test]
    fn properties_that_pass_their_length_word_are_refused() {
        let long = vec![b'x'; PROPERTIES_MAX_BYTES + 1];
        let item = BatchItem { properties: PropertiesView(&long), ..FIRST };
        assert!(matches!(item.encode(&mut BytesMut::new()), Err(CodecError::TooLong { .. })));
    }
}
