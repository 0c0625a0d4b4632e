//! SHA-1 and its HMAC, for signatures only.
//!
//! Invariants:
//! - the examples of RFC 2202 and FIPS 180 hold;
//! - nothing here protects secrets that are worth more than RocketMQ's ACL, whose algorithm this is.

/// Bytes of a block.
const BLOCK: usize = 64;
/// Bytes of a digest.
const DIGEST: usize = 20;

/// HMAC-SHA1 of several parts in a row.
pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; DIGEST] {
    let hashed_key;
    let key = if key.len() > BLOCK {
        hashed_key = Sha1::of(&[key]);
        &hashed_key[..]
    } else {
        key
    };
    let pad = |mask: u8| {
        let mut block = [mask; BLOCK];
        for (place, byte) in block.iter_mut().zip(key) {
            *place ^= byte;
        }
        block
    };
    let mut inner = Sha1::new();
    inner.update(&pad(0x36));
    for part in parts {
        inner.update(part);
    }
    Sha1::of(&[&pad(0x5c), &inner.finish()])
}

struct Sha1 {
    state: [u32; 5],
    /// Bytes that do not fill a block yet.
    open: Vec<u8>,
    len: u64,
}

impl Sha1 {
    fn new() -> Sha1 {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
        Sha1 { state, open: Vec::with_capacity(BLOCK), len: 0 }
    }

    fn of(parts: &[&[u8]]) -> [u8; DIGEST] {
        let mut hash = Sha1::new();
        for part in parts {
            hash.update(part);
        }
        hash.finish()
    }

    fn update(&mut self, mut bytes: &[u8]) {
        self.len = self.len.wrapping_add(u64::try_from(bytes.len()).unwrap_or_default());
        if !self.open.is_empty() {
            let wanted = BLOCK.saturating_sub(self.open.len()).min(bytes.len());
            let (fill, rest) = bytes.split_at_checked(wanted).unwrap_or((bytes, &[]));
            self.open.extend_from_slice(fill);
            bytes = rest;
            if let Some(block) = self.open.first_chunk::<BLOCK>() {
                compress(&mut self.state, block);
                self.open.clear();
            }
        }
        while let Some((block, rest)) = bytes.split_first_chunk::<BLOCK>() {
            compress(&mut self.state, block);
            bytes = rest;
        }
        self.open.extend_from_slice(bytes);
    }

    fn finish(mut self) -> [u8; DIGEST] {
        let bits = self.len.wrapping_mul(8);
        self.update(&[0x80]);
        while self.open.len() != BLOCK.saturating_sub(8) {
            self.update(&[0]);
        }
        self.update(&bits.to_be_bytes());
        let mut digest = [0; DIGEST];
        for (place, word) in digest.chunks_exact_mut(4).zip(self.state) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }
}

fn compress(state: &mut [u32; 5], block: &[u8; BLOCK]) {
    // The last sixteen words are all that the schedule looks back to.
    let mut words = [0u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for round in 0..80u32 {
        let [first, _, third, .., ninth, _, _, _, _, fourteenth, _, _] = words;
        let (mix, constant) = match round {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let sum =
            a.rotate_left(5).wrapping_add(mix).wrapping_add(e).wrapping_add(constant).wrapping_add(first);
        (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
        words.rotate_left(1);
        if let Some(last) = words.last_mut() {
            *last = (first ^ third ^ ninth ^ fourteenth).rotate_left(1);
        }
    }
    for (word, change) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; DIGEST]) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_examples_of_fips_180_hold() {
        assert_eq!(hex(Sha1::of(&[])), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(Sha1::of(&[b"abc"])), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(Sha1::of(&[long])), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        let (head, tail) = long.split_at(9);
        assert_eq!(Sha1::of(&[head, tail]), Sha1::of(&[long]));
        let million = vec![b'a'; 1_000_000];
        assert_eq!(hex(Sha1::of(&[&million])), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn the_examples_of_rfc_2202_hold() {
        let mac = |key: &[u8], data: &[u8]| hex(hmac(key, &[data]));
        assert_eq!(mac(&[0x0b; 20], b"Hi There"), "b617318655057264e28bc0b6fb378c8ef146be00");
        let data = b"what do ya want for nothing?";
        assert_eq!(mac(b"Jefe", data), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        let data = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(mac(&[0xaa; 80], data), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }
}
