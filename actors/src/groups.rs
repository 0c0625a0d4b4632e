//! `Groups`: the configuration of consumer groups, and their coordinators
//! (RocketMQ: `SubscriptionGroupManager`).
//!
//! Invariants:
//! - a group that is in the directory has a coordinator, and is in the directory before its maker is answered;
//! - a change that administration asked for is on disk before it is answered;
//! - who asks for leases of a group that is not there gets them, as in RocketMQ, and no group is made for it;
//! - the leases of a group that is deleted are held on until they expire.
//!
//! Contents: `table` what exists and what may change.

pub mod table;

use std::sync::Arc;

use actix::fut::WrapFuture;
use actix::{Actor, ActorFutureExt, Addr, Context, ContextFutureSpawner, Handler, Message, MessageResult};
use troupemq_codec::Text;
use troupemq_codec::group::{SubscriptionGroupConfig, SubscriptionGroupTable};
use troupemq_codec::topic::MessageQueue;
use troupemq_store::StoreError;
use troupemq_store::tables::TableFile;

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::directory::{Directory, GroupView};
use crate::filters::Filters;
use crate::held::{Held, Waiting, hold};
use crate::net::Refusal;
use crate::rebalance::locks::ahead::AheadLocks;
use crate::rebalance::{GiveLeases, LockQueues, RebalanceCoordinator, UnlockQueues};
use crate::saving::{Saved, Saves, Saving};
use table::GroupTable;

// ---- messages

/// Wanted by a heartbeat or a pull of an unknown group: make it, if that is allowed. Answered with its view.
#[derive(Debug, Message)]
#[rtype(result = "Result<Arc<GroupView>, Refusal>")]
pub struct EnsureGroup(pub Text);

/// New configurations, all or none. Sent by UPDATE_AND_CREATE_SUBSCRIPTIONGROUP and its list; what is answered is done
/// when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Result<Waiting<Saved>, Refusal>")]
pub struct PutGroups(pub Vec<SubscriptionGroupConfig>);

/// Forget a group. Sent by DELETE_SUBSCRIPTIONGROUP; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct RemoveGroup(pub Text);

/// Forbid or allow a group to read a topic, if asked to, and tell whether it may. Sent by
/// UPDATE_AND_GET_GROUP_FORBIDDEN; a change is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "(bool, Option<Waiting<Saved>>)")]
pub struct ForbidReading {
    /// The group.
    pub group: Text,
    /// The topic.
    pub topic: Text,
    /// Whether it may read from now on; `None`: as before.
    pub readable: Option<bool>,
}

/// Lease queues of a group that is not there. Sent by LOCK_BATCH_MQ; answered with what the client holds now, or with
/// the group, if it has been made meanwhile.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<MessageQueue>, Arc<GroupView>>")]
pub struct LockAhead(pub Text, pub LockQueues);

/// Give back leases of a group that is not there. Sent by UNLOCK_BATCH_MQ; answered with the group, if it has been made
/// meanwhile.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), Arc<GroupView>>")]
pub struct UnlockAhead(pub Text, pub UnlockQueues);

/// The whole table. Sent by administration and by slaves.
#[derive(Debug, Message)]
#[rtype(result = "SubscriptionGroupTable")]
pub struct AllGroups;

/// Save what changed. Sent by the node when it stops; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct SaveGroups;

// ---- actor

/// Owner of the group table.
#[derive(Debug)]
pub struct Groups {
    table: GroupTable,
    file: TableFile<SubscriptionGroupTable>,
    saving: Saving<Held<Saved>>,
    /// Leases of groups that are not there.
    ahead: AheadLocks,
    directory: Arc<Directory>,
    filters: Addr<Filters>,
    clock: NodeClock,
}

impl Groups {
    /// The owner of `table`, which is saved in `file`. Its coordinators tell `filters` what their groups filter.
    pub fn new(
        table: GroupTable,
        file: TableFile<SubscriptionGroupTable>,
        directory: Arc<Directory>,
        filters: Addr<Filters>,
        clock: NodeClock,
    ) -> Groups {
        let (saving, ahead) = (Saving::default(), AheadLocks::default());
        Groups { table, file, saving, ahead, directory, filters, clock }
    }

    /// Publishes a configuration; a group that is new gets its coordinator.
    fn publish(&mut self, config: Arc<SubscriptionGroupConfig>) -> Arc<GroupView> {
        if let Some(view) = self.directory.group(&config.group_name) {
            view.publish_config(config);
            self.directory.note_change();
            return view;
        }
        let context = Context::<RebalanceCoordinator>::new();
        let view = Arc::new(GroupView::new(config, actix::AsyncContext::address(&context)));
        let (directory, filters) = (self.directory.clone(), self.filters.clone());
        let locks = self.ahead.take(view.name()).unwrap_or_default();
        let coordinator =
            RebalanceCoordinator::new(view.clone(), locks, directory, filters, self.clock.clone());
        context.run(coordinator);
        self.directory.publish_group(view.clone());
        view
    }

