//! What a table's file holds and this version does not know.
//!
//! Invariants:
//! - a field is put back only into an entry that is still there, and never over a field that is known.

use serde_json::Value;

/// Fields without a place in our types.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    /// Keys that lead to the map the field stood in.
    path: Vec<String>,
    key: String,
    value: Value,
}

impl Unknown {
    /// What `raw`, as it was read, holds more than `known`, as it would be written. `derived` fields at the
    /// top follow from others and do not count.
    pub(crate) fn of(raw: &Value, known: &Value, derived: &[&str]) -> Unknown {
        let mut unknown = Unknown::default();
        unknown.collect(raw, known, &mut Vec::new());
        unknown.fields.retain(|field| !(field.path.is_empty() && derived.contains(&field.key.as_str())));
        unknown
    }

    /// Whether everything is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Puts the fields back where their entries still are.
    pub(crate) fn put_back(&self, table: &mut Value) {
        for field in &self.fields {
            let place = field.path.iter().try_fold(&mut *table, |place, key| place.get_mut(key));
            if let Some(Value::Object(entry)) = place {
                entry.entry(field.key.as_str()).or_insert_with(|| field.value.clone());
            }
        }
    }

    fn collect(&mut self, raw: &Value, known: &Value, path: &mut Vec<String>) {
        let (Value::Object(raw), Value::Object(known)) = (raw, known) else { return };
        for (key, value) in raw.iter().filter(|(_, value)| !value.is_null()) {
            match known.get(key) {
                Some(known) if !known.is_null() => {
                    path.push(key.clone());
                    self.collect(value, known, path);
                    path.pop();
                }
                _ => self.fields.push(Field { path: path.clone(), key: key.clone(), value: value.clone() }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_field_lives_as_long_as_its_entry() {
        let raw = json!({"t": {"a": {"x": 1, "new": [2]}, "b": {"x": 3, "new": 4}}, "later": {"y": 5}, "n": null,
            "follows": 6});
        let known = json!({"t": {"a": {"x": 1}, "b": {"x": 3}}, "n": null});
        let unknown = Unknown::of(&raw, &known, &["follows"]);
        let mut table = json!({"t": {"a": {"x": 7}, "c": {"x": 8}}});
        unknown.put_back(&mut table);
        assert_eq!(table, json!({"t": {"a": {"x": 7, "new": [2]}, "c": {"x": 8}}, "later": {"y": 5}}));
    }

    #[test]
    fn a_field_that_has_become_known_is_not_written_over() {
        let unknown = Unknown::of(&json!({"a": 1}), &json!({}), &[]);
        let mut table = json!({"a": 2});
        unknown.put_back(&mut table);
        assert_eq!(table, json!({"a": 2}));
        assert!(Unknown::of(&json!({"a": 1}), &json!({"a": 2}), &[]).is_empty());
    }
}
