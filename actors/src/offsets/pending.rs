//! Resets that no pull has taken yet, as pulls see them before they ask the owner of offsets.
//!
//! Invariants:
//! - a pull of a group and topic without a reset asks nobody, however many resets others leave lying;
//! - written by the owner of offsets alone; what has no reset is not in it, so it is never larger than its table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use troupemq_codec::Text;

/// The groups and topics that have a reset pending; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct PendingResets(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Number of groups: most of the time there is none, and nothing else is looked at.
    count: AtomicUsize,
    /// Topics with a reset, of each group.
    groups: DashMap<Text, BTreeSet<Text>>,
}

impl PendingResets {
    /// Whether a reset waits for a pull of this group from this topic.
    pub fn has(&self, group: &str, topic: &str) -> bool {
        self.0.count.load(Ordering::Acquire) != 0
            && self.0.groups.get(group).is_some_and(|topics| topics.contains(topic))
    }

    /// Notes whether a reset waits in the topic for the group.
    pub(super) fn note(&self, group: &Text, topic: &Text, is_pending: bool) {
        if is_pending {
            self.0.groups.entry(group.clone()).or_default().insert(topic.clone());
        } else {
            let is_empty = |topics: &mut BTreeSet<Text>| {
                topics.remove(topic);
                topics.is_empty()
            };
            self.0.groups.remove_if_mut(group, |_, topics| is_empty(topics));
        }
        self.count();
    }

    /// The group is gone.
    pub(super) fn forget_group(&self, group: &str) {
        self.0.groups.remove(group);
        self.count();
    }

    /// The topic is gone.
    pub(super) fn forget_topic(&self, topic: &str) {
        self.0.groups.retain(|_, topics| {
            topics.remove(topic);
            !topics.is_empty()
        });
        self.count();
    }

    fn count(&self) {
        self.0.count.store(self.0.groups.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_pending_for_its_group_and_topic_alone_until_it_is_taken() {
        let (resets, topic) = (PendingResets::default(), Text::from("t"));
        let [group, other] = ["g", "h"].map(Text::from);
        resets.note(&group, &topic, true);
        resets.note(&other, &topic, true);
        resets.note(&other, &Text::from("u"), true);
        let pending = || [("g", "t"), ("g", "u"), ("h", "t"), ("h", "u")].map(|(g, t)| resets.has(g, t));
        assert_eq!(pending(), [true, false, true, true]);
        resets.note(&group, &topic, false);
        resets.note(&group, &topic, false);
        assert_eq!(pending(), [false, false, true, true]);
        resets.forget_topic("t");
        assert_eq!(pending(), [false, false, false, true]);
        resets.forget_group("h");
        assert_eq!(pending(), [false; 4]);
        assert_eq!((resets.0.groups.len(), resets.0.count.load(Ordering::Acquire)), (0, 0));
    }
}
