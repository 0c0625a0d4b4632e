//! Queues and index of the stores that Java wrote: what they say, and that the log alone makes them again.
//!
//! Invariants:
//! - keys are those of the records, taken apart as Java does;
//! - tests write into copies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::consume_queue::Boundary;
use crate::testing::{GOLDEN_SETS, GoldenStore, MessageFoundByJava};
use crate::{KeyQuery, ManualClock, Opened, StoreConfig, open};

/// The settings the sets were written with.
fn config(dir: &Path) -> StoreConfig {
    StoreConfig {
        index_slots_max: 500,
        index_entries_max: 1200,
        delay_levels: "1s 3s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".to_owned(),
        queue_file_bytes: 1200,
        batch_queue_file_bytes: 1380,
        ..StoreConfig::in_dir(dir)
    }
}

fn open_dir(dir: &Path) -> Opened {
    open(config(dir), Arc::new(ManualClock::at(1_795_969_000_000))).unwrap()
}

/// The keys of a message with the topic they are under.
fn keys_of(message: &MessageFoundByJava) -> Vec<String> {
    let property = |name: &str| message.properties.get(name).and_then(|value| value.as_str());
    let keys = property("KEYS").unwrap_or_default().split(' ').filter(|key| !key.is_empty());
    property("UNIQ_KEY").into_iter().chain(keys).map(str::to_owned).collect()
}

fn assert_keys(opened: &Opened, messages: &[MessageFoundByJava], set: &str) {
    let mut by_key: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for message in messages {
        for key in keys_of(message) {
            by_key.entry((message.topic.clone(), key)).or_default().push(message.log_offset);
        }
    }
    assert!(!by_key.is_empty(), "{set}");
    let has_key = |log_offset: u64, topic: &str, key: &str| {
        let agrees = |record: &troupemq_codec::message::RecordView<'_>| {
            let [unique, keys] = record.properties().pick(["UNIQ_KEY", "KEYS"]);
            let mut all = unique.into_iter().chain(keys.unwrap_or_default().split(' '));
            record.topic() == topic && all.any(|one| one == key)
        };
        opened.reader.record_at(log_offset, agrees).unwrap_or(false)
    };
    for ((topic, key), mut wanted) in by_key {
        wanted.sort_unstable();
        wanted.dedup();
        let query = KeyQuery { topic: &topic, key: &key, max: 1000, begin_ms: 0, end_ms: i64::MAX };
        let index = opened.dispatch.index();
        let found =
            index.query_where(&query, |log_offset| has_key(log_offset, &topic, &key)).unwrap().log_offsets;
        assert_eq!(found, wanted, "{set}: {topic}#{key}");
        let candidates = index.query(&query).unwrap();
        assert!(found.iter().all(|log_offset| candidates.contains(log_offset)));
    }
}

fn assert_units(opened: &Opened, messages: &[MessageFoundByJava], set: &str) {
    for message in messages {
        let queue = opened.queues.get(&message.topic, message.queue_id).unwrap();
        let unit = queue.unit(message.queue_offset).unwrap();
        let what = format!("{set}: {} {} {}", message.topic, message.queue_id, message.queue_offset);
        assert_eq!((unit.log_offset, unit.size), (message.log_offset, message.size), "{what}");
        // The properties of the torn record have lost their tags.
        let is_torn = set == "plain-torn" && !message.properties.contains_key("TAGS");
        assert!(unit.tags_code == message.tags_code || (is_torn && unit.tags_code == 0), "{what}");
        assert_eq!(unit.count, message.batch_num.unwrap_or(1), "{what}");
    }
}

#[test]
fn every_unit_and_every_key_of_java_is_found() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let messages = golden.messages();
        let opened = open_dir(&golden.dir());
        assert_units(&opened, &messages, set);
        assert_keys(&opened, &messages, set);
    }
}

#[test]
fn the_extension_keeps_the_bits_of_java() {
    let golden = GoldenStore::unpack("batch-cq");
    let opened = open_dir(&golden.dir());
    let mut units = 0;
    for message in golden.messages() {
        let queue = opened.queues.get(&message.topic, message.queue_id).unwrap();
        let found = queue.extension_unit(message.queue_offset);
        assert_eq!(found.is_some(), message.extension.is_some());
        let (Some(found), Some(java)) = (found, message.extension) else { continue };
        let bits: String = found.bits.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((found.tags_code, found.store_timestamp_ms), (java.tags_code, java.msg_store_time));
        assert_eq!(bits, java.filter_bit_map);
        units += 1;
    }
    assert_eq!(units, 600);
}

/// Finds the bits of a message where Java put them.
#[derive(Debug)]
struct BitsOfJava(BTreeMap<u64, String>);

