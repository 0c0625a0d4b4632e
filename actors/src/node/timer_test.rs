//! Messages that name the time of their delivery, over a socket and a clock that is turned by hand: delivery, recall,
//! kill and restart.
//!
//! Invariants:
//! - nothing here waits for real time to pass but for the wake of an actor.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use troupemq_codec::loose_json::from_loose;
use troupemq_codec::message::{Message, RecallHandle};
use troupemq_codec::request::{
    DeleteExpiredCommitlog, GetBrokerRuntimeInfo, GetTimerCheckPoint, GetTimerMetrics, KvTable,
    RecallMessage, RecallMessageHeader, RecallMessageReplyHeader, TimerMetrics, UpdateBrokerConfig,
};
use troupemq_codec::timer_record::{CHECKPOINT_BYTES, TimerCheckpoint};
use troupemq_codec::{Command, ResponseCode, Text};
use troupemq_store::tables::{TableFile, TimerMetricsTable};
use troupemq_store::{Clock, ManualClock};

use super::delivery_test::{NOW_MS, count};
use crate::config::BrokerPart;
use crate::node::NodeHandle;
use crate::testing::{Client, date_log, request, start_broker, start_broker_at, stored, until, wait_for};

/// A broker that serves recalls.
pub(super) fn start(dir: &Path, clock: &Arc<ManualClock>) -> NodeHandle {
    start_with(dir, clock, |_| {})
}

fn start_with(dir: &Path, clock: &Arc<ManualClock>, change: fn(&mut BrokerPart)) -> NodeHandle {
    start_broker_at(clock, dir, |part| {
        part.config.recall_message_enable = true;
        part.config.timer_max_delay_sec = 40 * 86_400;
        change(part);
    })
}

/// Sends a timer; its recall handle.
pub(super) fn send(client: &mut Client, topic: &str, (name, value): (&str, i64), body: &str) -> Option<Text> {
    let properties = format!("{name}\u{1}{value}\u{2}UNIQ_KEY\u{1}{body}\u{2}TAGS\u{1}T\u{2}");
    stored(&client.produce(topic, 0, body.as_bytes(), &properties)).recall_handle
}

pub(super) fn recall(client: &mut Client, topic: &str, handle: &str) -> Command {
    let header = RecallMessageHeader {
        producer_group: Some(Text::from("producers")),
        topic: Text::from(topic),
        recall_handle: Text::from(handle),
    };
    client.call(request::<RecallMessage>(&header))
}

/// Bodies in a queue, with how often each stands there.
pub(super) fn bodies(client: &mut Client, topic: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut offset = 0;
    loop {
        let answer = client.pull(topic, 0, offset, "*");
        let messages = Message::decode_all(answer.body).unwrap_or_default();
        let Some(last) = messages.last() else { return found };
        offset = last.queue_offset + 1;
        for message in messages {
            *found.entry(String::from_utf8(message.body.to_vec()).unwrap()).or_default() += 1;
        }
    }
}

/// Waits until a queue has so many messages.
pub(super) fn wait_for_count(client: &mut Client, topic: &str, count: i64) {
    // A pull is held at the end of a queue only.
    (0..count).for_each(|offset| _ = wait_for(client, topic, 0, offset));
}

/// As a kill leaves a store: a copy of the files of a broker that runs. The log comes last: it holds whatever the
/// others speak of. What a file does not hold stays a hole.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(|entry| (entry.file_name() == "commitlog", entry.file_name()));
    for entry in entries {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            let mut cp = std::process::Command::new("cp");
            cp.arg("--sparse=always").arg(entry.path()).arg(&target);
            // A file that went away meanwhile is not there after a kill either.
            _ = cp.status().unwrap();
        }
    }
}

