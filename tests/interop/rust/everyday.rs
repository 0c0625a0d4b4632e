//! Sending in every way, consuming in every way, pulling by hand, requests and replies.
//!
//! Invariants:
//! - what is sent comes back exactly once.

use std::collections::BTreeSet;
use std::time::Duration;

use troupemq::{Compression, Message, Outcome as Settled, PullRequest, PullStatus, ResetTo, SendStatus};

use crate::bed::{Bed, Inbox, check, equal, now_ms, send, text, within};
use crate::{Outcome, Scenario};

pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    "send-every-way", "3.1, 3.2: one, one-way, batch, chosen queue, by key" => every_way;
    "send-later", "3.3 #24, #25: by level, after a time, at a time, never early" => later;
    "send-compressed", "1.9: zlib, LZ4, zstd, stored small and delivered plain" => compressed;
    "push-shared", "3.6 #50, #52: two share, one leaves, the other takes over" => shared_by_members;
    "push-assigned-by-broker", "3.6 #56: the broker shares the queues out" => shared_by_broker;
    "push-broadcast", "3.8 #71: every member gets everything from its start on" => broadcast;
    "push-tags", "3.7 #58, #60: alternatives, and tags with the same hash" => tags;
    "push-sql", "3.7 #63: SQL92 over properties and the tag; a missing property selects nothing" => sql;
    "offset-reset-live", "3.9 #82, #83: a live group goes on where it was reset to" => reset_live;
    "push-goes-on", "3.8 #73: progress kept at the end, the next member gets the rest" => goes_on;
    "pull-by-hand", "3.8 #67, #68, #70: statuses, ends, times, commits" => by_hand;
    "request-reply", "3.12 #113: a reply comes to who asked, and no reply ends in time" => request_reply;
    "traced", "6.8: both sides of a message are traced" => traced;
};

async fn every_way(b: Bed) -> Outcome {
    let topic = b.topic(4).await?;
    let inbox = Inbox::default();
    let _listener = b.pushing(&b.name("g"), &topic, &inbox).await?;
    let producer = b.producer().await?;
    let mut wanted = send(&producer, &topic, "one", 8).await?;
    producer.send_oneway(Message::new(&*topic, "oneway")).await?;
    let batch: Vec<Message> = (0..5).map(|n| Message::new(&*topic, format!("batch-{n}")).tag("B")).collect();
    let receipt = producer.send_batch(&batch).await?;
    equal(&5, &receipt.offset_id.split(',').count(), "ids of places of a batch of five")?;
    let queues = b.client().await?.writable_queues(&topic).await?;
    equal(&4, &queues.len(), "queues")?;
    let receipt = producer.send_to(&queues[2], Message::new(&*topic, "chosen").flag(7)).await?;
    equal(&queues[2], &receipt.queue, "queue")?;
    equal(&SendStatus::Stored, &receipt.status, "status")?;
    let first = producer.send_ordered("key", Message::new(&*topic, "by-key-0")).await?;
    let second = producer.send_ordered("key", Message::new(&*topic, "by-key-1")).await?;
    equal(&first.queue, &second.queue, "queue of a key")?;
    let more = ["oneway", "chosen", "by-key-0", "by-key-1"].map(str::to_owned);
    wanted.extend((0..5).map(|n| format!("batch-{n}")).chain(more));
    inbox.await_exactly(&wanted).await?;
    for message in inbox.all() {
        if text(&message) == "chosen" {
            equal(&receipt.message_id, &message.message_id(), "message id")?;
            equal(&receipt.offset_id, &message.offset_id(), "id of the place")?;
            equal(&7, &message.flag(), "flag")?;
        }
    }
    Ok(())
}

async fn later(b: Bed) -> Outcome {
    let topic = b.topic(1).await?;
    let inbox = Inbox::default();
    let _listener = b.pushing(&b.name("g"), &topic, &inbox).await?;
    let producer = b.producer().await?;
    let now = now_ms();
    let after = Duration::from_millis(1500);
    producer.send(Message::new(&*topic, "level").delay_level(1)).await?;
    producer.send(Message::new(&*topic, "after").deliver_after(after)).await?;
    producer.send(Message::new(&*topic, "at").deliver_at(now + 2000)).await?;
    producer.send(Message::new(&*topic, "past").deliver_at(now - 60_000)).await?;
    let dues = [("level", 1000), ("after", 1500), ("at", 2000), ("past", 0)];
    inbox.await_exactly(&dues.iter().map(|(text, _)| (*text).to_owned()).collect()).await?;
    for message in inbox.all() {
        let due = dues.iter().find(|(name, _)| *name == text(&message)).map_or(0, |(_, due)| *due);
        // Java cuts the time of a level to the millisecond before.
        let early = now + due - 1 - message.store_timestamp_ms();
        check(early <= 0, format!("{} came {early} ms early", text(&message)))?;
    }
    Ok(())
}

