//! What a message of a load goes through before it stands in its topic: nothing, a delay, or a transaction.
//!
//! Invariants:
//! - a transaction goes as with RocketMQ's Java client: its half message is answered, its end is sent one-way and
//!   waited for by nobody.

use clap::Args;
use troupemq_codec::message::properties::{DELAY, PRODUCER_GROUP, TIMER_DELAY_MS, TRANSACTION_PREPARED};
use troupemq_codec::message::{OffsetId, Properties, sys_flag};
use troupemq_codec::request::{EndTransaction, EndTransactionHeader, TRANSACTION_COMMIT};
use troupemq_codec::{Command, CommandView, HeaderForm, Text};

/// Group of the load's producers.
pub(super) const GROUP: &str = "troupemq-bench";

/// What each message of the load goes through.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Args)]
#[group(multiple = false)]
pub(super) struct Way {
    /// Send each message with this delay level
    #[arg(long, value_name = "N")]
    level: Option<u32>,
    /// Send each message to be delivered after this time
    #[arg(long, value_name = "MS")]
    after: Option<u64>,
    /// Send each message as half of a transaction, which is committed when it is stored
    #[arg(long)]
    transactions: bool,
}

impl Way {
    /// What the load is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way { transactions: true, .. } => "transactions",
            Way { level: Some(_), .. } => "send by level",
            Way { after: Some(_), .. } => "send of timers",
            _ => "send",
        }
    }

    /// The properties that ask for it.
    pub(super) fn properties(self) -> Text {
        let mut properties = Properties::default();
        if let Some(level) = self.level {
            properties.set(DELAY, &level.to_string());
        }
        if let Some(ms) = self.after {
            properties.set(TIMER_DELAY_MS, &ms.to_string());
        }
        if self.transactions {
            properties.set(TRANSACTION_PREPARED, "true");
            properties.set(PRODUCER_GROUP, GROUP);
        }
        String::from_utf8_lossy(properties.encoded()).into_owned().into()
    }

    /// The flags of its sends.
    pub(super) fn sys_flag(self) -> i32 {
        if self.transactions { sys_flag::TRANSACTION_PREPARED } else { 0 }
    }

    /// What is to be sent when a message is answered as stored: the end of its transaction, if it is half of one.
    pub(super) fn end(self, topic: &Text, stored: &CommandView<'_>, form: HeaderForm) -> Option<Command> {
        if !self.transactions {
            return None;
        }
        let text = |key| stored.get(key).map(Text::from);
        let id: OffsetId = text("msgId")?.parse().ok()?;
        let mut end = Command::request::<EndTransaction>(&EndTransactionHeader {
            topic: Some(topic.clone()),
            producer_group: Text::from_static(GROUP),
            queue_offset: text("queueOffset")?.parse().ok()?,
            log_offset: id.log_offset,
            outcome: TRANSACTION_COMMIT,
            from_check: Some(false),
            message_id: text("transactionId").unwrap_or_default(),
            transaction_id: text("transactionId"),
        });
        end.form = form;
        Some(end.oneway())
    }
}
