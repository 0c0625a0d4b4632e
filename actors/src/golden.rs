//! Conversations that Java's clients, tools, brokers and name servers had, as test data.
//!
//! Invariants:
//! - frames stand in the order in which they were seen, of one kind of server only.
//!
//! Contents: `conversation` holds one with a broker of ours, `replay` collects what it answers otherwise, `shape`
//! compares JSON bodies.

pub(crate) mod conversation;
pub(crate) mod replay;
pub(crate) mod shape;

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use flate2::read::GzDecoder;
use serde_json::Value;
use troupemq_codec::frame::take_frame;
use troupemq_codec::{Command, base64};

/// One frame of a conversation.
pub(crate) struct Frame {
    /// The connection, numbered within its file.
    pub(crate) conn: u64,
    /// Whether the server sent it.
    pub(crate) is_from_server: bool,
    /// When it was seen, in ms of the conversation.
    pub(crate) at_ms: i64,
    /// Its number in the file.
    pub(crate) number: i64,
    /// What it says.
    pub(crate) command: Command,
}

/// All conversations with servers of a kind (`namesrv`, `broker`), by name of their file.
pub(crate) fn conversations(with: &str) -> Vec<(String, Vec<Frame>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frames");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (name_of(&path), frames_of(&path, with))).collect()
}

/// One conversation.
pub(crate) fn conversation(name: &str, with: &str) -> Vec<Frame> {
    let file = format!("{name}.jsonl.gz");
    frames_of(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frames").join(file), with)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().trim_end_matches(".jsonl.gz").to_owned()
}

fn frames_of(path: &Path, with: &str) -> Vec<Frame> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let lines = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["to"] == with).map(|line| frame_of(&line)).collect()
}

fn frame_of(line: &Value) -> Frame {
    let raw = base64::decode(line["raw"].as_str().unwrap()).unwrap();
    let cut = take_frame(&mut BytesMut::from(&raw[..])).unwrap().unwrap();
    Frame {
        conn: line["conn"].as_u64().unwrap(),
        is_from_server: line["from"] == "server",
        at_ms: line["t_ms"].as_i64().unwrap(),
        number: line["n"].as_i64().unwrap(),
        command: Command::decode(cut).unwrap(),
    }
}