/// 3.3 #25, #26, #29.
#[test]
fn a_timer_is_delivered_at_its_moment_with_all_it_was_sent_with() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    assert!(send(&mut client, "At", ("TIMER_DELIVER_MS", NOW_MS + 1_800), "at").is_some());
    assert!(send(&mut client, "After", ("TIMER_DELAY_MS", 2_300), "after").is_some());
    assert!(send(&mut client, "Seconds", ("TIMER_DELAY_SEC", 3), "seconds").is_some());
    let past = send(&mut client, "At", ("TIMER_DELIVER_MS", NOW_MS - 20_000), "past");
    assert_eq!((past, count(&mut client, "At", 0)), (None, 1), "at once, and nothing to recall");
    for (topic, at_ms, before) in [("At", 1_800, 1), ("After", 2_300, 0), ("Seconds", 3_000, 0)] {
        clock.advance_to(NOW_MS + at_ms - 1);
        // Whoever looks often enough sees nothing early: two looks of the timers have passed with the second message.
        let probe = format!("Probe{topic}");
        send(&mut client, &probe, ("TIMER_DELAY_MS", -1), "probe");
        assert_eq!(count(&mut client, topic, 0), before, "{topic} is early");
        clock.advance_ms(1);
        let message = wait_for(&mut client, topic, 0, before as i64);
        assert_eq!(message.properties.get("REAL_TOPIC"), Some(topic));
        assert_eq!(message.properties.get("TAGS"), Some("T"));
        assert_eq!(message.born_timestamp_ms, 1_795_000_000_000);
        for name in ["TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_QID", "UNIQ_KEY"] {
            assert!(message.properties.contains(name), "{name}");
        }
    }
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #27.
#[test]
fn a_time_that_cannot_be_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let far = 40 * 86_400 + 1;
    for (properties, why) in [
        (format!("TIMER_DELAY_SEC\u{1}{far}\u{2}"), "the delay is 3456001000ms"),
        ("TIMER_DELIVER_MS\u{1}tomorrow\u{2}".to_owned(), "\"tomorrow\" is no number"),
        (
            format!("TIMER_DELIVER_MS\u{1}{}\u{2}TIMER_DEL_UNIQKEY\u{1}T+x\u{2}", NOW_MS - 5),
            "the time is 5ms past",
        ),
    ] {
        let answer = client.produce("Never", 0, b"x", &properties);
        let remark = answer.remark.clone().unwrap_or_default();
        assert_eq!(answer.response_code(), ResponseCode::MESSAGE_ILLEGAL);
        assert!(remark.contains("max delay 3456000000ms") && remark.contains(why), "{remark}");
    }
    let timers = node.broker().unwrap().queues.get("rmq_sys_wheel_timer", 0);
    assert!(timers.is_none_or(|queue| queue.max_offset() == 0));
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn the_check_point_goes_on_while_there_is_always_something_due() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let due_ms = |number: i64| NOW_MS + 1_000 + number * 20;
    for number in 0..200 {
        send(&mut client, "Steady", ("TIMER_DELIVER_MS", due_ms(number)), &format!("{number:03}"));
    }
    // By the next look the next one is due, however soon that comes.
    clock.advance_to(due_ms(0));
    for number in 0..199 {
        wait_for(&mut client, "Steady", 0, number);
        clock.advance_to(due_ms(number + 1));
    }
    let answer = client.call(request::<GetTimerCheckPoint>(&Default::default()));
    let reached_ms = TimerCheckpoint::decode(&answer.body).unwrap().last_read_ms;
    assert!(reached_ms >= NOW_MS + 3_000, "it stands {}ms behind the start", reached_ms - NOW_MS);
    node.stop_and_wait().expect("a clean stop");
}

