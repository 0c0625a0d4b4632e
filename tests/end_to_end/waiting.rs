//! `troupemq dlq` and `troupemq tx`, as a person or a script uses them.
//!
//! Invariants:
//! - what a table says is what `--json` says.

use bytes::Bytes;
use troupemq::{Client, PullRequest, Queue};
use troupemq_codec::message::OffsetId;
use troupemq_codec::request::{
    ConsumerSendMsgBack, ConsumerSendMsgBackHeader, EndTransaction, EndTransactionHeader, SendMessageV2,
    SendMessageV2Header, TRANSACTION_COMMIT,
};

use crate::daemon::{Daemon, cells, done, failed, store};

/// Does something with a client of the daemon.
fn with<T>(flag: &str, act: impl AsyncFnOnce(Client, String) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let names = flag.split_whitespace().last().expect("an address");
        let client = Client::builder().name_servers(names).connect().await.expect("a client");
        let address = client.admin().brokers().await.expect("brokers").remove(0).address.to_string();
        act(client, address).await
    })
}

/// Gives the first message of a topic up for a group.
pub(crate) fn give_up(flag: &str, topic: &str, group: &str) {
    with(flag, async |client, address| {
        let queue = Queue { topic: topic.into(), broker_name: "b".into(), queue_id: 0 };
        let pulled = client.pull(&queue, &PullRequest::from("g", 0)).await.expect("a pull");
        for message in pulled.messages {
            let header = ConsumerSendMsgBackHeader {
                log_offset: message.log_offset,
                group: group.into(),
                delay_level: -1,
                ..ConsumerSendMsgBackHeader::default()
            };
            client
                .admin()
                .ask::<ConsumerSendMsgBack>(&address, &header, Bytes::new())
                .await
                .expect("it is dead");
        }
    });
}

/// The bodies in queue 0 of a topic.
fn bodies(flag: &str, topic: &str) -> Vec<String> {
    with(flag, async |client, _| {
        let queue = Queue { topic: topic.into(), broker_name: "b".into(), queue_id: 0 };
        let pulled = client.pull(&queue, &PullRequest::from("g", 0)).await.expect("a pull");
        pulled.messages.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
    })
}

#[test]
fn dead_letters_are_listed_shown_resent_and_deleted() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} orders --queues 1"));
    done(&format!("group create {flag} readers"));
    for (key, body) in [("k1", "first"), ("k2", "second")] {
        done(&format!("produce {flag} -t orders --key {key} {body}"));
    }
    assert_eq!(failed(&format!("dlq show {flag} readers")).0, Some(5));
    give_up(&flag, "orders", "readers");
    assert_eq!(cells(&done(&format!("dlq list {flag}"))), [["readers", "b", "2", "2"]]);
    let shown = done(&format!("dlq show {flag} readers"));
    let lines = cells(&shown);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0][lines[0].len() - 7..], ["orders", "b", "0", "1", "no", "k1", "first"]);
    assert_eq!(cells(&done(&format!("dlq show {flag} readers --max 1"))).len(), 1);

    let one = done(&format!("dlq resend {flag} readers --id {}", lines[1][0]));
    assert_eq!(one, "1 resent\n");
    assert_eq!(bodies(&flag, "%RETRY%readers"), ["second"]);
    assert_eq!(done(&format!("dlq resend {flag} readers --json")), "{\"resent\":2}\n");
    assert_eq!(done(&format!("dlq resend {flag} readers")), "0 resent\n");
    assert_eq!(bodies(&flag, "%RETRY%readers"), ["second", "first", "second"]);
    assert_eq!(cells(&done(&format!("dlq list {flag}"))), [["readers", "b", "2", "0"]]);
    assert_eq!(done(&format!("dlq resend {flag} readers --all --to-topic")), "2 resent\n");
    assert_eq!(bodies(&flag, "orders"), ["first", "second", "first", "second"]);
    let (code, why) = failed(&format!("dlq resend {flag} readers --id nobody"));
    assert_eq!(code, Some(5), "{why}");
    assert!(why.contains("no dead letter nobody"), "{why}");

    let (code, why) = failed(&format!("dlq purge {flag} readers"));
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("2 dead letters") && why.contains("--yes"), "{why}");
    done(&format!("dlq purge {flag} readers --yes"));
    assert_eq!(cells(&done(&format!("dlq list {flag}"))).len(), 0);
    give_up(&flag, "orders", "readers");
    assert_eq!(cells(&done(&format!("dlq list {flag}"))), [["readers", "b", "4", "4"]]);
}

