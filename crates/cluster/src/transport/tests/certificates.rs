//! Peers prove their identity with certificates or a secret.

use super::*;
use crate::authority::Authority;
use crate::security::Certificates;
use elastin_stores::secret::Secret;

over_both!(
    nodes_with_certificates_of_one_authority_connect,
    untrusted_peers_are_refused,
    a_clients_certificate_does_not_authenticate_a_node,
    a_client_is_not_replaced_by_a_peer_with_another_certificate,
);

/// Certificates of a cluster's authority, as `elastin ca` issues them.
fn certificates(authority: &Authority, cluster: &str, node: bool) -> Security {
    let directory = tempfile::tempdir().unwrap();
    authority.issue("test", node, directory.path()).unwrap();
    Security::Certificates(Arc::new(Certificates::read(directory.path(), cluster).unwrap()))
}

async fn nodes_with_certificates_of_one_authority_connect(io: Io) {
    let authority = Authority::create("test").unwrap();
    let (one, other) = (
        certificates(&authority, "test", true),
        certificates(&authority, "test", true),
    );
    let (mut near, mut far) = io.secured_pair(one, other).await;
    let large = "x".repeat(1 << 20);
    near.sends(2, &large);
    far.receives(frame_from(1, &large)).await;
    far.sends(1, "answer");
    near.receives(frame_from(2, "answer")).await;
}

/// Whether a node that dials another is accepted.
async fn is_accepted(io: Io, dialler: Security, acceptor: Security) -> bool {
    let mut near = io.secured_node(1, false, dialler).await;
    let mut far = io.secured_node(2, true, acceptor).await;
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    let first = timeout(Duration::from_secs(10), near.received.recv()).await.unwrap();
    let accepted = first == Some(Received::Up(NodeId(2)));
    if accepted {
        far.receives(Received::Up(NodeId(1))).await;
    } else {
        assert!(
            far.received.try_recv().is_err(),
            "the other end was notified of an untrusted peer"
        );
    }
    accepted
}

async fn untrusted_peers_are_refused(io: Io) {
    let ours = Authority::create("test").unwrap();
    let theirs = Authority::create("test").unwrap();
    let node = || certificates(&ours, "test", true);
    let untrusted = || certificates(&theirs, "test", true);
    let client = || certificates(&ours, "test", false);
    let secret = Secret::generate();
    let with_secret = || Security::Secret(secret.clone());
    assert!(is_accepted(io, client(), node()).await, "a client may dial a node");
    assert!(!is_accepted(io, node(), client()).await, "a client is not a node");
    assert!(!is_accepted(io, untrusted(), node()).await);
    assert!(!is_accepted(io, node(), untrusted()).await);
    assert!(!is_accepted(io, Security::Trusting, node()).await);
    assert!(!is_accepted(io, node(), Security::Trusting).await);
    assert!(is_accepted(io, with_secret(), with_secret()).await);
    assert!(!is_accepted(io, with_secret(), Security::Secret(Secret::generate())).await);
    assert!(!is_accepted(io, Security::Trusting, with_secret()).await);
}

/// A client with these certificates that dials a node.
async fn client(io: Io, id: u64, security: &Security, node: &Node) -> Node {
    let client = io.secured_node(id, false, security.clone()).await;
    client.transport.learn_address(NodeId(2), node.address.unwrap());
    client
}

impl Node {
    /// Waits until its connection is closed, which happens after the handshake that identifies it.
    async fn is_disconnected(&mut self) {
        let disconnected = async { while self.received.recv().await != Some(Received::Down(NodeId(2))) {} };
        timeout(Duration::from_secs(10), disconnected).await.unwrap();
    }
}

async fn a_clients_certificate_does_not_authenticate_a_node(io: Io) {
    let authority = Authority::create("test").unwrap();
    let mut node = io.secured_node(2, true, certificates(&authority, "test", true)).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    node.transport.learn_address(NodeId(3), elsewhere.local_addr().unwrap());
    let mut impostor = client(io, 3, &certificates(&authority, "test", false), &node).await;
    impostor.is_disconnected().await;
    impostor.transport.close();
    // Another client is accepted, and the impostor was never reported.
    let _client = client(io, 4, &certificates(&authority, "test", false), &node).await;
    node.receives(Received::Up(NodeId(4))).await;
}

async fn a_client_is_not_replaced_by_a_peer_with_another_certificate(io: Io) {
    let authority = Authority::create("test").unwrap();
    let (own, other) = (
        certificates(&authority, "test", false),
        certificates(&authority, "test", false),
    );
    let mut node = io.secured_node(2, true, certificates(&authority, "test", true)).await;

    // Before the client's certificate is known, another peer may use its id.
    let mut impostor = client(io, 1, &other, &node).await;
    node.receives(Received::Up(NodeId(1))).await;
    node.transport
        .learn_certificate(NodeId(1), &own.own_certificate().unwrap());
    node.receives(Received::Down(NodeId(1))).await;
    impostor.receives(Received::Up(NodeId(2))).await;
    impostor.is_disconnected().await;

    let mut client = client(io, 1, &own, &node).await;
    client.receives(Received::Up(NodeId(2))).await;
    node.receives(Received::Up(NodeId(1))).await;
    // The impostor keeps redialling, which does not disturb the client.
    for _ in 0..2 {
        impostor.is_disconnected().await;
        client.sends(2, "ask");
        node.receives(frame_from(1, "ask")).await;
        node.sends(1, "answer");
        client.receives(frame_from(2, "answer")).await;
    }
}
