//! A panic in the driver, which is a bug, ends the node as if it had crashed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastin_actor::ReplySender;
use elastin_clock::Clock;
use elastin_cluster::{
    Class, MemberRecord, Membership, MembershipUpdate, NodeCallbacks, NodeDriver, NodeDriverConfig, Planted, Role,
    Security,
};
use elastin_protocol::store::Coordination;
use elastin_protocol::{Limits, MoveError, MoveId, NodeConfig};
use elastin_runtime::{Runtime, Settings};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_types::{
    ActivationEpoch, ActorId, ActorType, CallError, CallId, Caller, Header, Message, Method, NodeId, NotDelivered,
    Outcome, Unknown,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time limit of each step.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Panics when an actor needs a node.
struct Panicking;

impl NodeCallbacks for Panicking {
    fn frame(&self, _: NodeId, _: Class, _: Bytes) {}

    fn need_placement(&self, _: ActorId, _: Caller, _: NodeId) {
        panic!("on purpose");
    }

    fn move_ended(&self, _: MoveId, _: Result<ActivationEpoch, MoveError>) {}
}

/// Calls an actor that has no host.
async fn call(driver: &NodeDriver, sequence: u64) -> Outcome {
    let call = CallId {
        origin: driver.me(),
        sequence,
    };
    let header = Header::of_call(call, Caller::Client(driver.me()));
    let message = Message {
        target: ActorId::new(ActorType::of("Folder"), sequence),
        header,
        method: Method::of("open"),
        body: Bytes::new(),
    };
    let (sender, receiver) = oneshot::channel();
    let reply = ReplySender::new(move |outcome| drop(sender.send(outcome)));
    driver.remote().send(Arc::new(message), Some(reply));
    let outcome = timeout(TIME_MAX, receiver).await;
    outcome.expect("each call ends").expect("a call has one outcome")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_panics_leaves_the_cluster() {
    let clock = Clock::start();
    let coordination: Arc<dyn Coordination> = Arc::new(MemoryCoordination::start());
    let record = MemberRecord::new("one", Role::Server, None);
    let lease = Duration::from_secs(3600);
    let membership = Membership::join(coordination, record, lease, &clock).await.unwrap();
    let me = membership.me();
    let config = NodeDriverConfig {
        busy_poll: true,
        cluster: "test".into(),
        node: NodeConfig {
            me,
            hosts: true,
            limits: Limits::default(),
        },
        saved_types: BTreeSet::new(),
        security: Security::Trusting,
        listener: None,
        state: Arc::new(MemoryState::start()),
        planted: Planted::default(),
    };
    let driver = NodeDriver::new(config, Arc::new(Panicking));
    let settings = Settings {
        node: me,
        ..Settings::default()
    };
    let builder = Runtime::builder().settings(settings).clock(clock);
    driver.attach(builder.remote(driver.remote()).build().unwrap());
    let (_handle, mut updates) = membership.attend(driver.clone());
    let first = timeout(TIME_MAX, updates.recv()).await;
    assert!(matches!(first, Ok(Some(MembershipUpdate::Roster(_)))), "it has joined");

    assert_eq!(call(&driver, 1).await, Err(CallError::Unknown(Unknown::NodeLost)));
    let not_delivered = Err(CallError::NotDelivered(NotDelivered::Unreachable));
    assert_eq!(call(&driver, 2).await, not_delivered);
    // The lease would last for an hour.
    let next = async {
        loop {
            match updates.recv().await {
                Some(MembershipUpdate::Roster(_)) => {}
                Some(MembershipUpdate::Evicted) => return true,
                None => return false,
            }
        }
    };
    assert_eq!(timeout(TIME_MAX, next).await, Ok(true));
}
