//! Messages that are delivered later: after one of the broker's delays.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tokio::time::Instant;
use troupemq::{Broker, Message};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::builder().temporary().start().await?;
    let producer = broker.producer("reminders-writer").start().await?;
    let mut reminders =
        broker.consumer("reminders").subscribe("reminders", "*").from_first().stream().await?;

    let begun = Instant::now();
    // Level 1 of a broker is 1 s, unless it is configured otherwise.
    producer.send(Message::new("reminders", "tea is ready").delay_level(1)).await?;
    producer.send(Message::new("reminders", "put the kettle on")).await?;

    for expected in ["put the kettle on", "tea is ready"] {
        let delivery = reminders.next().await.ok_or("the stream goes on")??;
        println!("after {:.1} s: {:?}", begun.elapsed().as_secs_f64(), delivery.message().body());
        assert_eq!(&delivery.message().body()[..], expected.as_bytes());
        delivery.ack().await?;
    }
    assert!(begun.elapsed().as_millis() >= 900);
    broker.shutdown().await?;
    Ok(())
}
