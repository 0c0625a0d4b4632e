//! What is shown of the index and of the tables of stores that Java wrote.
//!
//! Invariants:
//! - an entry is shown for each key of each message, and no other;
//! - tables are shown as the next start reads them, and stay as they are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::index::{key_hash, topic_seed};
use crate::testing::GoldenStore;

fn view(golden: &GoldenStore) -> StoreView {
    let dir = golden.dir();
    // The settings the sets of Java were written with.
    let config = StoreConfig { index_slots_max: 500, index_entries_max: 1_200, ..StoreConfig::in_dir(&dir) };
    StoreView::open(&dir).unwrap().with_settings(&config)
}

/// Log offset and hash of every key of a set's messages.
fn keys(golden: &GoldenStore) -> Vec<(u64, u32)> {
    let mut keys = Vec::new();
    for message in golden.messages() {
        let listed = message.properties.get("KEYS").and_then(Value::as_str).unwrap_or_default();
        let listed = listed.split(' ').filter(|key| !key.is_empty());
        for key in message.uniq_key.as_deref().into_iter().chain(listed) {
            keys.push((message.log_offset, key_hash(topic_seed(&message.topic), key.as_bytes())));
        }
    }
    keys.sort_unstable();
    keys
}

/// All files below a folder with their bytes.
fn bytes_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = list_names(dir).unwrap();
    names.into_iter().map(|name| (name.clone(), std::fs::read(dir.join(&name)).unwrap())).collect()
}

fn content(golden: &GoldenStore, file: &str) -> Value {
    let all = view(golden).tables().unwrap();
    let table = all.into_iter().find(|table| table.file == Path::new(file));
    table.unwrap_or_else(|| panic!("{file} is shown")).content.unwrap()
}

#[test]
fn every_key_of_every_message_has_one_entry_with_its_store_time() {
    let golden = GoldenStore::unpack("plain-clean");
    let stored: BTreeMap<u64, i64> =
        golden.messages().iter().map(|message| (message.log_offset, message.store_timestamp)).collect();
    let (mut shown, mut files) = (Vec::new(), BTreeMap::new());
    let visit = |entry: &StoredEntry<'_>| {
        let last: &mut u32 = files.entry(entry.file.to_path_buf()).or_default();
        assert_eq!(entry.number, *last + 1, "{entry:?}");
        assert!(entry.older < entry.number, "{entry:?}");
        assert!((0..1_000).contains(&(stored[&entry.log_offset] - entry.store_ms)), "{entry:?}");
        *last = entry.number;
        shown.push((entry.log_offset, entry.hash));
        true
    };
    view(&golden).entries(visit, |file| panic!("{} is read", file.display())).unwrap();
    shown.sort_unstable();
    assert_eq!(shown, keys(&golden));
    assert_eq!(files.values().copied().collect::<Vec<_>>()[0], 1_199, "the first of two files is full");
    assert_eq!(files.len(), 2);
}

#[test]
fn entries_end_where_the_visitor_ends_them_and_a_file_of_unknown_size_is_named() {
    let golden = GoldenStore::unpack("pop");
    let mut seen = 0;
    let visit = |entry: &StoredEntry<'_>| {
        seen = entry.number;
        seen < 3
    };
    view(&golden).entries(visit, |file| panic!("{} is read", file.display())).unwrap();
    assert_eq!(seen, 3);

    let mut unknown = Vec::new();
    let usual = StoreView::open(&golden.dir()).unwrap();
    let none = |entry: &StoredEntry<'_>| panic!("{entry:?} is made up");
    usual.entries(none, |file| unknown.push(file.to_path_buf())).unwrap();
    assert_eq!(unknown, [golden.dir().join("index/20261129155635461")]);
}

#[test]
fn check_points_and_tables_are_shown_as_they_stand() {
    let golden = GoldenStore::unpack("delivery-clean");
    let all = view(&golden).tables().unwrap();
    let names: Vec<_> = all.iter().map(|table| table.file.display().to_string()).collect();
    let tables = [
        "consumerFilter.json",
        "consumerOffset.json",
        "consumerOrderInfo.json",
        "delayOffset.json",
        "subscriptionGroup.json",
        "timercheck",
        "timermetrics",
        "topics.json",
        "transactionMetrics",
    ];
    let tables = tables.map(|name| format!("config/{name}"));
    assert_eq!(names, [&["checkpoint".to_owned()][..], &tables].concat());
    let offsets = &content(&golden, "config/consumerOffset.json")["offsetTable"];
    assert_eq!(offsets["GoldTx@cg_tag"], json!({"0": 3, "1": 2}));
    let delays = &content(&golden, "config/delayOffset.json")["offsetTable"];
    assert_eq!(*delays, json!({"1": 14, "2": 1, "3": 4, "5": 0, "10": 0, "18": 0}));
    assert_eq!(content(&golden, "config/timermetrics")["timingCount"]["GoldDelay"]["count"], 4);
    assert_eq!(content(&golden, "config/topics.json")["topicConfigTable"]["GoldTx"]["perm"], 6);
    let checkpoint = view(&golden).checkpoint().unwrap();
    assert!(checkpoint.log_time_ms > 0);
    let shown = content(&golden, "checkpoint");
    assert_eq!((&shown["logTimeMs"], &shown["reached"]), (&json!(checkpoint.log_time_ms), &Value::Null));
    let timers = content(&golden, "config/timercheck");
    assert!(timers["lastReadMs"].as_i64() > Some(0) && timers["precisionMs"].is_null(), "{timers}");
}

#[test]
fn a_damaged_table_is_told_with_the_generation_that_takes_its_place_and_stays() {
    for (damage, why) in [("{\"offsetTable\"", "JSON needs 1 bytes"), (" \n", "it is empty")] {
        let golden = GoldenStore::unpack("delivery-clean");
        let config = golden.dir().join("config");
        std::fs::write(config.join("delayOffset.json"), damage).unwrap();
        std::fs::write(config.join("old.json.damaged"), damage).unwrap();
        std::fs::remove_file(config.join("topics.json")).unwrap();
        let before = bytes_of(&config);
        let all = view(&golden).tables().unwrap();
        let about = |name: &str| -> Vec<_> {
            let of = |table: &&StoredTable| table.file.to_string_lossy().contains(name);
            all.iter().filter(of).map(|table| (table.file.clone(), table.content.clone())).collect()
        };
        let delays = about("delayOffset");
        assert_eq!(delays.len(), 2, "{delays:?}");
        assert!(delays[0].1.as_ref().is_err_and(|told| told.contains(why)), "{delays:?}");
        assert!(delays[1].0.ends_with("delayOffset.json.bak") && delays[1].1.is_ok(), "{delays:?}");
        let topics = about("topics");
        assert!(topics.len() == 1 && topics[0].0.ends_with("topics.json.bak"), "{topics:?}");
        assert_eq!(about("old").len(), 0);
        assert_eq!(bytes_of(&config), before);
    }
}
