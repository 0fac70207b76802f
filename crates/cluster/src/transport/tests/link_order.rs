//! The receiver learns of a peer's links in their order, even if it takes long to handle the end of one.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc as blocking;

use super::*;

/// How long the end of a link takes to be handled. The next link must not be announced meanwhile.
const DOWN_TIME: Duration = Duration::from_millis(300);

/// Handles the end of a link slowly.
struct SlowReceiver {
    received: mpsc::UnboundedSender<Received>,
    announced: (blocking::Sender<()>, Mutex<blocking::Receiver<()>>),
    overtaken: Arc<AtomicBool>,
}

impl Receiver for SlowReceiver {
    fn frames(&self, _: NodeId, frames: &mut Frames<'_>, _: Option<&Waker>) -> Option<FollowUp> {
        while frames.next().is_some() {}
        None
    }

    fn follow_up_is_late(&self) {}

    fn link_up(&self, peer: NodeId) {
        let _ = self.announced.0.send(());
        let _ = self.received.send(Received::Up(peer));
    }

    fn link_down(&self, peer: NodeId) {
        let announced = self.announced.1.lock();
        while announced.try_recv().is_ok() {}
        let _ = self.received.send(Received::Down(peer));
        if announced.recv_timeout(DOWN_TIME).is_ok() {
            self.overtaken.store(true, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_link_is_announced_after_the_end_of_the_one_before_it() {
    for io in [Io::Plain, Io::Fast] {
        let (sender, received) = mpsc::unbounded_channel();
        let overtaken = Arc::new(AtomicBool::new(false));
        let (announce, announced) = blocking::channel();
        let receiver = SlowReceiver {
            received: sender,
            announced: (announce, Mutex::new(announced)),
            overtaken: Arc::clone(&overtaken),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = io.config(2, Some(listener), Security::Trusting);
        let mut node = Node {
            transport: Transport::start(config, Arc::new(receiver)),
            received,
            address: Some(address),
        };
        let connect = async || {
            let client = io.node(1, false).await;
            client.transport.learn_address(NodeId(2), address);
            client
        };

        let client = connect().await;
        node.receives(Received::Up(NodeId(1))).await;
        client.transport.close();
        node.receives(Received::Down(NodeId(1))).await;
        // The node still handles the end of the first link.
        let _client = connect().await;
        node.receives(Received::Up(NodeId(1))).await;
        assert!(
            !overtaken.load(Ordering::SeqCst),
            "a new link was announced before the end of the old one"
        );
        node.transport.close();
    }
}
