//! Pulls: PULL_MESSAGE and LITE_PULL_MESSAGE, from the request to the answer. Java: `PullMessageProcessor`.
//!
//! Invariants:
//! - a pull is answered once: at once, after it was held, or after a cold read;
//! - a pull is held until something it selects comes or its time is over; what it finds then is its answer,
//!   even if it is nothing;
//! - offsets are committed on the first pass only;
//! - records leave as slices of the mapped log, never copied;
//! - a pull that finds messages in memory is answered from where it lies in the buffer of the read: only one that
//!   waits is copied out of it.
//!
//! Contents: `check` says whether the pull is allowed and what it selects, `read` finds the records, `reply`
//! writes the answer.

pub mod check;
pub mod read;
pub mod reply;

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{Arbiter, Message};
use troupemq_codec::request::{
    LitePullMessage, PULL_COMMITS_OFFSET, PULL_SUSPENDS, PullMessage, PullMessageHeader, PullView,
};
use troupemq_codec::{Command, CommandView, HeaderForm, Request, ResponseCode, Text};

use crate::cast::BrokerCast;
use crate::directory::{QueueView, TopicView};
use crate::net::turn::{Came, answer};
use crate::net::wire::Wire;
use crate::net::{Link, Refusal};
use crate::offsets::{GroupQueue, Published, TakeReset, WouldKeep};
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
    /// What it is about.
    pub resolved: check::Resolved,
    /// Why it came back, if it was held.
    pub wakened: Option<Wakened>,
    /// When it wants its answer at the latest, once it was held, in monotonic nanoseconds.
    pub deadline: Option<u64>,
    /// Whether a cold reader has fetched what it wants.
    pub is_warm: bool,
    /// Why what it wants cannot be read from the disk, if it cannot.
    pub unreadable: Option<String>,
    /// Why the offset that it commits is not kept, if it is not.
    pub not_kept: Option<String>,
}

/// What the answer to a pull depends on, wherever the pull lies.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Whose answer it is, and in which form.
    pub opaque: i32,
    /// The form of its header.
    pub form: HeaderForm,
    /// Whether nobody waits for it.
    pub is_oneway: bool,
    /// Who pulls.
    pub group: &'a str,
    /// The topic.
    pub topic: &'a TopicView,
    /// The queue.
    pub queue: &'a QueueView,
    /// First offset wanted.
    pub queue_offset: i64,
    /// The offset to commit, if it says so and has not been committed yet.
    pub commit_offset: Option<i64>,
    /// Why that is not kept, if it is not.
    pub not_kept: Option<&'a str>,
}

impl Parcel {
    /// Whether it carries an offset to be committed.
    fn commits(&self) -> bool {
        self.header.sys_flag & PULL_COMMITS_OFFSET != 0 && self.wakened.is_none()
    }

    fn asked(&self) -> Asked<'_> {
        let Parcel { request, header, resolved, .. } = self;
        Asked {
            opaque: request.opaque,
            form: request.form,
            is_oneway: request.is_oneway(),
            group: &header.group,
            topic: &resolved.topic,
            queue: &resolved.queue,
            queue_offset: header.queue_offset,
            commit_offset: self.commits().then_some(header.commit_offset),
            not_kept: self.not_kept.as_deref(),
        }
    }
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

/// Told by pulls to the owner of consumer offsets: what was handed out, and what is to be committed. A pull that goes
/// on where the last one of its group ended, and commits nothing, is not told.
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

/// A pull that is allowed, and what it is about.
type Allowed = (PullMessageHeader, check::Resolved);

/// Whether a request code is a pull.
pub fn is_pull(code: i32) -> bool {
    matches!(code, PullMessage::CODE | LitePullMessage::CODE)
}

