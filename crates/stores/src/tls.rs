//! Certificates for connections to external stores.

/// Certificates for a TLS connection to a store, all as PEM text.
#[derive(Clone, Debug)]
pub struct StoreTls {
    /// The certificate of the authority that signed the server's certificate.
    pub authority: String,
    /// The client certificate and its key, if the server asks for one.
    pub identity: Option<(String, String)>,
}
