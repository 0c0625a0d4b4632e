//! What one topic knows about itself: what was decided, which of its queues are in use, and since when nothing is.
//!
//! Invariants:
//! - what is decided becomes public later, when it is on disk; a change builds on what is decided;
//! - a topic's `queue.type` and `cleanup.policy` never change while it exists;
//! - no clock, no actor and no I/O in here: time and queues are arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use troupemq_codec::topic::{PERM_READ, TopicConfig};
use troupemq_codec::{ResponseCode, Text};

use super::attributes;
use crate::net::Refusal;

/// Queues one topic may have.
pub const QUEUES_MAX: i32 = 65_536;
/// How long a topic of which nothing is in use stays active, in ms.
pub const PASSIVE_AFTER_MS: i64 = 60_000;

/// A change of one topic as UPDATE_AND_CREATE_TOPIC asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicChange {
    /// The topic with its wanted numbers; its attributes are not looked at.
    pub config: TopicConfig,
    /// The changes of attributes, `+key=value` and `-key` joined by `,`.
    pub attributes: Text,
}

/// What is wished for a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// A tool wants it to be so.
    Change(Box<TopicChange>),
    /// A name server says that it is ordered.
    Ordered,
}

/// The state of one topic. `Q` is the address of a queue.
#[derive(Debug)]
pub struct TopicState<Q> {
    decided: Option<Arc<TopicConfig>>,
    is_public: bool,
    queues: BTreeMap<i32, Q>,
    used_ms: i64,
}

impl<Q> TopicState<Q> {
    /// A topic as it was decided and made public before; `None` if there is no such topic yet.
    pub fn new(decided: Option<Arc<TopicConfig>>, now_ms: i64) -> TopicState<Q> {
        TopicState { decided, is_public: true, queues: BTreeMap::new(), used_ms: now_ms }
    }

    /// What the topic would be if a wish were granted; `None` if it is so already.
    pub fn propose(&self, wish: Wish, mixed_types: bool) -> Result<Option<TopicConfig>, Refusal> {
        let before = self.decided.as_deref();
        let config = match wish {
            Wish::Change(change) => changed(before, *change, mixed_types)?,
            Wish::Ordered => match before {
                Some(before) => TopicConfig { order: true, ..before.clone() },
                None => return Ok(None),
            },
        };
        Ok(Some(config).filter(|config| before != Some(config)))
    }

    /// This was decided, and is not public yet.
    pub fn decide(&mut self, decided: Option<Arc<TopicConfig>>, now_ms: i64) {
        self.decided = decided;
        self.is_public = false;
        self.used_ms = now_ms;
    }

    /// A configuration has become public: takes out the queues that may not be read any more.
    pub fn published(&mut self, config: &Arc<TopicConfig>, now_ms: i64) -> Vec<Q> {
        // A decision that is newer becomes public with the next save.
        self.is_public = self.decided.as_ref() == Some(config);
        self.used_ms = now_ms;
        self.take_queues(|queue_id| !may_be_read(config, queue_id))
    }

    /// Its end has become public: takes out all queues.
    pub fn withdrawn(&mut self, now_ms: i64) -> Vec<Q> {
        self.is_public = self.decided.is_none();
        self.used_ms = now_ms;
        self.take_queues(|_| true)
    }

    /// The queue of this number, started if it is not in use.
    pub fn queue(&mut self, queue_id: i32, now_ms: i64, start: impl FnOnce() -> Q) -> &Q {
        self.used_ms = now_ms;
        self.queues.entry(queue_id).or_insert_with(start)
    }

    /// Forgets the queues that have ended.
    pub fn forget_ended(&mut self, lives: impl Fn(&Q) -> bool, now_ms: i64) {
        if !self.queues.is_empty() {
            self.used_ms = now_ms;
            self.queues.retain(|_, queue| lives(queue));
        }
    }

