//! The two ids of a message: the offset id that names its place, and the producer's unique id.
//!
//! Invariants:
//! - ids are upper-case hex: 32 characters with an IPv4 address, 56 with IPv6;
//! - an offset id names the record at `log_offset` of the broker that advertises `host`;
//! - a unique id is made of what the caller gives: no clock, process id or counter is asked for here.
//!
//! | bytes | offset id | unique id |
//! |---|---|---|
//! | 4 or 16 | address | address |
//! | 4 · 2 | port | process id |
//! | 8 · 4 | log offset | hash of the process (Java: of the class loader) |
//! | · 4 | | ms since the start of the month |
//! | · 2 | | counter |
//!
//! RocketMQ's names for it: `MessageDecoder#createMessageId`, `MessageClientIDSetter`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::BufMut;

use crate::cursor::Cursor;
use crate::error::CodecError;
use crate::message::new_record::put_host;

/// Bytes of an id with an IPv4 address.
const ID_V4_BYTES: usize = 16;
/// Bytes of an id with an IPv6 address.
const ID_V6_BYTES: usize = 28;
/// Digits of the counter of a unique id.
const COUNTER_DIGITS: usize = 4;
/// Characters of ASCII between `9` and `A`.
const BETWEEN_DIGITS_AND_LETTERS: u64 = 7;

/// Where a message is stored: broker and log offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OffsetId {
    /// The broker's advertised address.
    pub host: SocketAddr,
    /// Position of the record in that broker's log, in bytes.
    pub log_offset: i64,
}

impl fmt::Display for OffsetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0_u8; ID_V6_BYTES];
        let mut rest = &mut bytes[..];
        put_host(&mut rest, self.host);
        rest.put_i64(self.log_offset);
        let len = ID_V6_BYTES.saturating_sub(rest.remaining_mut());
        write_hex(f, bytes.get(..len).unwrap_or_default())
    }
}

impl FromStr for OffsetId {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<OffsetId, CodecError> {
        let (bytes, len) = read_hex(text)?;
        let mut input = Cursor::new(bytes.get(..len).unwrap_or_default());
        let ip = ip(&mut input, len)?;
        let [_, _, high, low] = input.array("port of an offset id")?;
        let host = SocketAddr::new(ip, u16::from_be_bytes([high, low]));
        Ok(OffsetId { host, log_offset: input.i64("log offset of an offset id")? })
    }
}

/// The id that a producer gives a message: property `UNIQ_KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId {
    /// Address of the producer.
    pub ip: IpAddr,
    /// Its process id, cut to 16 bits.
    pub process_id: u16,
    /// Anything that differs between two instances in one process.
    pub hash: u32,
    /// Time since the start of the month: ms.
    pub month_ms: u32,
    /// Counts messages, wraps.
    pub counter: u16,
}

/// The hex text of a [`UniqueId`], held in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueIdText {
    text: [u8; 56],
    len: usize,
}

