//! Messages that are delivered later: after one of the broker's delays, after any time, at a time; and one that is
//! taken back before it is due.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(clippy::disallowed_methods, reason = "the time of day is what the example is about")]

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use troupemq::{Broker, Message};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // Brokers let messages be taken back only if they are told to.
    let recalls = |settings: &mut troupemq::BrokerConfig| settings.recall_message_enable = true;
    let broker = Broker::builder().temporary().settings(recalls).start().await?;
    let producer = broker.producer("reminders-writer").start().await?;
    let mut reminders =
        broker.consumer("reminders").subscribe("reminders", "*").from_first().stream().await?;

    let begun = Instant::now();
    // Level 1 of a broker is 1 s, unless it is configured otherwise.
    producer.send(Message::new("reminders", "tea is ready").delay_level(1)).await?;
    let drink = Message::new("reminders", "drink it").deliver_after(Duration::from_secs(2));
    producer.send(drink).await?;
    let epoch_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    producer.send(Message::new("reminders", "wash the cup").deliver_at(epoch_ms + 3_000)).await?;
    producer.send(Message::new("reminders", "put the kettle on")).await?;

    let tomorrow = Message::new("reminders", "buy tea").deliver_after(Duration::from_secs(86_400));
    let receipt = producer.send(tomorrow).await?;
    let handle = receipt.recall_handle.ok_or("a message for later has a handle")?;
    producer.recall("reminders", &handle).await?;

    for _ in 0..4 {
        let delivery = reminders.next().await.ok_or("the stream goes on")??;
        let after = begun.elapsed();
        println!("after {:.1} s: {:?}", after.as_secs_f64(), delivery.message().body());
        let earliest_ms = match &delivery.message().body()[..] {
            b"put the kettle on" => 0,
            b"tea is ready" => 900,
            b"drink it" => 1_900,
            b"wash the cup" => 2_900,
            other => return Err(format!("{other:?} was taken back").into()),
        };
        assert!(after.as_millis() >= earliest_ms);
        delivery.ack().await?;
    }
    broker.shutdown().await?;
    Ok(())
}
