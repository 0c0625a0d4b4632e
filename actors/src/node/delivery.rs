//! Starts and stops the actors that deliver what waits: delay levels, timers, transactions, retries.
//!
//! Invariants:
//! - they stop before the log does, so that nothing is half delivered at an orderly stop.

use std::sync::Arc;

use actix::{Addr, Context};
use troupemq_codec::request::DelayOffsetTable;
use troupemq_store::tables::TableFile;
use troupemq_store::timer::TimerStore;

use crate::cast::BrokerCast;
use crate::node::{NodeError, Stage};
use crate::retry::Retry;
use crate::schedule::{Schedule, StopSchedule};
use crate::timer::{StopTimer, Timer};
use crate::transaction::{CommitProgress, TransactionChecker};
use crate::watchdog::Watchdog;

/// The actors that deliver, as long as they have an address only.
#[derive(Default)]
pub(super) struct Addressed {
    pub(super) timer: Context<Timer>,
    pub(super) schedule: Context<Schedule>,
    pub(super) checker: Context<TransactionChecker>,
    pub(super) retry: Context<Retry>,
}

/// The actors that deliver.
pub(super) struct Delivery {
    schedule: Addr<Schedule>,
    timer: Addr<Timer>,
    transactions: Addr<TransactionChecker>,
}

impl Delivery {
    /// Starts them on this arbiter.
    pub(super) fn start(
        stage: &mut Stage,
        cast: &Arc<BrokerCast>,
        (addressed, progress, timers): (Addressed, (Option<i64>, Option<i64>), TimerStore),
        watchdog: &mut Watchdog,
    ) -> Result<Delivery, NodeError> {
        stage.enter("Timer");
        let timer = addressed.timer.run(Timer::new(cast.clone(), timers));
        watchdog.watch("Timer", timer.clone());
        stage.enter("Schedule");
        let (file, saved) = TableFile::<DelayOffsetTable>::open(&cast.store_dir)?;
        let schedule = addressed.schedule.run(Schedule::new(cast.clone(), file, saved));
        watchdog.watch("Schedule", schedule.clone());
        stage.enter("TransactionChecker");
        let transactions = addressed.checker.run(TransactionChecker::new(cast.clone(), progress));
        watchdog.watch("TransactionChecker", transactions.clone());
        stage.enter("Retry");
        watchdog.watch("Retry", addressed.retry.run(Retry::new(cast.clone())));
        Ok(Delivery { schedule, timer, transactions })
    }

    /// Ends all deliveries and saves how far they are.
    pub(super) async fn stop(&self) -> Result<(), NodeError> {
        let part = "TransactionChecker";
        self.transactions.send(CommitProgress).await.map_err(|_| NodeError::Incomplete { part })?;
        let part = "Schedule";
        let saving = self.schedule.send(StopSchedule).await.map_err(|_| NodeError::Incomplete { part })?;
        let saved = match saving.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NodeError::Incomplete { part }),
        };
        let part = "Timer";
        let saving = self.timer.send(StopTimer).await.map_err(|_| NodeError::Incomplete { part })?;
        match saving.await {
            Ok(Ok(())) => saved,
            _ => Err(NodeError::Incomplete { part }),
        }
    }
}
