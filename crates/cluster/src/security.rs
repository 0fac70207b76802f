//! Authentication and encryption of connections.

use std::io;
use std::path::Path;
use std::sync::Arc;

use elastin_stores::secret::{Secret, fingerprint};
use tokio::io::{AsyncRead, AsyncWrite, join};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, CommonState, RootCertStore, ServerConfig, version};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How the members of a cluster authenticate each other.
#[derive(Clone, Debug)]
pub enum Security {
    /// No authentication, in plain text: for one machine whose users trust each other.
    Trusting,
    /// A shared secret, in plain text: for processes of one machine.
    Secret(Secret),
    /// Certificates of the cluster's authority, over TLS 1.3.
    Certificates(Arc<Certificates>),
}

impl Security {
    /// Whether connections are in plain text, and must therefore not leave the machine.
    pub fn is_plain(&self) -> bool {
        !matches!(self, Security::Certificates(_))
    }

    /// The fingerprint of this member's certificate, if it has one.
    pub fn own_certificate(&self) -> Option<String> {
        match self {
            Security::Trusting | Security::Secret(_) => None,
            Security::Certificates(certificates) => Some(certificates.own.clone()),
        }
    }

    /// Describes how members authenticate each other, in words that are equal for all members. It reveals no secret.
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

/// A member's own certificate, and the authority that has issued the certificates of all members.
pub struct Certificates {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    /// The name in the certificates of nodes.
    node_name: ServerName<'static>,
    /// The fingerprint of the authority's certificate.
    authority: String,
    /// The fingerprint of the own certificate.
    own: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Certificates")
            .field("node_name", &self.node_name)
            .finish()
    }
}

/// The reason why certificates can't be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file can't be read or parsed.
    #[error("{file} can't be used: {reason}")]
    File {
        /// The file.
        file: String,
        /// The error.
        reason: String,
    },
    /// The key or the authority does not match the certificate.
    #[error("the certificate, its key and the authority don't match: {0}")]
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

/// The name in the certificates of clients and operators.
pub(crate) fn client_name(cluster: &str) -> String {
    format!("client.{}.elastin", label(cluster))
}

/// A cluster's name as a label of a host name. Clusters with equal labels still have different authorities.
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
        let (authority_fingerprint, own) = (fingerprint(&authority), fingerprint(&certificate));
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
            authority: authority_fingerprint,
            own,
        })
    }
}

/// The inbound half of a connection.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// The outbound half of a connection.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection after the TLS handshake, if it is encrypted.
pub(crate) struct Secured {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// Whether the peer may be a node; otherwise it is a client.
    pub(crate) may_be_node: bool,
    /// The fingerprint of the peer's certificate, if the connection is encrypted.
    pub(crate) certificate: Option<String>,
}

impl Secured {
    fn plain(reader: Reader, writer: Writer) -> Self {
        Self {
            reader,
            writer,
            may_be_node: true,
            certificate: None,
        }
    }

    fn encrypted(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        may_be_node: bool,
        certificate: Option<String>,
    ) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            may_be_node,
            certificate,
        }
    }
}

/// The fingerprint of the peer's certificate.
fn peer_fingerprint(connection: &CommonState) -> Option<String> {
    let certificates = connection.peer_certificates()?;
    Some(fingerprint(certificates.first()?))
}

impl Security {
    /// Secures a dialled connection.
    pub(crate) async fn secure_dialled(&self, reader: Reader, writer: Writer) -> io::Result<Secured> {
        let Security::Certificates(certificates) = self else {
            return Ok(Secured::plain(reader, writer));
        };
        let name = certificates.node_name.clone();
        let stream = certificates.connector.connect(name, join(reader, writer)).await?;
        let certificate = peer_fingerprint(stream.get_ref().1);
        Ok(Secured::encrypted(stream, true, certificate))
    }

    /// Secures an accepted connection.
    pub(crate) async fn secure_accepted(&self, reader: Reader, writer: Writer) -> io::Result<Secured> {
        let Security::Certificates(certificates) = self else {
            return Ok(Secured::plain(reader, writer));
        };
        let stream = certificates.acceptor.accept(join(reader, writer)).await?;
        let connection = stream.get_ref().1;
        let certificate = peer_fingerprint(connection);
        let parsed = connection.peer_certificates().and_then(<[_]>::first);
        let parsed = parsed.and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
        let may_be_node =
            parsed.is_some_and(|certificate| verify_server_name(&certificate, &certificates.node_name).is_ok());
        Ok(Secured::encrypted(stream, may_be_node, certificate))
    }
}
