//! Ids of messages: unique ids for those that come without one, and the ids that name their place.
//!
//! Invariants:
//! - two ids of one node differ within a millisecond up to 65,536 messages;
//! - an id tells when it was made, within its month, as the ids of clients do.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use troupemq_codec::message::message_id::{UniqueIdText, hex_digits};
use troupemq_codec::message::{OffsetId, UniqueId};

const DAY_MS: i64 = 86_400_000;

/// Maker of unique ids.
#[derive(Debug)]
pub struct IdSource {
    ip: IpAddr,
    process_id: u16,
    hash: u32,
    counter: AtomicU32,
}

impl IdSource {
    /// A source for the broker at `ip`, told apart from others on its machine by `started_ms`.
    pub fn new(ip: IpAddr, started_ms: i64) -> IdSource {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let [_, _, _, _, a, b, c, d] = started_ms.wrapping_mul(2_654_435_761).to_be_bytes();
        IdSource {
            ip,
            process_id: u16::from_be_bytes([high, low]),
            hash: u32::from_be_bytes([a, b, c, d]),
            counter: AtomicU32::new(0),
        }
    }

    /// The next id.
    pub fn next(&self, now_ms: i64) -> UniqueIdText {
        let [_, _, high, low] = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        UniqueId {
            ip: self.ip,
            process_id: self.process_id,
            hash: self.hash,
            month_ms: month_ms(now_ms),
            counter: u16::from_be_bytes([high, low]),
        }
        .text()
    }
}

/// Maker of the ids that name a message by its broker and its place in the log.
#[derive(Debug)]
pub struct PlaceIds {
    /// The id of place 0.
    zero: PlaceId,
}

/// The id of one place.
#[derive(Debug, Clone, Copy)]
pub struct PlaceId {
    text: [u8; 56],
    len: usize,
}

/// Digits of the log offset in an id.
const OFFSET_DIGITS: usize = 16;

impl PlaceIds {
    /// Ids of the broker that others know as `host`.
    pub fn new(host: SocketAddr) -> PlaceIds {
        let zero = OffsetId { host, log_offset: 0 }.to_string();
        let mut text = [0; 56];
        text[..zero.len()].copy_from_slice(zero.as_bytes());
        PlaceIds { zero: PlaceId { text, len: zero.len() } }
    }

    /// The id of the record at `log_offset`.
    pub fn of(&self, log_offset: u64) -> PlaceId {
        let PlaceId { mut text, len } = self.zero;
        let [a, b, c, d, e, f, g, h] = log_offset.to_be_bytes();
        let words = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        let places = text[len - OFFSET_DIGITS..len].as_chunks_mut::<8>().0;
        for (place, word) in places.iter_mut().zip(words) {
            *place = hex_digits(word);
        }
        PlaceId { text, len }
    }
}

impl PlaceId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("ids are hexadecimal digits")
    }

    /// The bytes of that text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// Milliseconds since the start of the month (UTC).
fn month_ms(now_ms: i64) -> u32 {
    let days = now_ms.div_euclid(DAY_MS);
    let since = i64::from(day_of_month(days) - 1) * DAY_MS + now_ms.rem_euclid(DAY_MS);
    u32::try_from(since).unwrap_or(0)
}

/// The day of the month, from 1, of a day counted from 1970-01-01, by the usual reckoning from the first of
/// March on, which puts the leap day at the end of the year.
fn day_of_month(days: i64) -> i32 {
    let from_march = days + 719_468;
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    i32::try_from(day_of_year - (153 * month + 2) / 5 + 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_month_are_those_of_the_calendar() {
        // 1970-01-01, 1970-02-01, 2000-02-29, 2024-03-01, 2026-11-29
        for (days, expected) in [(0, 1), (31, 1), (11_016, 29), (19_783, 1), (20_786, 29)] {
            assert_eq!(day_of_month(days), expected, "day {days}");
        }
        assert_eq!(month_ms(DAY_MS * 33 + 5), 172_800_005);
    }

    #[test]
    fn the_id_of_a_place_is_that_of_rocketmq() {
        for host in ["127.0.0.1:10911", "[::1]:10911"] {
            let host = host.parse().expect("an address");
            let expected = OffsetId { host, log_offset: 0x1234_5678_9ABC }.to_string();
            assert_eq!(PlaceIds::new(host).of(0x1234_5678_9ABC).as_str(), expected);
        }
    }

    #[test]
    fn ids_differ_and_have_the_length_of_clients_ids() {
        let source = IdSource::new(IpAddr::from([127, 0, 0, 1]), 1_795_000_000_000);
        let (first, second) = (source.next(1_795_000_000_000), source.next(1_795_000_000_000));
        assert_eq!(first.as_str().len(), 32);
        assert_ne!(first, second);
    }
}
