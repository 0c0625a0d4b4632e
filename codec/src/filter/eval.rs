//! The value of a SQL92 expression for the properties of one message.
//!
//! Invariants:
//! - three-valued logic: an absent property is unknown, and what is unknown does not match;
//! - a property is a text; beside a number it is read as a number of the same kind, beside TRUE or FALSE as a
//!   boolean, in an order with another property as floating point; one that does not read so ends the
//!   evaluation, and the message does not match, even under NOT or OR;
//! - nothing is allocated.
//!
//! These are the rules of RocketMQ, its curious ones included: with NOT CONTAINS an absent property or an empty
//! text gives false, and a boolean on the left of `=` cannot be compared with a property on the right.

use std::cmp::Ordering;

use crate::filter::expression::{Node, Order, Search, Value};

/// The evaluation ended without a value: two things cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incomparable;

type Evaluated<'a> = Result<Value<'a>, Incomparable>;

/// The value of `node`; `slots` holds the values of the properties.
pub(crate) fn evaluate<'a>(node: &'a Node, slots: &[Option<&'a str>]) -> Evaluated<'a> {
    match node {
        Node::Constant(constant) => Ok(constant.value()),
        Node::Property(slot) => Ok(property(*slot, slots)),
        Node::BooleanOf(operand) => match evaluate(operand, slots)? {
            Value::Null => Ok(Value::Null),
            Value::Bool(value) => Ok(Value::Bool(value)),
            _ => Ok(Value::Bool(false)),
        },
        Node::Negate(operand) => Ok(negated(evaluate(operand, slots)?)),
        Node::Not(operand) => match evaluate(operand, slots)? {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            _ => Ok(Value::Null),
        },
        Node::And(parts) => chain(parts, slots, false),
        Node::Or(parts) => chain(parts, slots, true),
        Node::Equal(left, right) => equal(evaluate(left, slots)?, evaluate(right, slots)?),
        Node::IsNull(operand) => Ok(Value::Bool(evaluate(operand, slots)? == Value::Null)),
        Node::Compare(order, left, right) => {
            let left = evaluate(left, slots)?;
            if left == Value::Null {
                return Ok(Value::Null);
            }
            compared(*order, left, evaluate(right, slots)?)
        }
        Node::Between(value, low, high) => between(value, low, high, slots),
        Node::In(slot, texts, is_not) => match property(*slot, slots) {
            Value::Text(text) => Ok(Value::Bool(is_in(texts, text) != *is_not)),
            _ => Ok(Value::Null),
        },
        Node::Search(_, _, wanted, _) if wanted.is_empty() => Ok(Value::Bool(false)),
        Node::Search(search, operand, wanted, is_not) => match evaluate(operand, slots)? {
            Value::Text(text) => Ok(Value::Bool(found(*search, text, wanted) != *is_not)),
            _ => Ok(Value::Bool(false)),
        },
    }
}

fn property<'a>(slot: usize, slots: &[Option<&'a str>]) -> Value<'a> {
    slots.get(slot).copied().flatten().map_or(Value::Null, Value::Text)
}

/// AND (`decisive` = false) or OR (true): the first decisive part ends it; an unknown part makes it unknown.
fn chain<'a>(parts: &'a [Node], slots: &[Option<&'a str>], decisive: bool) -> Evaluated<'a> {
    let mut is_known = true;
    for part in parts {
        match evaluate(part, slots)? {
            Value::Bool(value) if value == decisive => return Ok(Value::Bool(decisive)),
            Value::Bool(_) => {}
            _ => is_known = false,
        }
    }
    Ok(if is_known { Value::Bool(!decisive) } else { Value::Null })
}

fn between<'a>(value: &'a Node, low: &'a Node, high: &'a Node, slots: &[Option<&'a str>]) -> Evaluated<'a> {
    let value = evaluate(value, slots)?;
    if value == Value::Null {
        return Ok(Value::Null);
    }
    let from_low = compared(Order::GreaterOrEqual, value, evaluate(low, slots)?)?;
    if from_low == Value::Bool(false) {
        return Ok(from_low);
    }
    let to_high = compared(Order::LessOrEqual, value, evaluate(high, slots)?)?;
    Ok(if from_low == Value::Null && to_high == Value::Bool(true) { Value::Null } else { to_high })
}

fn negated(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Int(value) => Value::Int(value.wrapping_neg()),
        Value::Long(value) => Value::Long(value.wrapping_neg()),
        Value::Double(value) => Value::Double(-value),
        Value::Null | Value::Bool(_) | Value::Text(_) => Value::Null,
    }
}

fn equal<'a>(left: Value<'a>, right: Value<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Value::Null, Value::Null) => Ok(Value::Bool(true)),
        (Value::Null, _) => Ok(Value::Null),
        (_, Value::Null) => Ok(Value::Bool(false)),
        (left, right) => Ok(Value::Bool(order_of(left, right)?.is_eq())),
    }
}

