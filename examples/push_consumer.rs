//! A function is called for each message, several at a time; a message that fails comes again.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use troupemq::{Broker, Message, Outcome};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // Messages that fail come again after the delays of the broker, from its third level on; short ones do here.
    let quick = |store: &mut troupemq::StoreConfig| store.delay_levels = "1s 1s 1s 1s".to_owned();
    let broker = Broker::builder().temporary().store_settings(quick).start().await?;
    let producer = broker.producer("orders-writer").start().await?;
    for n in 0..10 {
        producer.send(Message::new("orders", format!("order {n}")).tag("new")).await?;
    }

    let done = Arc::new(AtomicUsize::new(0));
    let all_done = Arc::new(Notify::new());
    let (count, tell) = (done.clone(), all_done.clone());
    let consumer =
        broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().concurrency(4);
    let listener = consumer
        .listen(move |message| {
            let (count, tell) = (count.clone(), tell.clone());
            async move {
                if message.body().ends_with(b"7") && message.reconsume_times() == 0 {
                    println!("{:?} fails the first time", message.body());
                    return Outcome::Again;
                }
                println!("{:?}, tried {} times before", message.body(), message.reconsume_times());
                if count.fetch_add(1, Ordering::Relaxed) + 1 == 10 {
                    tell.notify_one();
                }
                Outcome::Done
            }
        })
        .await?;

    all_done.notified().await;
    listener.shutdown().await;
    assert_eq!(done.load(Ordering::Relaxed), 10);
    broker.shutdown().await?;
    Ok(())
}
