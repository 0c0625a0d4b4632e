//! Starts and stops the actors that deliver what waits: delay levels.
//!
//! Invariants:
//! - they stop before the log does, so that nothing is half delivered at an orderly stop.

use std::sync::Arc;

use actix::{Actor, Addr};
use troupemq_codec::request::DelayOffsetTable;
use troupemq_store::tables::TableFile;

use crate::cast::BrokerCast;
use crate::node::{NodeError, Stage};
use crate::schedule::{Schedule, StopSchedule};
use crate::watchdog::Watchdog;

/// The actors that deliver.
pub(super) struct Delivery {
    schedule: Addr<Schedule>,
}

impl Delivery {
    /// Starts them on this arbiter.
    pub(super) fn start(
        stage: &mut Stage,
        cast: &Arc<BrokerCast>,
        watchdog: &mut Watchdog,
    ) -> Result<Delivery, NodeError> {
        stage.enter("Schedule");
        let (file, saved) = TableFile::<DelayOffsetTable>::open(&cast.store_dir)?;
        let schedule = Schedule::new(cast.clone(), file, saved).start();
        watchdog.watch("Schedule", schedule.clone());
        Ok(Delivery { schedule })
    }

    /// Ends all deliveries and saves how far they are.
    pub(super) async fn stop(&self) -> Result<(), NodeError> {
        let part = "Schedule";
        let saving = self.schedule.send(StopSchedule).await.map_err(|_| NodeError::Incomplete { part })?;
        match saving.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(NodeError::Incomplete { part }),
        }
    }
}