    /// Queues in use.
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Whether nothing of it is in use: a topic that does not exist at once, another after some time.
    pub fn is_idle(&self, now_ms: i64) -> bool {
        let was_left_ms = now_ms.saturating_sub(self.used_ms);
        let is_left = self.decided.is_none() || was_left_ms >= PASSIVE_AFTER_MS;
        self.is_public && self.queues.is_empty() && is_left
    }

    fn take_queues(&mut self, wanted: impl Fn(i32) -> bool) -> Vec<Q> {
        self.queues.extract_if(.., |queue_id, _| wanted(*queue_id)).map(|(_, queue)| queue).collect()
    }
}

/// The topic as a tool wants it, on top of what it is.
fn changed(
    before: Option<&TopicConfig>,
    change: TopicChange,
    mixed_types: bool,
) -> Result<TopicConfig, Refusal> {
    check_numbers(&change.config)?;
    let attributes = attributes::altered(before.map(|before| &before.attributes), &change.attributes)?;
    // A copy: the text that came in a frame would keep the whole frame alive.
    let topic_name = Text::from(change.config.topic_name.as_str());
    let config = TopicConfig { topic_name, attributes, ..change.config };
    if !mixed_types && attributes::message_type(&config) == Some("MIXED") {
        let remark = "MIXED message type is not supported.";
        return Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
    }
    Ok(config)
}

fn check_numbers(config: &TopicConfig) -> Result<(), Refusal> {
    let refuse = |remark: String| Err(Refusal::new(ResponseCode::INVALID_PARAMETER, remark));
    for queues in [config.read_queue_nums, config.write_queue_nums] {
        if !(0..=QUEUES_MAX).contains(&queues) {
            return refuse(format!("{queues} queues: a topic has 0 to {QUEUES_MAX}"));
        }
    }
    if !(0..=15).contains(&config.perm) {
        return refuse(format!("permission {} is none: it is 0 to 15", config.perm));
    }
    Ok(())
}

