//! Which name servers there are: as they were given, or as a list says that a web server keeps.
//!
//! Invariants:
//! - a list is read by HTTP over `http://` alone, no more than [`ANSWER_MAX_BYTES`] of it, within a time;
//! - a list that cannot be read, or names nobody, changes nothing: the last good one stands;
//! - no redirect is followed, no proxy asked, nothing written down.
//!
//! RocketMQ's name: `TopAddressing`, of `rocketmq.namesrv.domain`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::ClientError;

/// Longest answer of a web server, head and list.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// Most name servers of a list.
const LISTED_MAX: usize = 64;
/// What begins the address of a list.
const SCHEME: &str = "http://";
/// The port of a web server that names none.
const HTTP_PORT: u16 = 80;
/// The setting that errors are about.
const SETTING: &str = "name_server_list";

/// The name servers of a client.
#[derive(Debug)]
pub(crate) struct NameServers {
    addresses: ArcSwap<Vec<String>>,
    list: Option<List>,
}

/// Where a list is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    url: String,
    /// `host:port` of the web server.
    server: String,
    /// What it is asked for.
    request: String,
}

/// The addresses in a text, with something between them.
pub(crate) fn split(addresses: &str) -> impl Iterator<Item = &str> {
    let between = |letter: char| letter == ';' || letter == ',' || letter.is_ascii_whitespace();
    addresses.split(between).filter(|address| !address.is_empty())
}

impl NameServers {
    /// These, until the list says otherwise.
    pub(crate) fn new(given: Vec<String>, list: Option<List>) -> NameServers {
        NameServers { addresses: ArcSwap::from_pointee(given), list }
    }

    /// Those of now.
    pub(crate) fn current(&self) -> Arc<Vec<String>> {
        self.addresses.load_full()
    }

    /// Whether there is a list to read.
    pub(crate) fn are_listed(&self) -> bool {
        self.list.is_some()
    }

    /// Reads the list, if there is one, and takes it over; gives who is not in it any more.
    pub(crate) async fn refresh(&self, within: Duration) -> Result<Vec<String>, ClientError> {
        let Some(list) = &self.list else { return Ok(Vec::new()) };
        let listed = list.read(within).await?;
        let mut gone = self.current().to_vec();
        gone.retain(|address| !listed.contains(address));
        if *self.current() != listed {
            tracing::info!(url = %list.url, name_servers = ?listed, "name servers changed");
            self.addresses.store(Arc::new(listed));
        }
        Ok(gone)
    }
}

