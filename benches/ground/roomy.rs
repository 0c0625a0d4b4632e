//! A broker in this process, with files as large as those of a daemon.
//!
//! Invariants:
//! - its folder goes with it.

use troupemq::Broker;
use troupemq_store::StoreConfig;

pub(crate) async fn start(queues: i32) -> Broker {
    let roomy = |store: &mut StoreConfig| {
        store.log_segment_bytes = 1 << 30;
        store.queue_file_bytes = 6_000_000;
        store.index_slots_max = 5_000_000;
        store.index_entries_max = 20_000_000;
    };
    let broker = Broker::builder().temporary().store_settings(roomy).start().await.expect("a broker starts");
    broker.client().create_topic("bench", queues).await.expect("a topic is made");
    broker
}
