//! The servers a client talks to: one connection to each address, made when first needed and again when lost.
//!
//! A connection is carried by the runtime in which it was made. Who asks from another runtime gets one of that: nobody
//! waits for a runtime that is not driven.
//!
//! Invariants:
//! - at most one connection is dialled to an address at a time; who comes meanwhile waits for it;
//! - an address that could not be reached is not dialled again before its pause is over, see `backoff`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use dashmap::DashMap;
use tokio::runtime;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use troupemq_codec::Command;

use super::backoff::Backoff;
use super::connection::{Connection, Dialling, timed_out};
use super::error::ClientError;
use super::link::{Link, ServerCall};

/// All connections of a client.
#[derive(Debug)]
pub(crate) struct Peers {
    slots: DashMap<Arc<str>, Arc<Slot>>,
    calls: mpsc::Sender<ServerCall>,
    dialling: Dialling,
    dialled: Arc<Notify>,
    is_closed: AtomicBool,
}

/// Which runtime carries a connection.
pub(super) type Carrier = Option<runtime::Id>;

/// One address.
#[derive(Debug)]
struct Slot {
    /// The connection of each runtime that has asked; only who dials changes them.
    links: ArcSwap<Vec<(Carrier, Arc<Link>)>>,
    failed: ArcSwapOption<Backoff>,
    dialing: Semaphore,
}

impl Peers {
    /// No connection yet; requests of servers go to `calls`.
    pub(crate) fn new(calls: mpsc::Sender<ServerCall>, dialling: Dialling) -> Peers {
        let (dialled, is_closed) = (Arc::new(Notify::new()), AtomicBool::new(false));
        Peers { slots: DashMap::new(), calls, dialling, dialled, is_closed }
    }

    /// The connection to an address.
    pub(crate) async fn link(&self, address: &str) -> Result<Arc<Link>, ClientError> {
        match self.open(address)? {
            Some(link) => Ok(link),
            None => self.dial(address, self.dialling.within).await,
        }
    }

    /// The same for somebody who can wait for so long.
    pub(crate) async fn link_within(
        &self,
        address: &str,
        within: Duration,
    ) -> Result<Arc<Link>, ClientError> {
        if let Some(link) = self.open(address)? {
            return Ok(link);
        }
        let limit = within.min(self.dialling.within);
        match timeout(within, self.dial(address, limit)).await {
            Ok(dialled) => dialled,
            Err(_) => Err(timed_out(address, within)),
        }
    }

    /// The connection to an address if there is one.
    pub(crate) fn open(&self, address: &str) -> Result<Option<Arc<Link>>, ClientError> {
        self.still_open()?;
        Ok(self.slots.get(address).and_then(|slot| slot.open_link()))
    }

