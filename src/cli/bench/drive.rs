//! One connection of a load: keeps requests in flight and takes the time of each.
//!
//! Invariants:
//! - never more than `depth` requests are in flight;
//! - a request's latency begins when it is due, not when there was room for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use troupemq::{Client, Queue};
use troupemq_codec::command::CommandView;
use troupemq_codec::frame::take_frame;
use troupemq_codec::message::{Scan, scan};
use troupemq_codec::request::{
    PULL_HAS_SUBSCRIPTION, PullMessage, PullMessageHeader, SendMessageV2, SendMessageV2Header,
};
use troupemq_codec::{Command, HeaderForm, ResponseCode, Text};

use super::super::Failure;
use super::latency::Latencies;

/// Bytes encoded before they are written.
const WRITE_BYTES: usize = 128 << 10;
/// How long the last answers are waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What is asked of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shot {
    Send,
    Pull,
}

/// What all connections do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shot: Shot,
    pub(super) topic: Text,
    pub(super) body: Bytes,
    pub(super) messages_max: i32,
    pub(super) depth: usize,
    pub(super) form: HeaderForm,
    /// Time between two requests of one connection; as fast as possible if there is none.
    pub(super) pace: Option<Duration>,
    pub(super) begin: Instant,
    pub(super) count_from: Instant,
    pub(super) end: Instant,
    /// Requests answered so far, for the progress bar.
    pub(super) answered: AtomicU64,
}

/// A broker and its queues of the topic.
#[derive(Debug, Clone)]
pub(super) struct Target {
    address: String,
    queues: Arc<[i32]>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) latencies: Latencies,
    pub(super) messages: u64,
    pub(super) body_bytes: u64,
    pub(super) refused: u64,
    pub(super) first_refusal: Option<String>,
}

/// One connection.
pub(super) struct Driver {
    plan: Arc<Plan>,
    target: Target,
    stream: TcpStream,
    /// Due times and queues of the requests in flight; the first has the opaque `first_opaque`.
    in_flight: VecDeque<Option<(Instant, usize)>>,
    open: usize,
    first_opaque: i32,
    next_due: Instant,
    turn: usize,
    offsets: Vec<i64>,
    inbound: BytesMut,
    outbound: BytesMut,
    outcome: Outcome,
}

/// Groups the queues by their brokers' addresses.
pub(super) async fn targets(client: &Client, queues: Vec<Queue>) -> Result<Vec<Target>, Failure> {
    let mut brokers: Vec<(String, Vec<i32>)> = Vec::new();
    for queue in queues {
        let address = client.address_of(&queue).await?;
        match brokers.iter_mut().find(|(known, _)| *known == address) {
            Some((_, ids)) => ids.push(queue.queue_id),
            None => brokers.push((address, vec![queue.queue_id])),
        }
    }
    let targets = brokers.into_iter().map(|(address, ids)| Target { address, queues: ids.into() });
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        return Err(Failure::Other("the topic has no queue".to_owned()));
    }
    Ok(targets)
}

impl Outcome {
    pub(super) fn add(&mut self, other: Outcome) {
        self.latencies.add(&other.latencies);
        self.messages += other.messages;
        self.body_bytes += other.body_bytes;
        self.refused += other.refused;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
    }
}

impl Driver {
    pub(super) async fn connect(plan: Arc<Plan>, target: Target, number: usize) -> Result<Driver, Failure> {
        let io = |cause| Failure::Io { what: "cannot connect to the broker", cause };
        let stream = TcpStream::connect(&target.address).await.map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        Ok(Driver {
            in_flight: VecDeque::with_capacity(plan.depth),
            open: 0,
            first_opaque: 1,
            next_due: plan.begin,
            turn: number,
            offsets: vec![0; target.queues.len()],
            inbound: BytesMut::with_capacity(WRITE_BYTES),
            outbound: BytesMut::with_capacity(WRITE_BYTES),
            outcome: Outcome::default(),
            plan,
            target,
            stream,
        })
    }

    pub(super) async fn run(mut self) -> Result<Outcome, Failure> {
        let io = |cause| Failure::Io { what: "the connection to the broker broke off", cause };
        loop {
            let now = Instant::now();
            let is_over = now >= self.plan.end;
            if is_over && self.open == 0 {
                return Ok(self.outcome);
            }
            if !is_over {
                self.load(now);
            }
            let wake = if is_over { now + LAST_ANSWERS } else { self.next_wake() };
            let (mut reader, mut writer) = self.stream.split();
            let read = tokio::select! {
                biased;
                read = reader.read_buf(&mut self.inbound), if self.open > 0 => read.map_err(io)?,
                written = writer.write_buf(&mut self.outbound), if !self.outbound.is_empty() => {
                    written.map_err(io)?;
                    continue;
                }
                () = sleep_until(wake) => {
                    if is_over {
                        return Err(Failure::Other(format!("{} requests were never answered", self.open)));
                    }
                    continue;
                }
            };
            if read == 0 {
                return Err(Failure::Other("the broker closed the connection".to_owned()));
            }
            self.take_answers()?;
        }
    }

