//! The conformance scripts on every implementation, also on top of the data of earlier scripts.

use std::sync::Arc;

use crate::blocking::{CoordinationUnderTest, StateUnderTest};
use elastin_protocol::store::conformance::{coordination_scripts, state_scripts};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_stores::secret::Secret;
use elastin_stores::served::{StoreClient, serve};
use tokio::net::TcpListener;

fn check_state(store: Arc<dyn StateStore>) {
    let mut subject = StateUnderTest(store);
    for script in state_scripts() {
        script.run(&mut subject).unwrap();
    }
}

fn check_coordination(store: Arc<dyn Coordination>) {
    let mut subject = CoordinationUnderTest::new(store);
    for script in coordination_scripts() {
        script.run(&mut subject).unwrap();
    }
}

/// Serves the stores over a real socket, and runs the scripts through a client.
async fn check_served(state: Arc<dyn StateStore>, coordination: Arc<dyn Coordination>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secret = Secret::generate();
    let server = serve(listener, state, coordination, secret.clone()).unwrap();
    let client = Arc::new(StoreClient::connect(server.address(), &secret).await.unwrap());
    let check = move || {
        check_state(client.clone());
        check_coordination(client);
    };
    tokio::task::spawn_blocking(check).await.unwrap();
}

#[test]
fn memory() {
    check_state(Arc::new(MemoryState::start()));
    check_coordination(Arc::new(MemoryCoordination::start()));
}

#[test]
fn embedded() {
    let directory = tempfile::tempdir().unwrap();
    check_state(Arc::new(EmbeddedState::open(directory.path().join("state")).unwrap()));
    let path = directory.path().join("coordination");
    check_coordination(Arc::new(EmbeddedCoordination::open(path).unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_from_memory() {
    check_served(Arc::new(MemoryState::start()), Arc::new(MemoryCoordination::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let state = EmbeddedState::open(directory.path().join("state")).unwrap();
    let coordination = EmbeddedCoordination::open(directory.path().join("coordination")).unwrap();
    check_served(Arc::new(state), Arc::new(coordination)).await;
}
