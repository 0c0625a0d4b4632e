//! The table of a broker's topics: what exists, which names may be made, changed or deleted
//! (Java: `TopicConfigManager`).
//!
//! Invariants:
//! - built-in topics always exist and cannot be changed or deleted from outside;
//! - each change, and nothing else, moves the version on: name servers compare it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use troupemq_codec::topic::{
    DataVersion, PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig, TopicConfigTable, TopicFilterType,
};
use troupemq_codec::{ResponseCode, Text};

use super::EnsureGroupTopic;
use crate::net::Refusal;
use crate::topic::state::{QUEUES_MAX, TopicChange};
use crate::topic::{built_in, names};

/// Topics one broker keeps; one more is refused.
pub const TOPICS_MAX: usize = 1_000_000;

/// What a broker decides by when it makes topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRules {
    /// Name of the cluster, a topic too.
    pub cluster: Text,
    /// Name of the broker, a topic too.
    pub broker: Text,
    /// Whether `TBW102` serves as a template.
    pub auto_create: bool,
    /// Queues of `TBW102`.
    pub default_queues: i32,
    /// Queues of the revive topic of pop.
    pub revive_queues: i32,
}

/// All topics with their version.
#[derive(Debug)]
pub struct TopicTable {
    topics: BTreeMap<Text, Arc<TopicConfig>>,
    built_in: BTreeSet<Text>,
    version: DataVersion,
    /// What it decides by; may be changed at any time.
    pub rules: TopicRules,
    /// Topics it takes at most.
    pub topics_max: usize,
}

/// A copy of the table for a file or a peer; costs a pointer a topic.
#[derive(Debug, Clone)]
pub struct TopicSnapshot {
    topics: BTreeMap<Text, Arc<TopicConfig>>,
    version: DataVersion,
}

fn with_queues(config: &TopicConfig, queues: i32) -> TopicConfig {
    TopicConfig { read_queue_nums: queues, write_queue_nums: queues, ..config.clone() }
}

impl TopicTable {
    /// The topics that were saved, and those of the built-in ones that are missing among them.
    pub fn new(saved: TopicConfigTable, rules: TopicRules) -> TopicTable {
        let mut topics = BTreeMap::new();
        for (name, mut config) in saved.topic_config_table {
            config.topic_name = name.clone();
            topics.insert(name, Arc::new(config));
        }
        let mut built_in = BTreeSet::new();
        for config in built_in::topics(&rules) {
            built_in.insert(config.topic_name.clone());
            let saved = topics.entry(config.topic_name.clone()).or_insert_with(|| Arc::new(config));
            if saved.topic_name == built_in::TEMPLATE {
                // What it was made with is no wish of anybody; the setting is.
                *saved = Arc::new(with_queues(saved, rules.default_queues));
            }
        }
        TopicTable { topics, built_in, version: saved.data_version, rules, topics_max: TOPICS_MAX }
    }

    /// A topic.
    pub fn get(&self, topic: &str) -> Option<&Arc<TopicConfig>> {
        self.topics.get(topic)
    }

