//! Who filters what by properties, and since when (RocketMQ: `ConsumerFilterManager`).
//!
//! Invariants:
//! - a filter is born when its expression is new: bits of older messages say nothing about it;
//! - one whose group has left is dead, keeps its bits, and is forgotten after a while; with the same expression
//!   it comes back to life as what it was;
//! - an expression that does not compile is not kept: whoever pulls with it is told;
//! - no clock, no actor and no I/O in here.
//!
//! Deliberately absent: subscriptions by tags, which need no bits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use troupemq_codec::Text;
use troupemq_codec::filter::{BloomFilter, MessageFilter};
use troupemq_store::tables::{ConsumerFilter, ConsumerFilterTable, TopicFilters};

use super::PropertyFilter;
use super::book::{GroupFilter, Pages};

/// Filters that one node keeps; one more gets no bits, so its pulls look at every message.
pub const FILTERS_MAX: usize = 65_536;
/// Filters of one topic: each is asked about each message that is stored. One more gets no bits.
pub const OF_TOPIC_MAX: usize = 256;
/// How long a group whose end nobody saw counts as gone already, in ms. Java takes the same.
const GONE_BEFORE_START_MS: i64 = 30_000;

/// The filters of all groups.
#[derive(Debug, Default)]
pub struct FilterTable {
    bloom: BloomFilter,
    topics: BTreeMap<Text, BTreeMap<Text, Entry>>,
    count: usize,
}

#[derive(Debug)]
struct Entry {
    kept: ConsumerFilter,
    filter: Arc<MessageFilter>,
}

impl FilterTable {
    /// The filters that were saved, all of them dead until their groups come. Bits of another bloom filter mean
    /// something else, so a table with such bits is left aside.
    pub fn restored(bloom: BloomFilter, saved: ConsumerFilterTable, now_ms: i64) -> FilterTable {
        let mut table = FilterTable { bloom, topics: BTreeMap::new(), count: 0 };
        let filters = saved.filter_data_by_topic.into_values().flat_map(|topic| topic.group_filter_data);
        for (group, mut kept) in filters {
            if !kept.bloom_filter_data.as_ref().is_some_and(|bits| bloom.made(bits)) {
                tracing::warn!(%group, topic = %kept.topic, "saved filters have other bits, all are left aside");
                return FilterTable { bloom, ..FilterTable::default() };
            }
            if kept.dead_time == 0 {
                kept.dead_time = (now_ms - GONE_BEFORE_START_MS).max(kept.born_time);
                kept.dead = true;
            }
            match MessageFilter::compile(Some(&kept.expression_type), &kept.expression) {
                Ok(filter) => table.insert(Entry { kept, filter: Arc::new(filter) }),
                Err(error) => {
                    tracing::warn!(%error, %group, topic = %kept.topic, "a saved filter does not compile");
                }
            }
        }
        table
    }

    /// Takes in all that a group filters now; tells whether anything changed. Filters that it names no more are
    /// dead.
    pub fn register(&mut self, group: &Text, filters: &[PropertyFilter], now_ms: i64) -> bool {
        let mut is_changed = false;
        for filter in filters {
            is_changed |= self.register_one(group, filter, now_ms);
        }
        for (topic, groups) in &mut self.topics {
            let is_named = filters.iter().any(|filter| filter.topic == *topic);
            let Some(entry) = groups.get_mut(group).filter(|entry| !is_named && !entry.kept.dead) else {
                continue;
            };
            entry.kept.dead_time = now_ms.max(entry.kept.born_time);
            entry.kept.dead = true;
            is_changed = true;
        }
        is_changed
    }

    fn register_one(&mut self, group: &Text, wanted: &PropertyFilter, now_ms: i64) -> bool {
        if let Some(entry) = self.topics.get_mut(&wanted.topic).and_then(|groups| groups.get_mut(group)) {
            let kept = &mut entry.kept;
            let is_same =
                kept.expression == wanted.expression && kept.expression_type == wanted.expression_type;
            if wanted.version < kept.client_version || (wanted.version == kept.client_version && !is_same) {
                return false;
            }
            if is_same {
                let is_changed = kept.dead || kept.client_version != wanted.version;
                kept.client_version = wanted.version;
                (kept.dead, kept.dead_time) = (false, 0);
                return is_changed;
            }
            self.remove(&wanted.topic, group);
        }
        let of_topic = self.topics.get(&wanted.topic).map_or(0, BTreeMap::len);
        if self.count >= FILTERS_MAX || of_topic >= OF_TOPIC_MAX {
            tracing::warn!(%group, topic = %wanted.topic, count = self.count, of_topic,
                "too many filters: this one gets no bits, its pulls look at every message");
            return false;
        }
        self.insert(Entry {
            filter: wanted.filter.clone(),
            kept: ConsumerFilter {
                bloom_filter_data: Some(self.bloom.of_group(group, &wanted.topic)),
                born_time: now_ms,
                client_version: wanted.version,
                consumer_group: group.clone(),
                dead: false,
                dead_time: 0,
                expression: wanted.expression.clone(),
                expression_type: wanted.expression_type.clone(),
                topic: wanted.topic.clone(),
            },
        });
        true
    }

