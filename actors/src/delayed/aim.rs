//! `Aim`: where a message goes that leaves its delay, as the properties of its record say. Plain state.
//!
//! Invariants:
//! - it is only a short cut: of a message whose aim is not known the properties are read;
//! - it speaks of places within the properties of one record, and is asked about those of no other.

use std::ops::Range;

use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::PropertiesView;

/// Where a message goes; the default is an aim that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Aim {
    topic: Place,
    /// Its unique key and its keys; empty if it has none.
    keys: [Place; 2],
    queue_id: i32,
    tags_code: i64,
}

/// The place of a value in a text of properties, whose length takes 15 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place {
    start: u16,
    end: u16,
}

/// The same with the properties at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aimed<'a> {
    /// The topic.
    pub topic: &'a [u8],
    /// The queue within the topic.
    pub queue_id: i32,
    /// What its unit carries: the hash of its tags.
    pub tags_code: i64,
    /// Its unique key and its keys.
    pub keys: [Option<&'a [u8]>; 2],
}

impl Aim {
    /// What properties say whose values these are: topic, queue, tags, unique key and keys.
    pub fn of(properties: PropertiesView<'_>, values: [Option<&str>; 5]) -> Aim {
        let [topic, queue_id, tags, unique_key, keys] = values;
        let (Some(topic), Some(queue_id)) = (topic, queue_id.and_then(|id| id.parse().ok())) else {
            return Aim::default();
        };
        let start = properties.as_bytes().as_ptr().addr();
        let place = |value: &str| {
            let at = value.as_ptr().addr() - start;
            at..at + value.len()
        };
        Aim::at(place(topic), queue_id, tags_code_of(tags), [unique_key, keys].map(|key| key.map(place)))
    }

    /// The same by the places of topic, unique key and keys within the properties.
    pub fn at(topic: Range<usize>, queue_id: i32, tags_code: i64, keys: [Option<Range<usize>>; 2]) -> Aim {
        let keys = keys.map(|key| key.map_or(Some(Place::default()), Place::of));
        match (Place::of(topic), keys) {
            (Some(topic), [Some(unique_key), Some(keys)]) if queue_id >= 0 => {
                Aim { topic, keys: [unique_key, keys], queue_id, tags_code }
            }
            _ => Aim::default(),
        }
    }

    /// Where a message goes whose properties these are; none if it is not known.
    pub fn within<'a>(&self, properties: PropertiesView<'a>) -> Option<Aimed<'a>> {
        let topic = self.topic.within(properties)?;
        let keys = self.keys.each_ref().map(|key| key.within(properties));
        Some(Aimed { topic, queue_id: self.queue_id, tags_code: self.tags_code, keys })
    }
}

impl Place {
    fn of(place: Range<usize>) -> Option<Place> {
        Some(Place { start: u16::try_from(place.start).ok()?, end: u16::try_from(place.end).ok()? })
    }

    fn within<'a>(&self, properties: PropertiesView<'a>) -> Option<&'a [u8]> {
        let value = properties.as_bytes().get(usize::from(self.start)..usize::from(self.end))?;
        Some(value).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_found_again_in_its_properties() {
        let text = "REAL_TOPIC\u{1}T\u{2}UNIQ_KEY\u{1}U\u{2}KEYS\u{1}a b\u{2}";
        let properties = PropertiesView(text.as_bytes());
        let [topic, unique_key, keys] = ["REAL_TOPIC", "UNIQ_KEY", "KEYS"].map(|name| properties.get(name));
        let aim = Aim::of(properties, [topic, Some("3"), Some("A"), unique_key, keys]);
        let keys_found = [unique_key, keys].map(|key| key.map(str::as_bytes));
        let wanted = Aimed { topic: b"T", queue_id: 3, tags_code: tags_code_of(Some("A")), keys: keys_found };
        assert_eq!(aim.within(properties), Some(wanted));
        let aim = Aim::of(properties, [topic, Some("0"), None, None, keys]);
        assert_eq!(aim.within(properties).unwrap().keys, [None, keys_found[1]]);
        assert_eq!(aim.within(PropertiesView(b"")), None, "of other properties");
    }

    #[test]
    fn what_leads_nowhere_is_not_known() {
        let text = format!("REAL_TOPIC\u{1}T\u{2}N\u{1}{}\u{2}KEYS\u{1}k\u{2}", "v".repeat(70_000));
        let properties = PropertiesView(text.as_bytes());
        let [topic, keys] = ["REAL_TOPIC", "KEYS"].map(|name| properties.get(name));
        for values in [
            [None, Some("3"), None, None, None],
            [topic, None, None, None, None],
            [topic, Some("-1"), None, None, None],
            [topic, Some("three"), None, None, None],
            [topic, Some("3"), None, None, keys],
            [keys, Some("3"), None, None, None],
        ] {
            assert_eq!(Aim::of(properties, values), Aim::default(), "{values:?}");
        }
        assert_eq!(Aim::default().within(properties), None);
    }
}
