//! Where a message goes: its topic and queue.
//!
//! Invariants:
//! - what was found is remembered until the directory changes;
//! - a name in here was checked: it may be sent to;
//! - a queue id is read as signed: a negative one means any queue.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use troupemq_codec::ResponseCode;
use troupemq_codec::request::SendView;
use troupemq_codec::topic::{PERM_INHERIT, PERM_READ, PERM_WRITE, TopicFilterType};

use crate::cast::BrokerCast;
use crate::directory::{QueueView, TopicView};
use crate::net::{Link, Refusal};
use crate::retry::next::{is_dead_when_sent, no_group, retries_max};
use crate::send::check::check_topic;

/// Topics remembered by one bench.
const KNOWN_MAX: usize = 1024;

/// Topics that were found before.
#[derive(Debug, Default)]
pub struct Places {
    version: u64,
    known: HashMap<Box<str>, Rc<Place>>,
    last: Option<Rc<Place>>,
    dice: u32,
}

/// A topic that may be sent to, with the queues that were sent to. Counted without atomics: it stays on its
/// arbiter.
#[derive(Debug)]
pub struct Place {
    /// The topic.
    pub topic: Arc<TopicView>,
    /// Its name.
    pub name: Box<str>,
    queues: Box<[OnceCell<Arc<QueueView>>]>,
}

impl Places {
    /// The topic of this name; none when it must be made first.
    pub fn find(&mut self, cast: &BrokerCast, name: &str) -> Result<Option<Rc<Place>>, Refusal> {
        let version = cast.directory.version();
        if self.version != version {
            self.known.clear();
            self.last = None;
            self.version = version;
        }
        if let Some(last) = self.last.as_ref().filter(|last| *last.name == *name) {
            return Ok(Some(last.clone()));
        }
        if let Some(known) = self.known.get(name) {
            self.last = Some(known.clone());
            return Ok(Some(known.clone()));
        }
        check_topic(name)?;
        let Some(topic) = cast.directory.topic(name) else { return Ok(None) };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let queues = (0..topic.queue_count()).map(|_| OnceCell::new()).collect();
        let place = Rc::new(Place { topic, name: name.into(), queues });
        self.known.insert(name.into(), place.clone());
        self.last = Some(place.clone());
        Ok(Some(place))
    }

    /// The number of the queue that a message goes to.
    pub fn choose(&mut self, place: &Place, wished: i32) -> i32 {
        if wished < 0 { self.any(place.topic.config.write_queue_nums) } else { wished }
    }

    /// Some queue below `count`.
    fn any(&mut self, count: i32) -> i32 {
        // Any sequence that reaches all queues will do; this one needs no state but a number.
        self.dice = self.dice.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let count = u32::try_from(count).unwrap_or(0).max(1);
        i32::try_from((self.dice >> 16) % count).unwrap_or(0)
    }
}

impl Place {
    /// A queue of the topic, by its number.
    pub fn queue(&self, cast: &BrokerCast, queue_id: i32, link: &Link) -> Result<&Arc<QueueView>, Refusal> {
        let slot = usize::try_from(queue_id).ok().and_then(|at| self.queues.get(at));
        let slot = slot.ok_or_else(|| self.no_queue(queue_id, link))?;
        if let Some(queue) = slot.get() {
            return Ok(queue);
        }
        match cast.directory.queue(&self.topic, queue_id, &cast.queues) {
            Ok(Some(queue)) => Ok(slot.get_or_init(|| queue)),
            Ok(None) => Err(self.no_queue(queue_id, link)),
            Err(error) => Err(Refusal::new(ResponseCode::SYSTEM_ERROR, error.to_string())),
        }
    }

    fn no_queue(&self, queue_id: i32, link: &Link) -> Refusal {
        let config = described(&self.topic);
        let remark = format!("request queueId[{queue_id}] is illegal, {config} Producer: {}", link.peer());
        Refusal::new(ResponseCode::INVALID_PARAMETER, remark)
    }
}

/// A topic as Java prints it.
fn described(topic: &TopicView) -> String {
    let config = &topic.config;
    let letter = |bit, letter| if config.perm & bit != 0 { letter } else { '-' };
    let perm: String =
        [letter(PERM_READ, 'R'), letter(PERM_WRITE, 'W'), letter(PERM_INHERIT, 'X')].iter().collect();
    let kind = match config.topic_filter_type {
        TopicFilterType::SingleTag => "SINGLE_TAG",
        TopicFilterType::MultiTag => "MULTI_TAG",
    };
    let attributes: Vec<String> =
        config.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "TopicConfig [topicName={}, readQueueNums={}, writeQueueNums={}, perm={perm}, topicFilterType={kind}, \
         topicSysFlag={}, order={}, attributes={{{}}}]",
        topic.name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.topic_sys_flag,
        config.order,
        attributes.join(", ")
    )
}

/// Whether a message sent to the retry topic of `group` is a dead letter.
pub fn gives_up(
    cast: &BrokerCast,
    (group, is_orderly): (&str, bool),
    (send, version): (&SendView<'_>, i32),
) -> Result<bool, Refusal> {
    let view = cast.directory.group(group).ok_or_else(|| no_group(group))?;
    let max = retries_max(view.config().retry_max_times, send.reconsume_max, version);
    Ok(is_dead_when_sent(send.reconsume_times.unwrap_or(0), max, is_orderly))
}
