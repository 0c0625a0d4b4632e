//! The bench: where the sends of one read become one batch.
//!
//! Invariants:
//! - a slot for each send that was taken in, in order; each is answered once when the batch is done;
//! - a refused send leaves nothing in the batch;
//! - benches are leased by sessions while they work, so an idle connection holds none.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use troupemq_codec::filter::tags::tags_code_of;
use troupemq_codec::message::properties::{UNIQ_KEY, put_property};
use troupemq_codec::message::receipt_handle::RecallHandles;
use troupemq_codec::message::{NewRecord, PropertiesView, batch, sys_flag};
use troupemq_codec::order::Answers;
use troupemq_codec::request::SendView;
use troupemq_codec::topic::TopicFilterType;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::{AppendBatch, PendingRecord, QueueKind};

use crate::cast::BrokerCast;
use crate::commit_log::{Append, Done, Outcome, not_taken};
use crate::config::BrokerConfig;
use crate::detour::{Detour, DetourText};
use crate::directory::QueueView;
use crate::heartbeat::answers::group_view;
use crate::held::hold;
use crate::net::Refusal;
use crate::net::wire::Wire;
use crate::rebalance::IsOrderly;
use crate::send::asked::{AnswerTo, Asked};
use crate::send::check::{Marks, check_keys, check_order, check_room, check_sizes, check_zeros, illegal};
use crate::send::cleaned::cleaned;
use crate::send::count::{self, messages_in};
use crate::send::inner_batch;
use crate::send::light;
use crate::send::noted::{Encoded, Noted, place_within};
use crate::send::place::{Place, Places, gives_up};
use crate::send::reply::{self, Finished};
use crate::send::run::Run;
use crate::send::slow::Stages;
use crate::timer::recall;
use crate::topic::names::{RETRY_PREFIX, dead_letter_topic};
use crate::topics::EnsureTopic;

/// Sends of one batch.
const SENDS_MAX: usize = 256;
/// Bytes of one batch, more only for a single message.
const BYTES_MAX: usize = 256 << 10;
/// Benches kept by one arbiter.
const SPARE_MAX: usize = 32;
/// The same, while they are small: each of many connections that send one by one leases one.
const SPARE_SMALL_MAX: usize = 512;
/// What counts as small.
const SMALL_BYTES: usize = 16 << 10;
/// Topic names longer than this cannot be sent to in batches.
const BATCH_TOPIC_MAX: usize = 127;

/// Spare benches of one arbiter.
#[derive(Debug, Default)]
pub struct Benches(Vec<Bench>);

/// A batch in the making.
#[derive(Debug, Default)]
pub struct Bench {
    batch: AppendBatch,
    queues: Vec<Arc<QueueView>>,
    slots: Vec<Slot>,
    waits_for_disk: bool,
    /// What is known of those that make a detour.
    noted: Noted,
    /// When the batch came how far.
    stages: Stages,
    places: Places,
    /// Properties of the send at hand, when they had escapes or must be changed.
    scratch: BytesMut,
    /// The property made for the send at hand, if it came without a unique id.
    made: BytesMut,
    /// The time of the batch, epoch ms: one look at the clock for all its sends.
    now_ms: Option<i64>,
    /// The settings that hold for the batch: one look for all its sends.
    config: Option<Arc<BrokerConfig>>,
    /// Room for the text of a detour.
    detour_text: DetourText,
    /// By which its timers can be recalled.
    handles: RecallHandles,
    /// The one for the send at hand, if it is a timer.
    recall: Option<Range<usize>>,
}

/// One send of the batch.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) to: AnswerTo,
    pub(super) place: Placed,
}

/// Where a send is in the batch.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) queue_id: i32,
    /// Its records in the batch.
    pub(super) records: Range<usize>,
    /// Its unique id.
    pub(super) uniq_key: UniqKey,
    /// By which of the bench's handles it can be recalled, if it is a timer.
    pub(super) recall: Option<Range<usize>>,
}

/// Why a send is not in the batch.
enum Trouble {
    Refused(Refusal),
    Wanted(Wanted),
}

/// A send that is not taken in yet.
#[derive(Debug)]
pub struct Left {
    wanted: Wanted,
    to: AnswerTo,
}

/// Who must be asked before a send can be taken in.
#[derive(Debug)]
enum Wanted {
    /// Whoever makes topics: it goes to one that is not there.
    Topic(EnsureTopic),
    /// A group: it goes to its retry topic, and it depends on whether the group consumes in order.
    Group(Text),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Trouble {
        Trouble::Refused(refusal)
    }
}

