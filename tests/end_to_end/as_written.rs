//! The program that README and the front page of the documentation show, run as it is written there.
//!
//! Invariants:
//! - what runs here is the text of both, but for the address of the name servers and for the one line that ends it.

use std::error::Error;
use std::path::PathBuf;

use tokio::time::timeout;

use crate::daemon::LIMIT;

const README: &str = include_str!("../../README.md");
const FRONT_PAGE: &str = include_str!("../../src/lib.rs");
const THIS: &str = include_str!("as_written.rs");

/// Without an end the program would wait for further messages.
fn end(broker: &troupemq::Broker) {
    let broker = broker.clone();
    tokio::spawn(async move { broker.shutdown().await });
}

#[expect(clippy::print_stdout, reason = "as it is written")]
async fn run(dir: PathBuf, name_servers: &str) -> Result<(), Box<dyn Error>> {
    #[expect(unused_imports, reason = "as it is written: the stream has a `next` of its own")]
    use futures::StreamExt;
    use troupemq::{Broker, Client, Message};

    let broker = Broker::builder().store_dir(&dir).start().await?;
    let client = Client::builder().name_servers(name_servers).connect().await?;

    let producer = broker.producer("orders-writer").start().await?;
    let receipt = producer.send(Message::new("orders", "hello").tag("new").key("42")).await?;
    let mut orders =
        broker.consumer("orders-reader").subscribe("orders", "new || paid").from_first().stream().await?;
    while let Some(delivery) = orders.next().await {
        let delivery = delivery?;
        println!("{} {:?}", delivery.message().topic(), delivery.message().body());
        delivery.ack().await?;
        end(&broker);
    }
    broker.shutdown().await?;
    // Behind what is shown.
    assert_eq!((receipt.queue_offset, client.client_id().is_empty()), (0, false));
    Ok(())
}

/// A program without remarks, blanks, and what is before its first line and behind its last one.
fn bare(text: &str, begin: &str) -> String {
    let (_, rest) = text.split_once(begin).expect("the program is there");
    let lines = rest.lines().map(|line| line.trim().trim_start_matches("//!").trim());
    let code = lines.map(|line| line.split("//").next().unwrap_or(line));
    let code: String = code.collect::<Vec<_>>().concat().split_whitespace().collect();
    let (program, _) = code.split_once("broker.shutdown().await?;").expect("it ends with the broker");
    program.to_owned()
}

#[test]
fn readme_and_front_page_show_what_is_run_here() {
    let here = bare(THIS, "as it is written: the stream");
    let (_, here) = here.split_once("usefutures::StreamExt;").expect("it is imported");
    let here = here.replace("(name_servers)", "(\"127.0.0.1:9876\")").replace("end(&broker);", "");
    assert_eq!(bare(README, "```rust\n"), here);
    assert_eq!(bare(FRONT_PAGE, "use futures::StreamExt;"), here);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_is_shown_runs_as_it_is_written() {
    let any = ([127, 0, 0, 1], 0);
    let cluster = troupemq::Broker::builder().temporary().listen(any).listen_as_name_server(any);
    let cluster = cluster.start().await.unwrap();
    let name_servers = cluster.name_server_address().expect("it has one").to_string();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let ran = timeout(LIMIT, run(dir.clone(), &name_servers)).await.expect("it ends");
    ran.unwrap_or_else(|error| panic!("{error}"));
    let again = troupemq::Broker::builder().store_dir(&dir).start().await.unwrap();
    let mut committed = Vec::new();
    for queue in again.client().queues("orders").await.unwrap() {
        committed.extend(again.client().committed("orders-reader", &queue).await.unwrap());
    }
    assert_eq!(committed.iter().max(), Some(&1), "the message was acknowledged: {committed:?}");
    again.shutdown().await.unwrap();
    cluster.shutdown().await.unwrap();
}
