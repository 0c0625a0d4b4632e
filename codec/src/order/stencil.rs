//! Writes the head of a send by that of one before it: what a producer sends to a topic differs in queue, time,
//! properties and number alone.
//!
//! Invariants:
//! - a stencil changes how long it takes to write a head, never what is written;
//! - a connection has one: another takes its place when it did not fit so often in a row.

use bytes::{BufMut, BytesMut};

use super::SendOrder;
use crate::command::{CommandView, DIGITS_MAX, HeaderForm, digits_of, escape, fill_lengths};
use crate::frame::{HEADER_WORD_BYTES, LENGTH_BYTES};
use crate::request::SendMessageV2Header;

/// Heads that a stencil does not fit, one after the other, before another is made.
const MISSES_MAX: u8 = 8;
/// Keys of what differs, in their order.
const DIFFERENT: [&str; 3] = ["e", "g", "i"];

/// The stencil of a connection.
#[derive(Debug)]
pub struct Stencils {
    current: Option<Box<Stencil>>,
    misses: u8,
}

/// A head without what differs.
#[derive(Debug)]
struct Stencil {
    /// The header that it was made of.
    header: SendMessageV2Header,
    /// What stands before queue, time, properties and opaque, and behind them.
    pieces: [Box<[u8]>; 5],
    /// Bytes of the pieces and of the numbers between them, at most.
    bytes: usize,
}

impl Default for Stencils {
    /// None yet: the first head makes one.
    fn default() -> Stencils {
        Stencils { current: None, misses: MISSES_MAX }
    }
}

impl Stencils {
    /// Appends the frame of a send up to its body.
    pub fn encode_head<S>(&mut self, order: &SendOrder<S>, opaque: i32, out: &mut BytesMut) {
        if let (Some(stencil), Some(properties)) = (&self.current, &order.header.properties)
            && stencil.fits(&order.header)
        {
            self.misses = 0;
            return stencil.put(order, (opaque, properties), out);
        }
        let start = out.len();
        order.encode_head(opaque, out);
        if self.misses < MISSES_MAX {
            self.misses = self.misses.saturating_add(1);
            return;
        }
        let frame = out.get(start..).unwrap_or_default();
        self.current = Stencil::of(&order.header, frame).map(Box::new);
        self.misses = 0;
    }
}

impl Stencil {
    /// The stencil of a header, by how it was written.
    fn of(header: &SendMessageV2Header, frame: &[u8]) -> Option<Stencil> {
        let frame = frame.get(LENGTH_BYTES..)?;
        let view = CommandView::parse(frame).ok()?;
        let [queue, time, properties] = DIFFERENT.map(|key| view.place_of(key));
        let places = [queue?, time?, properties?, view.place_of_opaque()];
        let mut rest = frame.get(HEADER_WORD_BYTES..view.body.start)?;
        let (mut pieces, mut at) = (<[Box<[u8]>; 5]>::default(), 0_usize);
        for (piece, place) in pieces.iter_mut().zip(places) {
            let (before, behind) = rest.split_at_checked(place.start.checked_sub(at)?)?;
            *piece = before.into();
            rest = behind.get(place.len()..)?;
            at = place.end;
        }
        *pieces.last_mut()? = rest.into();
        let lengths = pieces.iter().map(|piece| piece.len());
        let bytes = lengths.fold(DIGITS_MAX.saturating_mul(3), usize::saturating_add);
        let header = SendMessageV2Header { properties: None, ..header.clone() };
        Some(Stencil { header, pieces, bytes })
    }

    /// Whether a header differs from that of the stencil in nothing but queue, time and properties.
    fn fits(&self, header: &SendMessageV2Header) -> bool {
        let known = &self.header;
        // What is likeliest to differ comes first.
        header.topic == known.topic
            && header.producer_group == known.producer_group
            && header.broker_name == known.broker_name
            && header.is_batch == known.is_batch
            && header.sys_flag == known.sys_flag
            && header.flag == known.flag
            && header.default_topic == known.default_topic
            && header.default_topic_queues == known.default_topic_queues
            && header.reconsume_times == known.reconsume_times
            && header.reconsume_max == known.reconsume_max
            && header.unit_mode == known.unit_mode
    }

