//! Which settings there are: names, defaults and documentation, read from the structs that declare them.
//!
//! Invariants:
//! - nothing is listed here by hand but the parts; a field that is added to a struct is a key.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;
use troupemq_actors::config::RELOADABLE;
use troupemq_actors::{BrokerConfig, NameServerConfig, NetConfig};
use troupemq_store::StoreConfig;

use super::{Ports, Settings};

/// A struct of settings; a table of `troupemq.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Part {
    /// Where the daemon listens.
    Ports,
    /// Behaviour of the broker.
    Broker,
    /// Its store.
    Store,
    /// Connections and threads.
    Net,
    /// Behaviour of the name server.
    NameServer,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Key {
    /// Where it stands.
    pub(in crate::cli) part: Part,
    /// RocketMQ's name, where RocketMQ has it.
    pub(in crate::cli) name: String,
    /// Purpose, unit, default and bounds.
    pub(in crate::cli) about: String,
    /// The value when nothing is said.
    pub(in crate::cli) default: Value,
    /// Whether it may change while the daemon runs.
    pub(in crate::cli) is_reloadable: bool,
}

impl Part {
    /// In the order of the file.
    pub(in crate::cli) const ALL: [Part; 5] =
        [Part::Ports, Part::Broker, Part::Store, Part::Net, Part::NameServer];

    /// Its table in the file.
    pub(in crate::cli) fn table(self) -> &'static str {
        match self {
            Part::Ports => "ports",
            Part::Broker => "broker",
            Part::Store => "store",
            Part::Net => "net",
            Part::NameServer => "namesrv",
        }
    }
}

/// Every key, in the order of the parts and of their fields.
pub(in crate::cli) fn keys() -> Vec<Key> {
    let defaults = Settings::default();
    let mut all = Vec::new();
    for part in Part::ALL {
        let documented = match part {
            Part::Ports => documented::<Ports>(),
            Part::Broker => documented::<BrokerConfig>(),
            Part::Store => documented::<StoreConfig>(),
            Part::Net => documented::<NetConfig>(),
            Part::NameServer => documented::<NameServerConfig>(),
        };
        let mut table = defaults.table(part);
        all.extend(documented.into_iter().map(|(name, about)| Key {
            part,
            default: table.remove(&name).unwrap_or(Value::Null),
            is_reloadable: matches!(part, Part::Broker | Part::Store) && is_reloadable(&name),
            about,
            name,
        }));
    }
    all
}

/// Whether a key of the broker or its store may change while the daemon runs; one that both have is one setting.
fn is_reloadable(name: &str) -> bool {
    RELOADABLE.contains(&name) || troupemq_store::config::RELOADABLE.contains(&name)
}

/// Names and documentation of the fields of a struct.
fn documented<T: JsonSchema>() -> Vec<(String, String)> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return Vec::new() };
    let about = |field: &Value| {
        let text = field.get("description").and_then(Value::as_str).unwrap_or_default();
        plain(&text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    fields.iter().map(|(name, field)| (name.clone(), about(field))).collect()
}

/// Documentation as people read it: ranges are no Rust, and a number is not broken between two lines.
fn plain(text: &str) -> String {
    let text = text.replace(".. .", " and more.").replace(" ….", " and more.").replace("..=", " … ");
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let is_group = |at: usize| (1..=3).all(|further| is_digit(at + further)) && !is_digit(at + 4);
    let joins = |at: usize| chars[at] == ' ' && at > 0 && is_digit(at - 1) && is_group(at);
    (0..chars.len()).map(|at| if joins(at) { ',' } else { chars[at] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_numbers_are_written_for_people() {
        assert_eq!(plain("Default: 30 000 ms. Bounds: 10.. ."), "Default: 30,000 ms. Bounds: 10 and more.");
        assert_eq!(plain("Bounds: 1..=3 456 000 (40 days)."), "Bounds: 1 … 3,456,000 (40 days).");
        assert_eq!(plain("of 5 s, SQL92 and 2 1024"), "of 5 s, SQL92 and 2 1024");
    }

    #[test]
    fn every_key_has_its_documentation_and_a_default() {
        let keys = keys();
        assert!(keys.len() > 70, "{}", keys.len());
        for key in &keys {
            assert!(!key.about.is_empty(), "{} has no documentation", key.name);
            assert!(!key.default.is_null(), "{} has no default", key.name);
        }
        let size = keys.iter().find(|key| key.name == "maxMessageSize").expect("it is a key");
        assert_eq!((size.part, &size.default), (Part::Broker, &Value::from(4 << 20)));
        assert!(
            keys.iter().filter(|key| key.name == size.name).all(|key| key.is_reloadable),
            "it is one setting"
        );
        assert!(size.about.contains("in bytes"), "{}", size.about);
        let reserved = keys.iter().find(|key| key.name == "fileReservedTime").expect("it is a key");
        assert!(reserved.part == Part::Store && reserved.is_reloadable);
    }
}
