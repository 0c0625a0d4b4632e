//! Failures, order and transactions, on a broker whose times are short.
//!
//! Invariants:
//! - checks come after 1 s, delay levels last 1 s (1 to 3) or 2 s (4 on).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use troupemq::{Decision, Message, Outcome as Settled, Received};

use crate::bed::{Bed, Inbox, check, equal, send, text, within};
use crate::{Fault, Outcome, Scenario};

pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    "retry-then-dead",
        "3.5 #37, #38, #40, #42, #44: later, with everything it was sent with, then readable among the dead" => retry;
    "orderly-gives-up", "3.5 #41: tried in place, then dead, and the next flows" => gives_up;
    "orderly-successor", "3.6 #48: who leaves gives its queues back, the next goes on in order" => successor;
    "tx-decided-and-asked",
        "3.11 #104, #106, #107: committed, rolled back, and asked about when left open" => transactions;
};

async fn retry(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    let seen = Inbox::default();
    let settled = |message: &Received| match message.reconsume_times() {
        0 => Settled::Again,
        1 => Settled::AgainAtLevel(4),
        _ => Settled::GiveUp,
    };
    let _listener = seen.settle(b.member(&group, &topic).await?, settled).await?;
    let message =
        Message::new(&*topic, "hard").tag("T").key("k1").key("k2").flag(7).with_property("own", "value");
    let receipt = b.producer().await?.send(message).await?;
    within("three deliveries", || seen.len() == 3).await?;
    let dead = dead_letter(&b, &group).await?;
    for (times, one) in (0..).zip(seen.all()) {
        equal(&times, &one.reconsume_times(), "failures before")?;
        equal(&topic.as_str(), &one.topic(), "topic")?;
        kept(&one, &receipt.message_id)?;
    }
    equal(&Some(topic.as_str()), &dead.property("RETRY_TOPIC"), "topic it was sent to")?;
    kept(&dead, &receipt.message_id)
}

fn kept(message: &Received, id: &str) -> Outcome {
    equal(&id, &message.message_id().as_str(), "message id")?;
    equal(&"hard".to_owned(), &text(message), "body")?;
    equal(&Some("T"), &message.tag(), "tag")?;
    equal(&vec!["k1", "k2"], &message.keys().collect(), "keys")?;
    equal(&7, &message.flag(), "flag")?;
    equal(&Some("value"), &message.property("own"), "property")
}

async fn gives_up(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    send(&b.producer().await?, &topic, "m", 5).await?;
    let seen = Inbox::default();
    let member = b.member(&group, &topic).await?.in_order().tries_max(2);
    let settled = |message: &Received| if text(message) == "m-0" { Settled::Again } else { Settled::Done };
    let _listener = seen.settle(member, settled).await?;
    within("the last", || seen.texts().iter().any(|text| text == "m-4")).await?;
    equal(
        &vec!["m-0", "m-0", "m-0", "m-1", "m-2", "m-3", "m-4"],
        &seen.texts().iter().map(String::as_str).collect(),
        "order",
    )?;
    equal(&"m-0".to_owned(), &text(&dead_letter(&b, &group).await?), "dead letter")
}

/// The only dead letter of a group.
async fn dead_letter(b: &Bed, group: &str) -> Result<Received, Fault> {
    let dead = Inbox::default();
    let _reader = b.pushing(&b.name("reader"), &format!("%DLQ%{group}"), &dead).await?;
    within("a dead letter", || dead.len() == 1).await?;
    Ok(dead.all().remove(0))
}

async fn successor(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    let producer = b.producer().await?;
    for part in ["one", "two", "three"] {
        let inbox = Inbox::default();
        let member = inbox.listen(b.member(&group, &topic).await?.in_order()).await?;
        send(&producer, &topic, part, 20).await?;
        within(part, || inbox.len() >= 20).await?;
        equal(&(0..20).map(|n| format!("{part}-{n}")).collect(), &inbox.texts(), "messages in order")?;
        member.shutdown().await;
    }
    Ok(())
}

async fn transactions(b: Bed) -> Outcome {
    let topic = b.topic(1).await?;
    let inbox = Inbox::default();
    let _listener = b.pushing(&b.name("g"), &topic, &inbox).await?;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let checker = move |half: Received| {
        let (times, text) = (count.fetch_add(1, Ordering::Relaxed), text(&half));
        async move {
            match (times, text.as_str()) {
                (0, _) => Decision::Unknown,
                (_, "left") => Decision::Commit,
                _ => Decision::Rollback,
            }
        }
    };
    let producer = b.client().await?.producer(&b.name("pg")).checker(checker).start().await?;
    producer.begin(Message::new(&*topic, "committed")).await?.commit().await?;
    producer.begin(Message::new(&*topic, "rolled-back")).await?.rollback().await?;
    drop(producer.begin(Message::new(&*topic, "left")).await?);
    inbox.await_exactly(&["committed", "left"].map(str::to_owned).into()).await?;
    let times = asked.load(Ordering::Relaxed);
    check(times >= 2, format!("{times} questions"))
}
