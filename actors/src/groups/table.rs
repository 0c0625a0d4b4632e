//! The table of consumer groups: what exists, what may be made or changed
//! (RocketMQ: `SubscriptionGroupManager`).
//!
//! Invariants:
//! - built-in groups always exist;
//! - each change, and nothing else, moves the version on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use troupemq_codec::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use troupemq_codec::topic::{DataVersion, PERM_READ};
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::light;

use crate::net::Refusal;

/// Longest name of a group, in characters.
pub const NAME_MAX: usize = 120;

/// Groups one broker keeps; one more is refused.
pub const GROUPS_MAX: usize = 1_000_000;

/// Groups that exist from the first start.
pub const BUILT_IN: [&str; 8] = [
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
];

/// All groups with their version. A clone shares their configurations.
#[derive(Debug, Clone)]
pub struct GroupTable {
    groups: BTreeMap<Text, Arc<SubscriptionGroupConfig>>,
    forbidden: BTreeMap<Text, BTreeMap<Text, i32>>,
    version: DataVersion,
    rules: GroupRules,
    groups_max: usize,
}

/// What may be made of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRules {
    /// Unknown groups are made by their first use.
    pub auto_create: bool,
    /// Groups with the name of a light queue always exist, and are kept in no file.
    pub light: bool,
}

impl GroupTable {
    /// The table that was saved, with the built-in groups added.
    #[must_use]
    pub fn new(saved: SubscriptionGroupTable, rules: GroupRules) -> GroupTable {
        let saved_groups = saved.subscription_group_table.into_iter();
        let mut groups: BTreeMap<_, _> =
            saved_groups.map(|(name, config)| (name, Arc::new(config))).collect();
        for name in BUILT_IN {
            let name = Text::from_static(name);
            groups.entry(name.clone()).or_insert_with(|| Arc::new(plain(name)));
        }
        let (forbidden, version) = (saved.forbidden_table, saved.data_version);
        GroupTable { groups, forbidden, version, rules, groups_max: GROUPS_MAX }
    }

    /// The configuration of a group.
    #[must_use]
    pub fn get(&self, group: &str) -> Option<&Arc<SubscriptionGroupConfig>> {
        self.groups.get(group)
    }