async fn compressed(b: Bed) -> Outcome {
    let topic = b.topic(1).await?;
    let inbox = Inbox::default();
    let _listener = b.pushing(&b.name("g"), &topic, &inbox).await?;
    let body = "compressible ".repeat(8000);
    for by in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
        let producer = b.client().await?.producer(&b.name("pg")).compression(by, 5).start().await?;
        producer.send(Message::new(&*topic, body.clone()).key(&format!("{by:?}"))).await?;
    }
    within("three messages", || inbox.len() == 3).await?;
    for message in inbox.all() {
        check(text(&message) == body, format!("the body of {:?} differs", message.keys().next()))?;
    }
    let client = b.client().await?;
    let queue = client.queues(&topic).await?.remove(0);
    let pulled = client.pull(&queue, &PullRequest::from(&b.name("g"), 0)).await?;
    for stored in pulled.messages {
        let (bytes, plain) = (stored.stored_bytes, stored.body.len());
        equal(&body.len(), &plain, "bytes of a body that was pulled")?;
        check(bytes < plain / 10, format!("{bytes} bytes are not compressed"))?;
    }
    Ok(())
}

async fn shared_by_members(b: Bed) -> Outcome {
    shared(b, false).await
}

async fn shared_by_broker(b: Bed) -> Outcome {
    shared(b, true).await
}

async fn shared(b: Bed, by_broker: bool) -> Outcome {
    let (topic, group) = (b.topic(4).await?, b.name("g"));
    let inboxes = [Inbox::default(), Inbox::default()];
    let mut members = Vec::new();
    for inbox in &inboxes {
        let member = b.member(&group, &topic).await?;
        let member = if by_broker { member.assigned_by_broker() } else { member };
        members.push(inbox.listen(member).await?);
    }
    let producer = b.producer().await?;
    let mut sent = 0;
    loop {
        let before = inboxes.clone().map(|inbox| inbox.len());
        send(&producer, &topic, "round", 4).await?;
        sent += 4;
        within("the round", || inboxes[0].len() + inboxes[1].len() >= sent).await?;
        if inboxes.iter().zip(before).all(|(inbox, before)| inbox.len() == before + 2) {
            break;
        }
    }
    if let Some(leaves) = members.pop() {
        leaves.shutdown().await;
    }
    let had = inboxes[1].len();
    let after = send(&producer, &topic, "after", 40).await?;
    within("the one that stayed has all", || {
        after.is_subset(&inboxes[0].texts().into_iter().collect::<BTreeSet<_>>())
    })
    .await?;
    equal(&had, &inboxes[1].len(), "messages of the one that left")
}

async fn broadcast(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(2).await?, b.name("g"));
    let folder = std::env::temp_dir().join(b.name("offsets"));
    std::fs::create_dir_all(&folder)?;
    let inboxes = [Inbox::default(), Inbox::default()];
    let mut members = Vec::new();
    for (number, inbox) in inboxes.iter().enumerate() {
        let member = b.member(&group, &topic).await?.broadcast();
        members.push(inbox.listen(member.offset_file(folder.join(number.to_string()))).await?);
    }
    let wanted = send(&b.producer().await?, &topic, "m", 20).await?;
    for inbox in &inboxes {
        inbox.await_exactly(&wanted).await?;
    }
    for member in members {
        member.shutdown().await;
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

async fn tags(b: Bed) -> Outcome {
    let topic = b.topic(2).await?;
    let producer = b.producer().await?;
    // Java's hash of `Aa` is that of `BB`.
    for tag in ["Aa", "BB", "C", ""] {
        for n in 0..3 {
            let message = Message::new(&*topic, format!("{tag}-{n}"));
            producer.send(if tag.is_empty() { message } else { message.tag(tag) }).await?;
        }
    }
    let inbox = Inbox::default();
    let member = b.client().await?.consumer(&b.name("g")).subscribe(&topic, "Aa || C").from_first();
    let _listener = inbox.listen(member).await?;
    inbox
        .await_exactly(&["Aa", "C"].iter().flat_map(|t| (0..3).map(move |n| format!("{t}-{n}"))).collect())
        .await
}

async fn sql(b: Bed) -> Outcome {
    let topic = b.topic(2).await?;
    let producer = b.producer().await?;
    for price in 0..20 {
        let message = Message::new(&*topic, format!("p{price}")).tag(if price % 2 == 0 { "A" } else { "B" });
        let has_price = price != 16;
        let message = if has_price { message.with_property("price", &price.to_string()) } else { message };
        producer.send(message).await?;
    }
    let inbox = Inbox::default();
    let member = b.client().await?.consumer(&b.name("g")).from_first();
    let selecting = member.subscribe_sql(&topic, "(price > 9 AND TAGS = 'A') OR price IN ('3')");
    let _listener = inbox.listen(selecting).await?;
    inbox.await_exactly(&[3, 10, 12, 14, 18].map(|price| format!("p{price}")).into()).await
}

async fn reset_live(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    let inbox = Inbox::default();
    let member = b.member(&group, &topic).await?.hold(Duration::from_secs(2));
    let _listener = inbox.listen(member).await?;
    inbox.await_exactly(&send(&b.producer().await?, &topic, "m", 20).await?).await?;
    let to = ResetTo::Offset { queue_id: 0, queue_offset: 5 };
    b.client().await?.admin().reset_offsets(&group, &topic, to).await?;
    within("15 messages once more", || inbox.len() >= 35).await?;
    let again: BTreeSet<String> = inbox.texts().split_off(20).into_iter().collect();
    equal(&(5..20).map(|n| format!("m-{n}")).collect(), &again, "what came once more")
}

async fn goes_on(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(2).await?, b.name("g"));
    let producer = b.producer().await?;
    for part in ["one", "two", "three"] {
        let inbox = Inbox::default();
        let member = b.pushing(&group, &topic, &inbox).await?;
        inbox.await_exactly(&send(&producer, &topic, part, 20).await?).await?;
        member.shutdown().await;
    }
    Ok(())
}

