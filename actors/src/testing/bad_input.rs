//! Requests with one thing wrong, made from the table of requests.
//!
//! Invariants:
//! - what is wrong follows from the header's own type: a key is required, or a number, if reading says so;
//! - each bad request is named by its request and its fault, so that a failure tells what was sent.

use bytes::Bytes;
use troupemq_codec::request::{GetBrokerConfig, REQUESTS, RequestInfo};
use troupemq_codec::{CodecError, Command, Fields, Text};

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A required field is not there.
    Missing,
    /// A number is no number.
    NotANumber,
    /// A number is larger than its type.
    OutOfRange,
    /// A number is below zero.
    Negative,
    /// A text is empty.
    Empty,
    /// A text is longer than any name may be.
    TooLong,
    /// A text has signs that no name may have.
    Illegal,
    /// The body is not what it should be.
    Body,
}

/// A request with one thing wrong.
#[derive(Debug, Clone)]
pub struct Bad {
    /// Name of the request.
    pub name: &'static str,
    /// What is wrong.
    pub fault: Fault,
    /// The key that is wrong; none when the body is.
    pub key: &'static str,
    /// What is sent.
    pub command: Command,
}

/// Characters of a name that is too long for anything.
pub const LONG: usize = 300;

/// A value that a request may well have under a key. Unknown keys are numbers, or texts that do not matter.
fn plausible(key: &str) -> &'static str {
    match key {
        "topic" | "b" | "originTopic" => "orders",
        "group" | "consumerGroup" | "groupName" | "srcGroup" | "destGroup" => "readers",
        "producerGroup" | "a" => "writers",
        "defaultTopic" | "c" => "TBW102",
        "brokerName" => "broker-a",
        "clusterName" | "cluster" => "DefaultCluster",
        "brokerAddr" => "127.0.0.1:9",
        "i" | "properties" => "",
        "sysFlag" | "f" | "suspendTimeoutMillis" | "queueId" | "e" => "0",
        "topicFilterType" => "SINGLE_TAG",
        "perm" => "6",
        "m" | "batch" | "unitMode" | "k" | "order" | "jstackEnable" | "isForce" => "false",
        _ => "1",
    }
}

fn with(info: &RequestInfo, changed: &str, value: Option<&str>) -> Fields {
    let mut fields = Fields::new();
    for key in info.keys {
        match (*key == changed, value) {
            (true, None) => {}
            (true, Some(value)) => fields.put(key, Text::from(value)),
            (false, _) => fields.put(key, Text::from_static(plausible(key))),
        }
    }
    fields
}

fn request(info: &RequestInfo, fields: Fields) -> Command {
    Command { code: info.code, fields, ..Command::request::<GetBrokerConfig>(&Default::default()) }
}

/// Every request that `wanted` wants, with each single fault of its header that reading it can tell.
pub fn bad_headers(wanted: impl Fn(&RequestInfo) -> bool) -> Vec<Bad> {
    let mut all = Vec::new();
    for info in REQUESTS.iter().filter(|info| wanted(info)) {
        assert_eq!(
            (info.reread)(&with(info, "", None)).err(),
            None,
            "{}: the values are plausible",
            info.name
        );
        for key in info.keys {
            let reading = |value| (info.reread)(&with(info, key, value)).err();
            let mut add = |fault, value: Option<&str>| {
                let command = request(info, with(info, key, value));
                all.push(Bad { name: info.name, fault, key, command });
            };
            if reading(None) == Some(CodecError::Missing { key }) {
                add(Fault::Missing, None);
            }
            if reading(Some("x7")).is_some() {
                add(Fault::NotANumber, Some("x7"));
                add(Fault::OutOfRange, Some("99999999999999999999"));
                add(Fault::Negative, Some("-1"));
            } else if plausible(key) != "false" {
                add(Fault::Empty, Some(""));
                add(Fault::TooLong, Some(&"n".repeat(LONG)));
                add(Fault::Illegal, Some("a b\u{1}{}/../é"));
            }
        }
    }
    all
}

/// Every request that `wanted` wants with bodies that are no body of any request.
pub fn bad_bodies(wanted: impl Fn(&RequestInfo) -> bool) -> Vec<Bad> {
    let deep = "[".repeat(100_000);
    let nested = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let wide = format!("[{}1]", "1,".repeat(200_000));
    let bodies: [&[u8]; 8] = [
        b"{",
        b"\x00\xff\xfe\x80garbage",
        b"\"text\"",
        b"{\"topic\":{\"topic\":[1,2]},\"mqSet\":7,\"clientID\":[],\"offsetTable\":\"x\"}",
        b"\x7f\xff\xff\xff\x7f\xff\xff\xff",
        deep.as_bytes(),
        nested.as_bytes(),
        wide.as_bytes(),
    ];
    let mut all = Vec::new();
    for info in REQUESTS.iter().filter(|info| wanted(info)) {
        for body in bodies {
            let command = request(info, with(info, "", None)).with_body(Bytes::copy_from_slice(body));
            all.push(Bad { name: info.name, fault: Fault::Body, key: "", command });
        }
    }
    all
}