    /// All groups, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SubscriptionGroupConfig>> {
        self.groups.values()
    }

    /// Makes an unknown group on its first use.
    ///
    /// # Errors
    /// When groups are not made on use, when the name is bad, when the table is full.
    pub fn ensure(&mut self, group: &Text, now_ms: i64) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        if let Some(known) = self.groups.get(group) {
            return Ok(known.clone());
        }
        let is_kept = self.is_kept(group);
        if is_kept && !self.rules.auto_create {
            return Err(unknown(group));
        }
        check_name(group)?;
        if !is_kept {
            return self.place(plain(group.clone()));
        }
        self.insert(plain(group.clone()), now_ms)
    }

    /// Stores configurations one after the other. When one is refused, none of them is stored.
    ///
    /// # Errors
    /// As for [`GroupTable::put`].
    pub fn put_all(
        &mut self,
        configs: Vec<SubscriptionGroupConfig>,
        now_ms: i64,
    ) -> Result<Vec<Arc<SubscriptionGroupConfig>>, Refusal> {
        let version = self.version;
        let mut before = Vec::with_capacity(configs.len());
        let mut stored = Vec::with_capacity(configs.len());
        for config in configs {
            let name = config.group_name.clone();
            before.push((name.clone(), self.groups.get(&name).cloned()));
            match self.put(config, now_ms) {
                Ok(config) => stored.push(config),
                Err(refusal) => {
                    self.take_back(before);
                    self.version = version;
                    return Err(refusal);
                }
            }
        }
        Ok(stored)
    }

    /// Makes groups what they were before, the last one first.
    fn take_back(&mut self, before: Vec<(Text, Option<Arc<SubscriptionGroupConfig>>)>) {
        for (name, config) in before.into_iter().rev() {
            match config {
                Some(config) => self.groups.insert(name, config),
                None => self.groups.remove(&name),
            };
        }
    }

    /// Stores a configuration as UPDATE_AND_CREATE_SUBSCRIPTIONGROUP brings it: its attributes are changes
    /// (`+key` sets, `-key` removes).
    ///
    /// # Errors
    /// When the name or an attribute is bad, when the table is full.
    pub fn put(
        &mut self,
        mut config: SubscriptionGroupConfig,
        now_ms: i64,
    ) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        check_name(&config.group_name)?;
        if !self.is_kept(&config.group_name) {
            let remark =
                format!("the group {} reads as a light queue: it has no settings", config.group_name);
            return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
        }
        let known = self.groups.get(&config.group_name).map(|known| &known.attributes);
        config.attributes = altered(known, &config.attributes)?;
        self.insert(config, now_ms)
    }

    /// Whether a group is in the file.
    #[must_use]
    pub fn is_kept(&self, group: &str) -> bool {
        !(self.rules.light && light::is_light(group))
    }

    fn insert(
        &mut self,
        config: SubscriptionGroupConfig,
        now_ms: i64,
    ) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        let config = self.place(config)?;
        self.version = self.version.next(now_ms);
        Ok(config)
    }

    fn place(&mut self, config: SubscriptionGroupConfig) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
        let (has, limit) = (self.groups.len(), self.groups_max);
        if has >= limit && !self.groups.contains_key(&config.group_name) {
            let name = &config.group_name;
            let remark = format!("the broker has {has} groups, {name} is not made: limit {limit}");
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        let config = Arc::new(config);
        self.groups.insert(config.group_name.clone(), config.clone());
        Ok(config)
    }

    /// Forgets a group; tells whether it was there. Built-in groups stay.
    pub fn remove(&mut self, group: &str, now_ms: i64) -> bool {
        if BUILT_IN.contains(&group) || self.groups.remove(group).is_none() {
            return false;
        }
        self.forbidden.remove(group);
        self.version = self.version.next(now_ms);
        true
    }

    /// Forbids a group to read a topic, or allows it again; tells whether that is a change.
    pub fn forbid_reading(&mut self, group: &Text, topic: &Text, forbid: bool, now_ms: i64) -> bool {
        if forbid == self.is_reading_forbidden(group, topic) {
            return false;
        }
        let topics = self.forbidden.entry(group.clone()).or_default();
        let bits = topics.entry(topic.clone()).or_default();
        *bits = if forbid { *bits | PERM_READ } else { *bits & !PERM_READ };
        topics.retain(|_, bits| *bits != 0);
        if topics.is_empty() {
            self.forbidden.remove(group);
        }
        self.version = self.version.next(now_ms);
        true
    }

    /// Whether a group may not read a topic.
    #[must_use]
    pub fn is_reading_forbidden(&self, group: &str, topic: &str) -> bool {
        let bits = self.forbidden.get(group).and_then(|topics| topics.get(topic));
        bits.is_some_and(|bits| bits & PERM_READ != 0)
    }

    /// The topics that a group may not read.
    #[must_use]
    pub fn forbidden_to(&self, group: &str) -> BTreeSet<Text> {
        let topics = self.forbidden.get(group).into_iter().flatten();
        topics.filter(|(_, bits)| *bits & PERM_READ != 0).map(|(topic, _)| topic.clone()).collect()
    }

    /// The table as it is saved and as slaves and tools read it.
    #[must_use]
    pub fn table(&self) -> SubscriptionGroupTable {
        let kept = self.groups.iter().filter(|(name, _)| self.is_kept(name));
        let groups = kept.map(|(name, config)| (name.clone(), (**config).clone()));
        SubscriptionGroupTable {
            data_version: self.version,
            forbidden_table: self.forbidden.clone(),
            subscription_group_table: groups.collect(),
        }
    }
}

