//! Starts and stops the actors that deliver what waits: delay levels, timers, transactions, retries.
//!
//! Invariants:
//! - they stop before the log does, so that nothing is half delivered at an orderly stop;
//! - how far they are is saved behind the flush of what they delivered, at a stop as at any other time.

use std::sync::Arc;

use actix::{Addr, Context};
use troupemq_codec::request::DelayOffsetTable;
use troupemq_store::tables::TableFile;
use troupemq_store::timer::TimerStore;

use crate::cast::BrokerCast;
use crate::node::{NodeError, Stage};
use crate::retry::Retry;
use crate::schedule::{SaveSchedule, Schedule, StopSchedule};
use crate::timer::{SaveTimer, StopTimer, Timer};
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
        let transactions = addressed.checker.run(TransactionChecker::new(cast.clone(), progress)?);
        watchdog.watch("TransactionChecker", transactions.clone());
        stage.enter("Retry");
        watchdog.watch("Retry", addressed.retry.run(Retry::new(cast.clone())));
        Ok(Delivery { schedule, timer, transactions })
    }

    /// Ends all deliveries.
    pub(super) async fn stop(&self) -> Result<(), NodeError> {
        let gone = |part| NodeError::Incomplete { part };
        let schedule = self.schedule.send(StopSchedule).await.map_err(|_| gone("Schedule"))?;
        let timer = self.timer.send(StopTimer).await.map_err(|_| gone("Timer"))?;
        schedule.await.map_err(|_| gone("Schedule"))?;
        timer.await.map_err(|_| gone("Timer"))
    }

    /// Saves how far they are, once the disk has all of them: who is killed in between finds them in the log.
    pub(super) async fn save(&self) -> Result<(), NodeError> {
        let gone = |part| NodeError::Incomplete { part };
        self.transactions.send(CommitProgress).await.map_err(|_| gone("TransactionChecker"))?;
        let schedule = self.schedule.send(SaveSchedule).await.map_err(|_| gone("Schedule"))?;
        let timer = self.timer.send(SaveTimer).await.map_err(|_| gone("Timer"))?;
        for (part, saving) in [("Schedule", schedule), ("Timer", timer)] {
            if !matches!(saving.await, Ok(Ok(()))) {
                return Err(gone(part));
            }
        }
        Ok(())
    }
}
