//! Records and message lists that the Java broker wrote, against what Java itself read in them.
//!
//! Invariants:
//! - each log file is one segment of 65,536 bytes from log offset 0; the list beside it holds one line for each
//!   unit of a consume queue that points into it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::filter::{java_hash, tags_code, tags_code_of};
use crate::message::compression::{EXPANDED_MAX_BYTES, plain_body};
use crate::message::record::{MAGIC_V1, MAGIC_V2};
use crate::message::*;
use crate::pop_record::{PopAck, PopCheckpoint, TAG_CHECKPOINT};
use crate::timer_record::{TimerScan, UNIT_BLANK_BYTES, UNIT_BYTES, UNIT_ROLL, scan_timer_log, timer_blank};

const SETS: [&str; 5] = ["plain-clean", "ipv6", "batch-cq", "pop", "delivery-clean"];

fn unpacked(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/records").join(name);
    let packed = std::fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    zstd::stream::decode_all(&packed[..]).unwrap()
}

fn segment(set: &str) -> Bytes {
    unpacked(&format!("{set}.log.zst")).into()
}

fn lines(set: &str) -> Vec<Value> {
    let text = String::from_utf8(unpacked(&format!("{set}.jsonl.zst"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All records of a segment in order, and where the walk ended.
fn records(segment: &[u8]) -> (Vec<RecordView<'_>>, usize) {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Scan::Record(record) = scan(&segment[at..]) {
        assert_eq!(record.log_offset(), i64::try_from(at).unwrap());
        at += record.total_size();
        found.push(record);
    }
    (found, at)
}

fn number(line: &Value, key: &str) -> i64 {
    line[key].as_i64().unwrap_or_else(|| panic!("{key} in {line}"))
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_else(|| panic!("{key} in {line}"))
}

/// The address as Java prints it.
fn host(text: &str) -> SocketAddr {
    let (ip, port) = text.rsplit_once(':').unwrap();
    SocketAddr::new(ip.trim_matches(['[', ']']).parse().unwrap(), port.parse().unwrap())
}

#[test]
fn every_record_has_the_fields_that_java_read_in_it() {
    for set in SETS {
        let segment = segment(set);
        let lines = lines(set);
        assert!(lines.len() > 100, "{set}");
        for line in &lines {
            let at = usize::try_from(number(line, "phyOffset")).unwrap();
            let record = RecordView::parse(&segment[at..]).unwrap();
            let magic = if text(line, "magic") == "DAA320AB" { MAGIC_V2 } else { MAGIC_V1 };
            assert_eq!(record.magic(), magic);
            assert_eq!(record.topic(), text(line, "storedTopic"));
            assert_eq!(i64::from(record.queue_id()), number(line, "storedQueueId"));
            assert_eq!(record.queue_offset(), number(line, "queueOffset"));
            assert_eq!(record.log_offset(), number(line, "storedPhyOffset"));
            assert_eq!(i64::try_from(record.total_size()).unwrap(), number(line, "size"));
            assert_eq!(i64::from(record.sys_flag()), number(line, "sysFlag"));
            assert_eq!(i64::from(record.flag()), number(line, "flag"));
            assert_eq!(record.born_timestamp_ms(), number(line, "bornTimestamp"));
            assert_eq!(record.born_host(), host(text(line, "bornHost")));
            assert_eq!(record.store_timestamp_ms(), number(line, "storeTimestamp"));
            assert_eq!(record.store_host(), host(text(line, "storeHost")));
            assert_eq!(i64::from(record.reconsume_times()), number(line, "reconsumeTimes"));
            assert_eq!(record.prepared_log_offset(), number(line, "preparedTransactionOffset"));
            assert_eq!(i64::from(record.body_crc()), number(line, "bodyCrc"));
            assert_eq!(i64::try_from(record.body().len()).unwrap(), number(line, "storedBodyLen"));
            assert!(record.body_is_intact(), "{line}");
        }
    }
}

#[test]
fn every_property_and_id_reads_as_in_java() {
    for set in SETS {
        let segment = segment(set);
        for line in lines(set) {
            let at = usize::try_from(number(&line, "phyOffset")).unwrap();
            let record = RecordView::parse(&segment[at..]).unwrap();
            let found: BTreeMap<&str, &str> = record.properties().iter().collect();
            let properties = line["properties"].as_object().unwrap();
            let wanted: BTreeMap<&str, &str> =
                properties.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
            assert_eq!(found, wanted);
            for (name, value) in wanted {
                assert_eq!(record.properties().get(name), Some(value));
                assert_eq!(record.properties().pick([name, "absent"]), [Some(value), None]);
            }
            let id = OffsetId { host: record.store_host(), log_offset: record.log_offset() };
            assert_eq!(id.to_string(), text(&line, "offsetMsgId"));
            assert_eq!(text(&line, "offsetMsgId").parse::<OffsetId>().unwrap(), id);
            if let Some(key) = line["uniqKey"].as_str() {
                assert_eq!(record.properties().get(properties::UNIQ_KEY), Some(key));
            }
        }
    }
}

#[test]
fn the_code_in_the_consume_queue_is_the_hash_of_the_tags() {
    for line in SETS.into_iter().flat_map(lines) {
        if text(&line, "topic") == "SCHEDULE_TOPIC_XXXX" {
            continue;
        }
        let tags = line["properties"]["TAGS"].as_str();
        assert_eq!(tags_code_of(tags), number(&line, "validTagsCode"), "{line}");
        assert_eq!(tags.map_or(0, tags_code), tags_code_of(tags));
    }
}

#[test]
fn a_walk_meets_every_record_up_to_the_blank() {
    for set in SETS {
        let segment = segment(set);
        let (records, end) = records(&segment);
        let offsets: Vec<i64> = records.iter().map(RecordView::log_offset).collect();
        for line in lines(set) {
            assert!(offsets.contains(&number(&line, "phyOffset")), "{set}");
        }
        let remaining = u32::try_from(segment.len() - end).unwrap();
        let Scan::Blank { remaining: found } = scan(&segment[end..]) else {
            panic!("{set}: no blank at {end}")
        };
        assert_eq!(found, remaining, "{set}");
    }
}

#[test]
fn every_record_encodes_again_to_the_same_bytes() {
    for segment in SETS.map(segment) {
        for record in records(&segment).0 {
            let new = NewRecord {
                topic: record.topic(),
                queue_id: record.queue_id(),
                flag: record.flag(),
                sys_flag: record.sys_flag(),
                born_timestamp_ms: record.born_timestamp_ms(),
                born_host: record.born_host(),
                store_host: record.store_host(),
                reconsume_times: record.reconsume_times(),
                prepared_log_offset: record.prepared_log_offset(),
                body: record.body(),
                body_crc: None,
                properties: &[record.properties().as_bytes()],
            };
            let mut bytes = BytesMut::new();
            new.encode(&mut bytes).unwrap();
            fill_holes(&mut bytes, record.queue_offset(), record.log_offset(), record.store_timestamp_ms());
            assert_eq!(bytes, record.bytes());
        }
    }
}

#[test]
fn every_compressed_body_expands_to_what_the_producer_sent() {
    let mut flags = BTreeMap::new();
    for set in ["plain-clean", "ipv6"] {
        let segment = segment(set);
        for line in lines(set).iter().filter(|line| line["bodySha256"].is_string()) {
            let at = usize::try_from(number(line, "phyOffset")).unwrap();
            let record = RecordView::parse(&segment[at..]).unwrap();
            let body =
                plain_body(record.sys_flag(), segment.slice_ref(record.body()), EXPANDED_MAX_BYTES).unwrap();
            assert_eq!(i64::try_from(body.len()).unwrap(), number(line, "bodyLen"));
            assert_eq!(sha256::hex(&body), text(line, "bodySha256"), "{line}");
            *flags.entry(record.sys_flag() & sys_flag::COMPRESSION_MASK).or_insert(0) += 1;
        }
    }
    assert_eq!(flags, BTreeMap::from([(0x100, 10), (0x200, 10), (0x300, 10)]));
}

#[test]
fn a_pull_body_of_all_records_reads_as_messages() {
    for set in SETS {
        let segment = segment(set);
        let (records, end) = records(&segment);
        let messages = Message::decode_all(segment.slice(..end)).unwrap();
        let of_record = |record: &RecordView<'_>| match record.properties().get_i64(properties::INNER_NUM) {
            Some(count) => usize::try_from(count).unwrap(),
            None => 1,
        };
        assert_eq!(messages.len(), records.iter().map(of_record).sum::<usize>(), "{set}");
        for message in &messages {
            assert_eq!(message.sys_flag & (sys_flag::COMPRESSED | sys_flag::INNER_BATCH), 0);
        }
    }
}

#[test]
fn an_inner_batch_comes_as_its_messages_with_consecutive_offsets() {
    let segment = segment("batch-cq");
    let (records, end) = records(&segment);
    let messages = Message::decode_all(segment.slice(..end)).unwrap();
    let batch = records.iter().filter(|record| record.sys_flag() & sys_flag::INNER_BATCH != 0);
    let batch = batch.max_by_key(|record| record.properties().get_i64(properties::INNER_NUM)).unwrap();
    assert_eq!(batch.properties().get_i64(properties::INNER_BASE), Some(batch.queue_offset()));
    let of_batch: Vec<&Message> =
        messages.iter().filter(|message| message.log_offset == batch.log_offset()).collect();
    let offsets: Vec<i64> = of_batch.iter().map(|message| message.queue_offset).collect();
    assert_eq!(offsets, (batch.queue_offset()..).take(7).collect::<Vec<_>>());
    for message in of_batch {
        assert!(message.properties.contains(properties::UNIQ_KEY));
        assert!(!message.properties.contains(properties::INNER_NUM));
        assert!(!message.body.is_empty());
    }
}

#[test]
fn the_revive_topic_holds_check_points_and_acknowledgements_in_our_bytes() {
    let segment = segment("pop");
    let mut tags = BTreeMap::new();
    for record in records(&segment).0 {
        let body = record.body();
        let [Some(tag), Some(key)] = record.properties().pick([properties::TAGS, properties::UNIQ_KEY])
        else {
            continue;
        };
        let (json, unique_key) = match tag {
            TAG_CHECKPOINT => {
                let checkpoint = PopCheckpoint::from_json(body).unwrap();
                (checkpoint.to_json(), checkpoint.unique_key())
            }
            "ack" | "bAck" => {
                let ack = PopAck::from_json(body).unwrap();
                assert_eq!(ack.tag(), tag);
                (ack.to_json(), ack.unique_key())
            }
            _ => continue,
        };
        assert_eq!(String::from_utf8_lossy(&json), String::from_utf8_lossy(body));
        assert_eq!(unique_key, key);
        *tags.entry(tag).or_insert(0) += 1;
    }
    assert!(tags.len() == 3 && tags.values().all(|count| *count > 1), "{tags:?}");
}

#[test]
fn every_unit_of_a_timer_log_names_its_message() {
    let (log, segment) = (unpacked("delivery-clean.timerlog.zst"), segment("delivery-clean"));
    let mut kinds = BTreeMap::new();
    for (number, file) in log.chunks(4096).enumerate() {
        let mut at = 0;
        while let TimerScan::Unit(unit) = scan_timer_log(&file[at..]) {
            assert_eq!(unit.encode(), file[at..at + UNIT_BYTES]);
            assert!(unit.previous < i64::try_from(number * 4096 + at).unwrap());
            *kinds.entry(unit.kind).or_insert(0) += 1;
            at += UNIT_BYTES;
            let Some(record) = usize::try_from(unit.log_offset).ok().and_then(|offset| segment.get(offset..))
            else {
                continue;
            };
            let record = RecordView::parse(record).unwrap();
            assert_eq!(record.topic(), "rmq_sys_wheel_timer");
            assert_eq!(i32::try_from(record.total_size()), Ok(unit.size));
            let [topic, due] = record.properties().pick([properties::REAL_TOPIC, properties::TIMER_OUT_MS]);
            assert_eq!(java_hash(topic.unwrap()), unit.topic_hash);
            if unit.kind & UNIT_ROLL == 0 {
                assert_eq!(due.unwrap().parse(), Ok(unit.due_ms()));
            }
        }
        if number == 0 {
            assert_eq!((at, scan_timer_log(&file[at..])), (4056, TimerScan::Blank));
            assert_eq!(timer_blank(40), file[at..at + UNIT_BLANK_BYTES]);
        } else {
            assert_eq!(scan_timer_log(&file[at..]), TimerScan::Nothing);
        }
    }
    assert!(kinds.len() == 3 && kinds.values().sum::<i32>() == 101, "{kinds:?}");
}

#[test]
fn every_truncation_of_a_record_is_an_error_and_no_mutation_panics() {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for segment in SETS.map(segment) {
        let (records, _) = records(&segment);
        for record in records.iter().step_by(10) {
            let bytes = record.bytes();
            for len in 0..bytes.len() {
                assert!(RecordView::parse(&bytes[..len]).is_err());
            }
            let mut changed = bytes.to_vec();
            for _ in 0..200 {
                let at = usize::try_from(random() % u64::try_from(changed.len()).unwrap()).unwrap();
                let before = std::mem::replace(&mut changed[at], random().to_be_bytes()[0]);
                if let Scan::Record(view) = scan(&changed) {
                    view.properties().iter().for_each(drop);
                }
                drop(Message::decode_all(Bytes::copy_from_slice(&changed)));
                if random() % 4 != 0 {
                    changed[at] = before;
                }
            }
        }
    }
}

/// SHA-256, to compare with the digests that Java took. Checked against two of its published examples.
mod sha256 {
    const PRIMES: usize = 64;

    /// The digest as lower-case hex.
    pub(super) fn hex(bytes: &[u8]) -> String {
        let mut state = fractions(8, |prime| prime.sqrt());
        let rounds = fractions(PRIMES, |prime| prime.cbrt());
        let mut padded = bytes.to_vec();
        padded.push(0x80);
        padded.resize(padded.len().next_multiple_of(64), 0);
        if padded.len() - bytes.len() < 9 {
            padded.resize(padded.len() + 64, 0);
        }
        let bits = u64::try_from(bytes.len()).unwrap() * 8;
        let at = padded.len() - 8;
        padded[at..].copy_from_slice(&bits.to_be_bytes());
        for block in padded.chunks_exact(64) {
            compress(&mut state, &rounds, block);
        }
        state.iter().map(|word| format!("{word:08x}")).collect()
    }

    fn compress(state: &mut [u32], rounds: &[u32], block: &[u8]) {
        let mut words = [0_u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().unwrap());
        }
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let small0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let small1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            words[i] = words[i - 16].wrapping_add(small0).wrapping_add(words[i - 7]).wrapping_add(small1);
        }
        let mut v = [0_u32; 8];
        v.copy_from_slice(state);
        for i in 0..64 {
            let big1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let first = [big1, choice, rounds[i], words[i]].into_iter().fold(v[7], u32::wrapping_add);
            let big0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            v = [
                first.wrapping_add(big0).wrapping_add(majority),
                v[0],
                v[1],
                v[2],
                v[3].wrapping_add(first),
                v[4],
                v[5],
                v[6],
            ];
        }
        for (word, add) in state.iter_mut().zip(v) {
            *word = word.wrapping_add(add);
        }
    }

    /// The first 32 bits of the fractional part of a root of each of the first primes.
    fn fractions(count: usize, root: impl Fn(f64) -> f64) -> Vec<u32> {
        let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let fraction =
            |prime: u32| format!("{:.0}", (root(f64::from(prime)).fract() * 4_294_967_296.0).floor());
        (2..).filter(is_prime).take(count).map(|prime| fraction(prime).parse().unwrap()).collect()
    }

    #[test]
    fn the_published_examples_hold() {
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
