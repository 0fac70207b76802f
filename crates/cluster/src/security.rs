//! How nodes make sure that they talk to nodes of their cluster.

use std::io;
use std::path::Path;
use std::sync::Arc;

use elastin_stores::secret::{Secret, fingerprint};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, CommonState, RootCertStore, ServerConfig, version};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::transport::{OutgoingSocket, ReaderKind, Socket};

/// How nodes make sure that they talk to nodes of their cluster.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: for one executor whose users trust each other. Plain text.
    Trusting,
    /// By a secret that they share: for processes of one executor. Plain text.
    Secret(Secret),
    /// By certificates of the cluster's authority, in TLS 1.3.
    Certificates(Arc<Certificates>),
}

impl Security {
    /// Whether what is sent can be read on the way, and may therefore not leave the executor.
    pub fn is_plain(&self) -> bool {
        !matches!(self, Security::Certificates(_))
    }

    /// What stands for the certificate that this member shows, if it has one.
    pub fn own_certificate(&self) -> Option<String> {
        match self {
            Security::Trusting | Security::Secret(_) => None,
            Security::Certificates(certificates) => Some(certificates.own.clone()),
        }
    }

    /// By what they know each other, in words that are the same for all who do. It gives no secret away.
    pub fn known_by(&self) -> String {
        match self {
            Security::Trusting => "trust alone".into(),
            Security::Secret(secret) => format!("the secret {}", fingerprint(secret.text().as_bytes())),
            Security::Certificates(certificates) => {
                format!("certificates of the authority {}", certificates.authority)
            }
        }
    }
}

/// A node's or client's own certificate, and the authority that all of its cluster have theirs from.
pub struct Certificates {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    /// The name that certificates of nodes have.
    node_name: ServerName<'static>,
    /// What stands for the authority.
    authority: String,
    /// What stands for the own certificate.
    own: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Certificates")
            .field("node_name", &self.node_name)
            .finish()
    }
}

/// Why certificates can't be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read, or does not hold what it should.
    #[error("{file} can't be used: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The parts don't go together.
    #[error("the certificates don't go together: {0}")]
    Mismatch(String),
}

/// The file of the authority's certificate.
pub(crate) const AUTHORITY_FILE: &str = "ca.pem";
/// The file of the own certificate.
pub(crate) const CERTIFICATE_FILE: &str = "certificate.pem";
/// The file of the key of the own certificate.
pub(crate) const KEY_FILE: &str = "key.pem";

/// The name in the certificates of a cluster's nodes.
pub(crate) fn node_name(cluster: &str) -> String {
    format!("node.{}.elastin", label(cluster))
}

/// The name in the certificates of those who only call, and of operators.
pub(crate) fn client_name(cluster: &str) -> String {
    format!("client.{}.elastin", label(cluster))
}

