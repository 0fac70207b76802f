//! Certificates for servers that keep things for a cluster.

/// Certificates for a server that is spoken to in TLS, all as PEM text.
#[derive(Clone, Debug)]
pub struct StoreTls {
    /// The authority that has signed the server's certificate.
    pub authority: String,
    /// The certificate by which the server knows this client, and its key.
    pub identity: Option<(String, String)>,
}