/// 3.4 #32 to #36.
#[test]
fn a_recalled_timer_never_comes_and_bad_handles_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let handle = send(&mut client, "Back", ("TIMER_DELIVER_MS", NOW_MS + 5_500), "gone").unwrap();
    let parsed = RecallHandle::parse(&handle).unwrap();
    assert_eq!((&parsed.topic[..], &parsed.broker_name[..]), ("Back", "broker-a"));
    assert_eq!((parsed.deliver_ms, &parsed.unique_id[..]), (NOW_MS + 5_001, "gone"));
    send(&mut client, "Back", ("TIMER_DELIVER_MS", NOW_MS + 5_500), "stays");
    let far = send(&mut client, "Back", ("TIMER_DELAY_SEC", 20 * 86_400), "far").unwrap();
    for (handle, id) in [(&handle, "gone"), (&far, "far")] {
        let answer = recall(&mut client, "Back", handle);
        let header: RecallMessageReplyHeader = answer.header().unwrap();
        assert_eq!((answer.code, header.message_id.as_str()), (0, id));
        assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
    }
    let other = |change: fn(&mut RecallHandle)| {
        let mut handle = parsed.clone();
        change(&mut handle);
        handle.to_string()
    };
    // 3.4 #34, #35. Of another topic that exists: success that cancels nothing; never sent: success.
    send(&mut client, "Other", ("TIMER_DELAY_MS", -1), "x");
    assert_eq!(recall(&mut client, "Other", &other(|handle| handle.topic = "Other".into())).code, 0);
    assert_eq!(recall(&mut client, "Back", &other(|handle| handle.unique_id = "never".into())).code, 0);
    let bad = [
        ("%%%".to_owned(), 604, "recall handle is invalid"),
        (String::new(), 604, "recall handle is invalid"),
        (handle[..handle.len() / 2].to_owned(), 604, "recall handle is invalid"),
        (other(|handle| handle.unique_id = "a\u{2}b".into()), 604, "recall handle is invalid"),
        (
            other(|handle| handle.topic = "Elsewhere".into()),
            604,
            "topic not match: the handle is of Elsewhere",
        ),
        (other(|handle| handle.broker_name = "b".into()), 604, "service not available: the handle is of b"),
        (other(|handle| handle.deliver_ms = NOW_MS), 604, "timestamp invalid: 0ms are left"),
        (other(|handle| handle.deliver_ms = i64::MAX), 604, "at most 3456000000ms can be"),
    ];
    for (handle, code, why) in bad {
        let answer = recall(&mut client, "Back", &handle);
        let remark = answer.remark.clone().unwrap_or_default();
        assert_eq!(answer.code, code, "{handle}");
        assert!(remark.contains(why), "{remark}");
        assert_eq!(answer.fields.get("MSG_REGION"), Some("DefaultRegion"));
    }
    let answer = recall(&mut client, "Nowhere", &handle);
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    clock.advance_ms(5_500);
    assert_eq!(&wait_for(&mut client, "Back", 0, 0).body[..], b"stays");
    // Too late: it is delivered.
    assert_eq!(recall(&mut client, "Back", &handle).response_code(), ResponseCode::ILLEGAL_OPERATION);
    for day in 1..=21 {
        clock.advance_ms(86_400_000);
        // A connection that was silent for a day is closed.
        client = Client::of(&node);
        send(&mut client, "Back", ("TIMER_DELAY_MS", 1), "tick");
        clock.advance_ms(1);
        wait_for(&mut client, "Back", 0, day);
    }
    let found = bodies(&mut client, "Back");
    assert_eq!((found.get("stays"), found.get("tick"), found.len()), (Some(&1), Some(&21), 2), "{found:?}");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn recalls_are_refused_where_they_are_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let node = start_broker(dir.path());
    let mut client = Client::of(&node);
    let answer = recall(&mut client, "Any", "djEg");
    assert_eq!(answer.response_code(), ResponseCode::NO_PERMISSION);
    assert!(answer.remark.unwrap().starts_with("recall failed, operation is forbidden"));
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #31. A kill between the delivery and the note of it, with timers and with levels.
#[test]
fn after_a_kill_nothing_is_lost_and_nothing_comes_twice() {
    let dir = tempfile::tempdir().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    for number in 0..100 {
        send(
            &mut client,
            "Timed",
            ("TIMER_DELIVER_MS", NOW_MS + 1_000 + number * 20),
            &format!("{number:03}"),
        );
        let level = format!("DELAY\u{1}1\u{2}UNIQ_KEY\u{1}level{number:03}\u{2}");
        stored(&client.produce("Level", 0, format!("{number:03}").as_bytes(), &level));
        clock.advance_ms(5);
    }
    // Half of them, in the middle of a slot.
    clock.advance_to(NOW_MS + 1_990);
    wait_for_count(&mut client, "Timed", 50);
    wait_for_count(&mut client, "Level", 100);
    copy(dir.path(), killed.path());
    let node_again = start(killed.path(), &clock);
    let mut again = Client::of(&node_again);
    wait_for_count(&mut again, "Timed", 50);
    clock.advance_ms(10_000);
    send(&mut again, "Timed", ("TIMER_DELAY_MS", 100), "last");
    clock.advance_ms(100);
    wait_for_count(&mut again, "Timed", 101);
    for (topic, count) in [("Timed", 101), ("Level", 100)] {
        let found = bodies(&mut again, topic);
        assert_eq!(found.len(), count, "{topic} lost some: {found:?}");
        assert!(found.values().all(|times| *times == 1), "{topic} has some twice: {found:?}");
    }
    node_again.stop_and_wait().expect("a clean stop");
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #31. Two kills: the first has lost the files of the timers, so that all stand behind their time at the second.
#[test]
fn what_came_before_the_files_of_the_timers_were_lost_does_not_come_again_whenever_the_next_kill_is() {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let node = start(dirs[0].path(), &clock);
    let mut client = Client::of(&node);
    for number in 0..20 {
        let due = ("TIMER_DELIVER_MS", NOW_MS + 1_000 + number * 20);
        send(&mut client, "Timed", due, &format!("{number:02}"));
    }
    clock.advance_ms(2_000);
    wait_for_count(&mut client, "Timed", 20);
    copy(dirs[0].path(), dirs[1].path());
    clock.advance_ms(60_000);
    let lost = dirs[1].path();
    std::fs::remove_dir_all(lost.join("timerlog")).unwrap();
    std::fs::remove_file(lost.join("timerwheel")).unwrap();
    std::fs::remove_file(lost.join("config/timercheck")).unwrap();
    let second = start(lost, &clock);
    let entered = || {
        let bytes = std::fs::read(lost.join("config/timercheck")).ok()?;
        Some(TimerCheckpoint::decode(bytes.get(..CHECKPOINT_BYTES)?).ok()?.queue_offset)
    };
    until("all are entered anew", || entered() == Some(20));
    copy(lost, dirs[2].path());
    let third = start(dirs[2].path(), &clock);
    let mut client = Client::of(&third);
    clock.advance_ms(10_000);
    send(&mut client, "Timed", ("TIMER_DELAY_MS", 100), "last");
    clock.advance_ms(2_000);
    wait_for_count(&mut client, "Timed", 21);
    let found = bodies(&mut client, "Timed");
    assert_eq!(found.len(), 21, "{found:?}");
    assert!(found.values().all(|times| *times == 1), "some came twice: {found:?}");
    for node in [third, second, node] {
        node.stop_and_wait().expect("a clean stop");
    }
}

#[test]
fn the_state_of_the_timers_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    send(&mut client, "Soon", ("TIMER_DELAY_MS", 90_500), "a");
    send(&mut client, "Soon", ("TIMER_DELAY_MS", 90_600), "b");
    send(&mut client, "Late", ("TIMER_DELAY_SEC", 86_400), "c");
    let metrics = loop {
        let answer = client.call(request::<GetTimerMetrics>(&Default::default()));
        let metrics: TimerMetrics = from_loose(&answer.body).unwrap();
        if metrics.pending == 3 {
            break metrics;
        }
    };
    let counts: Vec<_> =
        metrics.timing_count.iter().map(|(topic, count)| (topic.as_str(), count.count)).collect();
    assert_eq!(counts, [("Late", 1), ("Soon", 2)]);
    assert_eq!(metrics.next_due_ms, NOW_MS + 90_001, "the slot is what is known of it");
    assert_eq!((metrics.lag_ms, metrics.behind), (0, 0));
    assert_eq!(metrics.by_second.values().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(metrics.by_minute.values().copied().collect::<Vec<_>>(), [2, 1]);
    let answer = client.call(request::<GetTimerCheckPoint>(&Default::default()));
    let checkpoint = TimerCheckpoint::decode(&answer.body).unwrap();
    assert_eq!((checkpoint.queue_offset, checkpoint.master_queue_offset), (3, 3));
    node.stop_and_wait().expect("a clean stop");
    let kept = TableFile::<TimerMetricsTable>::open(dir.path()).unwrap().1.timing_count;
    let counts: Vec<_> = kept.iter().map(|(topic, metric)| (topic.as_str(), metric.count)).collect();
    assert_eq!(counts, [("Late", 1), ("Soon", 2)], "for who looks at a store that rests");
}

#[test]
fn a_wheel_of_milliseconds_delivers_as_well_and_goes_round() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let fine = |part: &mut BrokerPart| {
        part.store.timer_precision_ms = 1;
        // Half a minute of slots: what is due later goes round.
        part.store.timer_roll_window_slots = 30_000;
    };
    let node = start_with(dir.path(), &clock, fine);
    let mut client = Client::of(&node);
    for number in 0..40 {
        send(&mut client, "Fine", ("TIMER_DELIVER_MS", NOW_MS + 900 + number * 7), &format!("{number:02}"));
    }
    send(&mut client, "Fine", ("TIMER_DELIVER_MS", NOW_MS + 100_000), "far");
    for number in 0..40 {
        clock.advance_to(NOW_MS + 900 + number * 7);
        let message = wait_for(&mut client, "Fine", 0, number);
        assert_eq!(&message.body[..], format!("{number:02}").as_bytes());
        assert!(message.store_timestamp_ms >= NOW_MS + 900 + number * 7);
    }
    for second in 2..=100 {
        clock.advance_to(NOW_MS + second * 1_000);
    }
    assert_eq!(&wait_for(&mut client, "Fine", 0, 40).body[..], b"far");
    node.stop_and_wait().expect("a clean stop");
}

