//! JSON as fastjson reads and writes it: the bodies of requests and answers.
//!
//! Invariants:
//! - in: integer and object keys, quoted or not, numbers for strings and strings for numbers, enums by name
//!   or ordinal, single quotes, `$ref`; fields that are `null` count as absent;
//! - out: no blanks, no null fields, struct fields in the order they are declared (declare them
//!   alphabetically, as fastjson sorts them);
//! - depth and number of values are limited: a text of the largest frame costs 128 MiB at most.
//!
//! | | fastjson form | standard form |
//! |---|---|---|
//! | integer keys | `{0:"a"}` | `{"0":"a"}` |
//! | struct keys | `{{"queueId":0}:12}` | as a string |
//! | beyond ASCII | UTF-8 | `\uXXXX` |

mod read;
mod tree;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CodecError;

use read::{Budget, Reader};
use tree::{Json, VALUES_MAX};
use write::{Dialect, Writer};

/// Reads a body, whichever client wrote it.
///
/// # Errors
/// [`CodecError::Invalid`] with what was wrong, [`CodecError::TooLong`] for a text that is too deep or too
/// large.
pub fn from_loose<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    read_within(bytes, VALUES_MAX)
}

/// Reads a file of our own, which may have any number of values: an offset table of a large broker has millions.
///
/// # Errors
/// As [`from_loose`], but never for the number of values.
pub fn from_loose_trusted<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    read_within(bytes, usize::MAX)
}

fn read_within<T: DeserializeOwned>(bytes: &[u8], values_max: usize) -> Result<T, CodecError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CodecError::invalid("UTF-8 of a body", bytes))?;
    let root = Json::parse(text, values_max)?;
    let budget = Budget::new(values_max);
    Ok(T::deserialize(Reader::new(&root, &budget))?)
}

/// Writes a body as fastjson does by default: integer keys without quotes, struct keys as objects.
pub fn to_fastjson<T: Serialize>(value: &T) -> Vec<u8> {
    write(value, Dialect::Fastjson)
}

/// Writes a body as legal JSON in ASCII (fastjson's `BrowserCompatible`).
pub fn to_standard<T: Serialize>(value: &T) -> Vec<u8> {
    write(value, Dialect::Standard)
}

fn write<T: Serialize>(value: &T, dialect: Dialect) -> Vec<u8> {
    let mut writer = Writer::new(dialect);
    value.serialize(&mut writer).expect("the types of this crate serialize without errors of their own");
    writer.into_bytes()
}

/// Whether all that `part` says is in `whole` too, whatever the order.
#[cfg(test)]
pub(crate) fn assert_holds(whole: &[u8], part: &[u8], name: &str) {
    let [whole, part] = [whole, part].map(|bytes| std::str::from_utf8(bytes).expect("JSON is text"));
    let holds = Json::parse(part, VALUES_MAX)
        .and_then(|part| Json::parse(whole, VALUES_MAX).map(|whole| whole.holds(&part)));
    assert_eq!(holds, Ok(true), "{name}: {whole} does not hold {part}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Queue {
        broker_name: String,
        queue_id: i32,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    enum Model {
        Broadcasting,
        Clustering,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Everything {
        addresses: BTreeMap<i64, String>,
        model: Model,
        #[serde(default)]
        name: Option<String>,
        offsets: BTreeMap<Queue, i64>,
        rate: f64,
        set: Vec<Queue>,
        truth: bool,
    }

    fn sample() -> Everything {
        let queue = Queue { broker_name: "b\"ä".into(), queue_id: 3 };
        Everything {
            addresses: BTreeMap::from([(0, "10.0.0.1:1".into()), (-2, "x".into())]),
            model: Model::Clustering,
            name: None,
            offsets: BTreeMap::from([(queue.clone(), i64::MIN)]),
            rate: 2.0,
            set: vec![queue],
            truth: true,
        }
    }

    #[test]
    fn the_fastjson_form_is_what_java_writes() {
        let wanted = concat!(
            r#"{"addresses":{-2:"x",0:"10.0.0.1:1"},"model":"CLUSTERING","#,
            r#""offsets":{{"brokerName":"b\"ä","queueId":3}:-9223372036854775808},"rate":2.0,"#,
            r#""set":[{"brokerName":"b\"ä","queueId":3}],"truth":true}"#
        );
        assert_eq!(String::from_utf8(to_fastjson(&sample())).unwrap(), wanted);
    }

    #[test]
    fn both_forms_read_back() {
        for bytes in [to_fastjson(&sample()), to_standard(&sample())] {
            assert_eq!(from_loose::<Everything>(&bytes), Ok(sample()));
        }
    }

    #[test]
    fn the_standard_form_is_legal_json_in_ascii() {
        let bytes = to_standard(&sample());
        assert!(bytes.is_ascii());
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value.pointer("/addresses/-2").unwrap(), "x");
        assert_eq!(value.pointer("/set/0/brokerName").unwrap(), "b\"ä");
    }

    #[test]
    fn what_other_clients_write_is_understood() {
        let loose = r#" {addresses : {"0":'it\'s'} , "model":1,"offsets":{}, unknown:[{},[null]],
            "rate":"2.5", 'set':[{"queueId":"7","brokerName":12}], "truth":"TRUE", "name":null,} "#;
        let read: Everything = from_loose(loose.as_bytes()).unwrap();
        assert_eq!(read.addresses, BTreeMap::from([(0, "it's".into())]));
        assert_eq!((read.model, read.rate, read.truth, read.name), (Model::Clustering, 2.5, true, None));
        assert_eq!(read.set, [Queue { broker_name: "12".into(), queue_id: 7 }]);
    }

    #[test]
    fn a_reference_stands_for_what_it_points_to() {
        let text = r#"[{"brokerName":"a","queueId":1},{"$ref":"$[0]"}]"#;
        let queues: Vec<Queue> = from_loose(text.as_bytes()).unwrap();
        assert_eq!(queues.first(), queues.last());
        let text = r#"{"x":{"y":{"queueId":4}},"z":{"$ref":"$.x.y"}}"#;
        let queues: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
            from_loose(text.as_bytes()).unwrap();
        assert_eq!(queues.get("z").unwrap().get("queueId").unwrap(), 4);
        for endless in [r#"{"$ref":"$"}"#, r#"[{"$ref":"$"},{"$ref":"$"}]"#] {
            assert!(from_loose::<serde_json::Value>(endless.as_bytes()).is_err());
        }
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        let bad = ["", "{", "{]", "[1", "\"a", "{\"a\":}", "{\"a\" 1}", "nope", "[1]x", "{{}", "\"\\q\""];
        for text in bad {
            assert!(from_loose::<serde_json::Value>(text.as_bytes()).is_err(), "{text}");
        }
        assert!(from_loose::<serde_json::Value>("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(from_loose::<serde_json::Value>("{".repeat(1_000_000).as_bytes()).is_err());
        assert!(from_loose::<Model>(b"2").is_err());
        assert!(from_loose::<i32>(b"2147483648").is_err());
    }
}
