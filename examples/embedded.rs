//! A broker within the program: its store in a folder, no socket.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use futures::StreamExt;
use troupemq::{Broker, Message};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let broker = Broker::builder().store_dir(dir.path()).start().await?;
    let producer = broker.producer("orders-writer").start().await?;
    let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
    println!("{} in {} at {}", receipt.message_id, receipt.queue, receipt.queue_offset);

    let orders =
        broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().stream().await?;
    // It is a stream like any other.
    let mut orders = orders.take(1);
    while let Some(delivery) = orders.next().await {
        let delivery = delivery?;
        println!("{} {:?}", delivery.message().topic(), delivery.message().body());
        delivery.ack().await?;
    }
    broker.shutdown().await?;

    // What was sent and how far it was read is still there.
    let broker = Broker::builder().store_dir(dir.path()).start().await?;
    let queue = receipt.queue;
    assert_eq!(broker.client().max_offset(&queue).await?, receipt.queue_offset + 1);
    assert_eq!(broker.client().committed("orders-reader", &queue).await?, Some(receipt.queue_offset + 1));
    broker.shutdown().await?;
    Ok(())
}