    /// When something is to be done although nothing arrives.
    fn next_wake(&self) -> Instant {
        match self.plan.pace {
            Some(_) if self.open < self.plan.depth => self.next_due.min(self.plan.end),
            _ => self.plan.end,
        }
    }

    /// Encodes the requests that are due.
    fn load(&mut self, now: Instant) {
        while self.open < self.plan.depth && self.outbound.len() < WRITE_BYTES {
            let due = match self.plan.pace {
                None => now,
                Some(_) if self.next_due > now => return,
                Some(pace) => {
                    let due = self.next_due;
                    self.next_due += pace;
                    due
                }
            };
            self.turn = self.turn.wrapping_add(1);
            let at = self.turn % self.target.queues.len();
            let opaque =
                self.first_opaque + i32::try_from(self.in_flight.len()).expect("the depth is an i32");
            let mut command = self.command(at);
            command.opaque = opaque;
            command.form = self.plan.form;
            command.encode(&mut self.outbound);
            self.in_flight.push_back(Some((due, at)));
            self.open += 1;
        }
    }

    fn command(&self, at: usize) -> Command {
        let (plan, queue_id) = (&self.plan, self.target.queues[at]);
        match plan.shot {
            Shot::Send => Command::request::<SendMessageV2>(&SendMessageV2Header {
                producer_group: Text::from_static("troupemq-bench"),
                topic: plan.topic.clone(),
                default_topic: Text::from_static("TBW102"),
                default_topic_queues: 4,
                queue_id,
                born_timestamp_ms: 0,
                properties: Some(Text::default()),
                is_batch: Some(false),
                ..Default::default()
            })
            .with_body(plan.body.clone()),
            Shot::Pull => Command::request::<PullMessage>(&PullMessageHeader {
                group: Text::from_static("troupemq-bench"),
                topic: plan.topic.clone(),
                queue_id,
                queue_offset: self.offsets[at],
                messages_max: plan.messages_max,
                sys_flag: PULL_HAS_SUBSCRIPTION,
                subscription: Some(Text::from_static("*")),
                ..Default::default()
            }),
        }
    }

    fn take_answers(&mut self) -> Result<(), Failure> {
        let unreadable = |cause| Failure::Other(format!("the broker's answer cannot be read: {cause}"));
        let now = Instant::now();
        while let Some(frame) = take_frame(&mut self.inbound).map_err(unreadable)? {
            let view = CommandView::parse(&frame).map_err(unreadable)?;
            if !view.is_response() {
                continue;
            }
            let index = usize::try_from(view.opaque.wrapping_sub(self.first_opaque)).ok();
            let slot = index.and_then(|index| self.in_flight.get_mut(index));
            let Some((due, at)) = slot.and_then(Option::take) else { continue };
            self.open -= 1;
            while let Some(None) = self.in_flight.front() {
                self.in_flight.pop_front();
                self.first_opaque = self.first_opaque.wrapping_add(1);
            }
            self.plan.answered.fetch_add(1, Ordering::Relaxed);
            self.count(&view, &frame, at, due..now);
        }
        Ok(())
    }

    fn count(&mut self, view: &CommandView<'_>, frame: &Bytes, at: usize, time: std::ops::Range<Instant>) {
        let (messages, bytes) = match self.plan.shot {
            Shot::Send => (1, self.plan.body.len()),
            Shot::Pull => self.take_pulled(view, frame.get(view.body.clone()).unwrap_or_default(), at),
        };
        if time.end < self.plan.count_from || time.end >= self.plan.end {
            return;
        }
        self.outcome.latencies.record(time.end - time.start);
        let code = ResponseCode(view.code);
        let is_empty_pull = self.plan.shot == Shot::Pull
            && [
                ResponseCode::PULL_NOT_FOUND,
                ResponseCode::PULL_RETRY_IMMEDIATELY,
                ResponseCode::PULL_OFFSET_MOVED,
            ]
            .contains(&code);
        if code.is_stored() {
            self.outcome.messages += messages;
            self.outcome.body_bytes += u64::try_from(bytes).expect("a body's length fits");
        } else if !is_empty_pull {
            self.outcome.refused += 1;
            let remark = view.remark().unwrap_or_default();
            self.outcome.first_refusal.get_or_insert_with(|| format!("{code}: {remark}"));
        }
    }

    /// Counts the messages of an answer and moves on; begins anew at the end of the queue.
    fn take_pulled(&mut self, view: &CommandView<'_>, body: &[u8], at: usize) -> (u64, usize) {
        let number = |key| view.get(key).and_then(|value| value.parse::<i64>().ok());
        let next = number("nextBeginOffset").unwrap_or(0);
        let is_at_end = view.code != ResponseCode::SUCCESS.0;
        self.offsets[at] = if is_at_end { number("minOffset").unwrap_or(0) } else { next };
        let (mut messages, mut bytes, mut rest) = (0, 0, body);
        while let Scan::Record(record) = scan(rest) {
            messages += 1;
            bytes += record.body().len();
            rest = rest.get(record.total_size()..).unwrap_or_default();
        }
        (messages, bytes)
    }
}
