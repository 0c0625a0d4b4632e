//! Messages of a batch that have a unique id and nothing else, as nearly all have: what is the same for all of them is
//! looked at once.
//!
//! Invariants:
//! - such a message is refused, stored and found as it would be alone;
//! - one that has anything else is left to who looks at messages one by one.

use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{NAME_END, PAIR_END, UNIQ_KEY};
use troupemq_codec::message::{NewRecord, RecordMold, sys_flag};
use troupemq_store::AppendBatch;

use crate::net::Refusal;
use crate::send::bench::{Piece, Target};
use crate::send::check::check_sizes;
use crate::topic::attributes;

/// Messages of one send, to one queue.
pub(super) struct Run<'a> {
    target: Target<'a>,
    mold: RecordMold<'a>,
}

impl<'a> Run<'a> {
    /// That of a batch; none where more has to be known of each message.
    pub(super) fn of(target: &Target<'a>) -> Option<Run<'a>> {
        let Target { cast, wire, send, place, queue, .. } = *target;
        let is_inner = send.sys_flag & sys_flag::INNER_BATCH != 0;
        if !send.is_batch || target.is_dead || is_inner || attributes::is_compacted(&place.topic.config) {
            return None;
        }
        let like = NewRecord {
            topic: &place.name,
            queue_id: queue.queue_id,
            flag: 0,
            sys_flag: send.sys_flag,
            born_timestamp_ms: send.born_timestamp_ms,
            born_host: wire.peer(),
            store_host: cast.advertised,
            reconsume_times: send.reconsume_times.unwrap_or(0),
            prepared_log_offset: 0,
            body: b"",
            body_crc: None,
            properties: &[],
        };
        Some(Run { target: *target, mold: RecordMold::new(like, &cast.own_properties) })
    }

    /// Adds a message if it has an id and nothing else; answers whether it has.
    #[inline]
    pub(super) fn take(&mut self, piece: &Piece<'_>, batch: &mut AppendBatch) -> Result<bool, Refusal> {
        let Some(id) = only_id(piece.properties) else { return Ok(false) };
        check_sizes(self.target.config, piece.body, self.mold.properties_len(piece.properties))?;
        let start = batch.bytes.len();
        self.mold.encode((piece.flag, piece.body), piece.properties, &mut batch.bytes)?;
        batch.push(start, &self.target.queue.units, 1, tags_code_of(None));
        batch.tell_keys_of_last(Some(id), None);
        Ok(true)
    }
}

/// The unique id of a message that has no other property, if it is one of letters and digits.
#[inline]
fn only_id(properties: &[u8]) -> Option<&[u8]> {
    let value = properties.strip_prefix(UNIQ_KEY.as_bytes())?.strip_prefix(&[NAME_END])?;
    let id = value.strip_suffix(&[PAIR_END]).unwrap_or(value);
    // Every byte is looked at: that takes less than to stop at the first that is wrong.
    let is_plain = id.iter().fold(true, |is_plain, byte| is_plain & byte.is_ascii_alphanumeric());
    (!id.is_empty() && is_plain).then_some(id)
}

#[cfg(test)]
mod tests {
    use troupemq_codec::message::PropertiesView;

    use super::*;
    use crate::send::check::Marks;

    #[test]
    fn a_message_of_a_run_has_the_marks_of_one_with_an_id_and_nothing_else() {
        let texts = ["UNIQ_KEY\x01id", "UNIQ_KEY\x017F0000015B33\x02"];
        for text in texts {
            let (id, marks) = (only_id(text.as_bytes()), Marks::of(PropertiesView(text.as_bytes())));
            assert_eq!(id, marks.uniq_key.map(str::as_bytes), "{text:?}");
            let mut nothing = Marks::of(PropertiesView(b""));
            nothing.uniq_key = marks.uniq_key;
            assert_eq!(format!("{marks:?}"), format!("{nothing:?}"));
            for more in ["\x02TAGS\x01A", "\x02\x02", " ", "\x02x", "\u{1}", "ä", "\0"] {
                assert_eq!(only_id(format!("{text}{more}").as_bytes()), None, "{text:?} {more:?}");
            }
        }
        for text in [
            "",
            "UNIQ_KEY",
            "UNIQ_KEY\x01",
            "UNIQ_KEY\x01\x02",
            "UNIQ_KEYS\x01a",
            "TAGS\x01a",
            "\x02UNIQ_KEY\x01a",
        ] {
            assert_eq!(only_id(text.as_bytes()), None, "{text:?}");
        }
    }
}