async fn by_hand(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    let client = b.client().await?;
    let queue = client.queues(&topic).await?.remove(0);
    let from = |offset| PullRequest::from(&group, offset);
    equal(&PullStatus::NothingNew, &client.pull(&queue, &from(0)).await?.status, "status of an empty queue")?;
    let began = now_ms();
    send(&b.producer().await?, &topic, "m", 40).await?;
    // Java's broker shows a message a moment after it has acknowledged it.
    while client.max_offset(&queue).await? < 40 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let first = client.pull(&queue, &from(0)).await?;
    equal(
        &(PullStatus::Found, 32, 32),
        &(first.status, first.messages.len(), first.next_offset),
        "first pull",
    )?;
    let rest = client.pull(&queue, &from(first.next_offset)).await?;
    equal(&(8, 40), &(rest.messages.len(), rest.next_offset), "second pull")?;
    let beyond = client.pull(&queue, &from(77)).await?;
    equal(&(PullStatus::OffsetMoved, 40), &(beyond.status, beyond.next_offset), "pull beyond the end")?;
    equal(&(0, 40), &(client.min_offset(&queue).await?, client.max_offset(&queue).await?), "ends")?;
    equal(&0, &client.offset_at(&queue, began).await?, "offset at the begin")?;
    client.commit(&group, &queue, 11).await?;
    equal(&Some(11), &client.committed(&group, &queue).await?, "committed offset")
}

async fn request_reply(b: Bed) -> Outcome {
    let (topic, silent) = (b.topic(1).await?, b.topic(1).await?);
    let answering = b.producer().await?;
    let member = b.member(&b.name("g"), &topic).await?;
    let _listener = member
        .listen(move |question| {
            let answering = answering.clone();
            async move {
                match answering.reply(&question, format!("re: {}", text(&question))).await {
                    Ok(_) => Settled::Done,
                    Err(_) => Settled::Again,
                }
            }
        })
        .await?;
    let asking = b.producer().await?;
    for n in 0..3 {
        let reply = asking.request(Message::new(&*topic, format!("question {n}")), crate::PATIENCE).await?;
        equal(&format!("re: question {n}"), &String::from_utf8_lossy(&reply.body).into_owned(), "reply")?;
    }
    let nobody = asking.request(Message::new(&*silent, "anybody?"), Duration::from_secs(1)).await;
    check(nobody.is_err(), format!("nobody answered, and yet: {nobody:?}"))
}

async fn traced(b: Bed) -> Outcome {
    let (topic, group) = (b.topic(1).await?, b.name("g"));
    let inbox = Inbox::default();
    let member = b.member(&group, &topic).await?.trace(true);
    let _listener = inbox.listen(member).await?;
    let producer = b.client().await?.producer(&b.name("pg")).trace(true).start().await?;
    let id = producer.send(Message::new(&*topic, "traced").tag("T").key("k")).await?.message_id;
    inbox.await_exactly(&BTreeSet::from(["traced".to_owned()])).await?;
    let traces = Inbox::default();
    let _reader = b.pushing(&b.name("reader"), "RMQ_SYS_TRACE_TOPIC", &traces).await?;
    let has = |kind: &str| {
        traces.texts().iter().flat_map(|body| body.split('\u{2}')).any(|line| {
            let mut fields = line.split('\u{1}');
            fields.next() == Some(kind) && fields.any(|field| field == id)
        })
    };
    within("the send", || has("Pub")).await?;
    within("the begin of the consumption", || has("SubBefore")).await?;
    within("the end of the consumption", || has("SubAfter")).await
}
