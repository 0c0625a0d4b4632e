//! What waits to be written to one connection.
//!
//! Invariants:
//! - chunks leave in the order they were pushed, each byte once;
//! - bodies are slices of the mapped log: they are pushed and written without a copy;
//! - an empty `Outbound` holds no buffer.

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
