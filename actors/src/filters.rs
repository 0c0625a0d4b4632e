//! `Filters`: who filters what by properties (RocketMQ: `ConsumerFilterManager`).
//!
//! Invariants:
//! - it runs on the arbiter of log and dispatcher: a filter is published before any message is dispatched that
//!   is younger than it, so what its bits say "no" to was really asked;
//! - what it says is a help, never a condition: a pull whose filter is not in the book looks at every message;
//! - the table outlives the broker, so that messages which come before their consumers get their bits.
//!
//! Contents: `table` the state, `book` what is published.

pub mod book;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult};
use troupemq_codec::Text;
use troupemq_codec::filter::MessageFilter;
use troupemq_store::tables::{ConsumerFilterTable, TableFile};
use troupemq_store::{LogReader, StoreError};

use crate::commit_log::MAILBOX;
use crate::config::NodeClock;
use crate::held::{Held, Waiting, hold};
use crate::saving::{Saved, Saves, Saving};
use book::FilterBook;
use table::FilterTable;

/// How often dead filters are looked for.
const CLEAN_EVERY: Duration = Duration::from_secs(600);

/// What one group filters in one topic.
#[derive(Debug, Clone)]
pub struct PropertyFilter {
    /// The topic.
    pub topic: Text,
    /// The expression as the client wrote it.
    pub expression: Text,
    /// Its language.
    pub expression_type: Text,
    /// The client's version of it, in epoch ms.
    pub version: i64,
    /// The same, compiled.
    pub filter: Arc<MessageFilter>,
}

// ---- messages

/// All that a group filters by properties now. Sent by its coordinator when that changes; with none when the last
/// member is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GroupFilters {
    /// The group.
    pub group: Text,
    /// By topic, each once.
    pub filters: Vec<PropertyFilter>,
}

/// Save what changed. Sent by the node when it stops; what is answered is done when it is saved.
#[derive(Debug, Message)]
#[rtype(result = "Waiting<Saved>")]
pub struct SaveFilters;

// ---- actor

/// Owner of the filters of all groups.
#[derive(Debug)]
pub struct Filters {
    table: FilterTable,
    file: TableFile<ConsumerFilterTable>,
    saving: Saving<Held<Saved>>,
    book: FilterBook,
    /// Tells the time of the last message: a clock that went back makes no filter older than it is.
    log: LogReader,
    /// How long a dead filter is kept, in ms.
    span_ms: i64,
    clock: NodeClock,
}

impl Filters {
    /// The owner of `table`, which is saved in `file` and published in `book`.
    pub fn new(
        (table, file): (FilterTable, TableFile<ConsumerFilterTable>),
        book: FilterBook,
        log: LogReader,
        span_ms: i64,
        clock: NodeClock,
    ) -> Filters {
        book.publish(table.pages());
        Filters { table, file, saving: Saving::default(), book, log, span_ms, clock }
    }

    fn changed(&mut self, context: &mut Context<Filters>) {
        self.book.publish(self.table.pages());
        self.saving.changed();
        self.save(context);
    }

    fn clean(&mut self, context: &mut Context<Filters>) {
        if self.table.clean(self.clock.0.now_ms(), self.span_ms) {
            self.changed(context);
        }
    }
}

impl Saves for Filters {
    fn saving(&mut self) -> &mut Saving<Held<Saved>> {
        &mut self.saving
    }

    fn writer(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (file, table) = (self.file.clone(), self.table.stored());
        move || file.save(&table)
    }
}

impl Actor for Filters {
    type Context = Context<Filters>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(CLEAN_EVERY, Filters::clean);
    }
}

impl Handler<GroupFilters> for Filters {
    type Result = ();

    fn handle(&mut self, GroupFilters { group, filters }: GroupFilters, context: &mut Self::Context) {
        let now_ms = self.clock.0.now_ms().max(self.log.last_store_ms());
        if self.table.register(&group, &filters, now_ms) {
            self.changed(context);
        }
    }
}

impl Handler<SaveFilters> for Filters {
    type Result = MessageResult<SaveFilters>;

    fn handle(&mut self, _: SaveFilters, context: &mut Self::Context) -> Self::Result {
        let (held, waiting) = hold();
        self.saving.changed_for(held);
        self.save(context);
        MessageResult(waiting)
    }
}
