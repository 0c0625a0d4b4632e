//! TLS of the client, against servers that speak it for a broker, and against some that do not.
//!
//! Invariants:
//! - every test makes its own certificates; nothing secret is kept.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use troupemq::{Broker, Client, ClientError, Message, Tls};

use crate::command_line::LOADS;
use crate::daemon::{LIMIT, done, failed, until};

/// Who signs certificates in a test.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("what a test needs can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("what a test needs can be made");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("what a test needs can be made");
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, certificate.pem()).expect("what a test needs can be made");
        Authority { issuer: Issuer::new(params, key), file, certificate }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("what a test needs can be made");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("what a test needs can be made");
        (params.signed_by(&key, &self.issuer).expect("what a test needs can be made"), key)
    }

    /// A server's side for a name; `clients` sign the certificates that it wants of clients.
    fn server(&self, name: &str, clients: Option<&Authority>) -> ServerConfig {
        let (certificate, key) = self.sign(name);
        let provider = Arc::new(default_provider());
        let versions = ServerConfig::builder_with_provider(provider.clone());
        let versions = versions.with_safe_default_protocol_versions().expect("what a test needs can be made");
        let asking = match clients {
            None => versions.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.certificate.der().clone()).expect("what a test needs can be made");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                versions.with_client_cert_verifier(verifier.build().expect("what a test needs can be made"))
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("what a test needs can be made");
        asking.with_single_cert(vec![certificate.der().clone()], key).expect("what a test needs can be made")
    }
}

