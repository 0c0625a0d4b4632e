//! Encoding records that are alike but for flag, body and properties of their own, as those of a batch are.
//!
//! Invariants:
//! - a record has the bytes that [`NewRecord`] gives it;
//! - a record that the format cannot carry is refused before anything is written.

use bytes::BytesMut;

use crate::error::CodecError;
use crate::message::NewRecord;
use crate::message::new_record::{is_v2, properties_len, word32};
use crate::message::properties::PAIR_END;
use crate::message::record::body_crc;

/// Records that are alike, and the last of them: the next is made of it where its own properties have as many bytes.
#[derive(Debug)]
pub struct RecordMold<'a> {
    like: NewRecord<'a>,
    /// Properties that all have behind their own.
    shared: &'a [u8],
    /// What stands in front of the body.
    front: BytesMut,
    /// What stands behind it.
    behind: BytesMut,
    /// Where the record's own properties begin there.
    own_at: usize,
    own_len: usize,
    /// Whether they have a mark of their own at their end.
    is_closed: bool,
}

impl<'a> RecordMold<'a> {
    /// Of records like this one, whose flag, body and properties do not matter; all have the `shared` properties
    /// behind their own.
    pub fn new(like: NewRecord<'a>, shared: &'a [u8]) -> RecordMold<'a> {
        let (front, behind) = (BytesMut::new(), BytesMut::new());
        RecordMold { like, shared, front, behind, own_at: 0, own_len: 0, is_closed: false }
    }

    /// Bytes of the property text of a record with these `own` properties.
    #[inline]
    pub fn properties_len(&self, own: &[u8]) -> usize {
        if self.fits(own) {
            self.behind.len().saturating_sub(self.own_at)
        } else {
            properties_len(&[own, self.shared])
        }
    }

    /// Appends a record to `out`.
    ///
    /// # Errors
    /// Those of [`NewRecord::encode`].
    #[inline]
    pub fn encode(
        &mut self,
        (flag, body): (i32, &[u8]),
        own: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), CodecError> {
        if !self.fits(own) {
            self.shape(own)?;
        }
        let total = self.front.len().saturating_add(body.len()).saturating_add(self.behind.len());
        let (total_word, body_word) = (word32("record", total)?, word32("body", body.len())?);
        let size_at = self.front.len().saturating_sub(4);
        put_at(&mut self.front, 0, &total_word);
        put_at(&mut self.front, 8, &body_crc(body).to_be_bytes());
        put_at(&mut self.front, 16, &flag.to_be_bytes());
        put_at(&mut self.front, size_at, &body_word);
        put_at(&mut self.behind, self.own_at, own);
        out.reserve(total);
        out.extend_from_slice(&self.front);
        out.extend_from_slice(body);
        out.extend_from_slice(&self.behind);
        Ok(())
    }

    /// Whether the last record but for its own properties has what one with these has.
    fn fits(&self, own: &[u8]) -> bool {
        !self.front.is_empty() && own.len() == self.own_len && is_closed(own) == self.is_closed
    }

    /// Encodes a record without a body, as the pattern of what follows.
    #[cold]
    fn shape(&mut self, own: &[u8]) -> Result<(), CodecError> {
        let record = NewRecord { body: b"", properties: &[own, self.shared], ..self.like };
        let mut behind = BytesMut::new();
        record.encode(&mut behind)?;
        // The word of the topic's length, the topic, the word of the properties' length.
        self.own_at = if is_v2(record.topic) { 4_usize } else { 3 }.saturating_add(record.topic.len());
        let behind_bytes = self.own_at.saturating_add(record.properties_len());
        self.front = behind.split_to(behind.len().saturating_sub(behind_bytes));
        self.behind = behind;
        (self.own_len, self.is_closed) = (own.len(), is_closed(own));
        Ok(())
    }
}

#[inline]
fn put_at(bytes: &mut [u8], at: usize, part: &[u8]) {
    let place = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..part.len()));
    place.expect("the last record has this part").copy_from_slice(part);
}

fn is_closed(properties: &[u8]) -> bool {
    properties.last() == Some(&PAIR_END)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::properties::PROPERTIES_MAX_BYTES;

    #[test]
    fn a_record_out_of_a_mold_has_the_bytes_that_it_has_alone() {
        let long = "t".repeat(128);
        let hosts = ["127.0.0.1:1", "[2001:db8::7]:10911"].map(|host| host.parse().unwrap());
        for (topic, shared) in [("T", &b""[..]), ("T", b"CLUSTER\x01c\x02"), (&long, b"A\x01b")] {
            for (born_host, store_host) in [(hosts[0], hosts[0]), (hosts[0], hosts[1]), (hosts[1], hosts[0])]
            {
                let like =
                    NewRecord { topic, queue_id: 3, sys_flag: 16, born_host, store_host, ..NewRecord::PLAIN };
                let mut mold = RecordMold::new(like, shared);
                let (mut molded, mut alone) = (BytesMut::new(), BytesMut::new());
                let own = [
                    &b"K\x01v1"[..],
                    b"K\x01v2",
                    b"K\x01v\x02",
                    b"",
                    b"K\x01v3",
                    b"K\x01v1\x02",
                    b"K\x01v2\x02",
                ];
                for (flag, own) in (-3..).zip(own) {
                    for body in [&b"hello"[..], b"", b"hello, world"] {
                        let record = NewRecord { flag, body, properties: &[own, shared], ..like };
                        assert_eq!(mold.properties_len(own), record.properties_len());
                        mold.encode((flag, body), own, &mut molded).unwrap();
                        record.encode(&mut alone).unwrap();
                        assert_eq!(molded, alone, "{topic} {own:?} {body:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_format_cannot_carry_is_refused_and_the_mold_stays_of_use() {
        let mut mold = RecordMold::new(NewRecord { topic: "T", ..NewRecord::PLAIN }, b"A\x01b\x02");
        let mut out = BytesMut::new();
        let refused = mold.encode((0, b"x"), &vec![b'x'; PROPERTIES_MAX_BYTES], &mut out);
        assert!(matches!(refused, Err(CodecError::TooLong { .. })) && out.is_empty());
        mold.encode((0, b"x"), b"K\x01v", &mut out).unwrap();
        let len = out.len();
        assert!(mold.encode((0, b"x"), &vec![b'x'; PROPERTIES_MAX_BYTES], &mut out).is_err());
        assert_eq!(out.len(), len);
        mold.encode((0, b"x"), b"K\x01v", &mut out).unwrap();
        assert_eq!(out[..len], out[len..]);
    }
}