    /// Forgets what has been dead for `span_ms`; tells whether there was anything.
    pub fn clean(&mut self, now_ms: i64, span_ms: i64) -> bool {
        let before = self.count;
        for groups in self.topics.values_mut() {
            groups.retain(|_, entry| !entry.kept.dead || now_ms - entry.kept.dead_time < span_ms);
        }
        self.topics.retain(|_, groups| !groups.is_empty());
        self.count = self.topics.values().map(BTreeMap::len).sum();
        self.count != before
    }

    /// What is saved.
    pub fn stored(&self) -> ConsumerFilterTable {
        let of_topic = |(topic, groups): (&Text, &BTreeMap<Text, Entry>)| {
            let kept = groups.iter().map(|(group, entry)| (group.clone(), entry.kept.clone()));
            (topic.clone(), TopicFilters { group_filter_data: kept.collect(), topic: topic.clone() })
        };
        ConsumerFilterTable { filter_data_by_topic: self.topics.iter().map(of_topic).collect() }
    }

    /// What is published.
    pub fn pages(&self) -> Pages {
        let published = |(group, entry): (&Text, &Entry)| {
            let bits = entry.kept.bloom_filter_data.clone()?;
            Some(Arc::new(GroupFilter {
                group: group.clone(),
                expression: entry.kept.expression.clone(),
                filter: entry.filter.clone(),
                bits,
                born_ms: entry.kept.born_time,
            }))
        };
        let of_topic = |(topic, groups): (&Text, &BTreeMap<Text, Entry>)| {
            (topic.clone(), groups.iter().filter_map(published).collect())
        };
        let by_topic: HashMap<_, _> = self.topics.iter().map(of_topic).collect();
        Pages { bloom: self.bloom, by_topic }
    }

    fn insert(&mut self, entry: Entry) {
        let (topic, group) = (entry.kept.topic.clone(), entry.kept.consumer_group.clone());
        let before = self.topics.entry(topic).or_default().insert(group, entry);
        self.count += usize::from(before.is_none());
    }

    fn remove(&mut self, topic: &str, group: &str) {
        let removed = self.topics.get_mut(topic).and_then(|groups| groups.remove(group));
        self.count -= usize::from(removed.is_some());
    }
}

#[cfg(test)]
mod tests {
    use troupemq_codec::filter::TYPE_SQL92;
    use troupemq_store::tables::TableFile;
    use troupemq_store::testing::GoldenStore;

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn wanted(topic: &str, expression: &str, version: i64) -> PropertyFilter {
        PropertyFilter {
            topic: Text::from(topic),
            expression: Text::from(expression),
            expression_type: Text::from(TYPE_SQL92),
            version,
            filter: Arc::new(MessageFilter::compile(Some(TYPE_SQL92), expression).unwrap()),
        }
    }

    fn group() -> Text {
        Text::from("g")
    }

    fn only(table: &FilterTable) -> ConsumerFilter {
        table.stored().filter_data_by_topic["T"].group_filter_data["g"].clone()
    }

    #[test]
    fn a_filter_that_leaves_and_comes_back_is_the_one_it_was() {
        let mut table = FilterTable::default();
        assert!(table.register(&group(), &[wanted("T", "a > 1", 5)], 100));
        assert!(!table.register(&group(), &[wanted("T", "a > 1", 5)], 200), "nothing new");
        assert!(table.register(&group(), &[], 300));
        assert_eq!((only(&table).dead, only(&table).dead_time), (true, 300));
        assert!(table.register(&group(), &[wanted("T", "a > 1", 6)], 400));
        let kept = only(&table);
        assert_eq!((kept.dead, kept.born_time, kept.client_version), (false, 100, 6));
    }