/// 3.3 #27, #31: longer than the log is kept, longer than the window of the wheel, over restarts and a kill.
#[test]
fn a_timer_of_forty_days_comes_at_its_moment_though_the_log_is_kept_for_three() {
    const DAY_MS: i64 = 86_400_000;
    let short = |part: &mut BrokerPart| {
        part.store.log_segment_bytes = 65_536;
        part.store.delete_when = (0..24).map(|hour| format!("{hour};")).collect();
    };
    let (mut dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(NOW_MS)));
    let mut node = start_with(dir.path(), &clock, short);
    let mut client = Client::of(&node);
    // On its way round only an absolute time tells its moment; the other is at the end of a slot.
    let wanted = [("Month", 30 * DAY_MS + 3_123, 0), ("Most", 40 * DAY_MS, 2_000)];
    assert!(send(&mut client, "Month", ("TIMER_DELIVER_MS", NOW_MS + wanted[0].1), "Month").is_some());
    assert!(send(&mut client, "Most", ("TIMER_DELAY_MS", wanted[1].1), "Most").is_some());
    for day in 1..=40 {
        let filler = "x".repeat(20_000);
        (0..4).for_each(|_| assert_eq!(client.produce("Filler", 0, filler.as_bytes(), "").code, 0));
        date_log(dir.path(), clock.now_ms());
        if day % 10 == 3 {
            node.stop_and_wait().expect("a clean stop");
            node = start_with(dir.path(), &clock, short);
        }
        if day % 10 == 8 {
            let killed = tempfile::tempdir().unwrap();
            copy(dir.path(), killed.path());
            node.stop_and_wait().expect("a clean stop");
            dir = killed;
            node = start_with(dir.path(), &clock, short);
        }
        let (passed_ms, until_ms) = (DAY_MS * (day - 1), DAY_MS * day);
        for (topic, in_ms, slot_ms) in wanted {
            if !(passed_ms..until_ms).contains(&(in_ms - 1)) {
                continue;
            }
            clock.advance_to(NOW_MS + in_ms - 1);
            client = Client::of(&node);
            send(&mut client, "Tick", ("TIMER_DELAY_MS", -1), "tick");
            assert_eq!(count(&mut client, topic, 0), 0, "{topic} is early");
            clock.advance_ms(1 + slot_ms);
            let message = wait_for(&mut client, topic, 0, 0);
            assert_eq!((&message.body[..], message.properties.get("TAGS")), (topic.as_bytes(), Some("T")));
            assert_eq!(message.born_timestamp_ms, 1_795_000_000_000);
        }
        clock.advance_to(NOW_MS + until_ms + 2_000);
        // A connection that was silent for a day is closed.
        client = Client::of(&node);
        assert_eq!(client.call(request::<DeleteExpiredCommitlog>(&Default::default())).code, 0);
    }
    until("what is old goes", || node.broker().unwrap().log.min_offset() > 0);
    for (topic, ..) in wanted {
        let end = node.broker().unwrap().queues.get(topic, 0).expect("its queue").max_offset();
        assert_eq!(end, 1, "{topic} comes once");
    }
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn a_slot_that_is_full_refuses_and_says_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start_with(dir.path(), &clock, |part| part.config.timer_congest_num_each_slot = 1);
    let mut client = Client::of(&node);
    let full = |client: &mut Client| client.produce("Full", 0, b"x", "TIMER_DELAY_MS\u{1}60500\u{2}");
    // Timers stand in their slot a moment after their sends.
    let refused =
        (0..1_000_000).map(|_| full(&mut client)).find(|answer| answer.code != 0).expect("a refusal");
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    let remark = refused.remark.unwrap_or_default();
    assert!(remark.starts_with("timer message is under flow control, max num limit is 2 "), "{remark}");
    let other = client.produce("Full", 0, b"x", "TIMER_DELAY_MS\u{1}90500\u{2}");
    assert_eq!(other.code, 0, "other slots are free");
    node.stop_and_wait().expect("a clean stop");
}

