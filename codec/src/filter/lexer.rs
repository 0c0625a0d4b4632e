//! The words of a SQL92 expression.
//!
//! Invariants:
//! - a token is a range of the text: nothing is copied;
//! - key words are known in any case; identifiers keep theirs;
//! - `--` begins a comment only if a line end follows it, as in RocketMQ: `--1` is a number negated twice.

use std::fmt;

use crate::error::CodecError;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
    Contains,
    StartsWith,
    EndsWith,
    /// `0` or digits without a leading zero, perhaps with `L` (which RocketMQ does not take behind `0`).
    Integer,
    /// Digits with a point or an exponent.
    Decimal,
    /// In single quotes; a quote inside is doubled.
    Text,
    Name,
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Open,
    Comma,
    Close,
    Plus,
    Minus,
    End,
}

const KEY_WORDS: [(&str, Kind); 12] = [
    ("NOT", Kind::Not),
    ("AND", Kind::And),
    ("OR", Kind::Or),
    ("BETWEEN", Kind::Between),
    ("IN", Kind::In),
    ("TRUE", Kind::True),
    ("FALSE", Kind::False),
    ("NULL", Kind::Null),
    ("IS", Kind::Is),
    ("CONTAINS", Kind::Contains),
    ("STARTSWITH", Kind::StartsWith),
    ("ENDSWITH", Kind::EndsWith),
];

/// One word of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    /// As written.
    pub(crate) text: &'a str,
    /// Bytes before it.
    pub(crate) at: usize,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 40;
        match self.kind {
            Kind::End => f.write_str("the end"),
            _ => write!(f, "{}", self.text.chars().take(SHOWN_MAX).collect::<String>()),
        }
    }
}

/// An error that says where in `source` it is.
pub(crate) fn error_at(source: &str, at: usize, message: impl fmt::Display) -> CodecError {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count().saturating_add(1);
    let value = format!("{message} at line {line}, column {column}");
    CodecError::Invalid { what: "SQL92 expression", value }
}

/// Takes tokens off a text.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        Lexer { source, at: 0 }
    }

    /// The next token; [`Kind::End`] at the end, for ever.
    pub(crate) fn next(&mut self) -> Result<Token<'a>, CodecError> {
        self.skip_blanks()?;
        let rest = self.rest();
        let (kind, len) = match rest.as_bytes() {
            [] => (Kind::End, 0),
            [b'<', b'>', ..] => (Kind::NotEqual, 2),
            [b'>', b'=', ..] => (Kind::GreaterOrEqual, 2),
            [b'<', b'=', ..] => (Kind::LessOrEqual, 2),
            [b'>', ..] => (Kind::Greater, 1),
            [b'<', ..] => (Kind::Less, 1),
            [b'=', ..] => (Kind::Equal, 1),
            [b'(', ..] => (Kind::Open, 1),
            [b',', ..] => (Kind::Comma, 1),
            [b')', ..] => (Kind::Close, 1),
            [b'+', ..] => (Kind::Plus, 1),
            [b'-', ..] => (Kind::Minus, 1),
            [b'\'', ..] => (Kind::Text, self.text_len(rest)?),
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => number(rest),
            [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$', ..] => word(rest),
            _ => {
                let found = rest.chars().next().unwrap_or_default();
                return Err(error_at(self.source, self.at, format_args!("{found:?} is no part of SQL92")));
            }
        };
        let token = Token { kind, text: rest.get(..len).unwrap_or_default(), at: self.at };
        self.at = self.at.saturating_add(len);
        Ok(token)
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) -> Result<(), CodecError> {
        loop {
            let rest = self.rest();
            let len = if rest.starts_with([' ', '\t', '\n', '\r', '\x0C']) {
                1
            } else if rest.starts_with("--") {
                let Some(len) = rest.find(['\n', '\r']) else { return Ok(()) };
                len
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(len) = comment.find("*/") else {
                    return Err(error_at(self.source, self.at, "a comment without an end begins"));
                };
                len.saturating_add(4)
            } else {
                return Ok(());
            };
            self.at = self.at.saturating_add(len);
        }
    }

    fn text_len(&self, rest: &str) -> Result<usize, CodecError> {
        let mut bytes = rest.bytes().enumerate().skip(1).peekable();
        while let Some((at, byte)) = bytes.next() {
            if byte == b'\'' && bytes.next_if(|(_, next)| *next == b'\'').is_none() {
                return Ok(at.saturating_add(1));
            }
        }
        Err(error_at(self.source, self.at, "a text without a closing quote begins"))
    }
}

