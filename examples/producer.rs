//! Every way to send. `cargo run --example producer` sends to a broker of its own; with a name server as argument
//! (`-- 127.0.0.1:9876`) to that cluster.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use troupemq::{Broker, Client, Compression, Message};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // The same handles, whether the broker is far away or within this program.
    let own = Broker::builder().temporary().start().await?;
    let client = match std::env::args().nth(1).filter(|argument| argument.contains(':')) {
        Some(name_servers) => Client::builder().name_servers(&name_servers).connect().await?,
        None => own.client().clone(),
    };
    let producer = client.producer("orders-writer").compression(Compression::Zstd, 3).start().await?;

    let receipt = producer.send(Message::new("orders", "one").tag("new").key("42")).await?;
    println!("stored {} in {} at {}", receipt.message_id, receipt.queue, receipt.queue_offset);

    let batch: Vec<_> = (0..10).map(|n| Message::new("orders", format!("of ten: {n}"))).collect();
    let receipt = producer.send_batch(&batch).await?;
    println!("ten in one request, from {} at {}", receipt.queue, receipt.queue_offset);

    // Messages of one key keep their order: they all go to one queue.
    for step in ["made", "paid", "sent"] {
        let receipt = producer.send_ordered("order 42", Message::new("orders", step)).await?;
        println!("{step}: {} at {}", receipt.queue, receipt.queue_offset);
    }

    let queue = &client.queues("orders").await?[0];
    let receipt = producer.send_to(queue, Message::new("orders", "right here")).await?;
    println!("to a queue of our choice: {} at {}", receipt.queue, receipt.queue_offset);

    producer.send_oneway(Message::new("orders", "nobody will know whether this arrived")).await?;

    let large = Message::new("orders", vec![b'x'; 100_000]).with_property("kind", "compressed on its way");
    producer.send(large).await?;

    client.shutdown().await;
    own.shutdown().await?;
    Ok(())
}