    /// All topics, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicConfig>> {
        self.topics.values()
    }

    /// The version of the table.
    pub fn version(&self) -> DataVersion {
        self.version
    }

    /// A copy for a file or a peer.
    pub fn snapshot(&self) -> TopicSnapshot {
        TopicSnapshot { topics: self.topics.clone(), version: self.version }
    }

    /// A copy of some topics, as far as they exist.
    pub fn snapshot_of(&self, topics: &[Text]) -> TopicSnapshot {
        let known = topics.iter().filter_map(|topic| self.topics.get_key_value(topic));
        let topics = known.map(|(name, config)| (name.clone(), config.clone())).collect();
        TopicSnapshot { topics, version: self.version }
    }

    /// Whether a topic is the system's own.
    pub fn is_system(&self, topic: &str) -> bool {
        names::is_system(topic) || self.built_in.contains(topic)
    }

    /// Every topic of the system, whether it exists or not, as GET_SYSTEM_TOPIC_LIST_FROM_BROKER tells them.
    pub fn system_topics(&self) -> BTreeSet<Text> {
        let fixed = names::SYSTEM.iter().copied().map(Text::from_static);
        self.built_in.iter().cloned().chain(fixed).collect()
    }

    /// Makes a topic after a template, with the queues wished for but no more than the template has.
    pub fn create_from(
        &mut self,
        topic: &Text,
        template: &str,
        queues: i32,
        now_ms: i64,
    ) -> Result<Arc<TopicConfig>, Refusal> {
        names::check(topic)?;
        if let Some(config) = self.topics.get(topic) {
            return Ok(config.clone());
        }
        let model = self.topics.get(template).filter(|model| model.perm & PERM_INHERIT != 0);
        let is_allowed = self.rules.auto_create || template != built_in::TEMPLATE;
        let Some(model) = model.filter(|_| is_allowed) else {
            return Err(unknown(topic));
        };
        let queues = queues.min(model.write_queue_nums).max(0);
        let config = TopicConfig {
            perm: model.perm & !PERM_INHERIT,
            topic_filter_type: model.topic_filter_type,
            topic_sys_flag: model.topic_sys_flag,
            ..plain(topic, queues)
        };
        self.put_new(config, now_ms)
    }

    /// The template as it shall be when so many queues are set, or topics are made on use from now on; none if it is
    /// so already.
    pub fn fit_template(&mut self, queues: i32) -> Option<TopicConfig> {
        let is_as_before = std::mem::replace(&mut self.rules.default_queues, queues) == queues;
        match self.topics.get(built_in::TEMPLATE) {
            Some(_) if is_as_before => None,
            Some(template) => Some(with_queues(template, queues)),
            None => {
                let mut all = built_in::topics(&self.rules);
                let made = all.pop().filter(|last| last.topic_name == built_in::TEMPLATE)?;
                self.built_in.insert(made.topic_name.clone());
                Some(made)
            }
        }
    }

    /// Makes a topic of a group (retry, dead letters) if there is none, with read and write permission.
    pub fn create_for_group(
        &mut self,
        wanted: &EnsureGroupTopic,
        now_ms: i64,
    ) -> Result<Arc<TopicConfig>, Refusal> {
        names::check_of_group(&wanted.topic)?;
        if let Some(config) = self.topics.get(&wanted.topic) {
            return Ok(config.clone());
        }
        let plain = plain(&wanted.topic, wanted.queue_nums.clamp(1, QUEUES_MAX));
        let config = TopicConfig { topic_sys_flag: wanted.sys_flag, order: wanted.order, ..plain };
        self.put_new(config, now_ms)
    }

    /// Refuses a list of changes in which a name is not allowed, is the system's own, stands twice, or is one too
    /// many.
    pub fn check_names(&self, changes: &[TopicChange]) -> Result<(), Refusal> {
        let mut named = BTreeSet::new();
        for change in changes {
            let name = &change.config.topic_name;
            names::check(name)?;
            if self.is_system(name) {
                return Err(names::conflict(name));
            }
            if !named.insert(name) {
                let remark = format!("the topic {name} stands twice in the list");
                return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
            }
        }
        let new = named.iter().filter(|name| !self.topics.contains_key(name.as_str())).count();
        self.check_room(new)
    }

    /// Takes in what was decided about a topic; its name has been checked.
    pub fn put(&mut self, config: Arc<TopicConfig>, now_ms: i64) {
        self.topics.insert(config.topic_name.clone(), config);
        self.version = self.version.next(now_ms);
    }

    /// Deletes a topic; `None` if there was none.
    pub fn delete(&mut self, topic: &str, now_ms: i64) -> Result<Option<Arc<TopicConfig>>, Refusal> {
        if topic.trim().is_empty() {
            return Err(names::blank());
        }
        if self.is_system(topic) {
            return Err(names::conflict(topic));
        }
        let removed = self.topics.remove(topic);
        if removed.is_some() {
            self.version = self.version.next(now_ms);
        }
        Ok(removed)
    }

    fn put_new(&mut self, config: TopicConfig, now_ms: i64) -> Result<Arc<TopicConfig>, Refusal> {
        self.check_room(1)?;
        let config = Arc::new(config);
        self.put(config.clone(), now_ms);
        Ok(config)
    }

    fn check_room(&self, new: usize) -> Result<(), Refusal> {
        let (has, limit) = (self.topics.len(), self.topics_max);
        if new > 0 && has + new > limit {
            let remark = format!("the broker has {has} topics, {new} more are not made: limit {limit}");
            return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
        }
        Ok(())
    }
}

impl TopicSnapshot {
    /// A topic as it was.
    pub fn get(&self, topic: &str) -> Option<&Arc<TopicConfig>> {
        self.topics.get(topic)
    }

    /// Everything, as it is saved.
    pub fn table(&self) -> TopicConfigTable {
        self.table_of(|config| config)
    }

    /// Everything with the fields that Java adds for static topics, of which there are none.
    pub fn told(&self) -> TopicConfigTable {
        with_no_mappings(self.table())
    }

    /// Everything as it is registered: what the broker may not do, none of its topics may.
    pub fn registered(&self, broker_perm: i32) -> TopicConfigTable {
        with_no_mappings(self.table_of(|config| masked(config, broker_perm)))
    }

    fn table_of(&self, alter: impl Fn(TopicConfig) -> TopicConfig) -> TopicConfigTable {
        let entry =
            |config: &Arc<TopicConfig>| (config.topic_name.clone(), alter(TopicConfig::clone(config)));
        TopicConfigTable {
            data_version: self.version,
            topic_config_table: self.topics.values().map(entry).collect(),
            ..TopicConfigTable::default()
        }
    }
}

fn with_no_mappings(table: TopicConfigTable) -> TopicConfigTable {
    TopicConfigTable {
        mapping_data_version: Some(DataVersion {
            timestamp: table.data_version.timestamp,
            ..DataVersion::default()
        }),
        topic_queue_mapping_detail_map: Some(BTreeMap::new()),
        topic_queue_mapping_info_map: Some(BTreeMap::new()),
        ..table
    }
}

/// A topic as it is registered by a broker with this permission.
pub fn masked(config: TopicConfig, broker_perm: i32) -> TopicConfig {
    let is_free = broker_perm & PERM_READ != 0 && broker_perm & PERM_WRITE != 0;
    let perm = if is_free { config.perm } else { config.perm & broker_perm };
    TopicConfig { perm, ..config }
}

/// A readable and writable topic; the name is a copy that keeps no frame alive.
pub(crate) fn plain(topic: &str, queues: i32) -> TopicConfig {
    TopicConfig {
        topic_name: Text::from(topic),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: PERM_READ | PERM_WRITE,
        topic_filter_type: TopicFilterType::SingleTag,
        ..TopicConfig::default()
    }
}

fn unknown(topic: &str) -> Refusal {
    Refusal::new(
        ResponseCode::TOPIC_NOT_EXIST,
        format!(
            "topic[{topic}] not exist, apply first please!\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ \
             for further details."
        ),
    )
}