impl From<Wanted> for Trouble {
    fn from(wanted: Wanted) -> Trouble {
        Trouble::Wanted(wanted)
    }
}

/// The unique id of a send.
#[derive(Debug)]
pub(super) enum UniqKey {
    /// That of its (first) message: where it stands in the bytes of the record.
    Stored(Range<usize>),
    /// That of an inner batch.
    Inner(Box<str>),
    /// That of a batch as a whole, which is not stored.
    Own(Box<str>),
    /// A batch without one, as clients of 4.x send them.
    None,
}

/// Where a send goes and how.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) cast: &'a BrokerCast,
    pub(super) config: &'a BrokerConfig,
    pub(super) wire: &'a Wire,
    pub(super) send: &'a SendView<'a>,
    pub(super) place: &'a Place,
    pub(super) queue: &'a QueueView,
    /// Whether it is a dead letter: it waits for nothing any more.
    pub(super) is_dead: bool,
}

/// A message about to be encoded.
pub(super) struct Piece<'a> {
    pub(super) flag: i32,
    pub(super) body: &'a [u8],
    pub(super) properties: &'a [u8],
}

impl Benches {
    /// A clean bench.
    pub fn take(&mut self) -> Bench {
        self.0.pop().unwrap_or_default()
    }

    /// Takes a bench back.
    pub fn give(&mut self, mut bench: Bench) {
        bench.clear();
        let bytes = bench.batch.bytes.capacity();
        let max = if bytes <= SMALL_BYTES { SPARE_SMALL_MAX } else { SPARE_MAX };
        if self.0.len() < max && bytes <= 4 * BYTES_MAX {
            self.0.push(bench);
        }
    }
}

