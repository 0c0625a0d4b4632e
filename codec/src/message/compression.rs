//! Compressing and expanding bodies: zlib, LZ4 frames, zstd.
//!
//! Invariants:
//! - expanding never yields more than the caller's limit, whatever the frame claims, and asks for memory only
//!   as it fills;
//! - the broker stores bodies as they came: only clients and tools call this.
//!
//! RocketMQ's name for it: `CompressionType`, `CompressorFactory`.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::error::CodecError;
use crate::message::sys_flag::{COMPRESSED, COMPRESSION_MASK};

/// Largest expanded body by default: the frame limit of a client, twice over.
pub const EXPANDED_MAX_BYTES: usize = 32 << 20;
/// Largest zstd window, as a power of two: a frame may ask for it before it yields a byte.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// zlib; what old clients mean without saying.
    #[default]
    Zlib,
    /// LZ4 in its frame format.
    Lz4,
    /// zstd.
    Zstd,
}

impl Compression {
    /// The compression that a system flag names; `None` if the body is plain.
    ///
    /// # Errors
    /// `Invalid` for a type that RocketMQ does not know.
    pub fn of(sys_flag: i32) -> Result<Option<Compression>, CodecError> {
        if sys_flag & COMPRESSED == 0 {
            return Ok(None);
        }
        match sys_flag & COMPRESSION_MASK {
            0x000 | 0x300 => Ok(Some(Compression::Zlib)),
            0x100 => Ok(Some(Compression::Lz4)),
            0x200 => Ok(Some(Compression::Zstd)),
            other => Err(CodecError::invalid("compression type", format!("{other:#x}"))),
        }
    }

    /// The bits of the system flag that say so.
    pub fn sys_flag(self) -> i32 {
        COMPRESSED
            | match self {
                Compression::Lz4 => 0x100,
                Compression::Zstd => 0x200,
                Compression::Zlib => 0x300,
            }
    }

    /// The compressed form of a body. `level` is RocketMQ's 1 to 9 for zlib and zstd; LZ4 has none.
    ///
    /// # Errors
    /// `Invalid` with the words of the compressor.
    pub fn compress(self, level: i32, body: &[u8]) -> Result<Vec<u8>, CodecError> {
        self.compressed(level, body).map_err(|cause| CodecError::invalid("body", cause.to_string()))
    }

    fn compressed(self, level: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Compression::Zlib => {
                let level = flate2::Compression::new(level.clamp(0, 9).unsigned_abs());
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(body)?;
                encoder.finish()
            }
            Compression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(body)?;
                Ok(encoder.finish()?)
            }
            Compression::Zstd => zstd::stream::encode_all(body, level),
        }
    }

    /// The plain form of a body.
    ///
    /// # Errors
    /// `TooLong` if it would have more than `max` bytes, `Invalid` if it is damaged.
    pub fn expand(self, body: &[u8], max: usize) -> Result<Vec<u8>, CodecError> {
        let invalid = |cause: io::Error| CodecError::invalid("compressed body", cause.to_string());
        match self {
            Compression::Zlib => read_to_max(flate2::read::ZlibDecoder::new(body), max),
            Compression::Lz4 => read_to_max(lz4_flex::frame::FrameDecoder::new(body), max),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(invalid)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(invalid)?;
                read_to_max(decoder, max)
            }
        }
    }
}

/// The plain body of a record: expanded if its flag says so, else shared.
///
/// # Errors
/// Those of [`Compression::of`] and [`Compression::expand`].
pub fn plain_body(sys_flag: i32, body: Bytes, max: usize) -> Result<Bytes, CodecError> {
    match Compression::of(sys_flag)? {
        Some(compression) => Ok(compression.expand(&body, max)?.into()),
        None => Ok(body),
    }
}

fn read_to_max(reader: impl Read, max: usize) -> Result<Vec<u8>, CodecError> {
    let one_more = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::new();
    match reader.take(one_more).read_to_end(&mut plain) {
        Ok(len) if len > max => Err(CodecError::TooLong { what: "expanded body", len, max }),
        Ok(_) => Ok(plain),
        Err(cause) => Err(CodecError::invalid("compressed body", cause.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    #[test]
    fn a_body_survives_each_compression() {
        for body in [&b""[..], b"a", &b"abc".repeat(100_000)] {
            for compression in ALL {
                let small = compression.compress(5, body).unwrap();
                assert_eq!(compression.expand(&small, body.len()).unwrap(), body, "{compression:?}");
                let flag = compression.sys_flag();
                assert_eq!(Compression::of(flag).unwrap(), Some(compression));
                assert_eq!(plain_body(flag, small.into(), body.len()).unwrap(), body);
            }
        }
    }

    #[test]
    fn a_body_that_expands_beyond_the_limit_is_refused() {
        for compression in ALL {
            let bomb = compression.compress(9, &vec![0; 8 << 20]).unwrap();
            let error = compression.expand(&bomb, 1 << 20).unwrap_err();
            assert!(matches!(error, CodecError::TooLong { max: 0x10_0000, .. }), "{compression:?} {error}");
        }
    }

    #[test]
    fn a_damaged_or_cut_body_is_an_error_or_another_body_but_never_a_panic() {
        let body = b"some text that repeats, some text that repeats".repeat(40);
        for compression in ALL {
            let small = compression.compress(5, &body).unwrap();
            for len in 0..small.len() {
                if let Ok(cut) = compression.expand(&small[..len], body.len()) {
                    assert!(body.starts_with(&cut), "{compression:?} {len}");
                    assert_ne!(cut.len(), usize::MAX);
                }
                let mut changed = small.clone();
                changed[len] ^= 0x55;
                drop(compression.expand(&changed, body.len()));
            }
        }
    }

    #[test]
    fn the_flag_without_a_type_means_zlib_and_an_unknown_type_is_an_error() {
        assert_eq!(Compression::of(0x1).unwrap(), Some(Compression::Zlib));
        assert_eq!(Compression::of(0x300).unwrap(), None);
        assert!(Compression::of(0x401).is_err());
        assert_eq!(plain_body(0, Bytes::from_static(b"x"), 0).unwrap(), "x");
    }
}
