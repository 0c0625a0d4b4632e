//! The table of the key-value configuration of a name server.
//!
//! Invariants:
//! - a namespace once made stays, even when its last key is deleted, as in RocketMQ;
//! - the file is Java's `kvConfig.json`: what Java wrote is read, what is written Java reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use troupemq_codec::Text;

/// Most keys over all namespaces; one more is refused.
pub const KEYS_MAX: usize = 1_000_000;

/// Keys and values by namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespaces {
    config_table: BTreeMap<Text, BTreeMap<Text, Text>>,
}

impl Namespaces {
    /// Puts a value; `false` when the table is full.
    pub fn put(&mut self, namespace: &str, key: &str, value: &str) -> bool {
        let is_new = self.get(namespace, key).is_none();
        if is_new && self.config_table.values().map(BTreeMap::len).sum::<usize>() >= KEYS_MAX {
            return false;
        }
        let keys = self.config_table.entry(Text::from(namespace)).or_default();
        keys.insert(Text::from(key), Text::from(value));
        true
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
        assert!(table.put("n", "k", "1") && table.put("n", "k", "2") && table.put("n", "l", "3"));
        assert_eq!(table.get("n", "k").map(Text::as_str), Some("2"));
        assert_eq!(table.get("m", "k"), None);
        assert!(table.delete("n", "k") && !table.delete("n", "k") && !table.delete("m", "k"));
        assert_eq!(table.namespace("n").map(BTreeMap::len), Some(1));
        assert_eq!(table.namespace("m"), None);
    }

    #[test]
    fn a_namespace_outlives_its_last_key() {
        let mut table = Namespaces::default();
        table.put("n", "k", "1");
        table.delete("n", "k");
        assert_eq!(table.namespace("n"), Some(&BTreeMap::new()));
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
