//! Pulls: PULL_MESSAGE and LITE_PULL_MESSAGE, from the request to the answer. Java: `PullMessageProcessor`.
//!
//! Invariants:
//! - a pull is answered once: at once, after it was held, or after a cold read;
//! - a pull is held until something it selects comes or its time is over; what it finds then is its answer,
//!   even if it is nothing;
//! - offsets are committed on the first pass only;
//! - records leave as slices of the mapped log, never copied.
//!
//! Contents: `check` says whether the pull is allowed and what it selects, `read` finds the records, `reply`
//! writes the answer.

pub mod check;
pub mod read;
pub mod reply;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{Arbiter, Message};
use troupemq_codec::request::{
    LitePullMessage, PULL_COMMITS_OFFSET, PULL_SUSPENDS, PullMessage, PullMessageHeader,
};
use troupemq_codec::{Command, Request, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::directory::{QueueView, TopicView};
use crate::net::turn::answer;
use crate::net::wire::Wire;
use crate::net::{Link, Refusal};
use crate::offsets::{GroupQueue, Published, TakeReset, WouldKeep};
use crate::pull::check::Selects;
use crate::pull::read::{Bounds, Reading, Source, Status};
use crate::queue::{OnHold, Park};
use crate::rebalance::WhenSubscribed;
use crate::router::Served;
use crate::topic::counters::Pair;
use crate::topic::{ParkFirst, names};

/// How long a pull waits for the heart-beat that registers its subscription.
const BEAT_PATIENCE: Duration = Duration::from_millis(500);

/// A pull on its way: the request and what it resolved to.
#[derive(Debug)]
pub struct Parcel {
    /// The request as it came.
    pub request: Command,
    /// Its header.
    pub header: PullMessageHeader,
    /// Who pulls.
    pub link: Arc<Link>,
    /// The topic.
    pub topic: Arc<TopicView>,
    /// The queue.
    pub queue: Arc<QueueView>,
    /// What it selects.
    pub selects: Selects,
    /// Why it came back, if it was held.
    pub wakened: Option<Wakened>,
    /// When it wants its answer at the latest, once it was held, in monotonic nanoseconds.
    pub deadline: Option<u64>,
    /// Whether a cold reader has fetched what it wants.
    pub is_warm: bool,
    /// Why the offset that it commits is not kept, if it is not.
    pub not_kept: Option<String>,
}

/// Why a pull that was held came back to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakened {
    /// What it waits for has arrived.
    Arrival,
    /// Its time is over.
    Deadline,
    /// Too many are held at its queue.
    Full,
    /// Its queue may not be read any more: its topic has changed or is gone.
    Withdrawn,
    /// The actor that held it has ended.
    Dropped,
}

/// Told by pulls to the owner of consumer offsets: what was handed out, and what is to be committed.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct Pulled {
    /// The consumer group.
    pub group: Text,
    /// The topic.
    pub topic: Text,
    /// The queue.
    pub queue_id: i32,
    /// Where it began.
    pub from: i64,
    /// Where the group will go on.
    pub next_offset: i64,
    /// The offset to commit, if the pull says so.
    pub commit_offset: Option<i64>,
}

impl Parcel {
    /// Whether it carries an offset to be committed.
    fn commits(&self) -> bool {
        self.header.sys_flag & PULL_COMMITS_OFFSET != 0 && self.wakened.is_none()
    }
}

/// Whether a request code is a pull.
pub fn is_pull(code: i32) -> bool {
    matches!(code, PullMessage::CODE | LitePullMessage::CODE)
}

/// Serves a pull that just came.
pub(crate) fn first(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, request: Command) {
    match check::resolve(cast, &wire.link, &request) {
        Err(refused) if refused.refusal.code == ResponseCode::SUBSCRIPTION_NOT_LATEST => {
            actix::spawn(again_when_registered(wire.clone(), cast.clone(), request));
        }
        resolved => go_on(wire, cast, request, resolved),
    }
}