    /// Keeps the leases of a group that was deleted. Who asks for one meanwhile waits.
    fn keep_leases(&self, gone: &GroupView, context: &mut Context<Groups>) {
        let name = gone.name().clone();
        let given = gone.coordinator().send(GiveLeases).into_actor(self);
        let keep = |locks, groups: &mut Groups, _: &mut Context<Groups>| {
            if let Ok(locks) = locks {
                groups.ahead.keep(name, locks, groups.clock.0.now_ms());
            }
        };
        given.map(keep).wait(context);
    }

    fn save_for(&mut self, context: &mut Context<Groups>) -> Waiting<Saved> {
        let (held, waiting) = hold();
        self.saving.changed_for(held);
        self.save(context);
        waiting
    }
}

impl Saves for Groups {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (file, table) = (self.file.clone(), self.table.clone());
        move || file.save(&table.table())
    }
}

impl Actor for Groups {
    type Context = Context<Groups>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        let configs: Vec<_> = self.table.iter().cloned().collect();
        for config in configs {
            let view = self.publish(config.clone());
            view.publish_forbidden(self.table.forbidden_to(&config.group_name));
        }
    }
}

impl Handler<EnsureGroup> for Groups {
    type Result = Result<Arc<GroupView>, Refusal>;

    fn handle(&mut self, EnsureGroup(group): EnsureGroup, context: &mut Self::Context) -> Self::Result {
        if let Some(view) = self.directory.group(&group) {
            return Ok(view);
        }
        let config = self.table.ensure(&group, self.clock.0.now_ms())?;
        if self.table.is_kept(&group) {
            self.saving.changed();
            self.save(context);
        }
        Ok(self.publish(config))
    }
}

impl Handler<PutGroups> for Groups {
    type Result = Result<Waiting<Saved>, Refusal>;

    fn handle(&mut self, PutGroups(configs): PutGroups, context: &mut Self::Context) -> Self::Result {
        for config in self.table.put_all(configs, self.clock.0.now_ms())? {
            self.publish(config);
        }
        Ok(self.save_for(context))
    }
}

impl Handler<RemoveGroup> for Groups {
    type Result = MessageResult<RemoveGroup>;

    fn handle(&mut self, RemoveGroup(group): RemoveGroup, context: &mut Self::Context) -> Self::Result {
        if self.table.remove(&group, self.clock.0.now_ms())
            && let Some(view) = self.directory.withdraw_group(&group)
        {
            self.keep_leases(&view, context);
        }
        MessageResult(self.save_for(context))
    }
}

impl Handler<ForbidReading> for Groups {
    type Result = MessageResult<ForbidReading>;

    fn handle(&mut self, forbid: ForbidReading, context: &mut Self::Context) -> Self::Result {
        let ForbidReading { group, topic, readable } = forbid;
        let now_ms = self.clock.0.now_ms();
        let changed = readable.is_some_and(|may| self.table.forbid_reading(&group, &topic, !may, now_ms));
        if changed && let Some(view) = self.directory.group(&group) {
            view.publish_forbidden(self.table.forbidden_to(&group));
        }
        let saved = changed.then(|| self.save_for(context));
        MessageResult((!self.table.is_reading_forbidden(&group, &topic), saved))
    }
}

impl Handler<LockAhead> for Groups {
    type Result = Result<Vec<MessageQueue>, Arc<GroupView>>;

    fn handle(&mut self, LockAhead(group, wanted): LockAhead, _: &mut Self::Context) -> Self::Result {
        if let Some(view) = self.directory.group(&group) {
            return Err(view);
        }
        let now_ms = self.clock.0.now_ms();
        Ok(self.ahead.lock((&group, &wanted.client_id), wanted.queues, now_ms))
    }
}

impl Handler<UnlockAhead> for Groups {
    type Result = Result<(), Arc<GroupView>>;

    fn handle(&mut self, UnlockAhead(group, given): UnlockAhead, _: &mut Self::Context) -> Self::Result {
        if let Some(view) = self.directory.group(&group) {
            return Err(view);
        }
        self.ahead.unlock((&group, &given.client_id), &given.queues);
        Ok(())
    }
}

impl Handler<AllGroups> for Groups {
    type Result = MessageResult<AllGroups>;

    fn handle(&mut self, _: AllGroups, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.table.table())
    }
}

impl Handler<SaveGroups> for Groups {
    type Result = MessageResult<SaveGroups>;

    fn handle(&mut self, _: SaveGroups, context: &mut Self::Context) -> Self::Result {
        MessageResult(self.save_for(context))
    }
}