impl super::FilterBits for BitsOfJava {
    fn bits(&self, record: &[u8]) -> Vec<u8> {
        let record = troupemq_codec::message::RecordView::parse(record).unwrap();
        let Some(bits) = self.0.get(&record.log_offset().cast_unsigned()) else { return Vec::new() };
        let digits = |at: usize| u8::from_str_radix(&bits[at..at + 2], 16).unwrap();
        (0..bits.len()).step_by(2).map(digits).collect()
    }
}

#[test]
fn queues_with_an_extension_are_written_as_java_writes_them() {
    let golden = GoldenStore::unpack("batch-cq");
    let folders = ["consumequeue", "consumequeue_ext", "batchconsumequeue"];
    let java = folders.map(|folder| files_below(&golden.dir().join(folder)));
    let bits = golden.messages().into_iter().filter_map(|message| {
        message.extension.map(|extension| (message.log_offset, extension.filter_bit_map))
    });
    let bits = BitsOfJava(bits.collect());
    for folder in folders {
        std::fs::remove_dir_all(golden.dir().join(folder)).unwrap();
    }
    let config = StoreConfig {
        queue_extension_enabled: true,
        queue_extension_file_bytes: 8192,
        ..config(&golden.dir())
    };
    let opened = open(StoreConfig::in_dir(golden.dir()), Arc::new(ManualClock::at(0))).unwrap();
    for folder in folders {
        let _may_be_missing = std::fs::remove_dir_all(golden.dir().join(folder));
    }
    let queues = crate::QueueTable::load(&config).unwrap();
    let mut dispatch =
        super::DispatchWriter::open(&config, queues, crate::index::Durable::Everything).unwrap();
    dispatch.keep_filter_bits(Box::new(bits));
    dispatch.rebuild(&opened.reader, (0, opened.reader.wrote_to()), &[], |_| ()).unwrap();
    for (folder, java) in folders.iter().zip(java) {
        let ours = files_below(&golden.dir().join(folder));
        assert_eq!(ours.keys().collect::<Vec<_>>(), java.keys().collect::<Vec<_>>());
        for (file, bytes) in java {
            assert!(ours[&file] == bytes, "{folder}/{file}");
        }
    }
}

#[test]
fn a_lost_extension_costs_no_tags() {
    let golden = GoldenStore::unpack("batch-cq");
    std::fs::remove_dir_all(golden.dir().join("consumequeue_ext")).unwrap();
    let opened = open_dir(&golden.dir());
    assert_units(&opened, &golden.messages(), "batch-cq");
}

#[test]
fn the_log_alone_makes_queues_and_index_again() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let messages = golden.messages();
        let java = files_below(&golden.dir().join("consumequeue"));
        for folder in ["consumequeue", "batchconsumequeue", "consumequeue_ext", "index"] {
            let _may_be_missing = std::fs::remove_dir_all(golden.dir().join(folder));
        }
        let opened = open_dir(&golden.dir());
        assert_units(&opened, &messages, set);
        assert_keys(&opened, &messages, set);
        if *set == "plain-clean" || *set == "delivery-clean" {
            assert_eq!(files_below(&golden.dir().join("consumequeue")), java, "{set}");
        }
    }
}

/// Content of all files by their path below `dir`.
fn files_below(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn offsets_by_time_are_those_of_a_plain_search() {
    for set in GOLDEN_SETS {
        let golden = GoldenStore::unpack(set);
        let opened = open_dir(&golden.dir());
        let mut times: BTreeMap<(String, i32), Vec<(i64, i64)>> = BTreeMap::new();
        for message in golden.messages() {
            let queue = (message.topic, message.queue_id);
            let next = message.queue_offset + i64::from(message.batch_num.unwrap_or(1));
            let all = times.entry(queue).or_default();
            all.extend((message.queue_offset..next).map(|offset| (offset, message.store_timestamp)));
        }
        for ((topic, queue_id), times) in times {
            let queue = opened.queues.get(&topic, queue_id).unwrap();
            let (min, max) = (queue.min_offset(), queue.max_offset());
            for (_, time) in times.iter().step_by(7) {
                for asked in [time - 1, *time, time + 1] {
                    let lower =
                        times.iter().find(|(_, stored)| *stored >= asked).map_or(max, |found| found.0);
                    let upper =
                        times.iter().rfind(|(_, stored)| *stored <= asked).map_or(min, |found| found.0);
                    let ask = |boundary| queue.offset_by_time(asked, boundary, &opened.reader).unwrap();
                    assert_eq!((ask(Boundary::Lower), ask(Boundary::Upper)), (lower, upper), "{set} {topic}");
                }
            }
        }
    }
}
