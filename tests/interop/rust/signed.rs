//! What a broker that wants requests signed refuses, and how its refusals read. Everything else of the client is shown
//! there by the other scenarios, whose clients sign.
//!
//! Invariants:
//! - the broker knows the user INTEROP_USER, who may do all;
//! - if INTEROP_READER is set it is a user with the same secret who may read the topic INTEROP_GUARDED and write none.

use troupemq::{Client, ClientError, Message};

use crate::bed::{Bed, Inbox, check, equal, send, user};
use crate::{Fault, Outcome, Scenario};

const SIGNED: Scenario = Scenario {
    name: "signed-by-nobody-known",
    holds: "no signature, one with another secret, one of a stranger: refused, with the broker's words",
    body: |b| Box::pin(nobody_known(b)),
};

const PERMITTED: Scenario = Scenario {
    name: "signed-without-permission",
    holds: "who may only read gets what is there and is refused when it sends",
    body: |b| Box::pin(without_permission(b)),
};

/// The scenarios for a broker that knows these users.
pub(crate) fn scenarios() -> &'static [Scenario] {
    match (user(), std::env::var("INTEROP_READER")) {
        (None, _) => &[],
        (Some(_), Err(_)) => &[SIGNED],
        (Some(_), Ok(_)) => &[SIGNED, PERMITTED],
    }
}

/// What a broker says to a send of a client.
async fn refused(bed: &Bed, client: &Client, topic: &str) -> Result<ClientError, Fault> {
    let producer = client.producer(&bed.name("pg")).start().await?;
    match producer.send(Message::new(topic, "x")).await {
        Ok(receipt) => Err(format!("a message was stored that should not be: {receipt:?}").into()),
        Err(error) => Ok(error),
    }
}

async fn nobody_known(b: Bed) -> Outcome {
    let (name, secret) = user().ok_or("INTEROP_USER is not set")?;
    let topic = b.topic(1).await?;
    let strangers = [
        ("nobody", None),
        ("another secret", Some((name, format!("not {secret}")))),
        ("a stranger", Some(("a-stranger".to_owned(), secret))),
    ];
    for (who, signs_as) in strangers {
        let error = refused(&b, &b.client_of(signs_as).await?, &topic).await?;
        let is_named = matches!(&error, ClientError::Refused { remark, .. } if !remark.is_empty());
        check(is_named && !error.is_transport(), format!("{who} is told: {error}"))?;
        println!("      {who} is told: {error}");
    }
    Ok(())
}

async fn without_permission(b: Bed) -> Outcome {
    let (reader, guarded) = (std::env::var("INTEROP_READER")?, std::env::var("INTEROP_GUARDED")?);
    let (_, secret) = user().ok_or("INTEROP_USER is not set")?;
    b.client().await?.create_topic(&guarded, 2).await?;
    let wanted = send(&b.producer().await?, &guarded, "m", 10).await?;

    let may_read = b.client_of(Some((reader, secret))).await?;
    let error = refused(&b, &may_read, &guarded).await?;
    check(
        error.code().is_some() && error.to_string().contains(&guarded),
        format!("the reader is told: {error}"),
    )?;
    let inbox = Inbox::default();
    let member = may_read.consumer(&b.name("g")).subscribe(&guarded, "*").from_first();
    let _listener = inbox.listen(member).await?;
    inbox.await_exactly(&wanted).await?;
    equal(&wanted.len(), &inbox.len(), "messages of the guarded topic")
}