impl Bench {
    /// Whether the batch should be handed in before more is taken in.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= SENDS_MAX || self.batch.bytes.len() >= BYTES_MAX
    }

    /// Takes one send in, or answers why not. Gives it back if somebody must be asked before.
    pub fn take_in(
        &mut self,
        cast: &BrokerCast,
        wire: &Rc<Wire>,
        asked: Asked<'_>,
        to: AnswerTo,
    ) -> Option<Left> {
        match self.add(cast, wire, (asked, None)) {
            Ok(place) => self.slots.push(Slot { to, place }),
            Err(Trouble::Wanted(wanted)) => return Some(Left { wanted, to }),
            Err(Trouble::Refused(refusal)) => refuse(cast, wire, to, &refusal),
        }
        None
    }

    /// Asks who is wanted, then takes the send in, or answers why not.
    pub async fn take_in_later(&mut self, cast: &BrokerCast, wire: &Rc<Wire>, asked: Asked<'_>, left: Left) {
        let Left { wanted, to } = left;
        let mut is_orderly = None;
        let mut added = Err(Trouble::Wanted(wanted));
        if let Err(Trouble::Wanted(Wanted::Group(group))) = &added {
            // A group that holds a lease consumes in order: it retries by itself and gives up here.
            is_orderly = match group_view(cast, group).await {
                Ok(group) => group.coordinator().send(IsOrderly).await.ok(),
                Err(_unknown) => None,
            };
            added = self.add(cast, wire, (asked, is_orderly.or(Some(false))));
        }
        if let Err(Trouble::Wanted(Wanted::Topic(topic))) = added {
            added = match cast.topics.send(topic).await {
                Ok(Ok(_made)) => self.add(cast, wire, (asked, is_orderly.or(Some(false)))),
                Ok(Err(refusal)) => Err(refusal.into()),
                Err(gone) => Err(Refusal::from(gone).into()),
            };
        }
        match added {
            Ok(place) => self.slots.push(Slot { to, place }),
            Err(Trouble::Refused(refusal)) => refuse(cast, wire, to, &refusal),
            Err(Trouble::Wanted(_)) => refuse(cast, wire, to, &Refusal::gone("the topic just made")),
        }
    }

    /// Stores the batch and answers all its sends.
    pub async fn hand_in(&mut self, cast: &Arc<BrokerCast>, wire: &Rc<Wire>) {
        if self.slots.is_empty() {
            return;
        }
        self.stages = Stages { began: cast.clock().nanos(), ..Stages::default() };
        let (reply, waiting) = hold();
        let append = Append {
            credit: match cast.credits.take(self.batch.bytes.len()) {
                Ok(credit) => Some(credit),
                Err(full) => {
                    return self.answer(cast, wire, &Outcome::Refused(Refusal::busy(full)));
                }
            },
            batch: std::mem::take(&mut self.batch),
            queues: std::mem::take(&mut self.queues),
            wait_for_disk: self.waits_for_disk,
            stages: self.stages,
            reply,
        };
        if let Err(undelivered) = cast.commit_log.try_send(append) {
            let refusal = not_taken(&undelivered);
            undelivered.into_inner().refuse(refusal);
        }
        let outcome = match waiting.await {
            Ok(Done { batch, queues, stages, outcome }) => {
                (self.batch, self.queues, self.stages) = (batch, queues, stages);
                outcome
            }
            Err(_lost) => Outcome::Refused(Refusal::gone("CommitLog")),
        };
        self.answer(cast, wire, &outcome);
    }

    fn answer(&mut self, cast: &BrokerCast, wire: &Rc<Wire>, outcome: &Outcome) {
        let stored = outcome.stored(self.batch.records.len());
        let bytes = self.batch.records[..stored].last().map_or(0, PendingRecord::end);
        let messages = messages_in(&self.batch.records[..stored]);
        let now = cast.clock().nanos();
        let nanos = now.saturating_sub(self.stages.began);
        cast.slow_sends.note(&self.stages, now, wire.peer());
        cast.stats.put(messages, bytes, nanos);
        count::count(cast, &self.slots, (&self.batch, stored), nanos / 1_000_000);
        cast.stats.refused(messages_in(&self.batch.records[stored..]));
        self.noted.tell(cast, wire, (&self.batch, stored));
        let finished = Finished { batch: &self.batch, outcome, handles: &self.handles };
        wire.write(|out| {
            for slot in &self.slots {
                if let AnswerTo::Frame { opaque, form, is_oneway: false } = slot.to {
                    reply::done(cast, out.tail(), (opaque, form), &slot.place, finished);
                }
            }
        });
        if let Some(replies) = wire.replies() {
            let mut sent = Vec::with_capacity(self.slots.len());
            for Slot { to, place } in self.slots.drain(..) {
                if let AnswerTo::Here(waiter) = to {
                    sent.push((waiter, reply::sent(cast, place, finished)));
                }
            }
            replies.give(Answers::Sends(sent));
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.queues.clear();
        self.slots.clear();
        self.noted.clear();
        self.handles.clear();
        self.waits_for_disk = false;
        self.now_ms = None;
        self.config = None;
    }

    fn add(
        &mut self,
        cast: &BrokerCast,
        wire: &Wire,
        asked: (Asked<'_>, Option<bool>),
    ) -> Result<Placed, Trouble> {
        let config = self.config.take().unwrap_or_else(|| cast.config.load_full());
        let added = self.add_by(&config, (cast, wire), asked);
        self.config = Some(config);
        added
    }

    fn add_by(
        &mut self,
        config: &BrokerConfig,
        (cast, wire): (&BrokerCast, &Wire),
        (asked, is_orderly): (Asked<'_>, Option<bool>),
    ) -> Result<Placed, Trouble> {
        let mut send = asked.send()?;
        check_service(cast, config)?;
        let mut is_dead = false;
        if let Some(group) = send.topic.strip_prefix(RETRY_PREFIX) {
            let Some(is_orderly) = is_orderly else { return Err(Wanted::Group(Text::from(group)).into()) };
            if gives_up(cast, (group, is_orderly), (&send, asked.version()))? {
                send.topic = dead_letter_topic(group).as_str().to_owned().into();
                send.queue_id = 0;
                is_dead = true;
            }
        }
        let Some(place) = self.places.find(cast, &send.topic)? else {
            return Err(Trouble::Wanted(Wanted::Topic(EnsureTopic {
                topic: Text::from(&*send.topic),
                template: Text::from(&*send.default_topic),
                queue_nums: send.default_topic_queues,
            })));
        };
        check_order(config, cast.advertised, &place.topic.config)?;
        // What a client left of a transaction in the flags would hide the message from its queue one day.
        send.sys_flag = sys_flag::with_transaction(send.sys_flag, 0);
        if place.topic.config.topic_filter_type == TopicFilterType::MultiTag {
            send.sys_flag |= sys_flag::MULTI_TAGS;
        }
        let queue = place.queue(cast, self.places.choose(&place, send.queue_id), &wire.link)?;
        let first = self.batch.records.len();
        self.recall = None;
        let target = Target { cast, config, wire, send: &send, place: &place, queue, is_dead };
        let uniq_key = match self.encode(&target, asked.body()) {
            Ok(uniq_key) => uniq_key,
            Err(refusal) => {
                self.batch.truncate(first);
                return Err(refusal.into());
            }
        };
        if !self.queues.iter().any(|known| Arc::ptr_eq(known, queue)) {
            self.queues.push(queue.clone());
        }
        Ok(Placed {
            queue_id: queue.queue_id,
            records: first..self.batch.records.len(),
            uniq_key,
            recall: self.recall.take(),
        })
    }

    /// Encodes the message, or the messages, of a send; answers with its unique id.
    fn encode(&mut self, target: &Target<'_>, body: &[u8]) -> Result<UniqKey, Refusal> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let properties = match target.send.properties {
            None => &[][..],
            Some(value) => match value.plain() {
                Some(plain) => plain.as_bytes(),
                None => {
                    value.write_to(&mut scratch);
                    &scratch[..]
                }
            },
        };
        let piece = Piece { flag: target.send.flag, body, properties };
        let encoded = if target.send.is_batch {
            self.encode_batch(target, &piece)
        } else {
            self.encode_one(target, &piece).map(UniqKey::Stored)
        };
        self.scratch = scratch;
        encoded
    }

    fn encode_batch(&mut self, target: &Target<'_>, whole: &Piece<'_>) -> Result<UniqKey, Refusal> {
        let config = target.config;
        let refused = |remark: String| Err(Refusal::new(ResponseCode::MESSAGE_ILLEGAL, remark));
        if target.place.name.len() > BATCH_TOPIC_MAX {
            return refused(format!("message topic length over {BATCH_TOPIC_MAX}"));
        }
        if target.place.name.starts_with(RETRY_PREFIX) {
            return refused("batch request does not support retry group".to_owned());
        }
        // The whole batch has the limit of one message.
        check_sizes(config, whole.body, 0)?;
        let marks = Marks::of(PropertiesView(whole.properties));
        if let Some(key) = marks.uniq_key
            && target.queue.units.kind() == QueueKind::Batch
        {
            inner_batch::encode(&mut self.batch, target, whole)?;
            self.waits_for_disk |= marks.waits;
            return Ok(UniqKey::Inner(key.into()));
        }
        let mut run = Run::of(target);
        for item in batch::items(whole.body) {
            let item = item.map_err(|_| illegal(config))?;
            let piece = Piece { flag: item.flag, body: item.body, properties: item.properties.as_bytes() };
            let is_taken = run.as_mut().map_or(Ok(false), |run| run.take(&piece, &mut self.batch))?;
            if is_taken {
                // As one does that does not say that it does not.
                self.waits_for_disk = true;
            } else {
                self.encode_one(target, &piece)?;
            }
        }
        Ok(marks.uniq_key.map_or(UniqKey::None, |key| UniqKey::Own(key.into())))
    }

    fn encode_one(&mut self, target: &Target<'_>, piece: &Piece<'_>) -> Result<Range<usize>, Refusal> {
        let mut made = std::mem::take(&mut self.made);
        made.clear();
        let encoded = self.encode_with(target, piece, &mut made);
        self.made = made;
        encoded
    }

    fn encode_with(
        &mut self,
        target: &Target<'_>,
        piece: &Piece<'_>,
        made: &mut BytesMut,
    ) -> Result<Range<usize>, Refusal> {
        let Target { cast, config, wire, send, place, queue, is_dead } = *target;
        let marks = Marks::of(PropertiesView(piece.properties));
        if let Some(properties) = cleaned(&marks, piece.properties, is_dead) {
            return self.encode_one(target, &Piece { properties: properties.encoded(), ..*piece });
        }
        marks.check(cast, config, send.sys_flag)?;
        check_zeros(PropertiesView(piece.properties))?;
        check_keys(&place.topic.config, PropertiesView(piece.properties))?;
        let now_ms = *self.now_ms.get_or_insert_with(|| cast.now_ms());
        let made_id = marks.uniq_key.is_none().then(|| cast.ids.next(now_ms));
        let made_id = made_id.as_ref().map(|id| id.as_str());
        made_id.into_iter().for_each(|id| put_property(made, UNIQ_KEY, id));
        let id = marks.uniq_key.or(made_id).unwrap_or_default();
        let again = send.reconsume_times.unwrap_or(0);
        // What comes in a batch waits for nothing either: clients refuse to send such.
        let may_wait = !is_dead && !send.is_batch && marks.may_wait();
        let (with, wanted) = ((cast, &mut self.detour_text), (id, again > 0, may_wait));
        let detour = marks.detour(with, wanted, (&place.name, queue.queue_id), now_ms)?;
        let light = light::queues_unless_waiting(cast, &place.name, (marks.light, detour.is_some()))?;
        let record = NewRecord {
            topic: detour.as_ref().map_or(&*place.name, |detour| detour.topic),
            queue_id: detour.as_ref().map_or(queue.queue_id, |detour| detour.queue.queue_id()),
            flag: piece.flag,
            sys_flag: send.sys_flag,
            born_timestamp_ms: send.born_timestamp_ms,
            born_host: wire.peer(),
            store_host: cast.advertised,
            reconsume_times: again,
            prepared_log_offset: 0,
            body: piece.body,
            body_crc: None,
            properties: &[
                piece.properties,
                &cast.own_properties,
                detour.as_ref().map_or(&[], |detour| &detour.properties[..]),
                &made[..],
            ],
        };
        let properties_len = record.properties_len();
        check_sizes(config, piece.body, properties_len)?;
        check_room(properties_len, detour.as_ref().map_or(0, |detour| detour.room_bytes))?;
        light::check_size(config, &record, &light)?;
        let start = self.batch.bytes.len();
        record.encode(&mut self.batch.bytes)?;
        self.waits_for_disk |= marks.waits;
        let (queue, tags_code) = match &detour {
            Some(detour) => (&detour.queue, detour.tags_code),
            None => (&queue.units, tags_code_of(marks.tags)),
        };
        self.batch.push(start, queue, 1, tags_code);
        self.batch.tell_keys_of_last(Some(id.as_bytes()), marks.keys.map(str::as_bytes));
        self.number(light, properties_len);
        let end = self.batch.bytes.len() - start;
        let at = (end - properties_len, end - made.len());
        let id_at = match marks.uniq_key {
            Some(key) => place_within(key, piece.properties, at.0),
            // The property made here stands last, with a mark behind it.
            None => at.1 + UNIQ_KEY.len() + 1..end - 1,
        };
        if let Some(detour) = detour {
            self.note((target, piece.properties), (&marks, detour), (id, id_at.clone()), at);
        }
        Ok(id_at)
    }
}

impl Bench {
    /// Notes what is known of the record that was pushed last, which makes a detour and has this id. Its own properties
    /// and what is behind those of its detour stand at these places.
    fn note(
        &mut self,
        (target, properties): (&Target<'_>, &[u8]),
        (marks, detour): (&Marks<'_>, Detour),
        id: (&str, Range<usize>),
        (properties_at, end): (usize, usize),
    ) {
        let Target { cast, place, queue, .. } = *target;
        if let Some(recall_ms) = detour.recall_ms() {
            self.recall = recall::handle(cast, &mut self.handles, &place.name, (recall_ms, id.0));
        }
        let encoded = Encoded {
            record: self.batch.records.len() - 1,
            target: (&place.name, queue.queue_id),
            id,
            properties: (properties, properties_at),
            detour_at: end - detour.properties.len(),
        };
        self.noted.note(cast.detours.marker(), (marks, &detour), &encoded);
        self.detour_text.give_back(detour);
    }

    /// Has the record that was pushed last numbered for its light queues.
    fn number(&mut self, light: Vec<Arc<QueueView>>, properties_bytes: usize) {
        if light.is_empty() {
            return;
        }
        self.batch.number_last(light::numbers(&light), properties_bytes);
        for queue in light {
            if !self.queues.iter().any(|known| Arc::ptr_eq(known, &queue)) {
                self.queues.push(queue);
            }
        }
    }
}

/// Answers why a send is not taken in.
fn refuse(cast: &BrokerCast, wire: &Rc<Wire>, to: AnswerTo, refusal: &Refusal) {
    cast.stats.refused(1);
    match to {
        AnswerTo::Frame { is_oneway: true, .. } => {}
        AnswerTo::Frame { opaque, form, .. } => {
            wire.write(|out| reply::refused(cast, out.tail(), (opaque, form), refusal));
        }
        // Who does not wait any more was cancelled or has timed out.
        AnswerTo::Here(waiter) => drop(waiter.send(Ok(reply::refusal(refusal)))),
    }
}

/// Refuses while the broker does not take sends yet, or any more.
pub(crate) fn check_service(cast: &BrokerCast, config: &BrokerConfig) -> Result<(), Refusal> {
    let from_ms = config.start_accept_send_request_time_stamp;
    if from_ms > 0 && cast.now_ms() < from_ms {
        let remark = format!("broker unable to service, until {from_ms}");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    Ok(())
}
