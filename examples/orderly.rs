//! Messages of one key in their order: each queue has one reader at a time, and a message that fails is tried again
//! before those behind it.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tokio::sync::mpsc;
use troupemq::{Broker, Message, Outcome};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::builder().temporary().start().await?;
    let producer = broker.producer("orders-writer").start().await?;
    for step in ["made", "paid", "packed", "sent"] {
        for order in ["order-1", "order-2", "order-3"] {
            let message = Message::new("steps", format!("{order} {step}")).key(order);
            producer.send_ordered(order, message).await?;
        }
    }

    let (seen, mut steps) = mpsc::unbounded_channel();
    let consumer = broker.consumer("steps-reader").subscribe("steps", "*").from_first().in_order();
    let listener = consumer
        .listen(move |message| {
            let seen = seen.clone();
            async move {
                let text = String::from_utf8_lossy(message.body()).into_owned();
                let order = message.keys().next().unwrap_or_default().to_owned();
                match seen.send((order, text)) {
                    Ok(()) => Outcome::Done,
                    Err(_) => Outcome::Again,
                }
            }
        })
        .await?;

    let mut of_order_2 = Vec::new();
    for _ in 0..12 {
        let Some((order, text)) = steps.recv().await else { break };
        println!("{text}");
        if order == "order-2" {
            of_order_2.push(text);
        }
    }
    assert_eq!(of_order_2, ["order-2 made", "order-2 paid", "order-2 packed", "order-2 sent"]);
    listener.shutdown().await;
    broker.shutdown().await?;
    Ok(())
}