/// The refusal for a group that does not exist and may not be made.
#[must_use]
pub fn unknown(group: &str) -> Refusal {
    let remark = format!("subscription group [{group}] does not exist, apply first please!");
    Refusal::new(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
}

/// Attributes after a change: `+key` sets, `-key` removes what is there.
fn altered(
    known: Option<&BTreeMap<Text, Text>>,
    change: &BTreeMap<Text, Text>,
) -> Result<BTreeMap<Text, Text>, Refusal> {
    let mut attributes = known.cloned().unwrap_or_default();
    for (key, value) in change {
        if let Some(key) = key.strip_prefix('-') {
            if attributes.remove(key).is_none() {
                let remark = format!("attempt to delete a nonexistent key: {key}");
                return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
            }
        } else {
            attributes.insert(Text::from(key.strip_prefix('+').unwrap_or(key)), value.clone());
        }
    }
    Ok(attributes)
}

fn plain(group_name: Text) -> SubscriptionGroupConfig {
    SubscriptionGroupConfig { group_name, ..SubscriptionGroupConfig::default() }
}

/// Checks the name of a group.
///
/// # Errors
/// When it is blank, too long or has a character that names may not have.
pub fn check_name(group: &str) -> Result<(), Refusal> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "%|-_".contains(character);
    let why = if group.trim().is_empty() {
        "The specified group is blank.".to_owned()
    } else if group.chars().count() > NAME_MAX {
        format!("The specified group is longer than group max length {NAME_MAX}.")
    } else if !group.chars().all(is_allowed) {
        format!("The specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ResponseCode::INVALID_PARAMETER, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(auto_create: bool) -> GroupTable {
        GroupTable::new(SubscriptionGroupTable::default(), rules(auto_create))
    }

    fn rules(auto_create: bool) -> GroupRules {
        GroupRules { auto_create, light: false }
    }

    /// 4.21
    #[test]
    fn a_group_with_the_name_of_a_light_queue_exists_without_settings_and_is_kept_nowhere() {
        let rules = GroupRules { auto_create: false, light: true };
        let mut groups = GroupTable::new(SubscriptionGroupTable::default(), rules);
        let name = Text::from("%LMQ%g");
        assert_eq!(groups.ensure(&name, 5).expect("exists").retry_max_times, 16);
        assert_eq!(groups.table().data_version.counter, 0);
        assert!(!groups.table().subscription_group_table.contains_key(&name));
        let refusal = groups.put(plain(name), 5).expect_err("has no settings");
        assert_eq!(refusal.code, ResponseCode::INVALID_PARAMETER);
    }

    #[test]
    fn an_unknown_group_is_made_by_its_first_use_with_the_defaults_of_rocketmq() {
        let mut groups = table(true);
        let made = groups.ensure(&Text::from("g"), 5).expect("may be made");
        assert_eq!((made.retry_max_times, made.retry_queue_nums, made.consume_enable), (16, 1, true));
        assert_eq!(groups.table().data_version.counter, 1);
        groups.ensure(&Text::from("g"), 6).expect("is there");
        assert_eq!(groups.table().data_version.counter, 1);
    }

    #[test]
    fn an_unknown_group_is_refused_with_26_where_groups_are_not_made_on_use() {
        let refusal = table(false).ensure(&Text::from("g"), 0).expect_err("not made");
        assert_eq!(refusal.code, ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST);
        assert!(table(false).ensure(&Text::from("TOOLS_CONSUMER"), 0).is_ok());
    }

    #[test]
    fn a_bad_name_is_refused_with_29_and_says_what_is_wrong() {
        let long = "g".repeat(NAME_MAX + 1);
        for (name, why) in [("", "blank"), (long.as_str(), "120"), ("a b", "illegal characters")] {
            let refusal = table(true).ensure(&Text::from(name), 0).expect_err(name);
            assert_eq!(refusal.code, ResponseCode::INVALID_PARAMETER);
            assert!(refusal.remark.contains(why), "{}", refusal.remark);
        }
    }

    #[test]
    fn a_deleted_group_is_gone_and_a_built_in_one_stays() {
        let mut groups = table(true);
        let name = Text::from("g");
        groups.ensure(&name, 0).expect("made");
        assert!(groups.forbid_reading(&name, &Text::from("t"), true, 0));
        assert!(groups.remove("g", 1));
        assert!(!groups.is_reading_forbidden("g", "t"), "another of its name begins anew");
        assert!(!groups.remove("g", 1));
        assert!(!groups.remove("TOOLS_CONSUMER", 1));
        assert_eq!(groups.iter().count(), BUILT_IN.len());
    }

    #[test]
    fn of_groups_put_together_all_are_stored_or_none() {
        let mut table = table(true);
        let group = |name: &str, retry_max_times| SubscriptionGroupConfig {
            retry_max_times,
            ..plain(Text::from(name))
        };
        table.put(group("known", 5), 1).unwrap();
        let before = table.table();
        let refused = vec![group("good", 1), group("known", 6), group("good", 2), group("a b", 1)];
        let refusal = table.put_all(refused, 2).expect_err("a blank is in a name");
        assert_eq!(refusal.code, ResponseCode::INVALID_PARAMETER);
        assert_eq!(table.table(), before, "not even the version has moved");
        assert!(table.get("good").is_none());
        let stored = table.put_all(vec![group("good", 1), group("known", 6), group("good", 2)], 3).unwrap();
        assert_eq!(stored.len(), 3);
        assert_eq!(["good", "known"].map(|name| table.get(name).unwrap().retry_max_times), [2, 6]);
    }

    #[test]
    fn a_full_table_refuses_a_new_group_with_its_limit_and_changes_those_it_has() {
        let mut groups = table(true);
        groups.groups_max = BUILT_IN.len() + 1;
        let limit = groups.groups_max;
        groups.ensure(&Text::from("g"), 0).expect("the last one");
        let full = format!("the broker has {limit} groups, h is not made: limit {limit}");
        for refused in [groups.ensure(&Text::from("h"), 1), groups.put(plain(Text::from("h")), 1)] {
            let refusal = refused.expect_err("one too many");
            assert_eq!((refusal.code, refusal.remark), (ResponseCode::SYSTEM_ERROR, full.clone()));
        }
        assert_eq!(groups.table().data_version.counter, 1);
        let config = SubscriptionGroupConfig { retry_max_times: 3, ..plain(Text::from("g")) };
        assert_eq!(groups.put(config, 2).expect("is there").retry_max_times, 3);
        assert!(groups.remove("g", 3) && groups.ensure(&Text::from("h"), 4).is_ok(), "there is room again");
    }

    #[test]
    fn what_a_group_may_not_read_is_a_bit_of_its_topic() {
        let mut groups = table(true);
        let (group, topic) = (Text::from("g"), Text::from("t"));
        assert!(!groups.forbid_reading(&group, &topic, false, 0), "it may read already");
        assert!(groups.forbid_reading(&group, &topic, true, 1));
        assert!(groups.is_reading_forbidden("g", "t") && !groups.is_reading_forbidden("g", "u"));
        assert_eq!(groups.table().forbidden_table["g"], BTreeMap::from([(topic.clone(), 4)]));
        let again = GroupTable::new(groups.table(), rules(true));
        assert_eq!(again.forbidden_to("g"), BTreeSet::from([topic.clone()]));
        assert!(groups.forbid_reading(&group, &topic, false, 2));
        assert!(groups.table().forbidden_table.is_empty());
        assert_eq!(groups.table().data_version.counter, 2);
    }

    #[test]
    fn attributes_are_changed_by_their_sign_and_kept_without_it() {
        let mut groups = table(true);
        let change = |key: &str| SubscriptionGroupConfig {
            attributes: BTreeMap::from([(Text::from(key), Text::from("50"))]),
            ..plain(Text::from("g"))
        };
        let put = groups.put(change("+priority.factor"), 0).expect("set");
        assert_eq!(put.attributes, BTreeMap::from([(Text::from("priority.factor"), Text::from("50"))]));
        assert!(groups.put(change("-priority.factor"), 0).expect("removed").attributes.is_empty());
        assert!(groups.put(change("-priority.factor"), 0).is_err());
    }

    #[test]
    fn what_was_saved_comes_back_with_its_version() {
        let mut groups = table(true);
        let config = SubscriptionGroupConfig { retry_max_times: 3, ..plain(Text::from("g")) };
        groups.put(config, 9).expect("stored");
        let again = GroupTable::new(groups.table(), rules(false));
        assert_eq!(again.get("g").map(|config| config.retry_max_times), Some(3));
        assert_eq!(again.table().data_version, groups.table().data_version);
    }
}
