//! Every member of the group gets every message. How far each has come is kept in a file of its own.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use troupemq::{Broker, Message};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let any = ([127, 0, 0, 1], 0);
    let broker = Broker::builder().temporary().listen(any).listen_as_name_server(any).start().await?;
    let producer = broker.producer("prices-writer").start().await?;
    producer.send(Message::new("prices", "tea 3.20")).await?;

    // Two members: one within the program that has the broker, one that comes over the network.
    let name_server = broker.name_server_address().ok_or("it was asked for one")?.to_string();
    let far = troupemq::Client::builder().name_servers(&name_server).connect().await?;
    for (name, client) in [("near", broker.client()), ("far", &far)] {
        let file = folder.path().join(name).join("offsets.json");
        let member = client.consumer("screens").subscribe("prices", "*").from_first();
        let mut prices = member.broadcast().offset_file(&file).stream().await?;
        let delivery = prices.next().await.ok_or("the stream goes on")??;
        println!("{name}: {:?}", delivery.message().body());
        assert_eq!(&delivery.message().body()[..], b"tea 3.20");
        delivery.ack().await?;
        prices.shutdown().await;
        println!("{name} has kept {}", std::fs::read_to_string(file)?);
    }
    far.shutdown().await;
    broker.shutdown().await?;
    Ok(())
}
