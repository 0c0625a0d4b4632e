//! A message that waits for its answer.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use troupemq::{Broker, Message, Outcome};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::builder().temporary().start().await?;
    let answering = broker.producer("prices").start().await?;
    let listener = broker
        .consumer("prices")
        .subscribe("questions", "*")
        .from_first()
        .listen(move |question| {
            let answering = answering.clone();
            async move {
                let answer = format!("{} costs 3.20", String::from_utf8_lossy(question.body()));
                match answering.reply(&question, answer).await {
                    Ok(_) => Outcome::Done,
                    Err(error) => {
                        println!("not answered: {error}");
                        Outcome::GiveUp
                    }
                }
            }
        })
        .await?;

    let asking = broker.producer("shop").start().await?;
    let reply = asking.request(Message::new("questions", "tea"), Duration::from_secs(20)).await?;
    println!("{:?}", reply.body);
    assert_eq!(&reply.body[..], b"tea costs 3.20");
    listener.shutdown().await;
    broker.shutdown().await?;
    Ok(())
}
