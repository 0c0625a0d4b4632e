//! What a Java master and its slave said to each other, read chunk by chunk.
//!
//! Invariants:
//! - a line of a file is one read of a relay: chunks, not frames; `event` lines mark where a connection opens
//!   and ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use bytes::BytesMut;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::base64;
use crate::message::{Scan, scan};

const SEGMENT_BYTES: i64 = 65_536;

/// One connection, read to its end.
#[derive(Default)]
struct Spoken {
    to_slave: BytesMut,
    to_master: BytesMut,
    /// The pieces of log, in order, with their offsets.
    transfers: Vec<(i64, Bytes)>,
    reports: Vec<i64>,
}

fn connections(name: &str) -> Vec<Spoken> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/ha").join(name);
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut spoken: BTreeMap<i64, Spoken> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let line: Value = serde_json::from_str(line).unwrap();
        let spoken = spoken.entry(line["conn"].as_i64().unwrap()).or_default();
        let chunk = base64::decode(line["raw"].as_str().unwrap()).unwrap();
        if line["from"] == "server" {
            spoken.to_slave.extend_from_slice(&chunk);
            while let Some(transfer) = take_transfer(&mut spoken.to_slave, TRANSFER_BODY_MAX_BYTES).unwrap() {
                spoken.transfers.push(transfer);
            }
        } else {
            spoken.to_master.extend_from_slice(&chunk);
            spoken.reports.extend(take_last_report(&mut spoken.to_master));
        }
    }
    spoken.into_values().collect()
}

#[test]
fn every_chunk_of_a_java_pair_belongs_to_a_report_or_a_transfer() {
    let mut connected = 0;
    for name in ["empty-slave", "live", "slave-behind", "slave-stops"] {
        for spoken in connections(&format!("{name}.jsonl.gz")) {
            assert!(spoken.to_slave.is_empty() && spoken.to_master.is_empty(), "{name}");
            let mut end = None;
            for (log_offset, body) in &spoken.transfers {
                assert!(end.is_none_or(|end| end == *log_offset), "{name}: a gap before {log_offset}");
                let len = i64::try_from(body.len()).unwrap();
                assert!(log_offset % SEGMENT_BYTES + len <= SEGMENT_BYTES, "{name}: crosses a segment");
                end = Some(log_offset + len);
                let head = TransferHead { log_offset: *log_offset, body_len: u32::try_from(len).unwrap() };
                assert_eq!(head.encode().len(), TRANSFER_HEAD_BYTES);
            }
            assert!(spoken.reports.is_sorted(), "{name}: a slave never goes back");
            let last = spoken.reports.last().copied();
            assert!(end.is_none() || last.is_none_or(|last| Some(last) <= end), "{name}");
            connected += usize::from(!spoken.transfers.is_empty());
        }
    }
    assert!(connected >= 3, "{connected}");
}

#[test]
fn what_is_transferred_is_log_record_behind_record() {
    let mut records = 0;
    for name in ["empty-slave.jsonl.gz", "slave-behind.jsonl.gz"] {
        for spoken in connections(name) {
            let mut log = BytesMut::new();
            let Some((mut at, _)) = spoken.transfers.first().cloned() else { continue };
            spoken.transfers.iter().for_each(|(_, body)| log.extend_from_slice(body));
            while !log.is_empty() {
                let size = match scan(&log) {
                    Scan::Record(record) => {
                        assert_eq!(record.log_offset(), at, "{name}");
                        assert!(record.body_is_intact(), "{name}");
                        records += 1;
                        record.total_size()
                    }
                    Scan::Blank { remaining } => usize::try_from(remaining).unwrap(),
                    Scan::Nothing => panic!("{name}: no record at {at}"),
                };
                drop(log.split_to(size));
                at += i64::try_from(size).unwrap();
            }
        }
    }
    assert!(records > 100, "{records}");
}
