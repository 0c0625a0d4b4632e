//! The extension fields of a command (RocketMQ's `extFields`): ordered pairs of key and value.
//!
//! Invariants:
//! - fields that came in a frame are positions in its header; nothing is copied or counted until a `Text`
//!   is asked for;
//! - a key may occur twice, the last one wins, as in Java's map;
//! - a handful of pairs is searched in a line, no hash map.

use std::fmt;

use bytes::Bytes;

use crate::command::span::Span;
use crate::text::Text;

/// Ordered pairs of key and value.
#[derive(Clone, Default)]
pub struct Fields {
    header: Bytes,
    pairs: Vec<(Piece, Piece)>,
}

/// A key or a value.
#[derive(Clone)]
pub(crate) enum Piece {
    /// As it stands in the header.
    InHeader(Span),
    /// Of its own.
    Own(Text),
}

impl Fields {
    /// No fields.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Fields that point into `header`, where every position was checked to be UTF-8.
    pub(crate) fn in_header(header: Bytes, pairs: Vec<(Piece, Piece)>) -> Fields {
        Fields { header, pairs }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.find(key).map(|value| self.str_of(value))
    }

    /// The value of a key as text that outlives the fields.
    pub fn text(&self, key: &str) -> Option<Text> {
        self.find(key).map(|value| self.text_of(value))
    }

    /// Makes room for further pairs.
    pub(crate) fn reserve(&mut self, pairs: usize) {
        self.pairs.reserve(pairs);
    }

    /// Adds a pair at the end.
    pub fn push(&mut self, key: impl Into<Text>, value: impl Into<Text>) {
        self.pairs.push((Piece::Own(key.into()), Piece::Own(value.into())));
    }

    /// Adds a pair at the end; the key is part of the program.
    pub fn put(&mut self, key: &'static str, value: impl Into<Text>) {
        self.push(Text::from_static(key), value);
    }

    /// Adds a pair and removes what stood under the key before.
    pub fn set(&mut self, key: impl Into<Text>, value: impl Into<Text>) {
        let key = key.into();
        self.remove(&key);
        self.push(key, value);
    }

    /// Removes all pairs with this key; gives the value that counted.
    pub fn remove(&mut self, key: &str) -> Option<Text> {
        let value = self.text(key)?;
        let header = &self.header;
        self.pairs.retain(|(known, _)| bytes_in(header, known) != key.as_bytes());
        Some(value)
    }

    /// All pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (self.str_of(key), self.str_of(value)))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn find(&self, key: &str) -> Option<&Piece> {
        let mut latest_first = self.pairs.iter().rev();
        latest_first
            .find(|(known, _)| bytes_in(&self.header, known) == key.as_bytes())
            .map(|(_, value)| value)
    }

    fn str_of<'a>(&'a self, piece: &'a Piece) -> &'a str {
        std::str::from_utf8(bytes_in(&self.header, piece)).expect("fields are checked when they are made")
    }

    fn text_of(&self, piece: &Piece) -> Text {
        match piece {
            Piece::Own(text) => text.clone(),
            Piece::InHeader(span) => Text::from_utf8(self.header.slice(span.range()))
                .expect("fields are checked when they are made"),
        }
    }
}

fn bytes_in<'a>(header: &'a Bytes, piece: &'a Piece) -> &'a [u8] {
    match piece {
        Piece::Own(text) => text.as_bytes(),
        Piece::InHeader(span) => header.get(span.range()).unwrap_or_default(),
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Fields {
        let mut fields = Fields::new();
        for (key, value) in pairs {
            fields.push(key, value);
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_equal_keys_wins() {
        let fields: Fields = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(fields.get("a"), Some("3"));
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn set_replaces_and_remove_takes_all() {
        let mut fields: Fields = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        fields.set("a", "4");
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("b", "2"), ("a", "4")]);
        assert_eq!(fields.remove("a").as_deref(), Some("4"));
        assert_eq!(fields.remove("a"), None);
        assert_eq!(fields.get("a"), None);
    }

    #[test]
    fn fields_in_a_header_share_its_bytes() {
        let header = Bytes::from_static(b"..topicT1..");
        let piece = |start, end| Piece::InHeader(Span::new(start, end));
        let fields = Fields::in_header(header.clone(), vec![(piece(2, 7), piece(7, 9))]);
        assert_eq!(fields.get("topic"), Some("T1"));
        assert_eq!(fields.text("topic").unwrap().into_bytes().as_ptr(), header.slice(7..).as_ptr());
    }
}