impl UniqueIdText {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.text.get(..self.len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    /// The same id but for its counter.
    pub fn with_counter(mut self, counter: u16) -> UniqueIdText {
        let digits = hex_digits(u32::from(counter));
        let place = self.text.get_mut(..self.len).and_then(|text| text.last_chunk_mut::<4>());
        if let (Some(place), Some(four)) = (place, digits.last_chunk()) {
            *place = *four;
        }
        self
    }

    /// The same id but for its time, in ms since the start of the month.
    pub fn with_month_ms(mut self, month_ms: u32) -> UniqueIdText {
        let id = self.text.get_mut(..self.len).unwrap_or_default();
        let front = id.len().saturating_sub(COUNTER_DIGITS);
        if let Some(place) = id.get_mut(..front).and_then(|front| front.last_chunk_mut::<8>()) {
            *place = hex_digits(month_ms);
        }
        self
    }
}

impl UniqueId {
    /// The hex text, without memory from the heap.
    pub fn text(&self) -> UniqueIdText {
        let mut bytes = [0_u8; ID_V6_BYTES];
        let mut rest = &mut bytes[..];
        match self.ip {
            IpAddr::V4(ip) => rest.put_slice(&ip.octets()),
            IpAddr::V6(ip) => rest.put_slice(&ip.octets()),
        }
        rest.put_u16(self.process_id);
        rest.put_u32(self.hash);
        rest.put_u32(self.month_ms);
        rest.put_u16(self.counter);
        let len = ID_V6_BYTES.saturating_sub(rest.remaining_mut());
        let mut text = [0_u8; 56];
        let words = bytes.get(..len).unwrap_or_default().as_chunks::<4>().0;
        for (digits, word) in text.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *digits = hex_digits(u32::from_be_bytes(*word));
        }
        UniqueIdText { text, len: len.saturating_mul(2) }
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl FromStr for UniqueId {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<UniqueId, CodecError> {
        let (bytes, len) = read_hex(text)?;
        let mut input = Cursor::new(bytes.get(..len).unwrap_or_default());
        Ok(UniqueId {
            ip: ip(&mut input, len)?,
            process_id: u16::from_be_bytes(input.array("process id of a unique id")?),
            hash: u32::from_be_bytes(input.array("hash of a unique id")?),
            month_ms: u32::from_be_bytes(input.array("time of a unique id")?),
            counter: u16::from_be_bytes(input.array("counter of a unique id")?),
        })
    }
}

fn ip(input: &mut Cursor<'_>, id_len: usize) -> Result<IpAddr, CodecError> {
    if id_len == ID_V4_BYTES {
        return Ok(IpAddr::V4(Ipv4Addr::from(input.array::<4>("address of a message id")?)));
    }
    Ok(IpAddr::V6(Ipv6Addr::from(input.array::<16>("address of a message id")?)))
}

/// The eight upper-case hex digits of a number, made all at once: ids are made for every message.
#[inline]
pub fn hex_digits(number: u32) -> [u8; 8] {
    let spread = u64::from(number);
    let spread = (spread | (spread << 16)) & 0x0000_FFFF_0000_FFFF;
    let spread = (spread | (spread << 8)) & 0x00FF_00FF_00FF_00FF;
    // One digit in each byte; six more carry into the upper half of the byte where it is a letter.
    let values = (spread | (spread << 4)) & 0x0F0F_0F0F_0F0F_0F0F;
    let letters = (values.wrapping_add(0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    values
        .wrapping_add(0x3030_3030_3030_3030)
        .wrapping_add(letters.wrapping_mul(BETWEEN_DIGITS_AND_LETTERS))
        .to_be_bytes()
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        write!(f, "{byte:02X}")?;
    }
    Ok(())
}

fn read_hex(text: &str) -> Result<([u8; ID_V6_BYTES], usize), CodecError> {
    let invalid = || CodecError::Invalid { what: "message id", value: text.chars().take(80).collect() };
    let len = text.len() >> 1;
    if text.len() != len.saturating_mul(2) || (len != ID_V4_BYTES && len != ID_V6_BYTES) {
        return Err(invalid());
    }
    let mut bytes = [0_u8; ID_V6_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let mut digits = pair.iter().map(|digit| char::from(*digit).to_digit(16));
        let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
            return Err(invalid());
        };
        *byte = u8::try_from((high << 4) | low).map_err(|_| invalid())?;
    }
    Ok((bytes, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_id_is_the_hex_of_host_and_log_offset() {
        let id = OffsetId { host: "192.168.1.10:10911".parse().unwrap(), log_offset: 4096 };
        assert_eq!(id.to_string(), "C0A8010A00002A9F0000000000001000");
        assert_eq!("c0a8010a00002a9f0000000000001000".parse::<OffsetId>().unwrap(), id);
    }

    #[test]
    fn an_offset_id_of_an_ipv6_broker_has_56_characters() {
        let id = OffsetId { host: "[::1]:10911".parse().unwrap(), log_offset: 478 };
        let text = id.to_string();
        assert_eq!(text, "0000000000000000000000000000000100002A9F00000000000001DE");
        assert_eq!(text.parse::<OffsetId>().unwrap(), id);
    }

    #[test]
    fn a_unique_id_of_a_java_client_reads_and_writes_back() {
        let text = "7F0000015B334E0E2F2A939017EE0002";
        let id: UniqueId = text.parse().unwrap();
        assert_eq!(id.ip, "127.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!((id.process_id, id.hash), (0x5B33, 0x4E0E_2F2A));
        assert_eq!((id.month_ms, id.counter), (0x9390_17EE, 2));
        assert_eq!(id.text().as_str(), text);
        let v6 = UniqueId { ip: "::1".parse().unwrap(), ..id };
        assert_eq!(v6.to_string().len(), 56);
        assert_eq!(v6.to_string().parse::<UniqueId>().unwrap(), v6);
    }

    #[test]
    fn digits_are_those_of_the_number_and_time_and_counter_change_only_their_own() {
        for number in [0, 9, 10, 0x0123_4567, 0x89AB_CDEF, 0xA0B0_C0D0, u32::MAX] {
            assert_eq!(hex_digits(number), *format!("{number:08X}").as_bytes());
        }
        for text in ["7F0000015B334E0E2F2A939017EE0002", &("0".repeat(52) + "0002")] {
            let id: UniqueId = text.parse().unwrap();
            let expected = UniqueId { counter: 0xFE01, ..id };
            assert_eq!(id.text().with_counter(0xFE01), expected.text());
            let later = UniqueId { month_ms: 0x0123_CDEF, ..id };
            assert_eq!(id.text().with_month_ms(0x0123_CDEF), later.text());
            assert_eq!(expected.text().as_str(), text.strip_suffix("0002").unwrap().to_owned() + "FE01");
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in
            ["", "0", "7F00", "7F0000015B334E0E2F2A939017EE00", "zF0000015B334E0E2F2A939017EE0002", "é"]
        {
            assert!(text.parse::<OffsetId>().is_err(), "{text}");
            assert!(text.parse::<UniqueId>().is_err(), "{text}");
        }
        let not_ascii = "€".repeat(10) + "00";
        assert_eq!(not_ascii.len(), 32);
        assert!(not_ascii.parse::<UniqueId>().is_err());
    }
}
