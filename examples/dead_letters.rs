//! Messages that nobody can consume end among the dead letters of their group, a topic like any other.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use troupemq::{Broker, Message, Outcome};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::builder().temporary().start().await?;
    let producer = broker.producer("orders-writer").start().await?;
    for body in ["good", "no order at all"] {
        producer.send(Message::new("orders", body)).await?;
    }

    let reader = broker.consumer("orders-reader").subscribe("orders", "*").from_first();
    let listener = reader
        .listen(|message| async move {
            match &message.body()[..] {
                b"good" => Outcome::Done,
                _ => Outcome::GiveUp,
            }
        })
        .await?;

    let dead = broker.consumer("undertaker").subscribe("%DLQ%orders-reader", "*").from_first();
    let mut dead = dead.stream().await?;
    let delivery = dead.next().await.ok_or("the stream goes on")??;
    let letter = delivery.message();
    println!("{:?}, once sent to {:?}", letter.body(), letter.property("RETRY_TOPIC"));
    assert_eq!(&letter.body()[..], b"no order at all");
    delivery.ack().await?;
    listener.shutdown().await;
    broker.shutdown().await?;
    Ok(())
}
