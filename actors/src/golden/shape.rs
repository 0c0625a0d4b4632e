//! The shape of a JSON body: its members and their types, by path.
//!
//! Invariants:
//! - lists and tables have the shape of all their entries together, in no order;
//! - `null` has no shape: Java leaves it out or writes it, as the release pleases.

use std::collections::BTreeSet;

use serde_json::Value;
use troupemq_codec::loose_json::from_loose;

/// Members of bodies whose keys are names or numbers: the first value stands for all.
const TABLES: [&str; 10] = [
    "offsetTable",
    "subscriptionTable",
    "subscriptionGroupTable",
    "forbiddenTable",
    "data",
    "codeSet",
    "tagsSet",
    "attributes",
    "consumeStatsList[]",
    "queueData",
];

/// The members of a body and their types, by path.
pub(crate) fn shape_of(body: &[u8]) -> BTreeSet<String> {
    let mut shape = BTreeSet::new();
    if !body.is_empty() {
        walk(&value_of(body), "", &mut shape);
    }
    shape
}

/// What a body says, the entries of its lists in order.
pub(crate) fn said_by(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    let mut value = value_of(body);
    sort(&mut value);
    value
}

fn value_of(body: &[u8]) -> Value {
    let text = plain_keys(std::str::from_utf8(body).unwrap());
    from_loose::<Value>(text.as_bytes()).unwrap()
}

fn sort(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(sort);
            items.sort_by_key(Value::to_string);
        }
        Value::Object(members) => members.values_mut().for_each(sort),
        _ => {}
    }
}

/// The text with a plain key in place of each key that is an object.
fn plain_keys(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(end) = text.find("}:") {
        let begin = text[..end].rfind('{').unwrap();
        text.replace_range(begin..=end, &format!("\"queue {end}\""));
    }
    text
}

fn walk(value: &Value, path: &str, shape: &mut BTreeSet<String>) {
    let is_table = TABLES.iter().any(|table| path.ends_with(table));
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                // The folder of a store stands in one key.
                let key = if is_table { "*" } else { key.split('/').next().unwrap_or_default() };
                walk(member, &format!("{path}.{key}"), shape);
            }
            shape.insert(format!("{path}: object"));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| walk(item, &format!("{path}[]"), shape));
            shape.insert(format!("{path}: list"));
        }
        Value::Bool(_) => _ = shape.insert(format!("{path}: bool")),
        Value::Number(_) => _ = shape.insert(format!("{path}: number")),
        Value::String(_) => _ = shape.insert(format!("{path}: text")),
        Value::Null => {}
    }
}
