//! What waits to be written to one connection.
//!
//! Invariants:
//! - chunks leave in the order they were pushed, each byte once;
//! - bodies are slices of the mapped log: they are pushed and written without a copy;
//! - an empty `Outbound` holds no buffer;
//! - whatever is written to it is whole frames.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use troupemq_store::Pieces;

/// Chunks handed to one vectored write.
const SLICES: usize = 64;
/// A chunk shorter than this is copied behind the bytes before it: cheaper than a slice of its own.
const COPY_BELOW_BYTES: usize = 256;

/// The queue of chunks of one connection.
#[derive(Debug, Default)]
pub struct Outbound {
    chunks: VecDeque<Chunk>,
    open: BytesMut,
    /// Bytes in the chunks.
    bytes: usize,
}

/// What was pushed at once and has not been written yet.
#[derive(Debug)]
enum Chunk {
    Whole(Bytes),
    /// Each of them is written from where it lies.
    Pieces(Pieces),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Whole(bytes) => bytes.len(),
            Chunk::Pieces(pieces) => pieces.len(),
        }
    }

    /// The first bytes of it, as many as lie side by side.
    fn front(&self) -> &[u8] {
        match self {
            Chunk::Whole(bytes) => bytes,
            Chunk::Pieces(pieces) => pieces.iter().next().unwrap_or_default(),
        }
    }

    fn advance(&mut self, taken: usize) {
        match self {
            Chunk::Whole(bytes) => bytes.advance(taken),
            Chunk::Pieces(pieces) => pieces.advance(taken),
        }
    }
}

impl Outbound {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Whether the next encoding would need a buffer.
    pub fn needs_buffer(&self) -> bool {
        self.open.capacity() == 0
    }

    /// Gives it a buffer to encode into.
    pub fn lend(&mut self, buffer: BytesMut) {
        if self.open.is_empty() {
            self.open = buffer;
        }
    }

    /// The buffer back, once everything is written.
    pub fn take_buffer(&mut self) -> Option<BytesMut> {
        (self.is_empty() && self.open.capacity() > 0).then(|| std::mem::take(&mut self.open))
    }

    /// Where the next command is encoded.
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Adds a body without copying it.
    pub fn push(&mut self, chunk: Bytes) {
        if chunk.len() < COPY_BELOW_BYTES {
            self.open.extend_from_slice(&chunk);
            return;
        }
        self.push_chunk(Chunk::Whole(chunk));
    }

