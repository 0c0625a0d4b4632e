//! Signatures of commands, as RocketMQ's ACL hooks make and check them.
//!
//! Invariants:
//! - signed are the values of all fields but the signature, in the order of their keys as Java compares them, then
//!   the body;
//! - a check takes the same time wherever two signatures differ;
//! - clients up to 4.9.3 leave out one key, and Java adds the zone after signing: a check knows both.

mod sha1;

use std::cmp::Ordering;

use crate::base64;
use crate::fields::Fields;
use crate::version::SIGNS_ALL_FIELDS;

/// Key of the user's name.
pub const ACCESS_KEY: &str = "AccessKey";
/// Key of a temporary token.
pub const SECURITY_TOKEN: &str = "SecurityToken";
/// Key of the signature.
pub const SIGNATURE: &str = "Signature";

/// The key that old clients do not sign.
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
/// Keys that begin so are added after signing.
const ZONE_PREFIX: &str = "__ZONE_";

/// Signs a command with a secret: base64 of HMAC-SHA1.
pub fn sign(fields: &Fields, body: &[u8], secret: &str) -> String {
    signature(fields, body, secret, |_| true)
}

/// Whether the signature in `fields` is the one that the secret gives; `version` is that of the sender.
pub fn is_signed(fields: &Fields, body: &[u8], secret: &str, version: i32) -> bool {
    let Some(claimed) = fields.get(SIGNATURE) else { return false };
    let is_old = version < SIGNS_ALL_FIELDS;
    let counts = |key: &str| !(is_old && key == UNIQUE_KEY_QUERY);
    if is_same(claimed, &signature(fields, body, secret, counts)) {
        return true;
    }
    let has_zone = fields.iter().any(|(key, _)| key.starts_with(ZONE_PREFIX));
    let counts = |key: &str| counts(key) && !key.starts_with(ZONE_PREFIX);
    has_zone && is_same(claimed, &signature(fields, body, secret, counts))
}

fn signature(fields: &Fields, body: &[u8], secret: &str, counts: impl Fn(&str) -> bool) -> String {
    let mut pairs: Vec<(&str, &str)> =
        fields.iter().filter(|(key, _)| *key != SIGNATURE && counts(key)).collect();
    // A stable sort keeps equal keys in their order, and of those only the last counts.
    pairs.sort_by(|(left, _), (right, _)| java_order(left, right));
    let is_last = |at: usize, key: &str| pairs.get(at.saturating_add(1)).is_none_or(|(next, _)| *next != key);
    let mut parts: Vec<&[u8]> = Vec::with_capacity(pairs.len().saturating_add(1));
    for (at, (key, value)) in pairs.iter().enumerate() {
        if is_last(at, key) {
            parts.push(value.as_bytes());
        }
    }
    parts.push(body);
    base64::encode(&sha1::hmac(secret.as_bytes(), &parts))
}

/// Java compares texts by their UTF-16 units.
fn java_order(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}

fn is_same(left: &str, right: &str) -> bool {
    let differences = left.bytes().zip(right.bytes()).fold(0, |found, (left, right)| found | (left ^ right));
    left.len() == right.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(pairs: &[(&str, &str)], body: &[u8]) -> Fields {
        let mut fields: Fields = pairs.iter().copied().collect();
        let signature = sign(&fields, body, "secret");
        fields.push(SIGNATURE, signature);
        fields
    }

    #[test]
    fn values_are_signed_in_the_order_of_their_keys_and_then_the_body() {
        let fields = signed(&[("topic", "T"), ("AccessKey", "user"), ("a", "1")], b"body");
        let whole = base64::encode(&sha1::hmac(b"secret", &[b"user1Tbody"]));
        assert_eq!(fields.get(SIGNATURE), Some(whole.as_str()));
    }

    #[test]
    fn any_change_breaks_a_signature() {
        let pairs = [("AccessKey", "user"), ("topic", "T")];
        let fields = signed(&pairs, b"body");
        assert!(is_signed(&fields, b"body", "secret", 479));
        assert!(!is_signed(&fields, b"Body", "secret", 479));
        assert!(!is_signed(&fields, b"body", "Secret", 479));
        let mut changed = fields.clone();
        changed.set("topic", "U");
        assert!(!is_signed(&changed, b"body", "secret", 479));
        let mut unsigned = fields;
        unsigned.remove(SIGNATURE);
        assert!(!is_signed(&unsigned, b"body", "secret", 479));
    }

    #[test]
    fn zones_and_old_clients_are_understood() {
        let mut fields = signed(&[("AccessKey", "user")], b"");
        fields.push("__ZONE_NAME", "z1");
        assert!(is_signed(&fields, b"", "secret", 479));
        let mut fields = signed(&[("AccessKey", "user"), ("key", "k")], b"");
        fields.push(UNIQUE_KEY_QUERY, "true");
        assert!(is_signed(&fields, b"", "secret", 399));
        assert!(!is_signed(&fields, b"", "secret", 401));
    }

    #[test]
    fn capitals_come_before_small_letters_and_high_planes_before_private_use() {
        assert_eq!(java_order("Z", "a"), Ordering::Less);
        assert_eq!(java_order("\u{1f600}", "\u{e000}"), Ordering::Less);
    }
}
