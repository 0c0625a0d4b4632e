//! Tools by which the scenarios of other clients let this one take part: members of groups that print what they get,
//! answerers, askers, senders.
//!
//! Invariants:
//! - a tool that waits ends in order when its standard input does.
#![expect(clippy::print_stdout, reason = "what came is printed for the scenario that reads it")]

use std::pin::Pin;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use troupemq::{Client, Compression, Message, Outcome as Settled, Received};

use crate::{Outcome, PATIENCE};

type Tool = fn(String, Vec<String>) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The tool of a name.
pub(crate) fn named(word: &str) -> Option<Tool> {
    Some(match word {
        "consume" => |servers, words| Box::pin(consume(servers, words)),
        "answer" => |servers, words| Box::pin(answer(servers, words)),
        "ask" => |servers, words| Box::pin(ask(servers, words)),
        "send" => |servers, words| Box::pin(send(servers, words)),
        _ => return None,
    })
}

fn word(words: &[String], at: usize) -> Result<&str, String> {
    words.get(at).map(String::as_str).ok_or_else(|| format!("word {} is missing", at + 1))
}

async fn client(servers: &str) -> Result<Client, troupemq::ClientError> {
    Client::builder().name_servers(servers).request_timeout(Duration::from_secs(60)).connect().await
}

async fn until_input_ends() {
    let mut rest = Vec::new();
    // Whatever ends it, it has ended.
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}

/// `consume GROUP TOPIC shared|orderly|broadcast`: prints `got QUEUE OFFSET BYTES BEGIN-OF-BODY` for each message.
async fn consume(servers: String, words: Vec<String>) -> Outcome {
    let (group, topic, way) = (word(&words, 0)?, word(&words, 1)?, word(&words, 2)?);
    let client = client(&servers).await?;
    let member = client.consumer(group).subscribe(topic, "*").from_first();
    let file = std::env::temp_dir().join(format!("{group}.{}", std::process::id()));
    let member = match way {
        "orderly" => member.in_order(),
        "broadcast" => member.broadcast().offset_file(&file),
        _ => member,
    };
    let listener = member
        .listen(|message: Received| {
            let (queue, offset, size) =
                (message.queue().queue_id, message.queue_offset(), message.body().len());
            let begin: String = String::from_utf8_lossy(message.body()).chars().take(60).collect();
            println!("got {queue} {offset} {size} {begin}");
            async { Settled::Done }
        })
        .await?;
    println!("ready");
    until_input_ends().await;
    listener.shutdown().await;
    client.shutdown().await;
    // There is one only if this was a member of a broadcast group.
    let _ = std::fs::remove_file(file);
    Ok(())
}

/// `answer GROUP TOPIC`: answers each request with `re: ` and its text.
async fn answer(servers: String, words: Vec<String>) -> Outcome {
    let (group, topic) = (word(&words, 0)?, word(&words, 1)?);
    let client = client(&servers).await?;
    let answering = client.producer(&format!("{group}_answers")).start().await?;
    let listener = client
        .consumer(group)
        .subscribe(topic, "*")
        .from_first()
        .listen(move |question: Received| {
            let answering = answering.clone();
            async move {
                let text = format!("re: {}", String::from_utf8_lossy(question.body()));
                match answering.reply(&question, text).await {
                    Ok(_) => Settled::Done,
                    Err(_) => Settled::AgainAtLevel(1),
                }
            }
        })
        .await?;
    println!("ready");
    until_input_ends().await;
    listener.shutdown().await;
    Ok(())
}

/// `ask TOPIC TEXT`: prints the reply.
async fn ask(servers: String, words: Vec<String>) -> Outcome {
    let (topic, text) = (word(&words, 0)?.to_owned(), word(&words, 1)?.to_owned());
    let producer = client(&servers).await?.producer(&format!("{topic}_asks")).start().await?;
    let reply = producer.request(Message::new(topic, text), PATIENCE).await?;
    println!("reply {}", String::from_utf8_lossy(&reply.body));
    Ok(())
}

/// `send TOPIC zlib|lz4|zstd|plain TIMES TEXT`: one message whose body is TEXT so many times.
async fn send(servers: String, words: Vec<String>) -> Outcome {
    let (topic, by, times) = (word(&words, 0)?.to_owned(), word(&words, 1)?, word(&words, 2)?.parse()?);
    let producer = client(&servers).await?.producer(&format!("{topic}_sends"));
    let producer = match by {
        "zlib" => producer.compression(Compression::Zlib, 5),
        "lz4" => producer.compression(Compression::Lz4, 5),
        "zstd" => producer.compression(Compression::Zstd, 5),
        _ => producer.no_compression(),
    };
    let body = word(&words, 3)?.repeat(times);
    println!("sent {}", producer.start().await?.send(Message::new(topic, body)).await?.message_id);
    Ok(())
}
