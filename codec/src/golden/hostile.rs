//! Golden frames that were cut or damaged.
//!
//! Invariants:
//! - a cut frame is an error, a damaged one an error or another value, never a panic;
//! - the seed of a run is in its message.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};

use super::frames;
use crate::command::{Command, CommandView, Head, HeaderForm};
use crate::loose_json::from_loose;
use crate::request::{PullView, RegisterBrokerBody, SendView, request_info};
use crate::response::ResponseCode;

/// One frame of each code, form and direction.
fn samples() -> Vec<Bytes> {
    let mut seen = BTreeSet::new();
    let is_new = |golden: &&super::GoldenFrame| {
        seen.insert((golden.number("code"), golden.number("codec"), golden.request_code))
    };
    frames().iter().filter(is_new).map(super::GoldenFrame::cut).collect()
}

/// Reads all that a peer could make us read of a frame.
fn read_all(frame: &Bytes) {
    let Ok(command) = Command::decode(frame.clone()) else { return };
    if let Some(request) = request_info(command.code) {
        let _ = (request.reread)(&command.fields);
        let _ = (request.reread_reply)(&command.fields);
    }
    let _ = from_loose::<serde_json::Value>(&command.body);
    let _ = RegisterBrokerBody::decode(&command.body);
    let view = CommandView::parse(frame).unwrap();
    let _ = (SendView::read(&view), PullView::read(&view), view.remark());
    let mut out = BytesMut::new();
    command.encode(&mut out);
    for form in [HeaderForm::Json, HeaderForm::Binary] {
        let remark = command.remark.as_deref().unwrap_or_default();
        let head = Head::answer(ResponseCode(command.code), command.opaque, form).with_remark(remark);
        head.begin(&mut out).finish(0);
    }
}

#[test]
fn every_truncation_within_the_header_is_an_error() {
    for frame in samples() {
        let header_end = CommandView::parse(&frame).unwrap().body.start;
        for len in 0..header_end {
            assert!(
                Command::decode(frame.slice(..len)).is_err(),
                "{:?} cut to {len}",
                frame.slice(..header_end)
            );
        }
    }
}

/// Numbers that look random and come again with their seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides.max(1)).unwrap()).unwrap()
    }
}

#[test]
fn damaged_frames_never_panic() {
    let samples = samples();
    let base = std::time::UNIX_EPOCH.elapsed().map_or(7, |since| since.as_secs());
    for round in 0..4_000 {
        let seed = base.wrapping_mul(1_000_003).wrapping_add(round) | 1;
        let mut dice = Dice(seed);
        let mut bytes = samples[dice.roll(samples.len())].to_vec();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len());
            let Some(byte) = bytes.get_mut(at) else { break };
            match dice.roll(4) {
                0 => *byte = u8::try_from(dice.roll(256)).unwrap(),
                1 => *byte ^= 1 << dice.roll(8),
                2 => bytes.truncate(at),
                _ => bytes.insert(at, b"{}[]\",:\\u0"[dice.roll(10)]),
            }
        }
        let frame = Bytes::from(bytes);
        let outcome = std::panic::catch_unwind(|| read_all(&frame));
        assert!(outcome.is_ok(), "seed {seed}: {frame:?}");
    }
}
