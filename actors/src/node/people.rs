//! Starts the actors that know clients and consumer groups.
//!
//! Invariants:
//! - tables are read before any actor of them is started: a damaged table stops the start, not the node.

use std::sync::Arc;

use actix::{Actor, Addr};
use troupemq_codec::group::SubscriptionGroupTable;
use troupemq_codec::request::{ConsumerOffsetTable, RequestModeTable};
use troupemq_store::tables::{ConsumerFilterTable, LightOffsetTable, TableFile};
use troupemq_store::{LogReader, StoreConfig, StoreError};

use crate::assignment::Assignments;
use crate::config::{BrokerConfig, NodeClock};
use crate::detour::HALF_TOPIC;
use crate::directory::Directory;
use crate::filters::book::FilterBook;
use crate::filters::table::FilterTable;
use crate::filters::{Filters, SaveFilters};
use crate::groups::table::{GroupRules, GroupTable};
use crate::groups::{Groups, SaveGroups};
use crate::heartbeat::HeartbeatScanner;
use crate::node::{NodeError, Stage};
use crate::offsets::{ConsumerOffsets, Published, SaveOffsets};
use crate::stats::Stats;
use crate::transaction::PROGRESS_GROUP;
use crate::transaction::records::OP_TOPIC;
use crate::watchdog::Watchdog;

/// The tables of groups and offsets, read and not yet owned.
pub(super) struct PeopleTables {
    groups: (TableFile<SubscriptionGroupTable>, SubscriptionGroupTable),
    offsets: (TableFile<ConsumerOffsetTable>, ConsumerOffsetTable),
    light: Option<(TableFile<LightOffsetTable>, LightOffsetTable)>,
    filters: (FilterTable, TableFile<ConsumerFilterTable>),
    book: FilterBook,
    modes: (TableFile<RequestModeTable>, RequestModeTable),
}

impl PeopleTables {
    /// Reads them; `filters` were read before.
    pub(super) fn read(
        store: &StoreConfig,
        (filters, book): ((FilterTable, TableFile<ConsumerFilterTable>), FilterBook),
    ) -> Result<PeopleTables, StoreError> {
        let dir = store.dir.as_path();
        let (groups, mut offsets) = (TableFile::open(dir)?, TableFile::open(dir)?);
        let light = store.light_queues_enabled.then(|| TableFile::<LightOffsetTable>::open(dir));
        let mut light = light.transpose()?;
        if let Some((_, light)) = &mut light {
            offsets.1 = light.newer_of(offsets.1);
        }
        let modes = TableFile::open(dir)?;
        Ok(PeopleTables { groups, offsets, light, filters, book, modes })
    }

    /// How far transactions were read: half messages, then what was decided about them.
    pub(super) fn transactions(&self) -> (Option<i64>, Option<i64>) {
        let of = |topic: &str| {
            let key = format!("{topic}@{PROGRESS_GROUP}");
            self.offsets.1.offset_table.get(key.as_str()).and_then(|queues| queues.get(&0)).copied()
        };
        (of(HALF_TOPIC), of(OP_TOPIC))
    }
}

/// The actors that know clients and groups.
#[derive(Clone)]
pub(super) struct People {
    pub(super) groups: Addr<Groups>,
    pub(super) filters: Addr<Filters>,
    pub(super) book: FilterBook,
    pub(super) offsets: Addr<ConsumerOffsets>,
    pub(super) assignments: Addr<Assignments>,
    pub(super) heartbeats: Addr<HeartbeatScanner>,
    pub(super) published: Published,
    pub(super) stats: Arc<Stats>,
}

impl People {
    /// Starts them on this arbiter.
    pub(super) fn start(
        stage: &mut Stage,
        tables: PeopleTables,
        directory: &Arc<Directory>,
        (config, log, clock): (&BrokerConfig, &LogReader, &NodeClock),
        watchdog: &mut Watchdog,
    ) -> People {
        let (file, saved) = tables.groups;
        let (auto_create, light) = (config.auto_create_subscription_group, tables.light.is_some());
        let table = GroupTable::new(saved, GroupRules { auto_create, light });
        stage.enter("RebalanceCoordinator");
        stage.enter("Groups");
        stage.enter("Filters");
        let (book, span_ms) = (tables.book, config.filter_data_clean_time_span);
        let filters = Filters::new(tables.filters, book.clone(), log.clone(), span_ms, clock.clone()).start();
        let groups = Groups::new(table, file, directory.clone(), filters.clone(), clock.clone()).start();
        stage.enter("ConsumerOffsets");
        let (published, stats) = (Published::default(), Arc::new(Stats::default()));
        let told = (published.clone(), stats.clone());
        let of_table = (clock.clone(), config.consumer_offsets_max);
        let offsets = ConsumerOffsets::new(tables.offsets, tables.light, told, of_table).start();
        stage.enter("Assignments");
        let (file, saved) = tables.modes;
        let assignments = Assignments::new(file, saved, clock.clone()).start();
        stage.enter("HeartbeatScanner");
        let heartbeats = HeartbeatScanner::new(directory.clone(), clock.clone()).start();
        watchdog.watch("Groups", groups.clone());
        watchdog.watch("Filters", filters.clone());
        watchdog.watch("ConsumerOffsets", offsets.clone());
        watchdog.watch("HeartbeatScanner", heartbeats.clone());
        People { groups, filters, book, offsets, assignments, heartbeats, published, stats }
    }

    /// Saves what changed.
    pub(super) async fn stop(&self) -> Result<(), NodeError> {
        let gone = |part| move |_| NodeError::Incomplete { part };
        let groups = self.groups.send(SaveGroups).await.map_err(gone("Groups"))?;
        let offsets = self.offsets.send(SaveOffsets).await.map_err(gone("ConsumerOffsets"))?;
        let filters = self.filters.send(SaveFilters).await.map_err(gone("Filters"))?;
        for (part, saving) in [("Groups", groups), ("ConsumerOffsets", offsets), ("Filters", filters)] {
            if !matches!(saving.await, Ok(Ok(()))) {
                return Err(NodeError::Incomplete { part });
            }
        }
        Ok(())
    }
}
