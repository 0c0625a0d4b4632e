//! The filters of all groups, published for the dispatcher, which notes what matches, and for pulls, which read
//! those notes (RocketMQ: `CommitLogDispatcherCalcBitMap`, `ExpressionMessageFilter`).
//!
//! Invariants:
//! - a book is never changed: a change publishes a new one;
//! - bits only ever say "no": a message that may match is looked at itself;
//! - a message that was stored before a filter was born says nothing about it.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use troupemq_codec::Text;
use troupemq_codec::filter::{BloomFilter, BloomFilterData, MessageFilter};
use troupemq_codec::message::RecordView;
use troupemq_store::consume_queue::ExtensionUnit;
use troupemq_store::dispatch::FilterBits;

/// Handle on the present book; clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct FilterBook(Arc<ArcSwap<Pages>>);

/// The filters of all topics at one moment.
#[derive(Debug, Default)]
pub struct Pages {
    /// How bits are made.
    pub bloom: BloomFilter,
    /// Filters by topic.
    pub by_topic: HashMap<Text, Vec<Arc<GroupFilter>>>,
}

/// What one group selects in one topic, by properties.
#[derive(Debug)]
pub struct GroupFilter {
    /// The group.
    pub group: Text,
    /// The expression as the client wrote it.
    pub expression: Text,
    /// The same, compiled.
    pub filter: Arc<MessageFilter>,
    /// The group's bits.
    pub bits: BloomFilterData,
    /// Messages stored later than this, in epoch ms, have the group's bits if they match.
    pub born_ms: i64,
}

impl FilterBook {
    /// Publishes new pages. Called by `Filters` only.
    pub(crate) fn publish(&self, pages: Pages) {
        self.0.store(Arc::new(pages));
    }

    /// The filter of a group, if it is the one that is written so.
    pub fn find(&self, topic: &str, group: &str, expression: &str) -> Option<Arc<GroupFilter>> {
        let pages = self.0.load();
        let of_group = |filter: &&Arc<GroupFilter>| filter.group.as_str() == group;
        let found = pages.by_topic.get(topic)?.iter().find(of_group)?;
        (found.expression.as_str() == expression).then(|| found.clone())
    }
}

impl GroupFilter {
    /// Whether a message may match, by what the extension of its queue says of it.
    pub fn may_want(&self, unit: &ExtensionUnit) -> bool {
        unit.store_timestamp_ms <= self.born_ms || self.bits.may_be_in(&unit.bits)
    }
}

impl FilterBits for FilterBook {
    fn bits(&self, record: &[u8]) -> Vec<u8> {
        let pages = self.0.load();
        if pages.by_topic.is_empty() {
            return Vec::new();
        }
        let Ok(record) = RecordView::parse(record) else { return Vec::new() };
        let Some(filters) = pages.by_topic.get(record.topic()) else { return Vec::new() };
        let mut map = pages.bloom.empty_map();
        for filter in filters.iter().filter(|filter| filter.filter.matches(record.properties())) {
            filter.bits.set_in(&mut map);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use troupemq_codec::filter::TYPE_SQL92;
    use troupemq_codec::message::NewRecord;

    use super::*;

    fn book() -> FilterBook {
        let bloom = BloomFilter::default();
        let filter = |group: &'static str, expression: &'static str| {
            Arc::new(GroupFilter {
                group: Text::from(group),
                expression: Text::from(expression),
                filter: Arc::new(MessageFilter::compile(Some(TYPE_SQL92), expression).unwrap()),
                bits: bloom.of_group(group, "T"),
                born_ms: 100,
            })
        };
        let filters = vec![filter("dear", "price > 30"), filter("cheap", "price <= 30")];
        let book = FilterBook::default();
        book.publish(Pages { bloom, by_topic: HashMap::from([(Text::from("T"), filters)]) });
        book
    }

    fn record(topic: &str, properties: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        let record = NewRecord { topic, body: b"x", properties: &[properties], ..NewRecord::PLAIN };
        record.encode(&mut out).unwrap();
        out
    }

    fn unit(store_timestamp_ms: i64, bits: Vec<u8>) -> ExtensionUnit {
        ExtensionUnit { tags_code: 0, store_timestamp_ms, bits }
    }

    #[test]
    fn the_bits_of_a_message_say_no_to_the_group_it_does_not_match() {
        let book = book();
        let bits = book.bits(&record("T", b"price\x0131\x02"));
        let [dear, cheap] = [("dear", "price > 30"), ("cheap", "price <= 30")]
            .map(|(group, expression)| book.find("T", group, expression).unwrap());
        assert!(dear.may_want(&unit(101, bits.clone())));
        assert!(!cheap.may_want(&unit(101, bits.clone())));
        assert!(cheap.may_want(&unit(100, bits)), "it is not younger than the filter");
        assert!(cheap.may_want(&unit(101, Vec::new())), "no bits were kept");
    }

    #[test]
    fn a_topic_that_nobody_filters_gets_no_bits() {
        assert!(book().bits(&record("U", b"")).is_empty());
        assert!(book().bits(b"no record").is_empty());
    }

    #[test]
    fn a_filter_is_found_only_as_it_was_written() {
        let book = book();
        assert!(book.find("T", "dear", "price > 30").is_some());
        assert!(book.find("T", "dear", "price > 31").is_none(), "its bits belong to another expression");
        assert!(book.find("U", "dear", "price > 30").is_none());
    }
}