/// 4.4: `timerStopEnqueue`, `timerStopDequeue`.
#[test]
fn entering_and_delivering_timers_are_switched_off_and_on_while_the_broker_runs() {
    fn switch(client: &mut Client, setting: &str) {
        let change = request::<UpdateBrokerConfig>(&Default::default()).with_body(setting.to_owned().into());
        assert_eq!(client.call(change).code, 0);
    }
    /// Waits until so many wait in the wheel and so many in front of it.
    fn wait_until(client: &mut Client, wanted: (i64, i64)) {
        until("the timers are as they should be", || {
            let answer = client.call(request::<GetTimerMetrics>(&Default::default()));
            let metrics: TimerMetrics = from_loose(&answer.body).unwrap();
            (metrics.pending, metrics.behind) == wanted
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    switch(&mut client, "timerStopDequeue=true");
    send(&mut client, "T", ("TIMER_DELAY_MS", 1_500), "due");
    wait_until(&mut client, (1, 0));
    clock.advance_ms(5_000);
    send(&mut client, "T", ("TIMER_DELAY_MS", 20_000), "later");
    wait_until(&mut client, (2, 0));
    assert_eq!(count(&mut client, "T", 0), 0, "what is due waits");
    switch(&mut client, "timerStopDequeue=false");
    assert_eq!(&wait_for(&mut client, "T", 0, 0).body[..], b"due");
    switch(&mut client, "timerStopEnqueue=true");
    send(&mut client, "T", ("TIMER_DELAY_MS", 1_500), "outside");
    wait_until(&mut client, (1, 1));
    clock.advance_ms(30_000);
    assert_eq!(&wait_for(&mut client, "T", 0, 1).body[..], b"later", "what was entered comes");
    assert_eq!(count(&mut client, "T", 0), 2);
    switch(&mut client, "timerStopEnqueue=false");
    assert_eq!(&wait_for(&mut client, "T", 0, 2).body[..], b"outside");
    node.stop_and_wait().expect("a clean stop");
}

#[test]
fn the_state_of_a_broker_tells_how_many_timers_are_entered_and_delivered_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = start(dir.path(), &clock);
    let mut client = Client::of(&node);
    let told = |client: &mut Client, keys: [&str; 2]| {
        let answer = client.call(request::<GetBrokerRuntimeInfo>(&Default::default()));
        let state: KvTable = from_loose(&answer.body).unwrap();
        keys.map(|key| state.table[key].as_str().to_owned())
    };
    // The clock stands until all has happened: rates are of the last seconds.
    let wait_for_pending = |client: &mut Client, wanted: &str| {
        until("they are counted", || told(client, ["timerCongestNum", "timerOffsetBehind"]) == [wanted, "0"]);
    };
    let wait_for_rates = |client: &mut Client, wanted: [&str; 2]| {
        until("the rates are told", || {
            // A second counts when it is over.
            clock.advance_ms(1000);
            told(client, ["timerEnqueueTps", "timerDequeueTps"]) == wanted
        });
    };
    for body in ["one", "two", "three"] {
        send(&mut client, "T", ("TIMER_DELAY_SEC", 3600), body);
    }
    wait_for_pending(&mut client, "3");
    wait_for_rates(&mut client, ["0.3", "0.0"]);
    clock.advance_ms(3_600_000);
    wait_for_count(&mut client, "T", 3);
    wait_for_pending(&mut client, "0");
    wait_for_rates(&mut client, ["0.0", "0.3"]);
    node.stop_and_wait().expect("a clean stop");
}
