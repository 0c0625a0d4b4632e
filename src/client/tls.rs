//! TLS of a client: whom it trusts, and how it shows who it is itself.
//!
//! Invariants:
//! - nothing is global: the provider of the cryptography belongs to this client;
//! - a server is believed only with a certificate signed by who is trusted, for the name it was dialled by, unless
//!   that was switched off;
//! - files are read once, when the client is made: what is wrong with them is said then, with their path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature as verify_12, verify_tls13_signature as verify_13,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::error::ClientError;

/// TLS to name servers and brokers, for [`ClientBuilder::tls`](super::ClientBuilder::tls).
///
/// ```no_run
/// # async fn example() -> Result<(), troupemq::ClientError> {
/// use troupemq::{Client, Tls};
/// let tls = Tls::new().ca_file("ca.pem").client_certificate("client.pem", "client.key");
/// let client = Client::builder().name_servers("mq.example.com:9876").tls(tls).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tls {
    ca_file: Option<PathBuf>,
    is_insecure: bool,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

/// A connection that nobody on the way can read.
pub(crate) type Secret = TlsStream<TcpStream>;

/// What every handshake of a client needs.
#[derive(Debug)]
pub(crate) struct Security {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// Trusts who the operating system trusts.
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Trusts the authorities in a PEM file, and nobody else; it cannot stand beside [`Tls::insecure`].
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Tls {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows servers that ask for it a certificate: PEM files of the chain and of its key (PKCS#8, PKCS#1 or SEC1).
    pub fn client_certificate(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    /// The name that the certificates of all servers bear. Default: the host each one is dialled by, which for
    /// brokers is the address they registered with, mostly an IP address.
    pub fn server_name(mut self, name: &str) -> Tls {
        self.server_name = Some(name.to_owned());
        self
    }

    /// Takes any certificate. What is sent is encrypted, but nobody knows for whom: for RocketMQ's test mode
    /// (`tls.test.mode.enable`), in which a server makes its own certificate.
    pub fn insecure(mut self) -> Tls {
        self.is_insecure = true;
        self
    }

    /// Reads the files.
    pub(crate) fn prepare(self) -> Result<Security, ClientError> {
        let wrong = |why: String| ClientError::Setting { setting: "tls", why };
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match (self.is_insecure, &self.ca_file) {
            (true, Some(_)) => return Err(wrong("ca_file and insecure contradict each other".to_owned())),
            (true, None) => Arc::new(Anybody(provider.clone())),
            (false, ca_file) => {
                let roots = Arc::new(trusted(ca_file.as_deref())?);
                let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                built.map_err(|error| wrong(error.to_string()))?
            }
        };
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| wrong(error.to_string()))?;
        let trusting = versions.dangerous().with_custom_certificate_verifier(verifier);
        let config = match &self.identity {
            None => trusting.with_no_client_auth(),
            Some((chain, key)) => {
                let unfit = |error: Error| wrong(format!("{}: {error}", chain.display()));
                trusting.with_client_auth_cert(certificates(chain)?, private_key(key)?).map_err(unfit)?
            }
        };
        let named = self.server_name.map(|name| {
            let illegal = |_| wrong(format!("{name:?} is no name of a server"));
            ServerName::try_from(name.clone()).map_err(illegal)
        });
        Ok(Security { config: Arc::new(config), server_name: named.transpose()? })
    }
}

impl Security {
    /// Makes a connection secret.
    pub(crate) async fn over(&self, address: &str, stream: TcpStream) -> Result<Secret, ClientError> {
        let failed = |why| ClientError::Tls { address: address.to_owned(), why };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let illegal = |_| failed(format!("{host:?} is no name of a server"));
                ServerName::try_from(host.clone()).map_err(illegal)?
            }
        };
        let connector = TlsConnector::from(self.config.clone());
        connector.connect(name, stream).await.map_err(|cause| failed(reason(&cause)))
    }
}

/// What to tell of a handshake that failed.
fn reason(cause: &io::Error) -> String {
    let inner = cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidMessage(_)) => "it does not speak TLS: its answer is something else".to_owned(),
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "its certificate is signed by nobody whom this client trusts (Tls::ca_file)".to_owned()
        }
        Some(error @ Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
            format!("{error} (Tls::server_name)")
        }
        Some(error) => error.to_string(),
        None => match cause.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "it closed the connection instead of a handshake: it may not speak TLS".to_owned()
            }
            _ => cause.to_string(),
        },
    }
}

/// Whose signature makes a server's certificate good: who stands in a file, else who the operating system trusts.
fn trusted(ca_file: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let wrong = |why: String| ClientError::Setting { setting: "tls.ca_file", why };
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates(path)? {
            let unfit = |error: Error| wrong(format!("{}: {error}", path.display()));
            roots.add(certificate).map_err(unfit)?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "certificates of the system not read");
    }
    // A few that cannot be used are no reason to trust none.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(wrong("the operating system trusts nobody; name a file".to_owned()));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let wrong = |why: String| ClientError::Setting {
        setting: "tls",
        why: format!("certificates in {}: {why}", path.display()),
    };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() { Err(wrong("there are none".to_owned())) } else { Ok(all) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ClientError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| ClientError::Setting {
        setting: "tls",
        why: format!("private key in {}: {error}", path.display()),
    })
}

/// Takes any certificate; that the server has its key is still checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_12(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_13(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("ca.pem");
        let error = Tls::new().ca_file(&missing).prepare().unwrap_err().to_string();
        assert!(error.contains("ca.pem"), "{error}");
        std::fs::write(&missing, "no certificate\n").unwrap();
        let error = Tls::new().ca_file(&missing).prepare().unwrap_err().to_string();
        assert!(error.contains("ca.pem: there are none"), "{error}");
        for both in [Tls::new().ca_file(&missing).insecure(), Tls::new().insecure().ca_file(&missing)] {
            let error = both.prepare().unwrap_err().to_string();
            assert_eq!(error, "tls: ca_file and insecure contradict each other");
        }
        let key = Tls::new().insecure().client_certificate(&missing, &missing).prepare().unwrap_err();
        assert!(key.to_string().contains("certificates in"), "{key}");
        let name = Tls::new().insecure().server_name("no name!").prepare().unwrap_err();
        assert!(name.to_string().contains("\"no name!\" is no name"), "{name}");
    }
}
