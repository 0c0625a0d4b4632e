//! One connection of a load: keeps requests in flight and takes the time of each.
//!
//! Invariants:
//! - never more than `depth` requests are in flight;
//! - a request's latency begins when it is due, not when there was room for it;
//! - the load costs little, for it shares the machine with what it measures: sends are encoded once and get their
//!   opaque written in, and no timer is set while answers keep coming.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use troupemq::client::connection::Connection;
use troupemq::{Client, Queue};
use troupemq_actors::net::inbound::first_frame;
use troupemq_codec::command::CommandView;
use troupemq_codec::message::{Scan, scan};
use troupemq_codec::request::{
    PULL_HAS_SUBSCRIPTION, PullMessage, PullMessageHeader, SendMessageV2, SendMessageV2Header,
};
use troupemq_codec::{Command, HeaderForm, ResponseCode, Text};

use super::super::Failure;
use super::alarm::{Alarm, wait};
use super::latency::Latencies;
use super::way::{GROUP, Way};

/// Bytes encoded before they are written.
const WRITE_BYTES: usize = 128 << 10;
/// How long the last answers are waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Where requests of a connection are due closer to each other, those of a millisecond go out together: to be woken for
/// each of them would cost what it measures.
const EXACT_FROM: Duration = Duration::from_micros(100);
/// The first opaque: all that follow have as many digits.
const OPAQUE_FIRST: i32 = 1_000_000_000;

/// What is asked of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shot {
    Send(Way),
    /// At the end of each queue it begins anew, or follows what comes.
    Pull {
        messages_max: i32,
        follows: bool,
    },
}

/// What all connections do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shot: Shot,
    pub(super) topic: Text,
    pub(super) body: Bytes,
    pub(super) depth: usize,
    pub(super) form: HeaderForm,
    /// Time between two requests of one connection; as fast as possible if there is none.
    pub(super) pace: Option<Duration>,
    /// Whether the threads of the load never sleep.
    pub(super) polls: bool,
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
    /// Requests without an answer when the last ones had been waited for.
    pub(super) unanswered: u64,
}

/// One connection.
pub(super) struct Driver {
    plan: Arc<Plan>,
    /// Who makes connections, and signs requests.
    client: Client,
    target: Target,
    stream: Box<dyn Connection>,
    /// Whether the stream may have kept back some of what was written.
    is_written: bool,
    /// Due times and queues of the requests in flight; the first has the opaque `first_opaque`.
    in_flight: VecDeque<Option<(Instant, usize)>>,
    open: usize,
    first_opaque: i32,
    next_due: Instant,
    turn: usize,
    offsets: Vec<i64>,
    /// An encoded send for each queue.
    sends: Vec<Stencil>,
    inbound: BytesMut,
    outbound: BytesMut,
    outcome: Outcome,
}

/// An encoded request whose opaque is to be written in.
struct Stencil {
    frame: BytesMut,
    opaque_at: usize,
    form: HeaderForm,
}

/// Where the pulls of a queue begin: beyond any end if they follow it, which the broker's answer corrects.
fn first_offset(shot: Shot) -> i64 {
    if matches!(shot, Shot::Pull { follows: true, .. }) { i64::MAX } else { 0 }
}

