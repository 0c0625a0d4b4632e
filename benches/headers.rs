//! How long headers take: a send and a pull are read, their answers are written, in both forms.
//!
//! `cargo bench --bench headers` prints the best of many rounds for each, in nanoseconds.
//!
//! Invariants:
//! - a send has the fields and properties that a Java 5.3 producer sends.

#[path = "ground/said.rs"]
mod said;

use std::hint::black_box;
use std::io::Write;

use bytes::{Bytes, BytesMut};
use troupemq_codec::command::Molds;
use troupemq_codec::frame::take_frame;
use troupemq_codec::request::{
    PullMessage, PullMessageHeader, PullMessageReplyHeader, PullView, SendMessageV2, SendMessageV2Header,
    SendReply, SendView, StoredAt,
};
use troupemq_codec::{Command, CommandView, Head, HeaderForm, Request, ResponseCode, Text};
use troupemq_store::{Clock, SystemClock};

use said::said;

const ROUNDS: usize = 2_000;
const CALLS: u32 = 500;

fn main() {
    let clock = SystemClock::new();
    let mut out = std::io::stdout().lock();
    for form in [HeaderForm::Json, HeaderForm::Binary] {
        for (name, nanos) in [
            ("read a send", read_send(&clock, form)),
            ("read a send like the one before", read_like(&clock, form)),
            ("read a send with its properties", read_properties(&clock, form)),
            ("write its answer", write_send_reply(&clock, form)),
            ("read a pull", read_pull(&clock, form)),
            ("write its answer", write_pull_reply(&clock, form)),
        ] {
            said(writeln!(out, "{form:?}: {name}: {nanos:.0} ns"));
        }
    }
}

/// Nanoseconds of one call in the best round.
fn best(clock: &SystemClock, mut call: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = clock.nanos();
        for _ in 0..CALLS {
            call();
        }
        best = best.min((clock.nanos() - start) as f64 / f64::from(CALLS));
    }
    best
}

fn frame<R: Request>(header: &R::Header, form: HeaderForm) -> Bytes {
    let mut command = Command::request::<R>(header).with_body(Bytes::from_static(&[7; 128]));
    (command.opaque, command.form) = (12_345, form);
    let mut out = BytesMut::new();
    command.encode(&mut out);
    take_frame(&mut out).expect("it is a frame").expect("it is whole")
}

fn send(form: HeaderForm) -> Bytes {
    let properties = "UNIQ_KEY\u{1}7F00000110424E0E2F2A93B109210000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}";
    let header = SendMessageV2Header {
        producer_group: Text::from("producer_group_1"),
        topic: Text::from("BenchmarkTopic"),
        default_topic: Text::from("TBW102"),
        default_topic_queues: 4,
        queue_id: 3,
        born_timestamp_ms: 1_795_967_622_258,
        properties: Some(Text::from(properties)),
        reconsume_times: Some(0),
        unit_mode: Some(false),
        is_batch: Some(false),
        broker_name: Some(Text::from("broker-a")),
        ..SendMessageV2Header::default()
    };
    frame::<SendMessageV2>(&header, form)
}

fn read_send(clock: &SystemClock, form: HeaderForm) -> f64 {
    let frame = send(form);
    best(clock, || {
        let view = CommandView::parse(black_box(&frame)).expect("it is a command");
        black_box(SendView::read(&view).expect("it is a send"));
    })
}

fn read_like(clock: &SystemClock, form: HeaderForm) -> f64 {
    let frame = send(form);
    let mut molds = Molds::default();
    best(clock, || {
        let view = CommandView::parse_like(black_box(&frame), &mut molds).expect("it is a command");
        black_box(SendView::read(&view).expect("it is a send"));
    })
}

fn read_properties(clock: &SystemClock, form: HeaderForm) -> f64 {
    let frame = send(form);
    let mut properties = BytesMut::with_capacity(1024);
    best(clock, || {
        let view = CommandView::parse(black_box(&frame)).expect("it is a command");
        let send = SendView::read(&view).expect("it is a send");
        properties.clear();
        send.properties.expect("it has some").write_to(&mut properties);
        black_box((&send, &properties));
    })
}

fn write_send_reply(clock: &SystemClock, form: HeaderForm) -> f64 {
    let stored = StoredAt {
        message_id: "7F00000100002A9F000000000012D687",
        queue_id: 3,
        queue_offset: 123_456,
        transaction_id: Some("7F00000110424E0E2F2A93B109210000"),
        batch_unique_id: None,
        recall_handle: None,
    };
    let head = Head::answer(ResponseCode::SUCCESS, 12_345, form);
    let reply = SendReply { head, region: "DefaultRegion", trace_on: true, stored: Some(stored) };
    let mut out = BytesMut::with_capacity(4096);
    best(clock, || {
        out.clear();
        black_box(&reply).encode(&mut out);
        black_box(&out);
    })
}

fn read_pull(clock: &SystemClock, form: HeaderForm) -> f64 {
    let header = PullMessageHeader {
        group: Text::from("consumer_group_1"),
        topic: Text::from("BenchmarkTopic"),
        queue_offset: 123_456,
        messages_max: 32,
        suspend_timeout_ms: 15_000,
        subscription_version: 1_795_967_622_258,
        expression_type: Some(Text::from("TAG")),
        bytes_max: Some(i32::MAX),
        ..PullMessageHeader::default()
    };
    let frame = frame::<PullMessage>(&header, form);
    best(clock, || {
        let view = CommandView::parse(black_box(&frame)).expect("it is a command");
        black_box(PullView::read(&view).expect("it is a pull"));
    })
}

fn write_pull_reply(clock: &SystemClock, form: HeaderForm) -> f64 {
    let header =
        PullMessageReplyHeader { next_offset: 7, max_offset: 99, ..PullMessageReplyHeader::default() };
    let mut out = BytesMut::with_capacity(4096);
    best(clock, || {
        out.clear();
        black_box(&header).encode_head(Head::answer(ResponseCode::SUCCESS, 12_345, form), 4_096, &mut out);
        black_box(&out);
    })
}