    #[test]
    fn a_new_expression_is_born_anew_and_an_older_one_does_not_count() {
        let mut table = FilterTable::default();
        table.register(&group(), &[wanted("T", "a > 1", 5)], 100);
        assert!(!table.register(&group(), &[wanted("T", "a > 2", 4)], 200));
        assert_eq!(only(&table).expression, "a > 1");
        assert!(table.register(&group(), &[wanted("T", "a > 2", 6)], 200));
        assert_eq!((only(&table).born_time, &*only(&table).expression), (200, "a > 2"));
    }

    #[test]
    fn what_is_dead_for_a_day_is_forgotten_and_what_lives_is_not() {
        let mut table = FilterTable::default();
        table.register(&group(), &[wanted("T", "a > 1", 5), wanted("U", "a > 1", 5)], 100);
        table.register(&group(), &[wanted("U", "a > 1", 5)], 200);
        assert!(!table.clean(200 + DAY_MS - 1, DAY_MS));
        assert!(table.clean(200 + DAY_MS, DAY_MS));
        assert_eq!(table.stored().filter_data_by_topic.keys().collect::<Vec<_>>(), ["U"]);
        assert_eq!(table.pages().by_topic.len(), 1);
    }

    #[test]
    fn a_full_topic_takes_no_more_filters_and_keeps_those_it_has() {
        let mut table = FilterTable::default();
        for number in 0..=OF_TOPIC_MAX {
            let group = Text::from(format!("g{number}"));
            assert_eq!(table.register(&group, &[wanted("T", "a > 1", 1)], 1), number < OF_TOPIC_MAX);
        }
        assert_eq!(table.pages().by_topic["T"].len(), OF_TOPIC_MAX);
    }

    #[test]
    fn a_full_broker_takes_no_more_filters_and_changes_those_it_has() {
        let mut table = FilterTable::default();
        let topics: Vec<String> = (0..FILTERS_MAX / OF_TOPIC_MAX).map(|topic| format!("T{topic}")).collect();
        for number in 0..OF_TOPIC_MAX {
            let all: Vec<_> = topics.iter().map(|topic| wanted(topic, "a > 1", 1)).collect();
            assert!(table.register(&Text::from(format!("g{number}")), &all, 1));
        }
        assert_eq!(table.count, FILTERS_MAX);
        assert!(!table.register(&Text::from("new"), &[wanted("U", "a > 1", 1)], 2), "there is no room");
        assert!(!table.pages().by_topic.contains_key("U"));
        let again: Vec<_> = topics.iter().map(|topic| wanted(topic, "a > 2", 2)).collect();
        assert!(table.register(&Text::from("g0"), &again, 3), "it is known");
        assert_eq!(table.count, FILTERS_MAX);
    }

    #[test]
    fn the_table_of_java_is_taken_over_and_goes_on() {
        let golden = GoldenStore::unpack("batch-cq");
        let java = TableFile::<ConsumerFilterTable>::open(&golden.dir()).unwrap().1;
        let mut table = FilterTable::restored(BloomFilter::default(), java.clone(), 1_795_967_700_000);
        assert_eq!(table.stored(), java);
        let old = &java.filter_data_by_topic["GoldSql"].group_filter_data["cg_sql_1"];
        let again = wanted("GoldSql", "price > 30", old.client_version + 1);
        assert!(table.register(&Text::from("cg_sql_1"), &[again], 1_795_967_700_001));
        let new = &table.stored().filter_data_by_topic["GoldSql"].group_filter_data["cg_sql_1"];
        assert_eq!((new.born_time, new.dead, new.dead_time), (old.born_time, false, 0));
    }

    #[test]
    fn bits_of_another_bloom_filter_are_left_aside() {
        let golden = GoldenStore::unpack("batch-cq");
        let java = TableFile::<ConsumerFilterTable>::open(&golden.dir()).unwrap().1;
        let table = FilterTable::restored(BloomFilter::new(10, 64), java, 1);
        assert!(table.stored().filter_data_by_topic.is_empty());
    }

    #[test]
    fn a_filter_that_lived_when_the_broker_ended_counts_as_gone_since_half_a_minute() {
        let mut table = FilterTable::default();
        table.register(&group(), &[wanted("T", "a > 1", 5)], 100);
        let again = FilterTable::restored(BloomFilter::default(), table.stored(), 100_000);
        assert_eq!((only(&again).dead, only(&again).dead_time), (true, 70_000));
        let young = FilterTable::restored(BloomFilter::default(), table.stored(), 200);
        assert_eq!((only(&young).dead, only(&young).dead_time), (true, 100));
    }
}
