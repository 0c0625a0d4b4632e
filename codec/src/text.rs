//! A UTF-8 slice of a frame that is cheap to clone and keeps the frame alive.
//!
//! Invariants:
//! - the bytes are valid UTF-8: every way to make a `Text` checks that or starts from a string;
//! - `Eq`, `Ord` and `Hash` agree with `str`, so a map with `Text` keys is searched with a `&str`.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::CodecError;

/// A piece of UTF-8 text, shared with the bytes it came in.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Bytes);

impl Text {
    /// Text that is part of the program; costs nothing.
    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    /// Takes the bytes as they are; an error if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Result<Text, CodecError> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Text(bytes)),
            Err(_) => Err(CodecError::invalid("UTF-8 text", &bytes)),
        }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Text is checked when it is made")
    }

    /// Its bytes; the way without the check that [`Text::as_str`] repeats.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes behind the text, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<Text> for str {
    fn eq(&self, other: &Text) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Bytes::from(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&Text> for Text {
    fn from(text: &Text) -> Text {
        text.clone()
    }
}

impl From<std::borrow::Cow<'_, str>> for Text {
    fn from(text: std::borrow::Cow<'_, str>) -> Text {
        match text {
            std::borrow::Cow::Borrowed(text) => Text::from(text),
            std::borrow::Cow::Owned(text) => Text::from(text),
        }
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.as_str().to_owned()
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        String::deserialize(deserializer).map(Text::from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_map_with_text_keys_is_searched_with_a_str() {
        let map = HashMap::from([(Text::from("Thema"), 1), (Text::from_static("topic"), 2)]);
        assert_eq!(map.get("topic"), Some(&2));
        assert_eq!(map.get("other"), None);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert!(Text::from_utf8(Bytes::from_static(&[0x54, 0xff])).is_err());
        assert_eq!(Text::from_utf8(Bytes::from_static("größe".as_bytes())).unwrap(), "größe");
    }

    #[test]
    fn a_clone_shares_the_bytes() {
        let frame = Bytes::from(vec![b'a'; 100]);
        let text = Text::from_utf8(frame.slice(10..20)).unwrap();
        assert_eq!(text.clone().into_bytes().as_ptr(), frame.slice(10..).as_ptr());
    }
}