    fn put<S>(&self, order: &SendOrder<S>, (opaque, properties): (i32, &str), out: &mut BytesMut) {
        let SendMessageV2Header { queue_id, born_timestamp_ms, .. } = order.header;
        let [to_queue, to_time, to_properties, to_opaque, end] = &self.pieces;
        let start = out.len();
        out.reserve(self.bytes.saturating_add(properties.len()).saturating_add(order.body.len()));
        out.put_bytes(0, LENGTH_BYTES.saturating_add(HEADER_WORD_BYTES));
        out.extend_from_slice(to_queue);
        put_number(queue_id.into(), out);
        out.extend_from_slice(to_time);
        put_number(born_timestamp_ms, out);
        out.extend_from_slice(to_properties);
        escape(properties, out);
        out.extend_from_slice(to_opaque);
        put_number(opaque.into(), out);
        out.extend_from_slice(end);
        fill_lengths((start, HeaderForm::Json), order.body.len(), out);
    }
}

fn put_number(number: i64, out: &mut BytesMut) {
    out.extend_from_slice(digits_of(number, &mut [0; DIGITS_MAX]));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn plain() -> SendMessageV2Header {
        SendMessageV2Header {
            producer_group: "g".into(),
            topic: "T".into(),
            default_topic: "TBW102".into(),
            default_topic_queues: 8,
            properties: Some("UNIQ_KEY\u{1}7F\u{2}".into()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            is_batch: Some(false),
            broker_name: Some("b".into()),
            ..Default::default()
        }
    }

    /// What is written with stencils must be what is written without.
    fn are_written_alike(stencils: &mut Stencils, headers: &[SendMessageV2Header]) {
        for (number, header) in (-5_i32..).zip(headers) {
            let (opaque, body) =
                (number.wrapping_mul(1_000_003), Bytes::from(vec![b'b'; header.topic.len()]));
            let order = SendOrder { header: header.clone(), body, waiter: () };
            let (mut wanted, mut written) = (BytesMut::from("before"), BytesMut::from("before"));
            order.encode_head(opaque, &mut wanted);
            stencils.encode_head(&order, opaque, &mut written);
            assert_eq!(written, wanted, "{header:?}");
        }
    }

    #[test]
    fn heads_are_the_same_with_a_stencil_whatever_differs() {
        let mut stencils = Stencils::default();
        let mut headers = vec![plain(); 3];
        for (times, properties) in (0..).zip(["", "\"\\\u{1}ä\u{2}\n", "i\":\"\"", ",\"opaque\":7"]) {
            let (queue_id, born_timestamp_ms) = (-99 * times, i64::MAX / 4 * i64::from(times));
            let properties = Some(properties.into());
            headers.push(SendMessageV2Header { queue_id, born_timestamp_ms, properties, ..plain() });
        }
        are_written_alike(&mut stencils, &headers);
        assert_eq!(stencils.misses, 0, "all but the first fit its stencil");
        let others = [
            SendMessageV2Header { producer_group: "h".into(), ..plain() },
            SendMessageV2Header { topic: "T\"".into(), ..plain() },
            SendMessageV2Header { default_topic: "".into(), ..plain() },
            SendMessageV2Header { default_topic_queues: 4, ..plain() },
            SendMessageV2Header { sys_flag: 1, ..plain() },
            SendMessageV2Header { flag: -1, ..plain() },
            SendMessageV2Header { properties: None, ..plain() },
            SendMessageV2Header { reconsume_times: None, ..plain() },
            SendMessageV2Header { unit_mode: None, ..plain() },
            SendMessageV2Header { reconsume_max: Some(16), ..plain() },
            SendMessageV2Header { is_batch: Some(true), ..plain() },
            SendMessageV2Header { broker_name: None, ..plain() },
        ];
        for other in others {
            // Now and then, and so often that the stencil is made of it.
            are_written_alike(&mut stencils, &[other.clone(), plain()]);
            are_written_alike(&mut stencils, &vec![other; usize::from(MISSES_MAX) * 3]);
            are_written_alike(&mut stencils, &vec![plain(); usize::from(MISSES_MAX) * 3]);
        }
    }

    #[test]
    fn a_topic_now_and_then_takes_no_stencil_from_another() {
        let mut stencils = Stencils::default();
        let other = SendMessageV2Header { topic: "other".into(), ..plain() };
        let topic = |stencils: &Stencils| stencils.current.as_ref().unwrap().header.topic.clone();
        are_written_alike(&mut stencils, &[plain()]);
        for _ in 0..=MISSES_MAX {
            are_written_alike(&mut stencils, &[other.clone(), plain()]);
        }
        assert_eq!(topic(&stencils), "T");
        are_written_alike(&mut stencils, &vec![other; usize::from(MISSES_MAX) + 1]);
        assert_eq!(topic(&stencils), "other");
    }
}
