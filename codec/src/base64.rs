//! Base64, as JSON bodies, signatures and recall handles carry bytes.
//!
//! Invariants:
//! - reading takes both alphabets, with or without padding, and refuses everything else;
//! - writing pads, as Java's encoders do.

use crate::error::CodecError;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes with the usual alphabet.
pub fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, STANDARD)
}

/// Writes with `-` and `_` in place of `+` and `/`.
pub fn encode_url_safe(bytes: &[u8]) -> String {
    encode_with(bytes, URL_SAFE)
}

fn encode_with(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let letter = |index: u32| {
        let index = usize::try_from(index & 0x3f).unwrap_or_default();
        alphabet.get(index).copied().unwrap_or_default()
    };
    let letters = |bits: u32| [18, 12, 6, 0].map(|shift| letter(bits >> shift));
    let (groups, rest) = bytes.as_chunks::<3>();
    let mut out = vec![0; groups.len().saturating_mul(4)];
    for ([first, second, third], place) in groups.iter().zip(out.as_chunks_mut::<4>().0) {
        *place = letters(u32::from_be_bytes([0, *first, *second, *third]));
    }
    let padded = match *rest {
        [first] => Some(([0, first, 0, 0], 2)),
        [first, second] => Some(([0, first, second, 0], 1)),
        _ => None,
    };
    if let Some((group, missing)) = padded {
        let mut last = letters(u32::from_be_bytes(group));
        last.iter_mut().rev().take(missing).for_each(|letter| *letter = b'=');
        out.extend_from_slice(&last);
    }
    String::from_utf8(out).expect("both alphabets are ASCII")
}

/// Reads either alphabet.
///
/// # Errors
/// [`CodecError::Invalid`] if it is not base64.
pub fn decode(text: &str) -> Result<Vec<u8>, CodecError> {
    let invalid = || CodecError::invalid("base64", text);
    let letters = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(letters.len());
    for chunk in letters.chunks(4) {
        let mut bits = 0u32;
        for letter in chunk {
            bits = (bits << 6) | value_of(*letter).ok_or_else(invalid)?;
        }
        let missing = 4usize.saturating_sub(chunk.len());
        for _ in 0..missing {
            bits <<= 6;
        }
        let bytes = bits.to_be_bytes();
        let used = match missing {
            0..=2 => 3usize.saturating_sub(missing),
            _ => return Err(invalid()),
        };
        out.extend(bytes.iter().skip(1).take(used));
    }
    Ok(out)
}

fn value_of(letter: u8) -> Option<u32> {
    let letter = match letter {
        b'-' => b'+',
        b'_' => b'/',
        same => same,
    };
    STANDARD.iter().position(|known| *known == letter).and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, text) in examples {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn every_byte_survives_both_alphabets() {
        let bytes: Vec<u8> = (0..=255).rev().collect();
        assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        assert_eq!(decode(&encode_url_safe(&bytes)).unwrap(), bytes);
        assert_ne!(encode(&bytes), encode_url_safe(&bytes));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zg=a", "Zm9v!", "ä"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }
}
