//! The stores on real etcd and PostgreSQL servers: conformance, and servers that are down, slow or restarted.

#[path = "../stores/blocking.rs"]
mod blocking;
mod etcd;
mod etcd_faults;
#[path = "../stores/links.rs"]
mod links;
mod postgres;
mod postgres_opening;
#[path = "../stores/torn.rs"]
mod torn;

/// The client side of these certificates, with or without a client certificate.
fn store_tls(certificates: &elastin_test_servers::Certificates, identity: bool) -> elastin_stores::StoreTls {
    let text = |file| std::fs::read_to_string(file).expect("the certificate files exist");
    elastin_stores::StoreTls {
        authority: text(certificates.authority()),
        identity: identity.then(|| (text(certificates.client()), text(certificates.client_key()))),
    }
}
