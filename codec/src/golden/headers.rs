//! Headers: every golden frame is read, and written again as it was.
//!
//! Invariants:
//! - binary headers come out byte for byte, JSON headers with the same members.

use bytes::BytesMut;
use serde_json::Value;

use super::frames;
use crate::command::{Command, CommandView, HeaderForm};
use crate::fields::Fields;
use crate::request::{REQUESTS, request_info};

/// Keys that Java adds to requests of any kind and a broker without static topics does not need: the name space,
/// whether it is in the names, the broker, whether its queues are logical, whether no answer is wanted, and the
/// consumer's type.
const FREE_KEYS: [&str; 6] = ["ns", "nsd", "bname", "lo", "oway", "ReqT"];

#[test]
fn there_are_frames_of_both_forms_and_most_codes() {
    let binary = frames().iter().filter(|frame| frame.number("codec") == 1).count();
    assert!(frames().len() > 3400 && binary > 90, "{} frames, {binary} binary", frames().len());
    let seen = |code: i32| frames().iter().any(|frame| frame.number("code") == code);
    assert!(REQUESTS.iter().filter(|request| seen(request.code)).count() > 85);
}

#[test]
fn every_frame_is_read_as_it_was_recorded() {
    for golden in frames() {
        let frame = golden.cut();
        let command =
            Command::decode(frame.clone()).unwrap_or_else(|cause| panic!("{}: {cause}", golden.name));
        let numbers = [command.code, command.opaque, command.flag, command.version];
        assert_eq!(
            numbers,
            ["code", "opaque", "flag", "version"].map(|key| golden.number(key)),
            "{}",
            golden.name
        );
        assert_eq!(command.language.name(), golden.line["lang"], "{}", golden.name);
        assert_eq!(command.remark.as_deref(), golden.line["remark"].as_str(), "{}", golden.name);
        assert_eq!(command.body.len(), usize::try_from(golden.line["body_len"].as_u64().unwrap()).unwrap());
        assert_eq!(golden.number("codec"), i32::from(command.form.number()));
        let recorded = golden.line["ext"].as_object();
        let len = recorded.map_or(0, serde_json::Map::len);
        assert_eq!(command.fields.len(), len, "{}", golden.name);
        for (key, value) in recorded.into_iter().flatten() {
            assert_eq!(command.fields.get(key), value.as_str(), "{} {key}", golden.name);
        }
        same_view(&command, &frame);
    }
}

fn same_view(command: &Command, frame: &[u8]) {
    let view = CommandView::parse(frame).unwrap();
    assert_eq!((view.code, view.opaque, view.flag), (command.code, command.opaque, command.flag));
    let fields: Fields = view.fields().map(|(key, value)| (key.to_cow(), value.to_cow())).collect();
    assert_eq!(fields, command.fields);
    assert_eq!(frame[view.body.clone()], command.body);
}

#[test]
fn every_frame_is_written_again_as_it_was() {
    for golden in frames() {
        let command = Command::decode(golden.cut()).unwrap();
        let mut out = BytesMut::new();
        command.encode(&mut out);
        if command.form == HeaderForm::Binary {
            assert_eq!(out, golden.bytes, "{}", golden.name);
            continue;
        }
        let members = |frame: &[u8]| -> Value {
            let len = u32::from_be_bytes(frame[4..8].try_into().unwrap()) as usize;
            let mut members: Value = serde_json::from_slice(&frame[8..8 + len]).unwrap();
            // Java writes an empty object or none, as it happens.
            members
                .as_object_mut()
                .unwrap()
                .entry("extFields")
                .or_insert_with(|| Value::Object(Default::default()));
            members
        };
        assert_eq!(members(&out), members(&golden.bytes), "{}", golden.name);
        let again = out.split_off(4).freeze();
        assert_eq!(Command::decode(again), Ok(command), "{}", golden.name);
    }
}

#[test]
fn every_request_is_read_into_its_typed_header_and_loses_no_field() {
    for golden in frames().iter().filter(|golden| golden.number("flag") & 1 == 0) {
        let command = Command::decode(golden.cut()).unwrap();
        let Some(request) = request_info(command.code) else {
            // A code of the controller, which is not part of this program, and one that nobody knows.
            assert!([1005, 9999].contains(&command.code), "{}", golden.name);
            continue;
        };
        match (request.reread)(&command.fields) {
            Ok(again) => same_fields(&golden.name, &command.fields, &again),
            Err(cause) => assert!(golden.is_bad_on_purpose, "{} {}: {cause}", golden.name, request.name),
        }
    }
}

#[test]
fn every_good_answer_is_read_into_its_typed_header_and_loses_no_field() {
    for golden in frames() {
        let Some(request) = golden.request_code.and_then(request_info) else { continue };
        let command = Command::decode(golden.cut()).unwrap();
        let free_keys = ["MSG_REGION", "TRACE_ON"];
        match (request.reread_reply)(&command.fields) {
            Ok(again) => {
                let mut fields = command.fields.clone();
                for key in free_keys.into_iter().filter(|key| !request.reply_keys.contains(key)) {
                    fields.remove(key);
                }
                same_fields(&golden.name, &fields, &again);
            }
            Err(cause) => assert_ne!(command.code, 0, "{} {}: {cause}", golden.name, request.name),
        }
    }
}

/// What was read and written again is what was there, without the keys that belong to all requests.
fn same_fields(name: &str, wanted: &Fields, again: &Fields) {
    for (key, value) in wanted.iter() {
        if again.get(key).is_none() && FREE_KEYS.contains(&key) {
            continue;
        }
        // In the binary form an empty text is an absent one.
        let empty = value.is_empty() && again.get(key).is_none();
        let same = again.get(key).is_some_and(|again| again == value || again.eq_ignore_ascii_case(value));
        assert!(same || empty, "{name}: {key}={value}, again {:?}", again.get(key));
    }
}