fn run(text: &str, is_part: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| is_part(*byte)).count()
}

fn digits(text: &str) -> usize {
    run(text, |byte| byte.is_ascii_digit())
}

fn word(rest: &str) -> (Kind, usize) {
    let len = run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$');
    let word = rest.get(..len).unwrap_or_default();
    let key_word = KEY_WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    (key_word.map_or(Kind::Name, |(_, kind)| *kind), len)
}

/// The longest number at the front of `rest`, which begins with a digit or a point and a digit.
fn number(rest: &str) -> (Kind, usize) {
    let whole = digits(rest);
    let after = rest.get(whole..).unwrap_or_default();
    let fraction =
        if after.starts_with('.') { digits(after.get(1..).unwrap_or_default()).saturating_add(1) } else { 0 };
    let len = whole.saturating_add(fraction);
    let exponent = exponent(rest.get(len..).unwrap_or_default());
    if fraction > 0 || exponent > 0 {
        return (Kind::Decimal, len.saturating_add(exponent));
    }
    let len = if rest.starts_with('0') { 1 } else { whole };
    let has_suffix = rest.get(len..).is_some_and(|after| after.starts_with(['l', 'L']));
    (Kind::Integer, len.saturating_add(usize::from(has_suffix)))
}

fn exponent(text: &str) -> usize {
    let Some(after) = text.strip_prefix(['e', 'E']) else { return 0 };
    let sign = usize::from(after.starts_with(['+', '-']));
    match digits(after.get(sign..).unwrap_or_default()) {
        0 => 0,
        digits => digits.saturating_add(sign).saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Vec<(Kind, &str)> {
        let mut lexer = Lexer::new(source);
        let mut found = Vec::new();
        loop {
            let token = lexer.next().unwrap();
            if token.kind == Kind::End {
                return found;
            }
            found.push((token.kind, token.text));
        }
    }

    #[test]
    fn key_words_are_known_in_any_case_and_names_keep_theirs() {
        let found = tokens("not aNd Price_$1 StartsWith");
        let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Not, Kind::And, Kind::Name, Kind::StartsWith]);
        assert_eq!(found[2].1, "Price_$1");
    }

    #[test]
    fn the_longest_number_is_taken() {
        let one = |text: &'static str, kind| assert_eq!(tokens(text), [(kind, text)], "{text}");
        for text in ["0", "0L", "5", "120", "7L", "7l"] {
            one(text, Kind::Integer);
        }
        for text in ["0.5", "5.", ".5", "5E10", "5.5e-1", "00.5", "0e0"] {
            one(text, Kind::Decimal);
        }
        assert_eq!(tokens("05"), [(Kind::Integer, "0"), (Kind::Integer, "5")]);
        assert_eq!(tokens("1..5"), [(Kind::Decimal, "1."), (Kind::Decimal, ".5")]);
        assert_eq!(tokens("12abc"), [(Kind::Integer, "12"), (Kind::Name, "abc")]);
        assert_eq!(tokens("1e"), [(Kind::Integer, "1"), (Kind::Name, "e")]);
    }

    #[test]
    fn a_quote_in_a_text_is_doubled() {
        assert_eq!(tokens("'it''s'"), [(Kind::Text, "'it''s'")]);
        assert_eq!(tokens("'''' ''"), [(Kind::Text, "''''"), (Kind::Text, "''")]);
        for text in ["'", "'a", "'a''", "'''"] {
            assert!(Lexer::new(text).next().is_err(), "{text}");
        }
    }

    #[test]
    fn comments_are_blanks_but_two_minus_signs_need_a_line_end() {
        assert_eq!(tokens("/* a */ 1 /***/ -- b\n 2").len(), 2);
        assert_eq!(tokens("--1").len(), 3);
        assert!(Lexer::new("/* a").next().is_err());
    }

    #[test]
    fn an_error_tells_line_and_column() {
        let mut lexer = Lexer::new("a\n é ;");
        lexer.next().unwrap();
        let message = lexer.next().unwrap_err().to_string();
        assert!(message.ends_with("'é' is no part of SQL92 at line 2, column 2"), "{message}");
    }
}
