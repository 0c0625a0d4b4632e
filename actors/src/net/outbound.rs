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

/// Chunks handed to one vectored write.
const SLICES: usize = 64;
/// A chunk shorter than this is copied behind the bytes before it: cheaper than a slice of its own.
const COPY_BELOW_BYTES: usize = 256;

/// The queue of chunks of one connection.
#[derive(Debug, Default)]
pub struct Outbound {
    chunks: VecDeque<Bytes>,
    open: BytesMut,
    bytes: usize,
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
        if !self.open.is_empty() {
            let closed = self.open.split().freeze();
            self.bytes += closed.len();
            self.chunks.push_back(closed);
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
        let mut used = 0;
        let open = Some(&self.open[..]).filter(|open| !open.is_empty());
        for (slot, chunk) in slices.iter_mut().zip(self.chunks.iter().map(|chunk| &chunk[..]).chain(open)) {
            *slot = IoSlice::new(chunk);
            used += 1;
        }
        let written = write(&slices[..used])?;
        self.forget(written);
        Ok(written)
    }

    /// Takes the first whole frame, without its length word, and its body: for a peer in this process. A body
    /// that was pushed as one chunk leaves as that chunk; all else is a copy, so that nothing holds the buffer.
    pub fn take_frame(&mut self) -> Option<(Bytes, Bytes)> {
        let front = self.chunks.front().map_or(&self.open[..], |chunk| &chunk[..]);
        let word = |at: usize| front.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let to_len = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (length, header) = (to_len(word(0)?), to_len(word(4)? & 0x00FF_FFFF));
        self.copy(4);
        let head = self.copy(4 + header);
        let body = length - head.len();
        let is_chunk = self.chunks.front().is_some_and(|chunk| chunk.len() == body);
        if body == 0 || !is_chunk {
            return Some((head, self.copy(body)));
        }
        self.bytes -= body;
        Some((head, self.chunks.pop_front().unwrap_or_default()))
    }

    /// Takes bytes off the front as a copy.
    fn copy(&mut self, len: usize) -> Bytes {
        let mut copy = BytesMut::with_capacity(len);
        while copy.len() < len {
            let front = self.chunks.front().map_or(&self.open[..], |chunk| &chunk[..]);
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
            if written < first.len() {
                first.advance(written);
                self.bytes -= written;
                return;
            }
            written -= first.len();
            self.bytes -= first.len();
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
