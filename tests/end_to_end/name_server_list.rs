//! The list of name servers that a client reads from a web server.
//!
//! Invariants:
//! - the web server is one of the test: it gives what the test put last, or does worse.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use troupemq::{Broker, Client, ClientBuilder, ClientError, Message};

use crate::daemon::LIMIT;

/// A web server with one page.
struct Web {
    address: SocketAddr,
    page: watch::Sender<String>,
    /// What it was asked for.
    asked: mpsc::UnboundedReceiver<String>,
    task: AbortHandle,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Web {
    /// Answers every request with `page`, head and all.
    async fn start(page: String) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let (page, shown) = watch::channel(page);
        let (tell, asked) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let page = shown.borrow().clone();
                // Who does not read the answer to its end is none of its business.
                if let Ok(request) = answer(stream, &page).await
                    && tell.send(request).is_err()
                {
                    return;
                }
            }
        });
        Web { address, page, asked, task: task.abort_handle() }
    }

    fn client(&self) -> ClientBuilder {
        let builder = Client::builder().name_server_list(&format!("http://{}/rocketmq/nsaddr", self.address));
        builder.name_server_list_every(Duration::from_millis(50))
    }

    /// Waits until it was asked after now.
    async fn asked_again(&mut self) -> String {
        while self.asked.try_recv().is_ok() {}
        // One may have been on its way with the page before.
        for _ in 0..2 {
            timeout(LIMIT, self.asked.recv()).await.expect("the list is read again").expect("it serves");
        }
        timeout(LIMIT, self.asked.recv()).await.expect("the list is read again").expect("it serves")
    }
}

async fn answer(mut stream: TcpStream, page: &str) -> std::io::Result<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(String::from_utf8_lossy(&request).into_owned())
}

fn list(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{text}\n")
}

async fn broker() -> (Broker, String) {
    let any = ([127, 0, 0, 1], 0);
    let builder = Broker::builder().temporary().listen(any).listen_as_name_server(any);
    let broker = builder.start().await.expect("the broker serves");
    let names = broker.name_server_address().expect("it has one").to_string();
    (broker, names)
}

#[tokio::test]
async fn name_servers_are_those_of_the_list_also_after_it_changed() {
    let ((old, old_names), (new, new_names)) = (broker().await, broker().await);
    new.client().create_topic("moved", 1).await.unwrap();
    let mut web = Web::start(list(&old_names)).await;
    let client = web.client().connect().await.unwrap();
    let request = timeout(LIMIT, web.asked.recv()).await.unwrap().unwrap();
    assert!(request.starts_with("GET /rocketmq/nsaddr HTTP/1.0\r\nHost: "), "{request}");
    let producer = client.producer("p").start().await.unwrap();
    producer.send(Message::new("t", "to the old")).await.unwrap();
    assert!(matches!(client.queues("moved").await, Err(ClientError::NoRoute { .. })));

    web.page.send_replace(list(&format!("{new_names};{new_names}")));
    web.asked_again().await;
    assert_eq!(client.queues("moved").await.unwrap().len(), 1);
    old.shutdown().await.unwrap();
    // What becomes of the list then changes nothing.
    for page in ["HTTP/1.1 500 Oops\r\n\r\n", "", &list(""), &list("not an address")] {
        web.page.send_replace(page.to_owned());
        web.asked_again().await;
        client.await_route("moved").await.unwrap();
    }
    client.shutdown().await;
    new.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_named_with_its_reason() {
    for (page, why) in [
        ("HTTP/1.1 404 Not Found\r\n\r\n", "it answered \"HTTP/1.1 404 Not Found\" and no list"),
        ("", "it ended after 0 bytes, before a list"),
        (&list(""), "its list is empty"),
        (&list("here:9876;there"), "\"there\" in its list is no host:port"),
        (&list(&"x".repeat(100_000)), "its answer is longer than 65536 bytes"),
    ] {
        let web = Web::start(page.to_owned()).await;
        let error = web.client().connect().await.unwrap_err();
        let named = format!("no list of name servers from http://{}/rocketmq/nsaddr: {why}", web.address);
        assert_eq!(error.to_string(), named);
        assert!(error.is_transport());
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", silent.local_addr().unwrap());
    let hasty = Client::builder().name_server_list(&url).request_timeout(Duration::from_millis(50));
    let error = hasty.connect().await.unwrap_err().to_string();
    assert!(error.ends_with("/x: no answer within 50ms"), "{error}");
}

#[tokio::test]
async fn a_list_beside_name_servers_is_refused_and_so_is_one_without_an_address() {
    let both = Client::builder().name_servers("127.0.0.1:9").name_server_list("http://127.0.0.1:9/x");
    let error = both.connect().await.unwrap_err().to_string();
    assert_eq!(error, "name_server_list: name_servers were given too; one of both counts");
    let error =
        Client::builder().name_server_list("https://names/x").connect().await.unwrap_err().to_string();
    assert_eq!(error, "name_server_list: \"https://names/x\": it must begin with http://");
    let never = Client::builder().name_server_list("http://names/x").name_server_list_every(Duration::ZERO);
    let error = never.connect().await.unwrap_err().to_string();
    assert_eq!(error, "name_server_list_every: 0ns is not 10ms to 86400s");
}
