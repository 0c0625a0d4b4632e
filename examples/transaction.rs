//! A message that becomes visible only if the row it speaks of is in the database: the local transaction is one of
//! SQLite. If the program dies between the two, the broker asks, and the checker looks into the database.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::PathBuf;

use rusqlite::Connection;
use troupemq::{Broker, Decision, Message, Producer};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("orders.sqlite");
    let mut database = Connection::open(&file)?;
    database.execute("create table orders (id text primary key, amount integer check (amount > 0))", [])?;

    // Brokers ask after 6 s at the earliest and look every 30 s; this one is quicker.
    let quick = |settings: &mut troupemq::BrokerConfig| {
        settings.transaction_time_out = 200;
        settings.transaction_check_interval = 200;
    };
    let broker = Broker::builder().temporary().settings(quick).start().await?;
    let checker = move |half: troupemq::Received| {
        let (file, id) = (file.clone(), half.keys().next().unwrap_or_default().to_owned());
        async move { look(file, id).unwrap_or(Decision::Unknown) }
    };
    let producer = broker.producer("orders-writer").checker(checker).start().await?;

    order(&producer, &mut database, "order-1", 30).await?;
    order(&producer, &mut database, "order-2", -5).await?;

    // As if the program died after the database, before it could tell the broker.
    let undecided = producer.begin(Message::new("orders", "order-3").key("order-3")).await?;
    database.execute("insert into orders values ('order-3', 12)", [])?;
    drop(undecided);

    let mut orders = broker.consumer("orders-reader").subscribe("orders", "*").from_first().stream().await?;
    for expected in ["order-1", "order-3"] {
        let delivery = orders.next().await.ok_or("the stream goes on")??;
        println!("visible: {:?}", delivery.message().body());
        assert_eq!(&delivery.message().body()[..], expected.as_bytes());
        delivery.ack().await?;
    }
    broker.shutdown().await?;
    Ok(())
}

/// The message first, as a half; then the row; then the decision.
async fn order(
    producer: &Producer,
    database: &mut Connection,
    id: &str,
    amount: i64,
) -> Result<(), Box<dyn Error>> {
    let half = producer.begin(Message::new("orders", id.to_owned()).key(id)).await?;
    let local = database.transaction()?;
    match local.execute("insert into orders values (?1, ?2)", (id, amount)) {
        Ok(_) => {
            local.commit()?;
            half.commit().await?;
            println!("{id}: committed");
        }
        Err(error) => {
            local.rollback()?;
            half.rollback().await?;
            println!("{id}: rolled back, {error}");
        }
    }
    Ok(())
}

fn look(file: PathBuf, id: String) -> Result<Decision, rusqlite::Error> {
    let database = Connection::open(file)?;
    let rows: i64 =
        database.query_row("select count(*) from orders where id = ?1", [&id], |row| row.get(0))?;
    println!("the broker asks about {id}: {rows} row");
    Ok(if rows == 1 { Decision::Commit } else { Decision::Rollback })
}