/// Sends a half message for the topic `paid`, which nobody decides.
pub(crate) fn leave_open(flag: &str, id: &str) {
    with(flag, async |client, address| {
        let (header, body) = (half(id), Bytes::from_static(b"half"));
        let (reply, _) = client.admin().ask::<SendMessageV2>(&address, &header, body).await.expect("stored");
        assert!(reply.message_id.parse::<OffsetId>().is_ok());
    });
}

/// A half message for the topic `paid`.
fn half(id: &str) -> SendMessageV2Header {
    let properties =
        format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}payers\u{2}UNIQ_KEY\u{1}{id}\u{2}KEYS\u{1}key-{id}\u{2}");
    SendMessageV2Header {
        producer_group: "payers".into(),
        topic: "paid".into(),
        default_topic: "TBW102".into(),
        default_topic_queues: 1,
        sys_flag: 4,
        // Younger than now: nobody gives it up while the test runs.
        born_timestamp_ms: 4_000_000_000_000,
        properties: Some(properties.into()),
        ..SendMessageV2Header::default()
    }
}

#[test]
fn open_transactions_are_listed_resumed_and_dropped() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} paid --queues 1"));
    assert_eq!(cells(&done(&format!("tx list {flag}"))).len(), 0);
    for id in ["T1", "T2"] {
        leave_open(&flag, id);
    }
    let list = done(&format!("tx list {flag}"));
    let lines = cells(&list);
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["T1", "T2"]);
    assert_eq!(lines[0][1..5], ["open", "payers", "paid", "b"]);
    assert_eq!(lines[0].last(), Some(&"key-T1"));
    assert!(done(&format!("tx resume {flag} T1")).contains("payers"));
    assert!(done(&format!("tx list {flag} --json")).contains(r#""transactionId":"T1","state":"open""#));
    done(&format!("tx drop {flag} T2"));
    assert_eq!(cells(&done(&format!("tx list {flag}"))).len(), 1);
    assert_eq!(cells(&done(&format!("tx list {flag} --group others"))).len(), 0);
    let (code, why) = failed(&format!("tx drop {flag} T2"));
    assert_eq!(code, Some(5), "{why}");
    assert_eq!(failed(&format!("tx resume {flag} T9")).0, Some(5));
    done(&format!("tx drop {flag} T1"));
    assert_eq!(bodies(&flag, "paid"), [] as [&str; 0]);
}

/// A dead letter that was part of a transaction is resent as the plain message that it became.
#[test]
fn a_dead_letter_of_a_transaction_is_resent_to_its_group() {
    let (_folder, store) = store();
    let daemon = Daemon::start(&store);
    let flag = daemon.flag();
    done(&format!("topic create {flag} paid --queues 1"));
    done(&format!("group create {flag} readers"));
    with(&flag, async |client, address| {
        let header = half("T1");
        let body = Bytes::from_static(b"committed");
        let (reply, _) = client.admin().ask::<SendMessageV2>(&address, &header, body).await.expect("stored");
        let id: OffsetId = reply.message_id.parse().expect("an offset id");
        let header = EndTransactionHeader {
            producer_group: "payers".into(),
            queue_offset: reply.queue_offset,
            log_offset: id.log_offset,
            outcome: TRANSACTION_COMMIT,
            ..EndTransactionHeader::default()
        };
        client.admin().ask::<EndTransaction>(&address, &header, Bytes::new()).await.expect("committed");
    });
    give_up(&flag, "paid", "readers");
    assert_eq!(done(&format!("dlq resend {flag} readers")), "1 resent\n");
    assert_eq!(bodies(&flag, "%RETRY%readers"), ["committed"]);
    assert_eq!(done(&format!("dlq resend {flag} readers --all --to-topic")), "1 resent\n");
    assert_eq!(bodies(&flag, "paid"), ["committed", "committed"]);
    assert_eq!(cells(&done(&format!("tx list {flag}"))).len(), 0, "nothing waits for a decision");
}