/// Serves a pull that just came.
pub(crate) fn first(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, came: &Came<'_>, view: &CommandView<'_>) {
    let Ok(pull) = PullView::read(view) else { return take_in(wire, cast, came.command(view)) };
    let commits = pull.sys_flag & PULL_COMMITS_OFFSET != 0;
    if must_ask(cast, (&pull.group, &pull.topic), commits) {
        return take_in(wire, cast, came.command(view));
    }
    let Ok(resolved) = check::resolve(cast, &wire.link, view.code, &pull) else {
        return take_in(wire, cast, came.command(view));
    };
    let (reading, bounds) = read(cast, &resolved, &pull, false);
    if reading.count > 0 && !reading.is_cold() {
        let asked = Asked {
            opaque: view.opaque,
            form: view.form,
            is_oneway: view.is_oneway(),
            group: &pull.group,
            topic: &resolved.topic,
            queue: &resolved.queue,
            queue_offset: pull.queue_offset,
            commit_offset: commits.then_some(pull.commit_offset),
            not_kept: None,
        };
        tell_progress(cast, &asked, &reading);
        return hand_out(wire, cast, &asked, reading);
    }
    let request = came.command(view);
    match request.header() {
        Ok(header) => {
            settle(wire, cast, parcel(wire, (request, header), resolved), (reading, bounds));
        }
        Err(unreadable) => reply::refuse(wire, &request, Refusal::from(unreadable).into()),
    }
}

/// Serves a pull that cannot be served where it lies.
fn take_in(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, request: Command) {
    match resolve(cast, wire, &request) {
        Err(refused) if refused.refusal.code == ResponseCode::SUBSCRIPTION_NOT_LATEST => {
            actix::spawn(again_when_registered(wire.clone(), cast.clone(), request));
        }
        resolved => go_on(wire, cast, request, resolved),
    }
}

fn resolve(cast: &BrokerCast, wire: &Wire, request: &Command) -> Result<Allowed, check::Refused> {
    let header: PullMessageHeader = request.header().map_err(Refusal::from)?;
    let resolved = check::resolve(cast, &wire.link, request.code, &header.view())?;
    Ok((header, resolved))
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
    let resolved = resolve(&cast, &wire, &request);
    go_on(&wire, &cast, request, resolved);
}

fn go_on(
    wire: &Rc<Wire>,
    cast: &Arc<BrokerCast>,
    request: Command,
    resolved: Result<Allowed, check::Refused>,
) {
    match resolved {
        Err(refused) => reply::refuse(wire, &request, refused),
        Ok((header, resolved)) => {
            let parcel = parcel(wire, (request, header), resolved);
            let of = (&*parcel.header.group, &*parcel.resolved.topic.name);
            if must_ask(cast, of, parcel.commits()) {
                serve_after_asking(wire, cast, parcel);
            } else {
                serve(wire, cast, parcel);
            }
        }
    }
}

fn parcel(
    wire: &Wire,
    (request, header): (Command, PullMessageHeader),
    resolved: check::Resolved,
) -> Box<Parcel> {
    Box::new(Parcel {
        request,
        header,
        link: wire.link.clone(),
        resolved,
        wakened: None,
        deadline: None,
        is_warm: false,
        unreadable: None,
        not_kept: None,
    })
}

/// Whether the owner of offsets is to be asked before a pull of a group from a topic is served.
fn must_ask(cast: &BrokerCast, (group, topic): (&str, &str), commits: bool) -> bool {
    let Published { resets, is_full } = &cast.offsets_published;
    resets.has(group, topic) || (commits && is_full.load(Ordering::Acquire))
}