fn may_be_read(config: &TopicConfig, queue_id: i32) -> bool {
    config.perm & PERM_READ != 0 && queue_id < config.read_queue_nums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(queues: i32, perm: i32) -> TopicConfig {
        TopicConfig {
            topic_name: Text::from("T"),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            ..TopicConfig::default()
        }
    }

    fn change(queues: i32, attributes: &str) -> Wish {
        Wish::Change(Box::new(TopicChange { config: config(queues, 6), attributes: Text::from(attributes) }))
    }

    /// A topic of four queues, those of the numbers given in use.
    fn topic(in_use: &[i32]) -> TopicState<i32> {
        let mut state = TopicState::new(Some(Arc::new(config(4, 6))), 0);
        in_use.iter().for_each(|queue_id| _ = state.queue(*queue_id, 0, || *queue_id));
        state
    }

    #[test]
    fn a_change_builds_on_what_is_decided_public_or_not() {
        let mut state = topic(&[]);
        let typed = state.propose(change(4, "+message.type=FIFO"), false).unwrap().unwrap();
        assert_eq!(attributes::message_type(&typed), Some("FIFO"));
        assert_eq!(state.propose(change(4, ""), false), Ok(None), "a proposal decides nothing");
        state.decide(Some(Arc::new(typed)), 1);
        let kept = state.propose(change(8, ""), false).unwrap().unwrap();
        assert_eq!((kept.read_queue_nums, attributes::message_type(&kept)), (8, Some("FIFO")));
        let removed = state.propose(change(4, "-message.type"), false).unwrap().unwrap();
        assert_eq!(attributes::message_type(&removed), None);
    }

    #[test]
    fn the_same_change_again_is_none() {
        let state = topic(&[]);
        assert_eq!(state.propose(change(4, ""), false), Ok(None));
        assert!(state.propose(change(5, ""), false).unwrap().is_some());
        let unborn: TopicState<i32> = TopicState::new(None, 0);
        assert!(unborn.propose(change(4, ""), false).unwrap().is_some());
    }

    #[test]
    fn a_topic_is_marked_ordered_once_and_only_if_there_is_one() {
        let mut state = topic(&[]);
        let ordered = state.propose(Wish::Ordered, false).unwrap().unwrap();
        assert!(ordered.order && ordered.read_queue_nums == 4);
        state.decide(Some(Arc::new(ordered)), 1);
        assert_eq!(state.propose(Wish::Ordered, false), Ok(None));
        let unborn: TopicState<i32> = TopicState::new(None, 0);
        assert_eq!(unborn.propose(Wish::Ordered, false), Ok(None));
    }

    #[test]
    fn numbers_out_of_bounds_and_types_that_are_not_served_are_refused() {
        let state = topic(&[]);
        for queues in [-1, QUEUES_MAX + 1] {
            let refusal = state.propose(change(queues, ""), false).unwrap_err();
            assert_eq!(refusal.remark, format!("{queues} queues: a topic has 0 to 65536"));
        }
        let mut odd = TopicChange { config: config(1, 16), attributes: Text::default() };
        assert!(state.propose(Wish::Change(Box::new(odd.clone())), false).is_err());
        odd.config.perm = 6;
        odd.attributes = Text::from("+message.type=MIXED");
        let refusal = state.propose(Wish::Change(Box::new(odd.clone())), false).unwrap_err();
        assert_eq!(refusal.code, ResponseCode::INVALID_PARAMETER);
        assert!(state.propose(Wish::Change(Box::new(odd)), true).is_ok());
        assert!(state.propose(change(4, "+no.such=key"), false).is_err());
    }

    #[test]
    fn queues_that_may_not_be_read_any_more_are_given_up() {
        let mut state = topic(&[0, 1, 3]);
        assert!(state.published(&Arc::new(config(4, 6)), 1).is_empty());
        assert_eq!(state.published(&Arc::new(config(2, 6)), 1), [3], "fewer queues");
        assert_eq!(state.published(&Arc::new(config(2, 2)), 1), [0, 1], "not readable");
        assert_eq!(state.queue_count(), 0);
        let mut state = topic(&[0, 2]);
        assert_eq!(state.withdrawn(1), [0, 2]);
    }

    #[test]
    fn a_queue_is_started_once_and_again_when_it_has_ended() {
        let mut state = topic(&[2]);
        assert_eq!(*state.queue(2, 5, || 77), 2);
        state.forget_ended(|queue| *queue != 2, 6);
        assert_eq!(*state.queue(2, 7, || 77), 77);
    }

    #[test]
    fn a_topic_rests_some_time_after_its_last_use() {
        let mut state = topic(&[1]);
        assert!(!state.is_idle(PASSIVE_AFTER_MS), "a queue is in use");
        state.forget_ended(|_| true, 10);
        state.forget_ended(|_| false, 20);
        assert!(!state.is_idle(20 + PASSIVE_AFTER_MS - 1));
        assert!(state.is_idle(20 + PASSIVE_AFTER_MS));
    }

    #[test]
    fn a_topic_does_not_rest_before_its_last_decision_is_public() {
        let mut state = topic(&[]);
        let (first, second) = (Arc::new(config(5, 6)), Arc::new(config(6, 6)));
        state.decide(Some(first.clone()), 0);
        state.decide(Some(second.clone()), 0);
        assert!(!state.is_idle(PASSIVE_AFTER_MS));
        state.published(&first, 0);
        assert!(!state.is_idle(PASSIVE_AFTER_MS), "the second is still to come");
        state.published(&second, 0);
        assert!(state.is_idle(PASSIVE_AFTER_MS));
        state.decide(None, 0);
        assert!(!state.is_idle(PASSIVE_AFTER_MS));
        state.withdrawn(0);
        assert!(state.is_idle(0), "what does not exist rests at once");
    }
}
