//! Tags: the hash that the consume queue carries, and subscriptions of the form `TagA || TagB`.
//!
//! Invariants:
//! - the hash is Java's `String.hashCode`, over UTF-16 units, wrapping at 32 bits;
//! - an expression without any tag selects everything;
//! - a match by code may be a collision: who must be exact compares the text too.

use crate::text::Text;

/// Java's `String.hashCode`.
pub fn java_hash(text: &str) -> i32 {
    let step = |hash: i32, unit: i32| hash.wrapping_mul(31).wrapping_add(unit);
    if text.is_ascii() {
        return text.bytes().fold(0, |hash, byte| step(hash, i32::from(byte)));
    }
    text.encode_utf16().fold(0, |hash, unit| step(hash, i32::from(unit)))
}

/// The code of a message's `TAGS` property in its consume-queue unit; 0 for a message without tags.
pub fn tags_code(tags: &str) -> i64 {
    i64::from(java_hash(tags))
}

/// The code of an optional `TAGS` property; 0 if absent.
pub fn tags_code_of(tags: Option<&str>) -> i64 {
    tags.map_or(0, tags_code)
}

/// A tag subscription, ready to be asked about messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagFilter {
    /// The alternatives, sorted, without repetitions; empty = everything.
    tags: Vec<Text>,
    /// Their hashes, sorted.
    codes: Vec<i32>,
}

impl TagFilter {
    /// What the filter of everything is written as.
    pub const ALL: &'static str = "*";

    /// Reads `*`, the empty text, or tags between `||`; spaces and empty alternatives are ignored.
    ///
    /// An expression of separators alone selects everything.
    pub fn parse(expression: &str) -> TagFilter {
        if expression.trim() == TagFilter::ALL {
            return TagFilter::default();
        }
        let tags = expression.split("||").map(str::trim).filter(|tag| !tag.is_empty());
        let mut tags: Vec<Text> = tags.map(Text::from).collect();
        // Not each with all others: a peer may write thousands.
        tags.sort_unstable();
        tags.dedup();
        let mut codes: Vec<i32> = tags.iter().map(|tag| java_hash(tag)).collect();
        codes.sort_unstable();
        TagFilter { tags, codes }
    }

    /// A filter from the code set of a subscription that a client sent; empty = everything.
    pub fn from_codes(codes: impl IntoIterator<Item = i32>) -> TagFilter {
        let mut codes: Vec<i32> = codes.into_iter().collect();
        codes.sort_unstable();
        codes.dedup();
        TagFilter { tags: Vec::new(), codes }
    }

    /// Whether every message passes.
    pub fn is_all(&self) -> bool {
        self.codes.is_empty()
    }

    /// The alternatives; empty for everything (RocketMQ: `tagsSet`).
    pub fn tags(&self) -> &[Text] {
        &self.tags
    }

    /// The hashes, sorted; empty for everything (RocketMQ: `codeSet`).
    pub fn codes(&self) -> &[i32] {
        &self.codes
    }

    /// Whether a consume-queue unit with this code may match: the low 32 bits are compared, as Java does.
    pub fn matches_code(&self, tags_code: i64) -> bool {
        let [_, _, _, _, a, b, c, d] = tags_code.to_be_bytes();
        let code = i32::from_be_bytes([a, b, c, d]);
        match self.codes.as_slice() {
            [] => true,
            [one] => *one == code,
            many => many.binary_search(&code).is_ok(),
        }
    }

    /// Whether a message with these tags matches by text; without the texts the code decides.
    pub fn matches_tags(&self, tags: Option<&str>) -> bool {
        if self.is_all() {
            return true;
        }
        let Some(tags) = tags else { return false };
        if self.tags.is_empty() {
            return self.matches_code(tags_code(tags));
        }
        self.tags.binary_search_by(|tag| tag.as_bytes().cmp(tags.as_bytes())).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_java_strings() {
        let cases = [
            ("", 0),
            ("TagA", 2_598_919),
            ("TagB", 2_598_920),
            ("*", 42),
            ("订单", 1_129_459),
            ("polygenelubricants", i32::MIN),
        ];
        for (text, hash) in cases {
            assert_eq!(java_hash(text), hash, "{text}");
            assert_eq!(tags_code(text), i64::from(hash), "{text}");
        }
        assert_eq!(java_hash("Aa"), java_hash("BB"));
        assert_eq!(java_hash("😀"), 1_772_899, "a pair of surrogates counts as two units");
    }

    #[test]
    fn star_and_nothing_select_everything() {
        for expression in ["*", "", "  ", " * ", "||", " || || "] {
            let filter = TagFilter::parse(expression);
            assert!(filter.is_all(), "{expression:?}");
            assert!(filter.matches_code(0) && filter.matches_tags(None), "{expression:?}");
        }
    }

    #[test]
    fn alternatives_may_have_spaces_and_gaps() {
        let filter = TagFilter::parse("|| TagB||TagA  || TagB ||");
        assert_eq!(filter.tags(), [Text::from("TagA"), Text::from("TagB")]);
        assert_eq!(filter.codes(), [2_598_919, 2_598_920]);
        assert!(filter.matches_code(2_598_920));
        assert!(!filter.matches_code(0));
        assert!(filter.matches_tags(Some("TagB")));
        assert!(!filter.matches_tags(Some("tagb")));
        assert!(!filter.matches_tags(None));
    }

    #[test]
    fn a_collision_passes_by_code_but_not_by_text() {
        let filter = TagFilter::parse("Aa");
        assert!(filter.matches_code(tags_code("BB")));
        assert!(!filter.matches_tags(Some("BB")));
        assert!(TagFilter::from_codes([java_hash("Aa")]).matches_tags(Some("BB")));
    }
}
