//! A compiled SQL92 filter.
//!
//! Invariants:
//! - a filter is compiled once and shared; asking it allocates nothing;
//! - each property of a message is looked at once, whatever the length of the expression.
//!
//! Speed: `cargo bench --bench filter`.
//!
//! RocketMQ's name for it: `SqlFilter`, `ExpressionMessageFilter`.

use crate::error::CodecError;
use crate::filter::eval::{Incomparable, evaluate};
use crate::filter::expression::Value;
use crate::filter::parser::{PROPERTIES_MAX, Parsed, parse};
use crate::message::PropertiesView;
use crate::text::Text;

/// Properties that most expressions stay below.
const FEW: usize = 8;

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlFilter {
    expression: Text,
    parsed: Parsed,
}

impl SqlFilter {
    /// Compiles an expression.
    ///
    /// # Errors
    /// `Invalid` with what is wrong and where, `TooLong` above 64 KiB.
    pub fn compile(expression: &str) -> Result<SqlFilter, CodecError> {
        Ok(SqlFilter { expression: Text::from(expression), parsed: parse(expression)? })
    }

    /// The expression as given.
    pub fn expression(&self) -> &Text {
        &self.expression
    }

    /// Whether the message matches: the expression is true, neither unknown nor impossible to evaluate.
    pub fn matches(&self, properties: PropertiesView<'_>) -> bool {
        matches!(self.evaluate(properties), Ok(Value::Bool(true)))
    }

    fn evaluate<'a>(&'a self, properties: PropertiesView<'a>) -> Result<Value<'a>, Incomparable> {
        if self.parsed.names.len() <= FEW {
            let slots = self.slots::<FEW>(properties);
            return evaluate(&self.parsed.root, &slots);
        }
        let slots = self.slots::<PROPERTIES_MAX>(properties);
        evaluate(&self.parsed.root, &slots)
    }

    fn slots<'a, const N: usize>(&self, properties: PropertiesView<'a>) -> [Option<&'a str>; N] {
        let mut slots = [None; N];
        properties.pick_into(&self.parsed.names, &mut slots);
        slots
    }
}

#[cfg(test)]
mod sql_test;