/// Serves a pull that came before the heart-beat which registers its subscription: clients of 4.x send them in
/// that order, and one that is refused waits for seconds before it pulls again. The group says when it is there.
async fn again_when_registered(wire: Rc<Wire>, cast: Arc<BrokerCast>, request: Command) {
    if let Ok(header) = request.header::<PullMessageHeader>()
        && let Some(group) = cast.directory.group(&header.group)
    {
        let wanted = WhenSubscribed { topic: header.topic, version: header.subscription_version };
        if let Ok(registered) = group.coordinator().send(wanted).await {
            // Whether it came or not is seen by the look that follows.
            let _ = tokio::time::timeout(BEAT_PATIENCE, registered).await;
        }
    }
    let resolved = check::resolve(&cast, &wire.link, &request);
    go_on(&wire, &cast, request, resolved);
}

fn go_on(
    wire: &Rc<Wire>,
    cast: &Arc<BrokerCast>,
    request: Command,
    resolved: Result<check::Resolved, check::Refused>,
) {
    match resolved {
        Err(refused) => reply::refuse(wire, &request, refused),
        Ok(resolved) => {
            let check::Resolved { header, topic, queue, selects } = resolved;
            let link = wire.link.clone();
            let parcel = Parcel {
                request,
                header,
                link,
                topic,
                queue,
                selects,
                wakened: None,
                deadline: None,
                is_warm: false,
                not_kept: None,
            };
            let Published { pending_resets, is_full } = &cast.offsets_published;
            let commits_in_vain = is_full.load(Ordering::Acquire) && parcel.commits();
            if pending_resets.load(Ordering::Acquire) == 0 && !commits_in_vain {
                serve(wire, cast, Box::new(parcel));
            } else {
                serve_after_asking(wire, cast, Box::new(parcel));
            }
        }
    }
}

/// Serves a pull while resets are pending or the table of offsets is full: a reset that is meant for it is its answer,
/// and an offset that it commits and that is not kept is told in the remark.
fn serve_after_asking(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, mut parcel: Box<Parcel>) {
    let (wire, cast) = (wire.clone(), cast.clone());
    let of = GroupQueue {
        group: parcel.header.group.clone(),
        topic: parcel.topic.name.clone(),
        queue_id: parcel.header.queue_id,
    };
    actix::spawn(async move {
        if let Ok(Some(queue_offset)) = cast.offsets.send(TakeReset(of.clone())).await {
            let reading = Reading::reset_to(queue_offset, &parcel.queue.units);
            return reply::write(&wire, &parcel, reading);
        }
        if parcel.commits() && cast.offsets_published.is_full.load(Ordering::Acquire) {
            parcel.not_kept = cast.offsets.send(WouldKeep(of)).await.ok().and_then(Result::err);
        }
        serve(&wire, &cast, parcel);
    });
}

/// Serves a pull that came back from its hold or from a cold reader.
pub(crate) fn resume(wire: &Rc<Wire>, parcel: Box<Parcel>) {
    let Served::Broker(cast) = &wire.served else { return };
    if parcel.wakened == Some(Wakened::Full) {
        let max = cast.config.load().held_pulls_max;
        let busy =
            format!("[OVERLOAD]system busy, start flow control for a while: {max} pulls held at the queue");
        return answer(wire, &parcel.request, Err(Refusal::new(ResponseCode::SYSTEM_BUSY, busy)));
    }
    let cast = cast.clone();
    match parcel.wakened {
        Some(Wakened::Withdrawn | Wakened::Dropped) => check_again(wire, &cast, parcel),
        _ => serve(wire, &cast, parcel),
    }
}

/// Serves a pull whose hold has ended before its time: if that is because it is not allowed any more, that is its
/// answer.
fn check_again(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, mut parcel: Box<Parcel>) {
    match check::resolve(cast, &wire.link, &parcel.request) {
        Err(refused) => reply::refuse(wire, &parcel.request, refused),
        Ok(check::Resolved { topic, queue, selects, .. }) => {
            (parcel.topic, parcel.queue, parcel.selects) = (topic, queue, selects);
            serve(wire, cast, parcel);
        }
    }
}

