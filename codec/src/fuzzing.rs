//! What a fuzzer calls: each function takes bytes of a peer or a disk, reads them in every way there is, and must
//! come back.
//!
//! Invariants:
//! - an error is an answer, a panic is a fault;
//! - what was read is written and read again, to the same.
//!
//! The targets stand in `fuzz/`; the bytes they found to be of interest in `fuzz/corpus`, which the tests here read.

use bytes::{Bytes, BytesMut};

use crate::command::{Command, CommandView};
use crate::fields::Fields;
use crate::frame::take_frame;
use crate::heartbeat_data::HeartbeatData;
use crate::loose_json::{from_loose, to_fastjson, to_standard};
use crate::message::record::{RecordView, Scan, scan};
use crate::message::{Compression, Message, Properties, PropertiesView, batch};
use crate::request::{PullView, REQUESTS, RegisterBrokerBody, SendView, request_info};
use crate::topic::TopicConfigTable;

/// A stream of frames, as a connection cuts them.
pub fn frame(bytes: &[u8]) {
    let mut stream = BytesMut::from(bytes);
    while let Ok(Some(frame)) = take_frame(&mut stream) {
        let Ok(command) = Command::decode(frame.clone()) else { continue };
        if let Ok(view) = CommandView::parse(&frame) {
            let _ = (SendView::read(&view), PullView::read(&view), view.remark());
        }
        if let Some(request) = request_info(command.code) {
            let _ = (request.reread)(&command.fields);
            let _ = (request.reread_reply)(&command.fields);
        }
        let mut out = BytesMut::new();
        command.encode(&mut out);
        let again = take_frame(&mut out).ok().flatten().map(Command::decode);
        assert!(matches!(again, Some(Ok(_))), "what was read cannot be read again: {command:?}");
    }
}

/// The fields of a header: the first byte chooses the request, zeros part keys and values.
pub fn header(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let at = usize::from(*first).checked_rem(REQUESTS.len()).unwrap_or(0);
    let Some(request) = REQUESTS.get(at) else { return };
    let mut fields = Fields::new();
    let text = String::from_utf8_lossy(rest);
    let mut parts = text.split('\0');
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        // A number for a key makes it one of the request's own.
        let own = key.parse::<usize>().ok().and_then(|at| request.keys.get(at));
        fields.push(own.copied().unwrap_or(key), value);
    }
    if let Ok(read) = (request.reread)(&fields) {
        assert!((request.reread)(&read).is_ok(), "{} cannot be read again: {read:?}", request.name);
    }
    let _ = (request.reread_reply)(&fields);
}

/// JSON as fastjson writes it.
pub fn loose_json(bytes: &[u8]) {
    if let Ok(value) = from_loose::<serde_json::Value>(bytes) {
        for text in [to_standard(&value), to_fastjson(&value)] {
            let again = from_loose::<serde_json::Value>(&text);
            assert!(again.is_ok(), "what was read cannot be read again: {value}");
        }
    }
    let _ = from_loose::<HeartbeatData>(bytes);
    let _ = from_loose::<TopicConfigTable>(bytes);
    let _ = RegisterBrokerBody::decode(bytes);
}

/// Records of the log, messages of an answer, items of a batch, compressed bodies.
pub fn record(bytes: &[u8]) {
    if let Scan::Record(record) = scan(bytes) {
        let _ = (record.body_is_intact(), record.properties().iter().count());
        let _ = RecordView::parse(record.bytes()).map(|again| assert_eq!(again.bytes(), record.bytes()));
    }
    if let Ok(messages) = Message::decode_all(Bytes::copy_from_slice(bytes)) {
        for message in messages {
            let _ = (message.offset_id(), message.message_id(), message.tags(), message.keys().count());
        }
    }
    let _ = batch::items(bytes).count();
    for kind in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
        let _ = kind.expand(bytes, 1 << 20);
    }
}

/// The text of properties.
pub fn properties(bytes: &[u8]) {
    let view = PropertiesView(bytes);
    for (name, _) in view.iter() {
        let _ = (view.get(name), view.get_i64(name), view.contains(name), view.pick([name, "KEYS"]));
    }
    let mut properties = Properties::parse(Bytes::copy_from_slice(bytes));
    properties.set("KEYS", "a b");
    assert_eq!(properties.get("KEYS"), Some("a b"));
    properties.remove("KEYS");
    assert_eq!(properties.get("KEYS"), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a target's corpus, by the names of their files.
    fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            (path.display().to_string(), std::fs::read(&path).unwrap())
        };
        std::fs::read_dir(folder).unwrap().map(read).collect()
    }

    #[test]
    fn what_fuzzers_found_of_interest_is_read_without_a_panic() {
        type Entry = (&'static str, fn(&[u8]));
        let targets: [Entry; 5] = [
            ("frame", frame),
            ("header", header),
            ("loose_json", loose_json),
            ("record", record),
            ("properties", properties),
        ];
        for (target, read) in targets {
            let corpus = corpus(target);
            assert!(corpus.len() > 5, "{target} has a corpus");
            for (name, bytes) in corpus {
                assert!(std::panic::catch_unwind(|| read(&bytes)).is_ok(), "{name}");
            }
        }
    }
}
