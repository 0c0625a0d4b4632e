//! Messages delivered to an actor: a consumer of an embedded broker sends them, the actor's answers settle them.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use actix::{Actor, Context, Handler, Message as ActixMessage, MessageResult, System};
use troupemq::embedded::{Broker, Incoming};
use troupemq::{Message, Outcome};

/// Adds up amounts.
#[derive(Debug, Default)]
struct Till {
    total: i64,
}

/// How much is in the till, and of how many sales?
#[derive(Debug, ActixMessage)]
#[rtype(result = "i64")]
struct Total;

impl Actor for Till {
    type Context = Context<Till>;
}

impl Handler<Incoming> for Till {
    type Result = MessageResult<Incoming>;

    fn handle(&mut self, Incoming(sale): Incoming, _: &mut Context<Till>) -> MessageResult<Incoming> {
        let amount = std::str::from_utf8(sale.body()).ok().and_then(|text| text.parse::<i64>().ok());
        MessageResult(match amount {
            Some(amount) => {
                self.total += amount;
                Outcome::Done
            }
            None => Outcome::GiveUp,
        })
    }
}

impl Handler<Total> for Till {
    type Result = i64;

    fn handle(&mut self, _: Total, _: &mut Context<Till>) -> i64 {
        self.total
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    System::new().block_on(async {
        let broker = Broker::builder().temporary().start().await?;
        let till = Till::default().start();
        let consumer = broker.consumer("till").subscribe("sales", "*").from_first();
        let listener = consumer.deliver_to(till.clone().recipient()).await?;

        let producer = broker.producer("shop").start().await?;
        for sale in ["3", "nonsense", "4", "5"] {
            producer.send(Message::new("sales", sale)).await?;
        }
        while till.send(Total).await? < 12 {
            tokio::task::yield_now().await;
        }
        println!("{} in the till", till.send(Total).await?);
        listener.shutdown().await;
        broker.shutdown().await?;
        Ok(())
    })
}