fn serve(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, mut parcel: Box<Parcel>) {
    let began = cast.clock().nanos();
    let reading = read(cast, &parcel);
    let took = cast.clock().nanos().saturating_sub(began);
    cast.stats.read_took(took);
    if reading.is_cold() && !parcel.is_warm {
        parcel.is_warm = true;
        cast.stats.cold_pull();
        let bytes = reading.cold.iter().map(|(_, len)| i64::try_from(*len).unwrap_or(i64::MAX)).sum();
        let group = Text::from(parcel.header.group.as_str());
        if let Err(busy) = cast.cold_flow.read(&group, bytes, &cast.config.load(), cast.now_ms()) {
            return reply::refuse(wire, &parcel.request, busy.into());
        }
        if let Err((parcel, full)) = cast.cold.fetch(reading, parcel) {
            reply::refuse(wire, &parcel.request, full.into());
        }
        return;
    }
    let may_wait = parcel.header.sys_flag & PULL_SUSPENDS != 0 && parcel.wakened.is_none();
    if reading.status.is_nothing_new(parcel.header.queue_offset) && may_wait {
        tell_progress(cast, &parcel, &reading);
        return hold(cast, parcel, reading.next_offset);
    }
    if parcel.wakened == Some(Wakened::Arrival) && may_go_on(cast, &parcel, &reading) {
        return hold(cast, parcel, reading.next_offset);
    }
    if parcel.wakened.is_none() || reading.next_offset != parcel.header.queue_offset {
        tell_progress(cast, &parcel, &reading);
    }
    cast.stats.got(reading.count, reading.bytes);
    if reading.count > 0 {
        let pulls = Pair::of(reading.count, reading.bytes, 1, took / 1_000_000);
        parcel.topic.counters.got(&parcel.header.group, parcel.header.queue_id, &pulls);
        if names::is_system(&parcel.topic.name) {
            cast.stats.system_got(reading.count);
        }
        cast.attend(&parcel.topic);
    }
    reply::write(wire, &parcel, reading);
}

fn read(cast: &BrokerCast, parcel: &Parcel) -> Reading {
    let bounds = Bounds {
        is_warm: parcel.is_warm,
        ..Bounds::of(&cast.config.load(), cast.memory_bytes, cast.hot_from, parcel.header.messages_max)
    };
    read::read(
        &Source { units: &parcel.queue.units, log: &cast.log, selects: &parcel.selects, bounds },
        parcel.header.queue_offset,
    )
}

/// Whether a pull that was woken by what it does not select is held on: its filter looks at more than a unit
/// says, everything was looked at, and its time is not over.
fn may_go_on(cast: &BrokerCast, parcel: &Parcel, reading: &Reading) -> bool {
    reading.status == Status::NoMatchedMessage
        && reading.next_offset >= reading.max_offset
        && parcel.deadline.is_some_and(|deadline| deadline > cast.clock().nanos())
}

/// Holds a pull that found nothing below `from` until something comes.
fn hold(cast: &BrokerCast, mut parcel: Box<Parcel>, from: i64) {
    let config = cast.config.load();
    let wish_ms = if config.long_polling_enable {
        parcel.header.suspend_timeout_ms
    } else {
        config.short_polling_time_mills
    };
    let wish = u64::try_from(wish_ms).unwrap_or(0).saturating_mul(1_000_000);
    let deadline = *parcel.deadline.get_or_insert_with(|| cast.clock().nanos().saturating_add(wish));
    let queue = parcel.queue.clone();
    let park = Park { from, deadline, filter: parcel.selects.filter.clone(), parcel: OnHold::new(parcel) };
    let refused = match queue.actor() {
        Some(actor) => actor.try_send(park).err(),
        None => Some(SendError::Closed(park)),
    };
    // A park that is not delivered is dropped, and by that the pull comes back to its session.
    if let Some(SendError::Closed(park)) = refused {
        drop(cast.topics.try_send(ParkFirst { queue, near: Arbiter::current(), park }));
    }
}

/// Tells the owner of offsets what was handed out and what is to be committed.
fn tell_progress(cast: &BrokerCast, parcel: &Parcel, reading: &Reading) {
    let header = &parcel.header;
    let told = Pulled {
        // A copy of its own: a slice would keep the whole request in memory.
        group: Text::from(header.group.as_str()),
        topic: parcel.topic.name.clone(),
        queue_id: header.queue_id,
        from: header.queue_offset,
        next_offset: reading.next_offset,
        commit_offset: parcel.commits().then_some(header.commit_offset),
    };
    if let Err(undelivered) = cast.offsets.try_send(told) {
        // What was handed out is told again by the next pull; a commit may be the last one.
        let told = undelivered.into_inner();
        if told.commit_offset.is_some() {
            let offsets = cast.offsets.clone();
            actix::spawn(async move { offsets.send(told).await });
        }
    }
}
