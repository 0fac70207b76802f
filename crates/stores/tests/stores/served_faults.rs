//! Served stores of both kinds behind broken and slow links, and with a server that stops during writes and restarts on
//! its files.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_stores::served::{Server, StoreClient};
use elastin_test_servers::Proxy;
use tokio::runtime::Handle;

use crate::blocking::LIMIT;
use crate::links::{self, Link};
use crate::served::{secret, serve_at};
use crate::torn::{self, Written};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_scripts_pass_over_bad_links() {
    for link in Link::ALL {
        let coordination = Arc::new(MemoryCoordination::start());
        let server = serve_at("127.0.0.1:0", Arc::new(MemoryState::start()), coordination).await;
        let proxy = Proxy::start(server.address()).unwrap();
        let client = Arc::new(StoreClient::connect(proxy.address(), &secret()).await.unwrap());
        tokio::task::block_in_place(|| {
            links::check_state(link, &proxy, client.clone());
            links::check_coordination(link, &proxy, client);
        });
    }
}

/// Opens a file as soon as the previous server has closed it.
fn open_again<T, E: std::fmt::Display>(open: impl Fn() -> Result<T, E>) -> Arc<T> {
    let until = Instant::now() + LIMIT;
    loop {
        match open() {
            Ok(store) => return Arc::new(store),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::yield_now();
    }
}

/// Serves the stores of this directory.
async fn serve_files(directory: &Path, address: &str) -> Server {
    let state = open_again(|| EmbeddedState::open(directory.join("state")));
    let coordination = open_again(|| EmbeddedCoordination::open(directory.join("coordination")));
    serve_at(address, state, coordination).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_keeps_acknowledged_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_files(directory.path(), "127.0.0.1:0").await;
    let address = server.address();
    let client = StoreClient::connect(address, &secret()).await.unwrap();
    let runtime = Handle::current();
    tokio::task::block_in_place(|| {
        let mut server = Some(server);
        for written in [Written::State(&client), Written::Coordination(&client)] {
            let seen = torn::check(written, || {
                drop(server.take());
                server = Some(runtime.block_on(serve_files(directory.path(), &address.to_string())));
            });
            assert!(
                seen.not_applied + seen.in_doubt > 0,
                "no write failed while the server was down: {seen:?}"
            );
        }
    });
}