fn broken(cause: io::Error) -> Failure {
    Failure::Io { what: "the connection to the broker broke off", cause }
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

impl Plan {
    fn send(&self, queue_id: i32, way: Way) -> Command {
        Command::request::<SendMessageV2>(&SendMessageV2Header {
            producer_group: Text::from_static(GROUP),
            topic: self.topic.clone(),
            default_topic: Text::from_static("TBW102"),
            default_topic_queues: 4,
            queue_id,
            born_timestamp_ms: 0,
            sys_flag: way.sys_flag(),
            properties: Some(way.properties()),
            is_batch: Some(false),
            ..Default::default()
        })
        .with_body(self.body.clone())
    }

    fn pull(&self, queue_id: i32, queue_offset: i64, messages_max: i32) -> Command {
        Command::request::<PullMessage>(&PullMessageHeader {
            group: Text::from_static(GROUP),
            topic: self.topic.clone(),
            queue_id,
            queue_offset,
            messages_max,
            sys_flag: PULL_HAS_SUBSCRIPTION,
            subscription: Some(Text::from_static("*")),
            ..Default::default()
        })
    }
}

impl Stencil {
    /// Encodes a request; its opaque stands where two encodings differ first.
    fn of(mut command: Command, form: HeaderForm) -> Stencil {
        command.form = form;
        let [frame, other] = [OPAQUE_FIRST, i32::MAX].map(|opaque| {
            let mut frame = BytesMut::new();
            command.opaque = opaque;
            command.encode(&mut frame);
            frame
        });
        let opaque_at = frame.iter().zip(&other).position(|(one, other)| one != other);
        Stencil { frame, opaque_at: opaque_at.expect("two opaques differ in their first byte"), form }
    }

    /// Appends the request with this opaque.
    fn put(&self, opaque: i32, out: &mut BytesMut) {
        let at = out.len() + self.opaque_at;
        out.extend_from_slice(&self.frame);
        let place = out.get_mut(at..).unwrap_or_default();
        match self.form {
            HeaderForm::Binary => place[..4].copy_from_slice(&opaque.to_be_bytes()),
            HeaderForm::Json => {
                let mut rest = opaque;
                for digit in place[..10].iter_mut().rev() {
                    *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
                    rest /= 10;
                }
            }
        }
    }
}

impl Outcome {
    pub(super) fn add(&mut self, other: Outcome) {
        self.latencies.add(&other.latencies);
        self.messages += other.messages;
        self.body_bytes += other.body_bytes;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.first_refusal = self.first_refusal.take().or(other.first_refusal);
    }
}

impl Driver {
    pub(super) async fn connect(
        plan: Arc<Plan>,
        client: Client,
        (target, number): (Target, usize),
    ) -> Result<Driver, Failure> {
        let stream = client.connection(&target.address).await?;
        let stencil = |queue_id: &i32, way| {
            let mut send = plan.send(*queue_id, way);
            client.sign(&mut send);
            Stencil::of(send, plan.form)
        };
        let sends = match plan.shot {
            Shot::Send(way) => target.queues.iter().map(|queue_id| stencil(queue_id, way)).collect(),
            Shot::Pull { .. } => Vec::new(),
        };
        Ok(Driver {
            sends,
            in_flight: VecDeque::with_capacity(plan.depth),
            open: 0,
            first_opaque: OPAQUE_FIRST,
            next_due: plan.begin,
            turn: number,
            offsets: vec![first_offset(plan.shot); target.queues.len()],
            inbound: BytesMut::with_capacity(WRITE_BYTES),
            outbound: BytesMut::with_capacity(WRITE_BYTES),
            outcome: Outcome::default(),
            is_written: false,
            plan,
            client,
            target,
            stream,
        })
    }

    pub(super) async fn run(mut self) -> Result<Outcome, Failure> {
        let until = self.plan.end + LAST_ANSWERS;
        match timeout_at(until, self.drive()).await {
            Ok(driven) => driven.map(|()| self.outcome),
            Err(_elapsed) => {
                self.outcome.unanswered += u64::try_from(self.open).expect("the depth fits");
                Ok(self.outcome)
            }
        }
    }

    async fn drive(&mut self) -> Result<(), Failure> {
        let is_exact = self.plan.pace.is_some_and(|pace| pace >= EXACT_FROM);
        let no_timer = |cause| Failure::Io { what: "cannot make a timer", cause };
        let mut alarm = is_exact.then(Alarm::new).transpose().map_err(no_timer)?;
        loop {
            let now = Instant::now();
            let is_over = now >= self.plan.end;
            if is_over && self.open == 0 {
                return poll_fn(|context| self.poll_written(context)).await.map_err(broken);
            }
            if !is_over {
                self.load(now);
            }
            if self.go_on(is_over, alarm.as_mut()).await? {
                self.take_answers()?;
                // What ends transactions is written by itself, as clients do: the next send is another request.
                poll_fn(|context| Poll::Ready(self.poll_write(context))).await.map_err(broken)?;
            }
        }
    }

    /// Writes what waits, and reads; true when something was read.
    async fn go_on(&mut self, is_over: bool, alarm: Option<&mut Alarm>) -> Result<bool, Failure> {
        let wake = self.next_wake().filter(|_| !is_over);
        let read = match wake {
            None => self.write_and_read().await,
            Some(wake) => tokio::select! {
                biased;
                read = self.write_and_read() => read,
                woken = wait(alarm, wake) => {
                    woken.map_err(|cause| Failure::Io { what: "the timer of the load does not ring", cause })?;
                    return Ok(false);
                }
            },
        };
        if read.map_err(broken)? == 0 {
            return Err(Failure::Other("the broker closed the connection".to_owned()));
        }
        Ok(true)
    }

    /// Writes what waits, as far as it can be written, and gives how many bytes it has read. Nothing is lost if it is
    /// dropped half way.
    fn write_and_read(&mut self) -> impl Future<Output = io::Result<usize>> {
        poll_fn(|context| {
            self.poll_write(context)?;
            pin!(self.stream.read_buf(&mut self.inbound)).poll(context)
        })
    }

    /// Writes what waits, as far as it can be written.
    fn poll_write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.outbound.is_empty() {
            match pin!(self.stream.write_buf(&mut self.outbound)).poll(context)? {
                Poll::Ready(_) => self.is_written = true,
                Poll::Pending => break,
            }
        }
        // TLS keeps back what the socket did not take.
        if self.is_written && pin!(self.stream.flush()).poll(context)?.is_ready() {
            self.is_written = false;
        }
        Ok(())
    }

    /// Writes all that waits.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write(context)?;
        let is_written = self.outbound.is_empty() && !self.is_written;
        if is_written { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// When something is to be done although nothing arrives.
    fn next_wake(&self) -> Option<Instant> {
        let is_due = self.plan.pace.is_some() && self.open < self.plan.depth;
        is_due.then(|| self.next_due.min(self.plan.end))
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
            match self.plan.shot {
                Shot::Send(_) => self.sends[at].put(opaque, &mut self.outbound),
                Shot::Pull { messages_max, .. } => {
                    let mut pull = self.plan.pull(self.target.queues[at], self.offsets[at], messages_max);
                    pull.opaque = opaque;
                    pull.form = self.plan.form;
                    self.client.sign(&mut pull);
                    pull.encode(&mut self.outbound);
                }
            }
            self.in_flight.push_back(Some((due, at)));
            self.open += 1;
        }
    }

    fn take_answers(&mut self) -> Result<(), Failure> {
        let unreadable = |cause| Failure::Other(format!("the broker's answer cannot be read: {cause}"));
        let now = Instant::now();
        let mut inbound = std::mem::take(&mut self.inbound);
        let mut taken = 0;
        while let Some(frame) = first_frame(inbound.get(taken..).unwrap_or_default()).map_err(unreadable)? {
            taken += frame.len() + 4;
            let view = CommandView::parse(frame).map_err(unreadable)?;
            if !view.is_response() {
                continue;
            }
            let index = usize::try_from(view.opaque.wrapping_sub(self.first_opaque)).ok();
            let slot = index.and_then(|index| self.in_flight.get_mut(index));
            let Some((due, at)) = slot.and_then(Option::take) else { continue };
            self.open -= 1;
            while let Some(None) = self.in_flight.front() {
                self.in_flight.pop_front();
                self.first_opaque += 1;
            }
            self.plan.answered.fetch_add(1, Ordering::Relaxed);
            self.count(&view, frame, at, due..now);
            self.end_transaction(&view);
        }
        inbound.advance(taken);
        self.inbound = inbound;
        Ok(())
    }

    /// Ends the transaction of a half message that is stored.
    fn end_transaction(&mut self, answer: &CommandView<'_>) {
        let Shot::Send(way) = self.plan.shot else { return };
        if !ResponseCode(answer.code).is_stored() {
            return;
        }
        if let Some(mut end) = way.end(&self.plan.topic, answer, self.plan.form) {
            self.client.sign(&mut end);
            end.encode(&mut self.outbound);
        }
    }

    fn count(&mut self, view: &CommandView<'_>, frame: &[u8], at: usize, time: std::ops::Range<Instant>) {
        let (messages, bytes) = match self.plan.shot {
            Shot::Send(_) => (1, self.plan.body.len()),
            Shot::Pull { .. } => self.take_pulled(view, frame.get(view.body.clone()).unwrap_or_default(), at),
        };
        if time.end < self.plan.count_from || time.end >= self.plan.end {
            return;
        }
        self.outcome.latencies.record(time.end - time.start);
        let code = ResponseCode(view.code);
        let is_empty_pull = matches!(self.plan.shot, Shot::Pull { .. })
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

    /// Counts the messages of an answer and moves on; begins anew at the end of the queue, unless it follows.
    fn take_pulled(&mut self, view: &CommandView<'_>, body: &[u8], at: usize) -> (u64, usize) {
        let number = |key| view.get(key).and_then(|value| value.parse::<i64>().ok());
        let next = number("nextBeginOffset").unwrap_or(0);
        let is_at_end = view.code != ResponseCode::SUCCESS.0;
        let begins_anew = is_at_end && !matches!(self.plan.shot, Shot::Pull { follows: true, .. });
        self.offsets[at] = if begins_anew { number("minOffset").unwrap_or(0) } else { next };
        let (mut messages, mut bytes, mut rest) = (0, 0, body);
        while let Scan::Record(record) = scan(rest) {
            messages += 1;
            bytes += record.body().len();
            rest = rest.get(record.total_size()..).unwrap_or_default();
        }
        (messages, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stencil_gives_the_request_with_each_opaque() {
        for form in [HeaderForm::Json, HeaderForm::Binary] {
            let command = Command::request::<SendMessageV2>(&SendMessageV2Header::default());
            let stencil = Stencil::of(command.with_body(Bytes::from_static(b"body")), form);
            let mut frames = BytesMut::new();
            for opaque in [OPAQUE_FIRST, 1_234_567_890, i32::MAX] {
                frames.clear();
                stencil.put(opaque, &mut frames);
                let frame = first_frame(&frames).expect("a frame").expect("all of it");
                let view = CommandView::parse(frame).expect("a command");
                assert_eq!((view.opaque, &frame[view.body.clone()]), (opaque, &b"body"[..]));
            }
        }
    }
}
