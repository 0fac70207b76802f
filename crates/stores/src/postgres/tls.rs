//! TLS 1.3 for `tokio-postgres`, by rustls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};

use crate::tls::StoreTls;

/// Opens TLS streams. The server's certificate must be signed by the authority and carry the name, or the address, by
/// which the server is dialled.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Creates a connector with these certificates, or explains why they can't be used.
    pub(super) fn new(certificates: &StoreTls) -> Result<Tls, String> {
        let unusable = |item: &str, error: &dyn std::fmt::Display| format!("{item} can't be used: {error}");
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(certificates.authority.as_bytes())
            .map_err(|error| unusable("the authority's certificate", &error))?;
        roots
            .add(authority)
            .map_err(|error| unusable("the authority's certificate", &error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| unusable("TLS 1.3", &error))?
            .with_root_certificates(roots);
        let config = match &certificates.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<_, _>>()
                    .map_err(|error| unusable("the client certificate", &error))?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|error| unusable("the key of the client certificate", &error))?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable("the client certificate", &error))?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = TlsSocket;
    type TlsConnect = TlsHandshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, server: &str) -> Result<TlsHandshake, InvalidDnsNameError> {
        Ok(TlsHandshake {
            connector: self.0.clone(),
            server: ServerName::try_from(server.to_owned())?,
        })
    }
}

/// A TLS handshake to come on a dialled socket.
pub(super) struct TlsHandshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.server, socket).await.map(TlsSocket) })
    }
}

/// A TLS stream.
pub(super) struct TlsSocket(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for TlsSocket {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate already authenticates the server.
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
