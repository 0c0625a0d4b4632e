//! `Assignments`: how each group reads each topic, and the queues that a topic has in the whole cluster
//! (RocketMQ: `MessageRequestModeManager`, `TopicRouteInfoManager`).
//!
//! Invariants:
//! - a mode that was set is on disk before it is answered;
//! - what this broker has of a topic is never older than its own topic table, what others have at most
//!   `loadBalancePollNameServerInterval` old, or as old as the silence of every name server;
//! - at most [`ROUTES_MAX`] topics are remembered: one more takes the place of the one asked for longest ago.
//!
//! Contents: `routes` the queues of others, `answers` the requests of clients and tools.

pub mod answers;
mod routes;

use actix::{Actor, Context, Handler, Message, MessageResult};
use troupemq_codec::request::{RequestMode, RequestModeBody, RequestModeTable};
use troupemq_codec::topic::MessageQueue;
use troupemq_codec::{ResponseCode, Text};
use troupemq_store::StoreError;
use troupemq_store::tables::TableFile;

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::saving::{Saved, Saves, Saving};
use routes::Routes;

/// Topics whose queues are remembered.
pub const ROUTES_MAX: usize = 4096;
/// Pairs of topic and group whose mode is kept; one more is refused.
pub const MODES_MAX: usize = 1_000_000;

// ---- messages

/// How a group reads a topic from now on. Sent by SET_MESSAGE_REQUEST_MODE; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Result<Waiting<Saved>, Refusal>")]
pub struct SetMode(pub RequestModeBody);

/// How a group reads a topic. Sent by QUERY_ASSIGNMENT; none if it was never set.
#[derive(Debug, Message)]
#[rtype(result = "Option<(RequestMode, i32)>")]
pub struct ModeOf {
    /// The topic.
    pub topic: Text,
    /// The group.
    pub group: Text,
}

/// All modes. Sent by GET_ALL_MESSAGE_REQUEST_MODE.
#[derive(Debug, Message)]
#[rtype(result = "RequestModeTable")]
pub struct AllModes;

/// The queues of a topic on other brokers. Sent by QUERY_ASSIGNMENT.
#[derive(Debug, Message)]
#[rtype(result = "Known")]
pub struct QueuesElsewhere {
    /// The topic.
    pub topic: Text,
    /// How old the answer may be, in ms.
    pub age_max_ms: i64,
}

/// What is remembered of a topic.
#[derive(Debug, Clone, PartialEq, Eq, actix::MessageResponse)]
pub enum Known {
    /// These queues, as a name server said lately.
    Fresh(Vec<MessageQueue>),
    /// These, as one said some time ago: ask again.
    Old(Vec<MessageQueue>),
    /// Nothing.
    Unknown,
}

/// What a name server said. Sent by those who asked it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Learned {
    /// The topic.
    pub topic: Text,
    /// Its queues on other brokers; none if there is no such topic.
    pub queues: Option<Vec<MessageQueue>>,
}

// ---- actor

/// Owner of the modes.
#[derive(Debug)]
pub struct Assignments {
    modes: RequestModeTable,
    file: TableFile<RequestModeTable>,
    saving: Saving<Held<Saved>>,
    routes: Routes,
    clock: NodeClock,
}

impl Assignments {
    /// The owner of `modes`, which are saved in `file`.
    pub fn new(file: TableFile<RequestModeTable>, modes: RequestModeTable, clock: NodeClock) -> Assignments {
        Assignments { modes, file, saving: Saving::default(), routes: Routes::new(ROUTES_MAX), clock }
    }
}

impl Saves for Assignments {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (file, table) = (self.file.clone(), self.modes.clone());
        move || file.save(&table)
    }
}

impl Actor for Assignments {
    type Context = Context<Assignments>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<SetMode> for Assignments {
    type Result = Result<Waiting<Saved>, Refusal>;

    fn handle(&mut self, SetMode(mode): SetMode, context: &mut Self::Context) -> Self::Result {
        put(&mut self.modes, mode, MODES_MAX)?;
        let (held, waiting) = hold();
        self.saving.changed_for(held);
        self.save(context);
        Ok(waiting)
    }
}

impl Handler<ModeOf> for Assignments {
    type Result = Option<(RequestMode, i32)>;

    fn handle(&mut self, of: ModeOf, _: &mut Self::Context) -> Self::Result {
        let mode = self.modes.message_request_mode_map.get(&of.topic)?.get(&of.group)?;
        Some((mode.mode, mode.pop_share_queue_num))
    }
}

impl Handler<AllModes> for Assignments {
    type Result = MessageResult<AllModes>;

    fn handle(&mut self, _: AllModes, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.modes.clone())
    }
}

impl Handler<QueuesElsewhere> for Assignments {
    type Result = Known;

    fn handle(&mut self, of: QueuesElsewhere, _: &mut Self::Context) -> Known {
        self.routes.of(&of.topic, of.age_max_ms, self.clock.0.now_ms())
    }
}

impl Handler<Learned> for Assignments {
    type Result = ();

    fn handle(&mut self, learned: Learned, _: &mut Self::Context) {
        self.routes.learn(learned.topic, learned.queues, self.clock.0.now_ms());
    }
}

// ---- state

/// Puts a mode into the table, unless that has `max` already.
fn put(table: &mut RequestModeTable, mode: RequestModeBody, max: usize) -> Result<(), Refusal> {
    let map = &mut table.message_request_mode_map;
    let is_known = map.get(&mode.topic).is_some_and(|groups| groups.contains_key(&mode.consumer_group));
    let count: usize = map.values().map(std::collections::BTreeMap::len).sum();
    if !is_known && count >= max {
        let remark = format!("the modes of {count} pairs of topic and group are kept, {max} is the limit");
        return Err(Refusal::new(ResponseCode::SYSTEM_ERROR, remark));
    }
    map.entry(mode.topic.clone()).or_default().insert(mode.consumer_group.clone(), mode);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(topic: &str, group: &str, share: i32) -> RequestModeBody {
        RequestModeBody {
            topic: Text::from(topic),
            consumer_group: Text::from(group),
            mode: RequestMode::Pop,
            pop_share_queue_num: share,
        }
    }

    #[test]
    fn a_mode_is_replaced_and_one_too_many_refused() {
        let mut table = RequestModeTable::default();
        assert_eq!(put(&mut table, mode("t", "g", 0), 2), Ok(()));
        assert_eq!(put(&mut table, mode("t", "h", 0), 2), Ok(()));
        let refusal = put(&mut table, mode("u", "g", 0), 2).expect_err("one too many");
        assert!(refusal.remark.ends_with("2 is the limit"), "{}", refusal.remark);
        assert_eq!(put(&mut table, mode("t", "g", 3), 2), Ok(()));
        assert_eq!(table.message_request_mode_map["t"]["g"].pop_share_queue_num, 3);
    }
}
