//! The scripts over a connection that breaks before every single step: a client's view has no gap and no repetition.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::conformance::{CoordinationSubject, StateSubject, coordination_scripts, state_scripts};
use elastin_protocol::store::{
    CoordinationError, CoordinationReply, CoordinationRequest, Revision, StateError, StateReply, StateRequest,
    WatchBatch,
};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_stores::secret::Secret;
use elastin_stores::served::{StoreClient, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::blocking::{CoordinationUnderTest, LIMIT, StateUnderTest};

/// Forwards connections to a server, and can cut them.
struct Link {
    address: SocketAddr,
    /// The connection that is forwarded at the moment, and how many there were before it.
    current: watch::Receiver<(u64, Option<AbortHandle>)>,
    runtime: Handle,
}

impl Link {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, current) = watch::channel((0, None));
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            for number in 1.. {
                let (mut near, _) = listener.accept().await.unwrap();
                let mut far = TcpStream::connect(server).await.unwrap();
                let forwarding = async move {
                    // However it ends, both sides are closed.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                };
                let connection = connections.spawn(forwarding);
                if sender.send((number, Some(connection))).is_err() {
                    return;
                }
            }
        });
        let runtime = Handle::current();
        Self {
            address,
            current,
            runtime,
        }
    }

    /// Cuts the connection, and waits until the client has made another one.
    fn cut(&self) {
        let mut current = self.current.clone();
        let (number, connection) = current.borrow_and_update().clone();
        connection.expect("there is a connection to cut").abort();
        let again = async {
            let again = current.wait_for(|(next, _)| *next > number);
            let again = tokio::time::timeout(LIMIT, again).await;
            again.expect("the client connects again").expect("the link is there");
        };
        self.runtime.block_on(again);
    }
}

/// A subject whose link is cut before every step.
struct Cut<S> {
    link: Arc<Link>,
    subject: S,
}

impl StateSubject for Cut<StateUnderTest> {
    fn request(&mut self, request: StateRequest) -> Result<StateReply, StateError> {
        self.link.cut();
        self.subject.request(request)
    }

    fn pass(&mut self, time: Duration) {
        self.subject.pass(time);
    }
}

impl CoordinationSubject for Cut<CoordinationUnderTest> {
    fn request(&mut self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        self.link.cut();
        self.subject.request(request)
    }

    fn watch(&mut self, prefix: &str, from: Revision) {
        self.link.cut();
        self.subject.watch(prefix, from);
    }

    fn next(&mut self, watch: usize) -> Option<Result<WatchBatch, CoordinationError>> {
        self.link.cut();
        self.subject.next(watch)
    }

    fn end(&mut self) {
        self.subject.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_hold_when_the_link_breaks_before_every_step() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (state, coordination) = (MemoryState::start(), MemoryCoordination::start());
    let secret = Secret::generate();
    let server = serve(listener, Arc::new(state), Arc::new(coordination), secret.clone()).unwrap();
    let link = Arc::new(Link::to(server.address()).await);
    let client = Arc::new(StoreClient::connect(link.address, &secret).await.unwrap());
    let check = move || {
        let mut subject = Cut {
            link: link.clone(),
            subject: StateUnderTest(client.clone()),
        };
        for script in state_scripts() {
            script.run(&mut subject).unwrap();
        }
        let subject = CoordinationUnderTest::new(client);
        let mut subject = Cut { link, subject };
        for script in coordination_scripts() {
            script.run(&mut subject).unwrap();
        }
    };
    tokio::task::spawn_blocking(check).await.unwrap();
}