impl List {
    /// Takes an address apart: `http://host[:port]/path`.
    pub(crate) fn at(url: &str) -> Result<List, ClientError> {
        let wrong = |why: &str| ClientError::Setting { setting: SETTING, why: format!("{url:?}: {why}") };
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| wrong("it must begin with http://"))?;
        // Nothing of it may end the line of the request that it becomes a part of.
        if !rest.chars().all(|letter| letter.is_ascii_graphic()) {
            return Err(wrong("it has letters that an address cannot have"));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() || host.contains('@') {
            return Err(wrong("it must name a host, and no user"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let server = if has_port { host.to_owned() } else { format!("{host}:{HTTP_PORT}") };
        if port_of(&server).is_none() {
            return Err(wrong("its port is no number from 1 to 65535"));
        }
        let path = if path.is_empty() { "/" } else { path };
        // By 1.0 the answer ends with the connection and comes in one piece.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n");
        Ok(List { url: url.to_owned(), server, request })
    }

    /// Reads the list.
    pub(crate) async fn read(&self, within: Duration) -> Result<Vec<String>, ClientError> {
        let answer = match timeout(within, self.ask()).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {within:?}"))),
        };
        let listed = answer.and_then(|answer| addresses(&answer));
        listed.map_err(|cause| ClientError::NameServerList { url: self.url.clone(), cause })
    }

    async fn ask(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect(&self.server).await?;
        stream.write_all(self.request.as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            let has_ended = stream.read_buf(&mut answer).await? == 0;
            if let Some(list) = list_of(&answer, has_ended)? {
                return Ok(list.to_owned());
            }
        }
    }
}

fn unfit(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn port_of(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse().ok().filter(|port| *port > 0 && !host.is_empty())
}

/// The list in what a web server has said so far; none if more must come.
fn list_of(answer: &[u8], has_ended: bool) -> io::Result<Option<&str>> {
    if answer.len() > ANSWER_MAX_BYTES {
        return Err(unfit(format!("its answer is longer than {ANSWER_MAX_BYTES} bytes")));
    }
    let readable = |bytes| std::str::from_utf8(bytes).map_err(|_| unfit("its answer is no text".to_owned()));
    let Some(head_len) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        let early = || unfit(format!("it ended after {} bytes, before a list", answer.len()));
        return if has_ended { Err(early()) } else { Ok(None) };
    };
    let (head, body) = (readable(&answer[..head_len])?, &answer[head_len + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let is_fine = status.starts_with("HTTP/1.") && status.split(' ').nth(1) == Some("200");
    if !is_fine {
        return Err(unfit(format!(
            "it answered {:?} and no list",
            status.chars().take(80).collect::<String>()
        )));
    }
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let bad = |_| unfit(format!("it says that its list has {value:?} bytes"));
            length = Some(value.parse::<usize>().map_err(bad)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(unfit(format!("it sends its list {value:?}, which HTTP/1.0 does not know")));
        }
    }
    match length {
        Some(length) if body.len() >= length => readable(&body[..length]).map(Some),
        Some(length) if has_ended => {
            Err(unfit(format!("it ended after {} of the {length} bytes of its list", body.len())))
        }
        None if has_ended => readable(body).map(Some),
        _ => Ok(None),
    }
}

/// The name servers of a list.
fn addresses(list: &str) -> io::Result<Vec<String>> {
    let mut addresses: Vec<String> = Vec::new();
    for address in split(list) {
        if port_of(address).is_none() {
            let shown: String = address.chars().take(80).collect();
            return Err(unfit(format!("{shown:?} in its list is no host:port")));
        }
        if !addresses.iter().any(|known| known == address) {
            addresses.push(address.to_owned());
        }
    }
    match addresses.len() {
        0 => Err(unfit("its list is empty".to_owned())),
        count if count > LISTED_MAX => {
            Err(unfit(format!("its list has {count} name servers, more than {LISTED_MAX}")))
        }
        _ => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_list_is_taken_apart_or_refused_with_a_reason() {
        let list = List::at("http://jmenv.tbsite.net:8080/rocketmq/nsaddr?nofix=1").unwrap();
        assert_eq!(list.server, "jmenv.tbsite.net:8080");
        assert!(
            list.request
                .starts_with("GET /rocketmq/nsaddr?nofix=1 HTTP/1.0\r\nHost: jmenv.tbsite.net:8080\r\n")
        );
        assert_eq!(List::at("http://names").unwrap().server, "names:80");
        assert!(List::at("http://names").unwrap().request.starts_with("GET / HTTP/1.0\r\nHost: names\r\n"));
        assert_eq!(List::at("http://[::1]/x").unwrap().server, "[::1]:80");
        assert_eq!(List::at("http://[::1]:81/x").unwrap().server, "[::1]:81");
        for (url, why) in [
            ("https://names/x", "must begin with http://"),
            ("names:8080/x", "must begin with http://"),
            ("http:///x", "must name a host"),
            ("http://user:word@names/x", "and no user"),
            ("http://names:0/x", "its port"),
            ("http://names:http/x", "its port"),
            ("http://names/x\r\nHost: other", "letters that"),
            ("http://names/a b", "letters that"),
        ] {
            let error = List::at(url).unwrap_err().to_string();
            assert!(error.starts_with("name_server_list: ") && error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn an_answer_is_whole_when_its_length_says_so_or_it_ends() {
        let ends = "HTTP/1.1 200 OK\r\nServer: any\r\n\r\na:1;b:2\n";
        assert_eq!(list_of(ends.as_bytes(), true).unwrap(), Some("a:1;b:2\n"));
        assert_eq!(list_of(ends.as_bytes(), false).unwrap(), None);
        let counted = "HTTP/1.0 200 OK\r\ncontent-LENGTH: 7\r\n\r\na:1;b:2 and what else comes";
        assert_eq!(list_of(counted.as_bytes(), false).unwrap(), Some("a:1;b:2"));
        let whole = counted.len() - " and what else comes".len();
        for cut in 0..whole {
            let part = &counted.as_bytes()[..cut];
            assert_eq!(list_of(part, false).unwrap(), None, "more may come after {cut} bytes");
            assert!(list_of(part, true).is_err(), "{cut} bytes are no answer");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_a_reason() {
        let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(ANSWER_MAX_BYTES));
        for (answer, why) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "it answered \"HTTP/1.1 404 Not Found\""),
            ("HTTP/1.1 302 Found\r\nLocation: http://other\r\n\r\n", "302"),
            ("SSH-2.0-any\r\n\r\n", "SSH-2.0-any"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na:1\r\n0\r\n\r\n", "\"chunked\""),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "\"-1\" bytes"),
            (&long, "longer than 65536 bytes"),
        ] {
            let error = list_of(answer.as_bytes(), true).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
        assert!(
            list_of(b"HTTP/1.1 200 OK\r\n\r\n\xFF\xFE", true).unwrap_err().to_string().contains("no text")
        );
    }

    #[test]
    fn a_list_has_addresses_and_not_too_many() {
        assert_eq!(addresses(" a:1;b:2 ,\r\n[::1]:3\na:1\n").unwrap(), ["a:1", "b:2", "[::1]:3"]);
        let many: String = (1..=65).map(|port| format!("a:{port};")).collect();
        for (list, why) in [
            ("", "empty"),
            (" ;\n", "empty"),
            ("<html>", "\"<html>\" in its list is no host:port"),
            ("a:1;b", "\"b\" in its list"),
            ("a:1;b:65536", "\"b:65536\""),
            (&many, "65 name servers, more than 64"),
        ] {
            let error = addresses(list).unwrap_err().to_string();
            assert!(error.contains(why), "{list}: {error}");
        }
    }
}
