//! The table of the key-value configuration of a name server.
//!
//! Invariants:
//! - a namespace once made stays, even when its last key is deleted, as in RocketMQ: it counts towards the limit;
//! - the file is Java's `kvConfig.json`: what Java wrote is read, what is written Java reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;

/// Most keys and namespaces together; a put that needs more is refused.
pub const ENTRIES_MAX: usize = 1_000_000;

/// Keys and values by namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespaces {
    config_table: BTreeMap<Text, BTreeMap<Text, Text>>,
}

impl Namespaces {
    /// Puts a value.
    ///
    /// # Errors
    /// The number of entries there are, when there would be more than `entries_max` with it.
    pub fn put(
        &mut self,
        (namespace, key): (&str, &str),
        value: &str,
        entries_max: usize,
    ) -> Result<(), usize> {
        let known = self.namespace(namespace);
        let new =
            usize::from(known.is_none()) + usize::from(known.is_none_or(|keys| !keys.contains_key(key)));
        if new > 0 {
            let entries = self.entries();
            if entries + new > entries_max {
                return Err(entries);
            }
        }
        let keys = self.config_table.entry(Text::from(namespace)).or_default();
        keys.insert(Text::from(key), Text::from(value));
        Ok(())
    }

    /// How many keys and namespaces there are.
    fn entries(&self) -> usize {
        self.config_table.values().map(|keys| keys.len() + 1).sum()
    }

    /// A value.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&Text> {
        self.config_table.get(namespace)?.get(key)
    }

    /// Deletes a key; tells whether it was there.
    pub fn delete(&mut self, namespace: &str, key: &str) -> bool {
        self.config_table.get_mut(namespace).and_then(|keys| keys.remove(key)).is_some()
    }

    /// All keys and values of a namespace, if it was ever made.
    pub fn namespace(&self, namespace: &str) -> Option<&BTreeMap<Text, Text>> {
        self.config_table.get(namespace)
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::loose_json::{from_loose, to_fastjson};

    use super::*;

    #[test]
    fn a_value_is_put_replaced_and_deleted() {
        let mut table = Namespaces::default();
        for (key, value) in [("k", "1"), ("k", "2"), ("l", "3")] {
            assert_eq!(table.put(("n", key), value, ENTRIES_MAX), Ok(()));
        }
        assert_eq!(table.get("n", "k").map(Text::as_str), Some("2"));
        assert_eq!(table.get("m", "k"), None);
        assert!(table.delete("n", "k") && !table.delete("n", "k") && !table.delete("m", "k"));
        assert_eq!(table.namespace("n").map(BTreeMap::len), Some(1));
        assert_eq!(table.namespace("m"), None);
    }

    #[test]
    fn a_namespace_outlives_its_last_key() {
        let mut table = Namespaces::default();
        table.put(("n", "k"), "1", ENTRIES_MAX).unwrap();
        table.delete("n", "k");
        assert_eq!(table.namespace("n"), Some(&BTreeMap::new()));
    }

    #[test]
    fn a_full_table_refuses_new_keys_and_namespaces_and_changes_the_values_it_has() {
        let mut table = Namespaces::default();
        for namespace in ["a", "b"] {
            table.put((namespace, "k"), "1", 5).unwrap();
            table.delete(namespace, "k");
        }
        assert_eq!(table.put(("c", "k"), "1", 3), Err(2), "a namespace and a key");
        assert_eq!(table.put(("a", "k"), "1", 3), Ok(()));
        assert_eq!(table.put(("a", "l"), "1", 3), Err(3));
        assert_eq!(table.put(("a", "k"), "2", 3), Ok(()));
        assert_eq!((table.get("a", "k").map(Text::as_str), table.namespace("c")), (Some("2"), None));
        table.delete("a", "k");
        assert_eq!(table.put(("b", "l"), "1", 3), Ok(()), "room again");
    }

    #[test]
    fn the_file_is_read_as_java_writes_it() {
        let java = b"{\n\t\"configTable\":{\"ORDER_TOPIC_CONFIG\":{\"T\":\"b:4;c:4\"\n\t\t}\n\t}\n}";
        let table: Namespaces = from_loose(java).unwrap();
        assert_eq!(table.get("ORDER_TOPIC_CONFIG", "T").map(Text::as_str), Some("b:4;c:4"));
        let written = br#"{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b:4;c:4"}}}"#;
        assert_eq!(to_fastjson(&table), written);
        assert_eq!(from_loose::<Namespaces>(b"{}").unwrap(), Namespaces::default());
    }
}
