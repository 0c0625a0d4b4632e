//! Which messages a subscription selects: by tags, by SQL92 over properties.
//!
//! Invariants:
//! - evaluation reads a message's properties in place and allocates nothing;
//! - a filter is compiled once, when the subscription or the pull request comes, and shared.
//!
//! Contents: [`tags`] hashes and tag subscriptions; [`sql`] compiled SQL92, from the private `lexer`, `parser`,
//! `expression` and `eval`; [`bloom`] the bits of filtering groups in a consume queue's extension.

pub mod bloom;
mod eval;
mod expression;
mod lexer;
mod parser;
pub mod sql;
pub mod tags;

pub use bloom::{BloomFilter, BloomFilterData};
pub use parser::{DEPTH_MAX, EXPRESSION_MAX_BYTES, PROPERTIES_MAX};
pub use sql::SqlFilter;
pub use tags::{TagFilter, java_hash, tags_code, tags_code_of};

use crate::error::CodecError;
use crate::message::{PropertiesView, properties};

/// The expression type of tag subscriptions, and the meaning of none.
pub const TYPE_TAG: &str = "TAG";
/// The expression type of SQL92.
pub const TYPE_SQL92: &str = "SQL92";

/// What a subscription selects.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageFilter {
    /// By tags.
    Tags(TagFilter),
    /// By properties. Boxed: most subscriptions are by tags.
    Sql(Box<SqlFilter>),
}

impl Default for MessageFilter {
    /// Everything.
    fn default() -> MessageFilter {
        MessageFilter::Tags(TagFilter::default())
    }
}

impl MessageFilter {
    /// Compiles a subscription's expression. No type means tags.
    ///
    /// # Errors
    /// `Invalid` for an unknown type or an expression that does not compile, `TooLong` above
    /// [`EXPRESSION_MAX_BYTES`].
    pub fn compile(expression_type: Option<&str>, expression: &str) -> Result<MessageFilter, CodecError> {
        if expression.len() > EXPRESSION_MAX_BYTES {
            let (len, max) = (expression.len(), EXPRESSION_MAX_BYTES);
            return Err(CodecError::TooLong { what: "expression of a subscription", len, max });
        }
        match expression_type {
            None | Some("" | TYPE_TAG) => Ok(MessageFilter::Tags(TagFilter::parse(expression))),
            Some(TYPE_SQL92) => Ok(MessageFilter::Sql(Box::new(SqlFilter::compile(expression)?))),
            Some(other) => Err(CodecError::invalid("expression type", other)),
        }
    }

    /// Whether every message passes.
    pub fn is_all(&self) -> bool {
        matches!(self, MessageFilter::Tags(tags) if tags.is_all())
    }

    /// Whether a message with this code in its consume-queue unit may pass; cheap, before the message is read.
    pub fn may_match(&self, tags_code: i64) -> bool {
        match self {
            MessageFilter::Tags(tags) => tags.matches_code(tags_code),
            MessageFilter::Sql(_) => true,
        }
    }

    /// Whether the message passes, exactly: by the text of its tags, or by its properties.
    pub fn matches(&self, properties: PropertiesView<'_>) -> bool {
        match self {
            MessageFilter::Tags(tags) => tags.is_all() || tags.matches_tags(properties.get(properties::TAGS)),
            MessageFilter::Sql(sql) => sql.matches(properties),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_means_tags_and_an_unknown_one_is_an_error() {
        for expression_type in [None, Some(""), Some("TAG")] {
            let filter = MessageFilter::compile(expression_type, "A || B").unwrap();
            assert!(filter.may_match(tags_code("B")) && !filter.may_match(tags_code("C")));
            assert!(filter.matches(PropertiesView(b"TAGS\x01B\x02")));
            assert!(!filter.matches(PropertiesView(b"TAGS\x01C\x02")));
        }
        assert!(MessageFilter::compile(Some("tag"), "*").is_err());
        assert!(MessageFilter::default().is_all() && MessageFilter::default().matches(PropertiesView(b"")));
    }

    #[test]
    fn an_expression_that_is_too_long_is_refused_whatever_its_type() {
        let longest = "a||".repeat(EXPRESSION_MAX_BYTES / 3);
        assert!(MessageFilter::compile(None, &longest).is_ok());
        for expression_type in [None, Some(TYPE_TAG), Some(TYPE_SQL92)] {
            let refused = MessageFilter::compile(expression_type, &"a".repeat(EXPRESSION_MAX_BYTES + 1));
            assert!(matches!(refused, Err(CodecError::TooLong { max: EXPRESSION_MAX_BYTES, .. })));
        }
    }

    #[test]
    fn sql_looks_at_the_properties_only() {
        let filter = MessageFilter::compile(Some("SQL92"), "price > 30 AND TAGS = 'A'").unwrap();
        assert!(filter.may_match(0) && !filter.is_all());
        assert!(filter.matches(PropertiesView(b"price\x0131\x02TAGS\x01A\x02")));
        assert!(!filter.matches(PropertiesView(b"price\x0130\x02TAGS\x01A\x02")));
        assert!(MessageFilter::compile(Some("SQL92"), "price >").is_err());
    }
}
