//! TLS 1.3 to the server, by rustls: what `tokio-postgres` needs to know of it.

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

/// Opens streams in TLS. The server's certificate must have been signed by the authority and carry the name, or the address,
/// by which the server is dialled.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// With these certificates; what is wrong with them if they can't be used.
    pub(super) fn new(certificates: &StoreTls) -> Result<Tls, String> {
        let unusable = |what: &str, error: &dyn std::fmt::Display| format!("{what} can't be used: {error}");
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
                    .map_err(|error| unusable("the own certificate", &error))?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|error| unusable("the key of the own certificate", &error))?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable("the own certificate", &error))?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Secured;
    type TlsConnect = Dialled;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, server: &str) -> Result<Dialled, InvalidDnsNameError> {
        Ok(Dialled {
            connector: self.0.clone(),
            server: ServerName::try_from(server.to_owned())?,
        })
    }
}

/// A server that was dialled and is about to be spoken to in TLS.
pub(super) struct Dialled {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for Dialled {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.server, socket).await.map(Secured) })
    }
}

/// A stream in TLS.
pub(super) struct Secured(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        // The server is known by its certificate already.
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
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
