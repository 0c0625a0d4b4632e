//! Frames that Java clients, brokers and name servers sent each other, as test data.
//!
//! Invariants:
//! - one line of a file is one frame, complete, beside what was read in it when it was recorded;
//! - an answer knows the code of its request: same connection, same opaque, other direction.

mod bodies;
mod headers;
mod hostile;

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::base64;
use crate::frame::take_frame;

/// One frame.
pub(crate) struct GoldenFrame {
    /// File and number, for messages.
    pub(crate) name: String,
    /// What the recorder read in it.
    pub(crate) line: Value,
    /// The frame, length word included.
    pub(crate) bytes: Bytes,
    /// Of an answer: the code of its request.
    pub(crate) request_code: Option<i32>,
    /// Whether the request was made by hand to fail.
    pub(crate) is_bad_on_purpose: bool,
}

impl GoldenFrame {
    /// The frame as a connection cuts it off.
    pub(crate) fn cut(&self) -> Bytes {
        let mut stream = BytesMut::from(&self.bytes[..]);
        let frame = take_frame(&mut stream).unwrap().unwrap();
        assert!(stream.is_empty(), "{}", self.name);
        frame
    }

    pub(crate) fn number(&self, key: &str) -> i32 {
        i32::try_from(self.line[key].as_i64().unwrap()).unwrap()
    }
}

/// All frames there are.
pub(crate) fn frames() -> &'static [GoldenFrame] {
    static FRAMES: OnceLock<Vec<GoldenFrame>> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/frames");
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "what goes over all frames is no test without one");
        paths.iter().flat_map(frames_of).collect()
    })
}

fn frames_of(path: &PathBuf) -> Vec<GoldenFrame> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut asked: HashMap<(i64, i64, String), i32> = HashMap::new();
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        let line: Value = serde_json::from_str(line).unwrap();
        let conn = (line["conn"].as_i64().unwrap(), line["opaque"].as_i64().unwrap());
        let from_server = line["from"] == "server";
        let is_answer = line["flag"].as_i64().unwrap() & 1 == 1;
        let side = |server: bool| (conn.0, conn.1, if server { "server" } else { "client" }.to_owned());
        let request_code = if is_answer { asked.get(&side(!from_server)).copied() } else { None };
        if !is_answer {
            asked.insert(side(from_server), i32::try_from(line["code"].as_i64().unwrap()).unwrap());
        }
        found.push(GoldenFrame {
            name: format!("{name} {}", line["n"]),
            bytes: base64::decode(line["raw"].as_str().unwrap()).unwrap().into(),
            line,
            request_code,
            is_bad_on_purpose: name.starts_with("errors"),
        });
    }
    found
}
