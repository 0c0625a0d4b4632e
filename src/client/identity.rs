//! What a client is called, and the ids it gives to messages.
//!
//! Invariants:
//! - two clients never share an id, also not within one process;
//! - two messages of a client never share an id: 65,536 a millisecond are told apart.
//!
//! RocketMQ's names: `ClientConfig#buildMQClientId`, `MessageClientIDSetter`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use troupemq_codec::message::UniqueId;
use troupemq_codec::message::message_id::UniqueIdText;
use troupemq_codec::{Text, filter};

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Who a client is.
#[derive(Debug)]
pub(crate) struct Identity {
    client_id: Text,
    /// What ids look like, but for time and counter.
    id: UniqueIdText,
    counter: AtomicU16,
}

impl Identity {
    /// The identity of a client that talks to a server; `instance` stands for what differs from others.
    pub(crate) fn new(peer: Option<SocketAddr>, instance: Option<&str>) -> Identity {
        let ip = peer.and_then(own_address).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let process_id = std::process::id();
        let now = since_epoch().as_nanos();
        let client_id = match instance {
            Some(instance) => format!("{ip}@{instance}"),
            None => format!("{ip}@{process_id}#{now}"),
        };
        let hash = filter::java_hash(&format!("{client_id}#{now}")).cast_unsigned();
        let process_id = u16::try_from(process_id & 0xFFFF).expect("16 bits were masked");
        let id = UniqueId { ip, process_id, hash, month_ms: 0, counter: 0 }.text();
        Identity { client_id: client_id.into(), id, counter: AtomicU16::new(0) }
    }

    /// The client id, by which brokers know the members of groups.
    pub(crate) fn client_id(&self) -> &Text {
        &self.client_id
    }

    /// Takes unique ids for so many messages of one moment: what they look like, and the counter of the first.
    pub(crate) fn message_ids(&self, now_ms: i64, messages: usize) -> (UniqueIdText, u16) {
        let [.., high, low] = messages.to_be_bytes();
        let first = self.counter.fetch_add(u16::from_be_bytes([high, low]), Ordering::Relaxed);
        (self.id.with_month_ms(month_ms(now_ms)), first)
    }

    /// A new unique id for a message.
    pub(crate) fn message_id(&self, now_ms: i64) -> UniqueIdText {
        let (id, counter) = self.message_ids(now_ms, 1);
        id.with_counter(counter)
    }
}

/// The time of the machine: epoch ms.
pub(crate) fn epoch_ms() -> i64 {
    // Asked for each message: not by way of 128 bits.
    let now = since_epoch();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX / 1000) * 1000 + i64::from(now.subsec_millis())
}

#[expect(clippy::disallowed_methods, reason = "a client has no store and with it no clock")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The address by which this machine reaches another; connecting a datagram socket sends nothing.
fn own_address(peer: SocketAddr) -> Option<IpAddr> {
    let any = if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Time since the start of the month, in UTC.
fn month_ms(now_ms: i64) -> u32 {
    let day_of_month = day_of_month(now_ms.div_euclid(DAY_MS));
    u32::try_from((day_of_month - 1) * DAY_MS + now_ms.rem_euclid(DAY_MS))
        .expect("31 days have 2.7 billion ms")
}

/// The day of the month, from 1, of a day counted from the epoch; by eras of 400 years that begin in March.
fn day_of_month(epoch_day: i64) -> i64 {
    let day_of_era = (epoch_day + 719_468).rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    day_of_year - (153 * month + 2) / 5 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_the_month_are_those_of_the_calendar() {
        // 1970-01-01, 1970-01-31, 1970-02-01, 2000-02-29, 2000-03-01, 2026-11-29, 1969-12-31
        let days = [(0, 1), (30, 31), (31, 1), (11_016, 29), (11_017, 1), (20_786, 29), (-1, 31)];
        for (epoch_day, expected) in days {
            assert_eq!(day_of_month(epoch_day), expected, "day {epoch_day}");
        }
    }

    #[test]
    fn ids_of_one_client_differ() {
        let identity = Identity::new(Some(([127, 0, 0, 1], 9876).into()), None);
        let ids: std::collections::HashSet<String> =
            (0..1000).map(|now_ms| identity.message_id(now_ms / 10).as_str().to_owned()).collect();
        assert_eq!(ids.len(), 1000);
        let (id, first) = identity.message_ids(99, 3);
        assert!((0..3).all(|at| !ids.contains(id.with_counter(first + at).as_str())));
        assert_eq!(identity.message_ids(99, 1 << 16).1, first + 3);
        assert_eq!(identity.message_ids(99, 1).1, first + 3, "more than counters tell apart go round");
        assert!(identity.client_id().contains('@'));
    }
}
