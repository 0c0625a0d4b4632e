//! The guides, as pages of this documentation; every program on them is run by `cargo test --doc`.
//!
//! Invariants:
//! - the text stands in `docs/` alone.

#[doc = include_str!("../docs/client.md")]
pub mod client {}

#[doc = include_str!("../docs/embedding.md")]
pub mod embedding {}

/// The program of `README.md`.
///
/// ```no_run
/// # async fn run(dir: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
/// use troupemq::{Broker, Client, Message};
///
/// let broker = Broker::builder().store_dir(&dir).start().await?;                   // embedded; a socket only if asked
/// let client = Client::builder().name_servers("127.0.0.1:9876").connect().await?;  // remote; the rest reads the same
///
/// let producer = broker.producer("orders-writer").start().await?;
/// let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
///
/// let mut orders = broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().stream().await?;
/// while let Some(delivery) = orders.next().await {
///     let delivery = delivery?;
///     println!("{} {:?}", delivery.message().topic(), delivery.message().body());
///     delivery.ack().await?;
/// }
/// broker.shutdown().await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[cfg(doctest)]
mod readme {}