/// Speaks TLS for a server that does not.
struct Front {
    address: SocketAddr,
    target: Arc<OnceLock<SocketAddr>>,
    task: AbortHandle,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Front {
    async fn start(config: ServerConfig) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("what a test needs can be made");
        let address = listener.local_addr().expect("what a test needs can be made");
        let target = Arc::new(OnceLock::new());
        let (acceptor, leads_to) = (TlsAcceptor::from(Arc::new(config)), target.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, leads_to) = (acceptor.clone(), leads_to.clone());
                tokio::spawn(async move {
                    // A handshake that fails is what some tests are about.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let target: SocketAddr = *leads_to.get().expect("the broker has started");
                    let mut server = TcpStream::connect(target).await.expect("the broker listens");
                    // Either side may end it.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Front { address, target, task: task.abort_handle() }
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

/// A broker and its name server, each behind a front.
struct Cluster {
    broker: Broker,
    names: Front,
    front: Front,
}

impl Cluster {
    async fn start(config: impl Fn() -> ServerConfig) -> Cluster {
        let (names, front) = (Front::start(config()).await, Front::start(config()).await);
        let any = ([127, 0, 0, 1], 0);
        let builder = Broker::builder().temporary().listen(any).advertise(front.address);
        let broker = builder.listen_as_name_server(any).start().await.expect("what a test needs can be made");
        names
            .target
            .set(broker.name_server_address().expect("what a test needs can be made"))
            .expect("what a test needs can be made");
        front
            .target
            .set(broker.address().expect("what a test needs can be made"))
            .expect("what a test needs can be made");
        Cluster { broker, names, front }
    }

    async fn client(&self, tls: Tls) -> Result<Client, ClientError> {
        Client::builder().name_servers(&self.names.name()).tls(tls).connect().await
    }
}

async fn send_and_receive(client: &Client) {
    let producer = client.producer("p").start().await.expect("messages come and go");
    // More than one record of TLS, in both directions.
    let body = "secret ".repeat(20_000);
    producer.send(Message::new("secrets", body.clone())).await.expect("messages come and go");
    let mut secrets = client
        .consumer("g")
        .subscribe("secrets", "*")
        .from_first()
        .stream()
        .await
        .expect("messages come and go");
    let delivery = timeout(LIMIT, secrets.next())
        .await
        .expect("in time")
        .expect("messages come and go")
        .expect("messages come and go");
    assert_eq!(delivery.message().body(), body.as_bytes());
    delivery.ack().await.expect("messages come and go");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_speaks_tls_with_name_server_and_broker() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let cluster = Cluster::start(|| authority.server("127.0.0.1", None)).await;
    let client = cluster.client(Tls::new().ca_file(&authority.file)).await.unwrap();
    send_and_receive(&client).await;
    client.shutdown().await;
    cluster.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_load_speaks_tls() {
    let folder = tempfile::tempdir().expect("what a test needs can be made");
    let authority = Authority::new(folder.path(), "ca");
    let cluster = Cluster::start(|| authority.server("127.0.0.1", None)).await;
    let (names, trusted) = (cluster.names.name(), authority.file.display().to_string());
    let loaded = tokio::task::spawn_blocking(move || {
        for load in LOADS {
            let told = done(&format!("{load} -n {names} --tls {trusted} --json"));
            assert!(told.contains(r#""refused":0,"#), "{load}: {told}");
            let (code, why) = failed(&format!("{load} -n {names}"));
            assert!(code == Some(3) && why.contains("it speaks TLS"), "{load}: {why}");
        }
    });
    loaded.await.expect("each load is answered");
    cluster.broker.shutdown().await.expect("a clean end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_want_to_know_who_the_client_is() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let cluster = Cluster::start(|| authority.server("127.0.0.1", Some(&authority))).await;
    let trusting = Tls::new().ca_file(&authority.file);
    // The server says after the handshake what it thinks of the missing certificate; a request that is under way then
    // may hear of the end of the connection alone.
    let client = cluster.client(trusting.clone()).await.unwrap();
    until("the client hears why", async || {
        client.queues("secrets").await.unwrap_err().to_string().contains("ertificate")
    })
    .await;

    let (certificate, key) = authority.sign("somebody");
    let (chain, key_file) = (folder.path().join("client.pem"), folder.path().join("client.key"));
    std::fs::write(&chain, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let client = cluster.client(trusting.client_certificate(&chain, &key_file)).await.unwrap();
    send_and_receive(&client).await;
    cluster.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_trusted_and_for_which_name_is_the_clients_choice() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(folder.path(), "ca"), Authority::new(folder.path(), "other"));
    let cluster = Cluster::start(|| authority.server("mq.test", None)).await;
    let stranger = cluster.client(Tls::new().ca_file(&other.file).server_name("mq.test")).await.unwrap_err();
    let expected = format!("no TLS with {}: its certificate is signed by nobody", cluster.names.name());
    assert!(stranger.to_string().starts_with(&expected), "{stranger}");
    let elsewhere = cluster.client(Tls::new().ca_file(&authority.file)).await.unwrap_err();
    assert!(elsewhere.to_string().contains("Tls::server_name"), "{elsewhere}");
    let missing = cluster.client(Tls::new().ca_file("/no/such.pem")).await.unwrap_err();
    assert!(missing.to_string().contains("/no/such.pem"), "{missing}");
    for tls in [Tls::new().ca_file(&authority.file).server_name("mq.test"), Tls::new().insecure()] {
        let client = cluster.client(tls).await.unwrap();
        send_and_receive(&client).await;
        client.shutdown().await;
    }
    cluster.broker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mismatch_is_named_whichever_side_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let cluster = Cluster::start(|| authority.server("127.0.0.1", None)).await;
    let trusting = Tls::new().ca_file(&authority.file);

    let plain = Client::builder().name_servers(&cluster.names.name()).connect().await.unwrap();
    let error = plain.queues("t").await.unwrap_err().to_string();
    let expected =
        format!("connection to {} closed before the answer to GET_ROUTEINFO", cluster.names.name());
    assert!(error.starts_with(&expected) && error.contains("speaks TLS"), "{error}");

    let bare = cluster.broker.name_server_address().unwrap().to_string();
    let error = Client::builder().name_servers(&bare).tls(trusting).connect().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("no TLS with {bare}")), "{error}");
    assert!(error.contains("may not speak TLS") || error.contains("does not speak TLS"), "{error}");
    assert_ne!(cluster.front.address, cluster.names.address);
    cluster.broker.shutdown().await.unwrap();
}

/// As the Java broker does when it enforces TLS.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_without_a_word_may_want_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut byte = [0];
            // It looks at the first byte, which is all it needs.
            let _ = client.read(&mut byte).await;
        }
    });
    let client = Client::builder().name_servers(&address).connect().await.unwrap();
    let error = client.queues("t").await.unwrap_err().to_string();
    assert!(error.contains("without a word, as servers do that want TLS"), "{error}");
    silent.abort();
}