    /// An error after the end of the client.
    pub(crate) fn still_open(&self) -> Result<(), ClientError> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(ClientError::ShutDown { what: "client" }),
            false => Ok(()),
        }
    }

    /// Makes a connection, unless somebody else did so meanwhile.
    async fn dial(&self, address: &str, within: Duration) -> Result<Arc<Link>, ClientError> {
        let slot = self.slot(address);
        let _permit = slot.dialing.acquire().await.expect("the semaphore of a slot is never closed");
        if let Some(link) = slot.open_link() {
            return Ok(link);
        }
        let failed = slot.failed.load_full();
        if let Some(cause) = failed.as_ref().and_then(|failed| failed.refuses(Instant::now())) {
            return Err(ClientError::Connect { address: address.to_owned(), cause });
        }
        let dialled = match &self.dialling.near {
            Some(near) => Link::open(address, &**near, self.calls.clone()),
            None => Link::dial(address, &self.dialling, within, self.calls.clone()).await,
        };
        let dialled = dialled.map(|link| Arc::new(link.signed(self.dialling.credentials.clone())));
        match &dialled {
            Ok(link) => {
                slot.failed.store(None);
                slot.keep(link.clone());
                self.dialled.notify_one();
            }
            // That somebody was in a hurry says little about the server.
            Err(_) if within < self.dialling.within / 4 => {}
            Err(error) => {
                let backoff = Backoff::after(failed.as_deref(), error, Instant::now());
                slot.failed.store(Some(Arc::new(backoff)));
            }
        }
        dialled
    }

    /// A connection of its own to an address.
    pub(crate) async fn connection(&self, address: &str) -> Result<Box<dyn Connection>, ClientError> {
        self.still_open()?;
        Ok(self.dialling.connect(address, self.dialling.within).await?.boxed())
    }

    /// Signs a request that is no call.
    pub(crate) fn sign(&self, command: &mut Command) {
        if let Some(credentials) = &self.dialling.credentials {
            credentials.sign(command);
        }
    }

    /// Forgets a server; the connection to it ends once what waits for it is done.
    pub(crate) fn leave(&self, address: &str) {
        self.slots.remove(address);
    }

    /// Forgets addresses to which there is no connection.
    pub(crate) fn forget(&self, is_unwanted: impl Fn(&str) -> bool) {
        self.slots.retain(|address, slot| slot.is_busy() || !is_unwanted(address));
    }

    /// Makes no connection any more, and ends those there are once what waits for them is done.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.slots.iter().for_each(|slot| slot.links.store(Arc::default()));
    }

    /// Told after each new connection.
    pub(crate) fn dialled(&self) -> Arc<Notify> {
        self.dialled.clone()
    }

    fn slot(&self, address: &str) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(address) {
            return slot.clone();
        }
        let made = || {
            let (links, failed) = (ArcSwap::default(), ArcSwapOption::empty());
            Arc::new(Slot { links, failed, dialing: Semaphore::new(1) })
        };
        self.slots.entry(address.into()).or_insert_with(made).clone()
    }
}

impl Slot {
    /// Whether there is a connection, or somebody makes one.
    fn is_busy(&self) -> bool {
        let has_one = self.links.load().iter().any(|(_, link)| !link.is_closed());
        has_one || self.dialing.available_permits() == 0
    }

    /// The connection of the present runtime.
    fn open_link(&self) -> Option<Arc<Link>> {
        let (links, carrier) = (self.links.load(), carrier());
        let found = links.iter().find(|(of, link)| *of == carrier && !link.is_closed());
        found.map(|(_, link)| link.clone())
    }

    /// Keeps a connection that the present runtime carries, and those that others do.
    fn keep(&self, link: Arc<Link>) {
        let links = self.links.load();
        let open = links.iter().filter(|(_, link)| !link.is_closed()).cloned();
        self.links.store(Arc::new(open.chain([(carrier(), link)]).collect()));
    }
}

/// The present runtime.
pub(super) fn carrier() -> Carrier {
    runtime::Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::net::TcpListener;

    use super::*;
    use crate::client::names::Names;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A limit on everything, so that a connection to the wrong place is a failure and no wait.
    async fn in_time<T>(work: impl Future<Output = T>) -> T {
        timeout(LIMIT, work).await.expect("in time")
    }

    #[tokio::test]
    async fn a_name_that_leads_elsewhere_since_the_last_connection_is_followed() {
        let old = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let new = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let told = vec![old.local_addr().unwrap(), new.local_addr().unwrap()];
        let (names, within) = (Names::Told(told, AtomicUsize::new(0)), LIMIT);
        let dialling = Dialling { within, names, near: None, credentials: None, security: None };
        let peers = Peers::new(mpsc::channel(1).0, dialling);

        let first = in_time(peers.link("mq.example.com:9876")).await.unwrap();
        drop(in_time(old.accept()).await.unwrap());
        in_time(async {
            while !first.is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let second = in_time(peers.link("mq.example.com:9876")).await.unwrap();
        let (_server, _) = in_time(new.accept()).await.unwrap();
        assert_eq!(second.address(), "mq.example.com:9876");
        assert!(peers.open("mq.example.com:9876").unwrap().is_some());
    }
}
