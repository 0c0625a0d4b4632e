//! Changes of settings as a file keeps them.
//!
//! Invariants:
//! - a change counts only while the setting is configured as it was when it was changed;
//! - a change that does not fit any more is left out, and the others count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Behaviour;
use crate::properties_text;

/// Changes by key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kept(BTreeMap<String, Change>);

/// One changed setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    /// What was configured.
    configured: String,
    /// What it was changed to.
    changed: String,
}

impl Kept {
    /// How `now` differs from what was configured.
    pub fn between<T: Behaviour>(configured: &T, now: &T) -> Kept {
        let configured = properties_text::parse(&properties_text::write(configured));
        let now = properties_text::parse(&properties_text::write(now));
        let differs = now.into_iter().filter_map(|(key, changed)| {
            let configured = configured.get(&key).filter(|configured| **configured != changed)?.clone();
            Some((key, Change { configured, changed }))
        });
        Kept(differs.collect())
    }

    /// The settings with the changes that count.
    pub fn applied_to<T: Behaviour>(&self, configured: &T) -> T {
        let as_text = properties_text::parse(&properties_text::write(configured));
        let mut settings = configured.clone();
        for (key, Change { configured, changed }) in &self.0 {
            if as_text.get(key) != Some(configured) || !T::may_change(key) {
                tracing::warn!(
                    key,
                    changed,
                    "a change made at run time has been overtaken by the configuration"
                );
                continue;
            }
            let pair = BTreeMap::from([(key.clone(), changed.clone())]);
            match properties_text::merge(&settings, &pair) {
                Ok(merged) if merged.config.check().is_ok() => settings = merged.config,
                _ => tracing::warn!(key, changed, "a change made at run time does not fit any more"),
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn permission(broker_permission: i32) -> BrokerConfig {
        BrokerConfig { broker_permission, ..BrokerConfig::default() }
    }

    #[test]
    fn a_change_counts_until_the_setting_is_configured_otherwise() {
        let kept = Kept::between(&permission(6), &permission(4));
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(text, r#"{"brokerPermission":{"configured":"6","changed":"4"}}"#);
        assert_eq!(kept.applied_to(&permission(6)).broker_permission, 4);
        assert_eq!(kept.applied_to(&permission(2)).broker_permission, 2);
        assert_eq!(Kept::between(&permission(6), &permission(6)), Kept::default());
    }

    #[test]
    fn a_change_that_fits_no_more_takes_no_other_with_it() {
        let kept: Kept = serde_json::from_str(
            r#"{"brokerPermission":{"configured":"6","changed":"9"},
                "brokerName":{"configured":"b","changed":"c"},
                "maxMessageSize":{"configured":"4194304","changed":"2048"}}"#,
        )
        .unwrap();
        let configured = BrokerConfig { broker_name: "b".to_owned(), ..BrokerConfig::default() };
        let settings = kept.applied_to(&configured);
        assert_eq!((settings.broker_permission, settings.max_message_size), (6, 2048));
        assert_eq!(settings.broker_name, "b");
    }
}
