//! The values of a loosely written JSON text.
//!
//! Invariants:
//! - at most [`DEPTH_MAX`] levels and as many values as the caller allows, counted while parsing;
//! - text without escapes is borrowed.

use std::borrow::Cow;

use crate::command::{escape_len, unescape};
use crate::error::CodecError;

/// Deepest nesting; the deepest body of RocketMQ has eight levels.
pub(super) const DEPTH_MAX: usize = 48;

/// Most values in one text, quoted keys included: the largest frame holds a registration of 90,000 topics
/// with 18 each.
pub(super) const VALUES_MAX: usize = 2_000_000;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// A number as it is written.
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// Pairs in their order; a key is a text, a number or an object.
    Table(Vec<(Json<'a>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Parses a whole text.
    pub(super) fn parse(text: &'a str, values_max: usize) -> Result<Json<'a>, CodecError> {
        let mut parser = Parser { rest: text, depth: 0, values: 0, values_max };
        let value = parser.value()?;
        parser.skip_blanks();
        if parser.rest.is_empty() { Ok(value) } else { Err(parser.error()) }
    }

    /// The value under a text key; of equal keys the last counts.
    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        let Json::Table(pairs) = self else { return None };
        let is_key = |known: &Json<'_>| matches!(known, Json::Text(known) if known == key);
        pairs.iter().rev().find(|(known, _)| is_key(known)).map(|(_, value)| value)
    }
}

#[cfg(test)]
impl Json<'_> {
    /// Whether every pair and item of `part` is here too; a number and its text are the same.
    pub(super) fn holds(&self, part: &Json<'_>) -> bool {
        match (self, part) {
            (Json::Table(pairs), Json::Table(parts)) => parts.iter().all(|(part_key, part_value)| {
                pairs.iter().any(|(key, value)| key.holds(part_key) && value.holds(part_value))
            }),
            (Json::List(items), Json::List(parts)) => {
                items.len() == parts.len()
                    && parts.iter().all(|part| items.iter().any(|item| item.holds(part)))
            }
            _ => self == part || self.scalar().is_some_and(|text| Some(text) == part.scalar()),
        }
    }
}

impl Json<'_> {
    /// Text of a text or a number.
    pub(super) fn scalar(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            Json::Number(text) => Some(text),
            _ => None,
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    values: usize,
    values_max: usize,
}

impl<'a> Parser<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        self.skip_blanks();
        self.rest.as_bytes().first().copied()
    }

    /// Passes the next byte if it is this (ASCII) one.
    fn accept(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.pass(1);
        }
        found
    }

    fn pass(&mut self, len: usize) -> &'a str {
        let (passed, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        passed
    }

    fn error(&self) -> CodecError {
        if self.rest.is_empty() {
            return CodecError::Short { what: "JSON", need: 1, have: 0 };
        }
        CodecError::invalid("JSON", self.rest)
    }

    fn value(&mut self) -> Result<Json<'a>, CodecError> {
        self.values = self.values.saturating_add(1);
        if self.values > self.values_max {
            return Err(CodecError::TooLong { what: "JSON", len: self.values, max: self.values_max });
        }
        match self.peek() {
            Some(b'{') => self.nested(Parser::table),
            Some(b'[') => self.nested(Parser::list),
            Some(quote @ (b'"' | b'\'')) => self.text(quote).map(Json::Text),
            _ => self.bare(),
        }
    }

    fn nested(
        &mut self,
        parse: fn(&mut Self) -> Result<Json<'a>, CodecError>,
    ) -> Result<Json<'a>, CodecError> {
        if self.depth == DEPTH_MAX {
            return Err(CodecError::TooLong { what: "JSON nesting", len: DEPTH_MAX, max: DEPTH_MAX });
        }
        self.pass(1);
        self.depth = self.depth.saturating_add(1);
        let value = parse(self)?;
        self.depth = self.depth.saturating_sub(1);
        Ok(value)
    }

    fn table(&mut self) -> Result<Json<'a>, CodecError> {
        let mut pairs = Vec::new();
        while !self.accept(b'}') {
            let key = self.key()?;
            if !self.accept(b':') {
                return Err(self.error());
            }
            pairs.push((key, self.value()?));
            if !self.accept(b',') && self.peek() != Some(b'}') {
                return Err(self.error());
            }
        }
        Ok(Json::Table(pairs))
    }

    fn list(&mut self) -> Result<Json<'a>, CodecError> {
        let mut items = Vec::new();
        while !self.accept(b']') {
            items.push(self.value()?);
            if !self.accept(b',') && self.peek() != Some(b']') {
                return Err(self.error());
            }
        }
        Ok(Json::List(items))
    }

    /// A key: like a value, but a bare word is text.
    fn key(&mut self) -> Result<Json<'a>, CodecError> {
        match self.peek() {
            Some(b'{' | b'"' | b'\'') => self.value(),
            _ => {
                let word = self.word()?;
                let is_number = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                Ok(if is_number { Json::Number(word) } else { Json::Text(Cow::Borrowed(word)) })
            }
        }
    }

    fn bare(&mut self) -> Result<Json<'a>, CodecError> {
        let before = self.rest;
        match self.word()? {
            "null" | "undefined" => Ok(Json::Null),
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            number if number == "NaN" || number.parse::<f64>().is_ok() => Ok(Json::Number(number)),
            _ => Err(CodecError::invalid("JSON", before)),
        }
    }

    fn word(&mut self) -> Result<&'a str, CodecError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._$%@".contains(&byte);
        let len = self.rest.bytes().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        if len == 0 { Err(self.error()) } else { Ok(self.pass(len)) }
    }

    /// A text in these quotes.
    fn text(&mut self, quote: u8) -> Result<Cow<'a, str>, CodecError> {
        self.pass(1);
        let bytes = self.rest.as_bytes();
        let mut len = 0usize;
        let mut has_escapes = false;
        loop {
            let ahead = bytes.get(len..).unwrap_or_default();
            let Some(found) = memchr::memchr2(quote, b'\\', ahead) else {
                return Err(CodecError::Short { what: "text in JSON", need: 1, have: 0 });
            };
            len = len.saturating_add(found);
            if bytes.get(len) == Some(&quote) {
                break;
            }
            has_escapes = true;
            let escape = escape_len(bytes.get(len..).unwrap_or_default())?;
            len = len.saturating_add(escape);
        }
        let inside = self.pass(len);
        self.pass(1);
        if !has_escapes {
            return Ok(Cow::Borrowed(inside));
        }
        let mut meant = Vec::with_capacity(inside.len());
        unescape(inside, &mut meant);
        Ok(Cow::Owned(String::from_utf8(meant).expect("unescaping UTF-8 gives UTF-8")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_small() {
        assert!(size_of::<Json<'_>>() <= 32);
    }

    #[test]
    fn keys_may_be_words_numbers_or_objects() {
        let Json::Table(pairs) = Json::parse(r#"{a:1,-3:2,"b":3,{"q":0}:4}"#, VALUES_MAX).unwrap() else {
            panic!("an object")
        };
        let keys: Vec<Json<'_>> = pairs.into_iter().map(|(key, _)| key).collect();
        let text = |text| Json::Text(Cow::Borrowed(text));
        let object = Json::Table(vec![(text("q"), Json::Number("0"))]);
        assert_eq!(keys, [text("a"), Json::Number("-3"), text("b"), object]);
    }

    #[test]
    fn too_many_values_are_refused() {
        assert!(matches!(Json::parse("[0,0,0]", 3), Err(CodecError::TooLong { len: 4, max: 3, .. })));
        assert!(Json::parse("[0,0,0]", 4).is_ok());
    }
}