    /// Adds a body that lies in pieces, without copying them.
    pub fn push_pieces(&mut self, pieces: Pieces) {
        if pieces.len() < pieces.count() * COPY_BELOW_BYTES {
            self.open.reserve(pieces.len());
            pieces.iter().for_each(|piece| self.open.extend_from_slice(piece));
            return;
        }
        self.push_chunk(pieces.single().map_or_else(|| Chunk::Pieces(pieces), Chunk::Whole));
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        if !self.open.is_empty() {
            let closed = self.open.split().freeze();
            self.bytes += closed.len();
            self.chunks.push_back(Chunk::Whole(closed));
        }
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    /// Hands what waits to `write`, once, and forgets what it took.
    pub fn write_with(
        &mut self,
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut left = &mut slices[..];
        let mut add = |bytes| match std::mem::take(&mut left) {
            [] => false,
            [slot, rest @ ..] => {
                *slot = IoSlice::new(bytes);
                left = rest;
                true
            }
        };
        let has_room = self.chunks.iter().all(|chunk| match chunk {
            Chunk::Whole(bytes) => add(bytes),
            Chunk::Pieces(pieces) => pieces.iter().all(&mut add),
        });
        if has_room && !self.open.is_empty() {
            add(&self.open);
        }
        let used = SLICES - left.len();
        let written = write(&slices[..used])?;
        self.forget(written);
        Ok(written)
    }

    /// Takes the first whole frame, without its length word, and its body: for a peer in this process. A body
    /// that was pushed as one chunk leaves as that chunk; all else is a copy, so that nothing holds the buffer.
    pub fn take_frame(&mut self) -> Option<(Bytes, Bytes)> {
        let front = self.front();
        let word = |at: usize| front.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let to_len = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (length, header) = (to_len(word(0)?), to_len(word(4)? & 0x00FF_FFFF));
        self.forget(4);
        let head = self.copy(4 + header);
        let body = length - head.len();
        let chunk = self.chunks.front().filter(|chunk| body > 0 && chunk.len() == body);
        let Some(Chunk::Whole(chunk)) = chunk else { return Some((head, self.copy(body))) };
        let chunk = chunk.clone();
        self.forget(body);
        Some((head, chunk))
    }

    /// The first bytes that wait, as many as lie side by side.
    fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&self.open[..], Chunk::front)
    }

    /// Takes bytes off the front as a copy.
    fn copy(&mut self, len: usize) -> Bytes {
        let mut copy = BytesMut::with_capacity(len);
        while copy.len() < len {
            let front = self.front();
            let part = (len - copy.len()).min(front.len());
            if part == 0 {
                break;
            }
            copy.extend_from_slice(&front[..part]);
            self.forget(part);
        }
        copy.freeze()
    }

    fn forget(&mut self, mut written: usize) {
        while let Some(first) = self.chunks.front_mut() {
            let len = first.len();
            if written < len {
                first.advance(written);
                self.bytes -= written;
                return;
            }
            written -= len;
            self.bytes -= len;
            self.chunks.pop_front();
        }
        if written >= self.open.len() {
            self.open.clear();
        } else {
            self.open.advance(written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbound: &mut Outbound, step: usize) -> Vec<u8> {
        let mut seen = Vec::new();
        while !outbound.is_empty() {
            let took = outbound.write_with(|slices| {
                let flat: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).take(step).collect();
                seen.extend_from_slice(&flat);
                Ok(flat.len())
            });
            assert!(took.expect("a write that works") > 0);
        }
        seen
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_writes_take() {
        let long = Bytes::from(vec![7_u8; 1000]);
        for step in [1, 3, 999, 1000, 1001, 5000] {
            let mut outbound = Outbound::default();
            outbound.tail().extend_from_slice(b"head");
            outbound.push(long.clone());
            outbound.push(Bytes::from_static(b"small"));
            outbound.push(long.clone());
            outbound.tail().extend_from_slice(b"tail");
            assert_eq!(outbound.bytes(), 2013);
            let mut expected = b"head".to_vec();
            expected.extend_from_slice(&long);
            expected.extend_from_slice(b"small");
            expected.extend_from_slice(&long);
            expected.extend_from_slice(b"tail");
            assert_eq!(drain(&mut outbound, step), expected, "step {step}");
            assert!(outbound.is_empty());
        }
    }

    fn pieces(lens: &[usize]) -> Pieces {
        let len: usize = lens.iter().map(|len| len + 1).sum();
        let letters = (0..len).map(|at| b'a' + u8::try_from(at % 26).expect("a letter"));
        let mut pieces = Pieces::new(0, letters.collect::<Vec<u8>>().into(), lens.len());
        let mut at = 0;
        for len in lens {
            assert!(pieces.add(at, *len));
            at += u64::try_from(len + 1).expect("a small number");
        }
        pieces
    }

    #[test]
    fn pieces_leave_in_order_whatever_the_writes_take() {
        for lens in [&[1000, 300, 20, 999][..], &[20, 30, 40], &[400], &[300; 100]] {
            for step in [1, 299, 1000, 1001, usize::MAX] {
                let (mut outbound, mut expected) = (Outbound::default(), Vec::new());
                for frame in [b"first", b"other"] {
                    outbound.tail().extend_from_slice(frame);
                    outbound.push_pieces(pieces(lens));
                    expected.extend_from_slice(frame);
                    expected.extend(pieces(lens).iter().flatten());
                }
                assert_eq!(outbound.bytes(), expected.len());
                assert_eq!(drain(&mut outbound, step), expected, "{lens:?} by {step}");
            }
        }
    }

    #[test]
    fn frames_come_out_as_they_were_pushed_and_a_chunk_is_not_copied() {
        let mut outbound = Outbound::default();
        let large = Bytes::from(vec![7_u8; 1000]);
        let bodies: [&[Bytes]; 5] = [
            &[],
            &[Bytes::from_static(b"small")],
            std::slice::from_ref(&large),
            &[large.clone(), Bytes::from_static(b"tail")],
            &[Bytes::from_static(b"head"), large.clone(), large.clone()],
        ];
        for body in bodies {
            let len = body.iter().map(Bytes::len).sum::<usize>();
            let frame_len = u32::try_from(len + 6).expect("a small frame");
            outbound.tail().extend_from_slice(&frame_len.to_be_bytes());
            outbound.tail().extend_from_slice(&[1, 0, 0, 2, b'h', b'h']);
            body.iter().for_each(|chunk| outbound.push(chunk.clone()));
        }
        for body in bodies {
            let (head, taken) = outbound.take_frame().expect("a frame waits");
            assert_eq!((&head[..], &taken[..]), (&[1, 0, 0, 2, b'h', b'h'][..], &body.concat()[..]));
            let is_same = body.len() == 1 && body[0].len() >= COPY_BELOW_BYTES;
            assert_eq!(taken.as_ptr() == large.as_ptr(), is_same);
        }
        for lens in [&[1000, 300][..], &[20, 30], &[400]] {
            let body = pieces(lens);
            let frame_len = u32::try_from(body.len() + 6).expect("a small frame");
            outbound.tail().extend_from_slice(&frame_len.to_be_bytes());
            outbound.tail().extend_from_slice(&[1, 0, 0, 2, b'h', b'h']);
            outbound.push_pieces(body.clone());
            let (_, taken) = outbound.take_frame().expect("a frame waits");
            assert_eq!(taken, body.iter().collect::<Vec<_>>().concat());
        }
        assert!(outbound.take_frame().is_none());
        assert_eq!(outbound.bytes(), 0);
    }

    #[test]
    fn more_chunks_than_one_write_takes_are_written_in_turns() {
        let mut outbound = Outbound::default();
        for at in 0..200_u8 {
            outbound.push(Bytes::from(vec![at; 300]));
        }
        assert_eq!(drain(&mut outbound, usize::MAX).len(), 60_000);
    }

    #[test]
    fn an_empty_queue_gives_its_buffer_back() {
        let mut outbound = Outbound::default();
        assert!(outbound.needs_buffer());
        outbound.lend(BytesMut::with_capacity(64));
        outbound.tail().extend_from_slice(b"x");
        assert!(outbound.take_buffer().is_none());
        drain(&mut outbound, 1);
        assert!(outbound.take_buffer().is_some());
        assert!(outbound.needs_buffer());
    }
}