/// Serves a pull while a reset waits for it or the table of offsets is full: a reset that is meant for it is its
/// answer, and an offset that it commits and that is not kept is told in the remark.
fn serve_after_asking(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, mut parcel: Box<Parcel>) {
    let (wire, cast) = (wire.clone(), cast.clone());
    let of = GroupQueue {
        group: parcel.header.group.clone(),
        topic: parcel.resolved.topic.name.clone(),
        queue_id: parcel.header.queue_id,
    };
    actix::spawn(async move {
        if let Ok(Some(queue_offset)) = cast.offsets.send(TakeReset(of.clone())).await {
            let reading = Reading::reset_to(queue_offset, &parcel.resolved.queue.units);
            parcel.resolved.queue.readers.moved(&parcel.header.group);
            return reply::write(&wire, &parcel.asked(), reading);
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
        return refuse_hold(wire, &parcel, format_args!("{max} pulls held at the queue, its heldPullsMax"));
    }
    if let Some(cause) = &parcel.unreadable {
        let refusal = Refusal::new(ResponseCode::SYSTEM_ERROR, cause.clone());
        return reply::refuse(wire, &parcel.request, refusal.into());
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
    match check::resolve(cast, &wire.link, parcel.request.code, &parcel.header.view()) {
        Err(refused) => reply::refuse(wire, &parcel.request, refused),
        Ok(resolved) => {
            parcel.resolved = resolved;
            serve(wire, cast, parcel);
        }
    }
}

fn serve(wire: &Rc<Wire>, cast: &Arc<BrokerCast>, parcel: Box<Parcel>) {
    let reading = read(cast, &parcel.resolved, &parcel.header.view(), parcel.is_warm);
    settle(wire, cast, parcel, reading);
}

/// Does what follows from what a pull found.
fn settle(
    wire: &Rc<Wire>,
    cast: &Arc<BrokerCast>,
    mut parcel: Box<Parcel>,
    (reading, bounds): (Reading, Bounds),
) {
    if reading.is_cold() && !parcel.is_warm {
        parcel.is_warm = true;
        cast.stats.cold_pull();
        // Where the units must be read first, what they speak of is not known: then as much as one pull brings.
        let bytes = match reading.lacks_units {
            true => bounds.far.1,
            false => reading.cold.iter().map(|(_, len)| len).sum(),
        };
        let (group, bytes) =
            (Text::from(parcel.header.group.as_str()), i64::try_from(bytes).unwrap_or(i64::MAX));
        if let Err(busy) = cast.cold_flow.read(&group, bytes, &cast.config.load(), cast.now_ms()) {
            return reply::refuse(wire, &parcel.request, busy.into());
        }
        if let Err((parcel, full)) = cast.cold.fetch(&cast.log, bounds, parcel) {
            reply::refuse(wire, &parcel.request, full.into());
        }
        return;
    }
    let may_wait = parcel.header.sys_flag & PULL_SUSPENDS != 0 && parcel.wakened.is_none();
    if reading.status.is_nothing_new(parcel.header.queue_offset) && may_wait {
        tell_progress(cast, &parcel.asked(), &reading);
        return hold(wire, cast, parcel, reading.next_offset);
    }
    if parcel.wakened == Some(Wakened::Arrival) && may_go_on(cast, &parcel, &reading) {
        return hold(wire, cast, parcel, reading.next_offset);
    }
    if parcel.wakened.is_none() || reading.next_offset != parcel.header.queue_offset {
        tell_progress(cast, &parcel.asked(), &reading);
    }
    hand_out(wire, cast, &parcel.asked(), reading);
}

/// Counts what a pull found and answers it.
fn hand_out(wire: &Rc<Wire>, cast: &BrokerCast, asked: &Asked<'_>, reading: Reading) {
    cast.stats.got(reading.count, reading.bytes);
    if reading.count > 0 {
        let topic = asked.topic;
        let pulls = Pair::of(reading.count, reading.bytes, 1, reading.took_ms);
        topic.counters.got(asked.group, asked.queue.queue_id, &pulls);
        if names::is_system(&topic.name) {
            cast.stats.system_got(reading.count);
        }
        cast.attend(topic);
    }
    reply::write(wire, asked, reading);
}

fn bounds(cast: &BrokerCast, messages_max: i32, now_nanos: u64) -> Bounds {
    let now_s = u32::try_from(now_nanos / 1_000_000_000).unwrap_or(u32::MAX);
    Bounds { now_s, ..Bounds::of(&cast.config.load(), cast.memory_bytes, cast.hot_from, messages_max) }
}

/// What a pull finds, and the bounds within which it was looked for.
fn read(cast: &BrokerCast, about: &check::Resolved, pull: &PullView<'_>, is_warm: bool) -> (Reading, Bounds) {
    let began = cast.clock().nanos();
    let bounds = Bounds { is_warm, ..bounds(cast, pull.messages_max, began) };
    let source = Source { units: &about.queue.units, log: &cast.log, selects: &about.selects, bounds };
    let mut reading = read::read(&source, pull.queue_offset);
    let took = cast.clock().nanos().saturating_sub(began);
    cast.stats.read_took(took);
    reading.took_ms = took / 1_000_000;
    (reading, bounds)
}

/// Whether a pull that was woken by what it does not select is held on: its filter looks at more than a unit
/// says, everything was looked at, and its time is not over.
fn may_go_on(cast: &BrokerCast, parcel: &Parcel, reading: &Reading) -> bool {
    reading.status == Status::NoMatchedMessage
        && reading.next_offset >= reading.max_offset
        && parcel.deadline.is_some_and(|deadline| deadline > cast.clock().nanos())
}

/// Answers a pull that would have to wait and finds no room for that.
fn refuse_hold(wire: &Rc<Wire>, parcel: &Parcel, full: impl Display) {
    answer(wire, &parcel.request, Err(Refusal::busy(full)));
}

/// Holds a pull that found nothing below `from` until something comes, if there is room.
fn hold(wire: &Rc<Wire>, cast: &BrokerCast, mut parcel: Box<Parcel>, from: i64) {
    let config = cast.config.load();
    let of_link = wire.link.held_pulls().take(config.held_pulls_connection_max);
    let places = of_link.and_then(|place| Ok([place, cast.held_pulls.take(config.held_pulls_node_max)?]));
    let places = match places {
        Ok(places) => places,
        Err(full) => return refuse_hold(wire, &parcel, full),
    };
    let wish_ms = if config.long_polling_enable {
        parcel.header.suspend_timeout_ms
    } else {
        config.short_polling_time_mills
    };
    let wish = u64::try_from(wish_ms).unwrap_or(0).saturating_mul(1_000_000);
    let deadline = *parcel.deadline.get_or_insert_with(|| cast.clock().nanos().saturating_add(wish));
    let queue = parcel.resolved.queue.clone();
    let filter = parcel.resolved.selects.filter.clone();
    let park = Park { from, deadline, filter, parcel: OnHold::new(parcel, places) };
    let refused = match queue.actor() {
        Some(actor) => actor.try_send(park).err(),
        None => Some(SendError::Closed(park)),
    };
    // A park that is not delivered is dropped, and by that the pull comes back to its session.
    if let Some(SendError::Closed(park)) = refused {
        drop(cast.topics.try_send(ParkFirst { queue, near: Arbiter::current(), park }));
    }
}

/// Tells the owner of offsets what was handed out, if the pull did not merely go on, and what is to be committed.
fn tell_progress(cast: &BrokerCast, asked: &Asked<'_>, reading: &Reading) {
    let goes_on = asked.queue.readers.goes_on(asked.group, asked.queue_offset, reading.next_offset);
    if goes_on && asked.commit_offset.is_none() {
        return;
    }
    let told = Pulled {
        // A copy of its own: a slice would keep the whole request in memory.
        group: Text::from(asked.group),
        topic: asked.topic.name.clone(),
        queue_id: asked.queue.queue_id,
        from: asked.queue_offset,
        next_offset: reading.next_offset,
        commit_offset: asked.commit_offset,
    };
    if let Err(undelivered) = cast.offsets.try_send(told) {
        // The next pull is to be told again; a commit may be the last one.
        asked.queue.readers.moved(asked.group);
        let told = undelivered.into_inner();
        if told.commit_offset.is_some() {
            let offsets = cast.offsets.clone();
            actix::spawn(async move { offsets.send(told).await });
        }
    }
}
