//! Base64, as JSON bodies, signatures and recall handles carry bytes.
//!
//! Invariants:
//! - reading takes both alphabets, with or without padding, and refuses everything else;
//! - writing pads, as Java's encoders do.

use crate::error::CodecError;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Two letters for every twelve bits: half as many look-ups as letters.
type Pairs = [[u8; 2]; 4096];

static STANDARD_PAIRS: Pairs = pairs_of(STANDARD);
static URL_SAFE_PAIRS: Pairs = pairs_of(URL_SAFE);

/// Writes with the usual alphabet.
pub fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, &STANDARD_PAIRS)
}

/// Writes with `-` and `_` in place of `+` and `/`.
pub fn encode_url_safe(bytes: &[u8]) -> String {
    encode_with(bytes, &URL_SAFE_PAIRS)
}

/// Appends the same letters to `out`.
pub(crate) fn append_url_safe(bytes: &[u8], out: &mut Vec<u8>) {
    append_with(bytes, &URL_SAFE_PAIRS, out);
}

fn encode_with(bytes: &[u8], pairs: &Pairs) -> String {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    append_with(bytes, pairs, &mut out);
    String::from_utf8(out).expect("both alphabets are ASCII")
}

fn append_with(bytes: &[u8], pairs: &Pairs, out: &mut Vec<u8>) {
    let pair = |bits: usize| pairs.get(bits & 0xfff).copied().unwrap_or_default();
    let letters = |[first, second, third]: [u8; 3]| {
        let bits = (usize::from(first) << 16) | (usize::from(second) << 8) | usize::from(third);
        let ([one, two], [three, four]) = (pair(bits >> 12), pair(bits));
        [one, two, three, four]
    };
    let (groups, rest) = bytes.as_chunks::<3>();
    let start = out.len();
    out.resize(start.saturating_add(groups.len().saturating_mul(4)), 0);
    let places = out.get_mut(start..).unwrap_or_default().as_chunks_mut::<4>().0;
    for (group, place) in groups.iter().zip(places) {
        *place = letters(*group);
    }
    let padded = match *rest {
        [first] => Some(([first, 0, 0], 2)),
        [first, second] => Some(([first, second, 0], 1)),
        _ => None,
    };
    if let Some((group, missing)) = padded {
        let mut last = letters(group);
        last.iter_mut().rev().take(missing).for_each(|letter| *letter = b'=');
        out.extend_from_slice(&last);
    }
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "worked out when it is compiled: an index that is wrong does not compile"
)]
const fn pairs_of(alphabet: &[u8; 64]) -> Pairs {
    let mut pairs = [[0; 2]; 4096];
    let mut at = 0;
    while at < pairs.len() {
        pairs[at] = [alphabet[at / 64], alphabet[at % 64]];
        at += 1;
    }
    pairs
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