fn compared<'a>(order: Order, left: Value<'a>, right: Value<'a>) -> Evaluated<'a> {
    let ordering = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(Value::Null),
        (Value::Text(left), Value::Text(right)) => double_order(double(left)?, double(right)?),
        (left, right) => order_of(left, right)?,
    };
    Ok(Value::Bool(match order {
        Order::Greater => ordering.is_gt(),
        Order::GreaterOrEqual => ordering.is_ge(),
        Order::Less => ordering.is_lt(),
        Order::LessOrEqual => ordering.is_le(),
    }))
}

/// The order of two values, neither unknown. Kinds that cannot meet are "less", so never equal.
pub(crate) fn order_of(left: Value<'_>, right: Value<'_>) -> Result<Ordering, Incomparable> {
    use Value::{Bool, Double, Int, Long, Null, Text};
    Ok(match (left, right) {
        (Bool(left), Bool(right)) => left.cmp(&right),
        (Int(left), Int(right)) => left.cmp(&right),
        (Long(left), Long(right)) => left.cmp(&right),
        (Double(left), Double(right)) => double_order(left, right),
        (Text(left), Text(right)) => left.cmp(right),
        (Int(left), Long(right)) => i64::from(left).cmp(&right),
        (Long(left), Int(right)) => left.cmp(&i64::from(right)),
        (Int(left), Double(right)) => double_order(f64::from(left), right),
        (Double(left), Int(right)) => double_order(left, f64::from(right)),
        (Long(left), Double(right)) => double_order(nearest_double(left), right),
        (Double(left), Long(right)) => double_order(left, nearest_double(right)),
        (Int(left), Text(right)) => left.cmp(&whole::<i32>(right)?),
        (Text(left), Int(right)) => whole::<i32>(left)?.cmp(&right),
        (Long(left), Text(right)) => left.cmp(&whole::<i64>(right)?),
        (Text(left), Long(right)) => whole::<i64>(left)?.cmp(&right),
        (Double(left), Text(right)) => double_order(left, double(right)?),
        (Text(left), Double(right)) => double_order(double(left)?, right),
        (Text(left), Bool(right)) => left.eq_ignore_ascii_case("true").cmp(&right),
        (Bool(_), Text(_)) => return Err(Incomparable),
        (Bool(_) | Null, _) | (_, Bool(_) | Null) => Ordering::Less,
    })
}

/// Java's order of doubles: a NaN is equal to itself and above all, −0.0 is below 0.0.
fn double_order(left: f64, right: f64) -> Ordering {
    match left.partial_cmp(&right) {
        Some(Ordering::Equal) => right.is_sign_negative().cmp(&left.is_sign_negative()),
        Some(order) => order,
        None => left.is_nan().cmp(&right.is_nan()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what Java compares with")]
fn nearest_double(value: i64) -> f64 {
    value as f64
}

fn whole<N: std::str::FromStr>(text: &str) -> Result<N, Incomparable> {
    text.parse().map_err(|_| Incomparable)
}

/// Java's `Double.valueOf`, without its hexadecimal form: blanks around it and a suffix `d` or `f` are allowed.
fn double(text: &str) -> Result<f64, Incomparable> {
    let text = text.trim_matches(|c| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        "NaN" => return Ok(f64::NAN),
        "Infinity" if text.starts_with('-') => return Ok(f64::NEG_INFINITY),
        "Infinity" => return Ok(f64::INFINITY),
        _ => {}
    }
    let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    if !digits.bytes().all(is_part) {
        return Err(Incomparable);
    }
    digits.parse().map_err(|_| Incomparable)
}

fn is_in(texts: &[Box<str>], text: &str) -> bool {
    const FEW: usize = 8;
    if texts.len() <= FEW {
        return texts.iter().any(|known| **known == *text);
    }
    texts.binary_search_by(|known| (**known).cmp(text)).is_ok()
}

fn found(search: Search, text: &str, wanted: &str) -> bool {
    match search {
        Search::Contains => text.contains(wanted),
        Search::StartsWith => text.starts_with(wanted),
        Search::EndsWith => text.ends_with(wanted),
    }
}
