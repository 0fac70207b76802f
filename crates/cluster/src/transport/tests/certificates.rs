//! Who may speak for whom.

use super::*;
use crate::authority::Authority;
use crate::security::Certificates;
use elastin_stores::secret::Secret;

/// Certificates of a cluster's authority, as `elastin ca` issues them.
fn certificates(authority: &Authority, cluster: &str, node: bool) -> Security {
    let directory = tempfile::tempdir().unwrap();
    authority.issue("test", node, directory.path()).unwrap();
    Security::Certificates(Arc::new(Certificates::read(directory.path(), cluster).unwrap()))
}

#[tokio::test]
async fn nodes_with_certificates_of_one_authority_talk() {
    let authority = Authority::create("test").unwrap();
    let (one, other) = (
        certificates(&authority, "test", true),
        certificates(&authority, "test", true),
    );
    let (mut near, mut far) = pair_secured(one, other).await;
    let large = "x".repeat(1 << 20);
    near.sends(2, &large);
    far.receives(frame_from(1, &large)).await;
    far.sends(1, "answer");
    near.receives(frame_from(2, "answer")).await;
}

/// Whether a node that dials another gets through.
async fn gets_through(dialler: Security, acceptor: Security) -> bool {
    let mut near = Node::start_secured(1, false, dialler).await;
    let mut far = Node::start_secured(2, true, acceptor).await;
    near.transport.learn_address(NodeId(2), far.address.unwrap());
    let first = timeout(Duration::from_secs(10), near.received.recv()).await.unwrap();
    let through = first == Some(Received::Up(NodeId(2)));
    if through {
        far.receives(Received::Up(NodeId(1))).await;
    } else {
        assert!(
            far.received.try_recv().is_err(),
            "the other end was notified of a untrusted"
        );
    }
    through
}

#[tokio::test]
async fn untrusted_peers_are_refused() {
    let ours = Authority::create("test").unwrap();
    let theirs = Authority::create("test").unwrap();
    let node = || certificates(&ours, "test", true);
    let untrusted = || certificates(&theirs, "test", true);
    let client = || certificates(&ours, "test", false);
    let secret = Secret::generate();
    let knowing = || Security::Secret(secret.clone());
    assert!(gets_through(client(), node()).await, "a client may dial a node");
    assert!(!gets_through(node(), client()).await, "a client is no node");
    assert!(!gets_through(untrusted(), node()).await);
    assert!(!gets_through(node(), untrusted()).await);
    assert!(!gets_through(Security::Trusting, node()).await);
    assert!(!gets_through(node(), Security::Trusting).await);
    assert!(gets_through(knowing(), knowing()).await);
    assert!(!gets_through(knowing(), Security::Secret(Secret::generate())).await);
    assert!(!gets_through(Security::Trusting, knowing()).await);
}

/// A client with these certificates that dials a node.
async fn client(id: u64, security: &Security, node: &Node) -> Node {
    let client = Node::start_secured(id, false, security.clone()).await;
    client.transport.learn_address(NodeId(2), node.address.unwrap());
    client
}

impl Node {
    /// It is cut off: it finds out after the greeting, which says who it is.
    async fn is_cut_off(&mut self) {
        while self.received.recv().await != Some(Received::Down(NodeId(2))) {}
    }
}

#[tokio::test]
async fn a_clients_certificate_does_not_speak_for_a_node() {
    let authority = Authority::create("test").unwrap();
    let mut node = Node::start_secured(2, true, certificates(&authority, "test", true)).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    node.transport.learn_address(NodeId(3), elsewhere.local_addr().unwrap());
    let mut impostor = client(3, &certificates(&authority, "test", false), &node).await;
    timeout(Duration::from_secs(10), impostor.is_cut_off()).await.unwrap();
    impostor.transport.close();
    // Somebody else gets through, and nobody was received of before.
    let _client = client(4, &certificates(&authority, "test", false), &node).await;
    node.receives(Received::Up(NodeId(4))).await;
}

#[tokio::test]
async fn nobody_takes_the_place_of_a_client_with_another_certificate() {
    let authority = Authority::create("test").unwrap();
    let (own, other) = (
        certificates(&authority, "test", false),
        certificates(&authority, "test", false),
    );
    let mut node = Node::start_secured(2, true, certificates(&authority, "test", true)).await;

    // Before it is known whose certificate it is, somebody else may be there.
    let mut impostor = client(1, &other, &node).await;
    node.receives(Received::Up(NodeId(1))).await;
    node.transport
        .learn_certificate(NodeId(1), &own.own_certificate().unwrap());
    node.receives(Received::Down(NodeId(1))).await;
    impostor.receives(Received::Up(NodeId(2))).await;
    timeout(Duration::from_secs(10), impostor.is_cut_off()).await.unwrap();

    let mut client = client(1, &own, &node).await;
    client.receives(Received::Up(NodeId(2))).await;
    node.receives(Received::Up(NodeId(1))).await;
    // The impostor dials again and again; the client is not disturbed.
    for _ in 0..2 {
        timeout(Duration::from_secs(10), impostor.is_cut_off()).await.unwrap();
        client.sends(2, "ask");
        node.receives(frame_from(1, "ask")).await;
        node.sends(1, "answer");
        client.receives(frame_from(2, "answer")).await;
    }
}
