//! A peer that does not read delays no other.

use super::*;
use crate::handshake;

over_both!(a_stuck_peer_delays_no_other);

/// How a peer is stuck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stuck {
    /// Its process is frozen: the system accepts connections for it, and the handshake never begins.
    BeforeHandshake,
    /// It reads nothing after the handshake.
    AfterHandshake,
}

impl Stuck {
    /// A stuck peer, to which `near` has opened a connection. The result keeps that open.
    async fn peer(self, id: u64, near: &mut Node) -> (TcpListener, Option<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        near.transport.learn_address(NodeId(id), listener.local_addr().unwrap());
        near.sends(id, "dropped");
        if self == Stuck::BeforeHandshake {
            return (listener, None);
        }
        let (mut stream, _) = listener.accept().await.unwrap();
        let identity = Identity {
            cluster: "test".into(),
            me: NodeId(id),
            versions: WIRE_VERSIONS,
            secret: None,
        };
        let (mut reader, mut writer) = stream.split();
        handshake::accept(&mut reader, &mut writer, &identity).await.unwrap();
        near.receives(Received::Up(NodeId(id))).await;
        (listener, Some(stream))
    }
}

async fn a_stuck_peer_delays_no_other(io: Io) {
    for stuck in [Stuck::BeforeHandshake, Stuck::AfterHandshake] {
        let (mut near, mut quick) = (io.node(1, true).await, io.node(3, true).await);
        near.transport.learn_address(NodeId(3), quick.address.unwrap());
        quick.transport.learn_address(NodeId(1), near.address.unwrap());
        near.connects(&mut quick, 3, 1).await;
        let stuck_peer = stuck.peer(2, &mut near).await;

        // Its socket buffers fill, then its send queue. A sender is refused then, and never waits.
        let payload = vec![0; 1 << 20];
        let began = Instant::now();
        let sent_max = 2 * LINK_BYTES_MAX / payload.len();
        let class = match stuck {
            // Frames of the protocol are dropped while there is no connection.
            Stuck::BeforeHandshake => Class::Control,
            Stuck::AfterHandshake => Class::Protocol,
        };
        let refused = (0..sent_max).find_map(|_| near.transport.send(NodeId(2), class, &payload).err());
        assert_eq!(refused, Some(SendError::Backlogged), "{stuck:?}");

        for number in 0..100 {
            let text = number.to_string();
            let _ = near.transport.send(NodeId(2), class, &payload);
            near.sends(3, &text);
            quick.receives(frame_from(1, &text)).await;
            quick.sends(1, &text);
            // A handshake timeout ends the link, which is not a frame.
            let mut received = near.received.recv().await;
            if received == Some(Received::Down(NodeId(2))) {
                received = near.received.recv().await;
            }
            assert_eq!(received, Some(frame_from(3, &text)), "{stuck:?}");
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{stuck:?}: {:?}",
            began.elapsed()
        );
        drop(stuck_peer);
    }
}