/// A cluster's name as a part of a host name. Names that become the same still have different authorities.
fn label(cluster: &str) -> String {
    let plain = |char: char| {
        if char.is_ascii_alphanumeric() {
            char.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let label: String = cluster.chars().map(plain).take(60).collect();
    format!("c{label}").trim_end_matches('-').to_owned()
}

impl Certificates {
    /// Reads the certificates of a member of this cluster from a directory, as `elastin ca issue` writes it.
    pub fn read(directory: &Path, cluster: &str) -> Result<Self, CertificateError> {
        let path = |name: &str| directory.join(name);
        let unusable = |name: &str, reason: String| CertificateError::File {
            file: path(name).display().to_string(),
            reason,
        };
        let authority = CertificateDer::from_pem_file(path(AUTHORITY_FILE))
            .map_err(|error| unusable(AUTHORITY_FILE, error.to_string()))?;
        let certificate = CertificateDer::from_pem_file(path(CERTIFICATE_FILE))
            .map_err(|error| unusable(CERTIFICATE_FILE, error.to_string()))?;
        let key =
            PrivateKeyDer::from_pem_file(path(KEY_FILE)).map_err(|error| unusable(KEY_FILE, error.to_string()))?;
        Self::new(authority, certificate, key, cluster)
    }

    fn new(
        authority: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        cluster: &str,
    ) -> Result<Self, CertificateError> {
        let mismatch = |error: &dyn std::fmt::Display| CertificateError::Mismatch(error.to_string());
        let (authority_print, own) = (fingerprint(&authority), fingerprint(&certificate));
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| mismatch(&error))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| mismatch(&error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| mismatch(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .map_err(|error| mismatch(&error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| mismatch(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .map_err(|error| mismatch(&error))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            node_name: ServerName::try_from(node_name(cluster)).map_err(|error| mismatch(&error))?,
            authority: authority_print,
            own,
        })
    }
}

/// What frames are read from.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// What frames are written to.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection whose other end has shown its certificate, if that is how nodes know each other.
pub(crate) struct Secured {
    pub(crate) read_by: ReaderKind,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// The socket under `writer`, if what is written goes to it as it is.
    pub(crate) direct: Option<Direct>,
    /// Whether the other end may be a node; otherwise it only calls.
    pub(crate) may_be_node: bool,
    /// What stands for the certificate that the other end has shown, if that is how nodes know each other.
    pub(crate) certificate: Option<String>,
}

/// A socket that takes bytes without waiting, or not at all.
pub(crate) type Direct = std::net::TcpStream;

impl Secured {
    /// A connection in plain text, whose two ends are the same socket.
    fn plain(
        read_by: ReaderKind,
        socket: impl AsyncRead + AsyncWrite + Clone + Send + Unpin + 'static,
        direct: Direct,
    ) -> Self {
        Self {
            read_by,
            reader: Box::new(socket.clone()),
            writer: Box::new(socket),
            direct: Some(direct),
            may_be_node: true,
            certificate: None,
        }
    }
}

/// What stands for the certificate that the other end has shown.
fn shown(connection: &CommonState) -> Option<String> {
    let certificates = connection.peer_certificates()?;
    Some(fingerprint(certificates.first()?))
}

impl Security {
    /// Makes a connection to a node secure. What comes on it are replies, if anything: tokio's threads read it, whose tasks wait
    /// for them, and who waits alone does so itself.
    pub(crate) async fn secure_dialled(&self, stream: TcpStream) -> io::Result<Secured> {
        let socket = OutgoingSocket::new(stream)?;
        let read_by = ReaderKind::PendingCalls(socket.clone(), Arc::default());
        let Security::Certificates(certificates) = self else {
            let direct = socket.direct()?;
            return Ok(Secured::plain(read_by, socket, direct));
        };
        let name = certificates.node_name.clone();
        let stream = certificates.connector.connect(name, socket).await?;
        let certificate = shown(stream.get_ref().1);
        let (reader, writer) = tokio::io::split(stream);
        Ok(Secured {
            read_by,
            reader: Box::new(reader),
            writer: Box::new(writer),
            direct: None,
            may_be_node: true,
            certificate,
        })
    }

    /// Makes a connection secure that somebody has opened. Calls come on it: our own threads read it, which run actors.
    pub(crate) async fn secure_accepted(&self, stream: TcpStream) -> io::Result<Secured> {
        let stream = stream.into_std()?;
        let Security::Certificates(certificates) = self else {
            let direct = stream.try_clone()?;
            let socket = Socket::new(stream)?;
            return Ok(Secured::plain(
                ReaderKind::IoThreads(socket.io_threads()),
                socket,
                direct,
            ));
        };
        let socket = Socket::new(stream)?;
        let read_by = ReaderKind::IoThreads(socket.io_threads());
        let stream = certificates.acceptor.accept(socket).await?;
        let connection = stream.get_ref().1;
        let certificate = shown(connection);
        let parsed = connection.peer_certificates().and_then(<[_]>::first);
        let parsed = parsed.and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
        let may_be_node =
            parsed.is_some_and(|certificate| verify_server_name(&certificate, &certificates.node_name).is_ok());
        let (reader, writer) = tokio::io::split(stream);
        Ok(Secured {
            read_by,
            reader: Box::new(reader),
            writer: Box::new(writer),
            direct: None,
            may_be_node,
            certificate,
        })
    }
}
