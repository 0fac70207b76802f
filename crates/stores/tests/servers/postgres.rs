//! State in a real PostgreSQL server.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use elastin_protocol::store::conformance::state_scripts;
use elastin_protocol::store::{StateError, StateReply, StateRequest, StateStore};
use elastin_stores::postgres::{PostgresError, PostgresState};
use elastin_stores::{StateStoreExt, StoreTls};
use elastin_test_servers::{Certificates, PostgresServer, Proxy};
use elastin_types::{ActivationEpoch, ActorId, ActorType, NodeId, SlotEpoch};

use crate::blocking::{LIMIT, StateUnderTest, ask_state};
use crate::links::{self, Link};
use crate::store_tls;
use crate::torn::{self, Written};

/// Starting a server is slow, so the tests that leave it running share one, each with its own schema.
async fn connect(url: &str, schema: &str) -> PostgresState {
    PostgresState::connect(url, schema, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_running_server() {
    let server = PostgresServer::start().unwrap();
    conformance_scripts_pass(&server).await;
    batches_of_two_nodes_stay_in_order_and_fence(&server).await;
    a_write_without_a_reply_ends_as_interrupted(&server).await;
    conformance_scripts_pass_over_bad_links(&server).await;
    large_states_and_many_bytes_are_stored(&server).await;
}

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

fn epoch(counter: u32) -> ActivationEpoch {
    let slot = SlotEpoch(1);
    ActivationEpoch { slot, counter }
}

fn save(key: u64, counter: u32, state: String) -> StateRequest {
    StateRequest::Save {
        actor: actor(key),
        epoch: epoch(counter),
        state: state.into(),
    }
}

fn state_of(store: &dyn StateStore, key: u64) -> Option<String> {
    match ask_state(store, StateRequest::Load { actor: actor(key) }) {
        Ok(StateReply::Loaded { state, .. }) => {
            state.map(|state| String::from_utf8(state.to_vec()).expect("the tests write text"))
        }
        other => panic!("failed to read the state of {key}: {other:?}"),
    }
}

/// Retries until the store answers again, which it does by itself once there is a server.
fn await_service(store: &dyn StateStore) {
    let until = std::time::Instant::now() + LIMIT;
    while let Err(error) = ask_state(store, StateRequest::Load { actor: actor(0) }) {
        assert!(std::time::Instant::now() < until, "the store does not recover: {error}");
        std::thread::yield_now();
    }
}

async fn conformance_scripts_pass(server: &PostgresServer) {
    let mut subject = StateUnderTest(Arc::new(connect(&server.url(), "scripts").await));
    blocking(|| {
        for script in state_scripts() {
            script.run(&mut subject).unwrap();
        }
    });
}

async fn batches_of_two_nodes_stay_in_order_and_fence(server: &PostgresServer) {
    const ACTORS: u64 = 50;
    const WRITES: u32 = 40;
    let (early, late) = (connect(&server.url(), "two").await, connect(&server.url(), "two").await);
    // Both write the same actors in opposite order, so that their transactions conflict.
    let mut ends = Vec::new();
    for number in 0..WRITES {
        for key in 0..ACTORS {
            ends.push((1, early.call(save(key, 1, format!("early {number}")))));
            ends.push((2, late.call(save(ACTORS - 1 - key, 2, format!("late {number}")))));
        }
    }
    let mut fenced = 0;
    for (counter, end) in ends {
        match tokio::time::timeout(LIMIT, end).await.expect("a save completes") {
            Ok(StateReply::Saved) => {}
            Err(StateError::Fenced { stored }) => {
                assert_eq!((counter, stored), (1, epoch(2)));
                fenced += 1;
            }
            other => panic!("a save ended with {other:?}"),
        }
    }
    blocking(|| {
        for key in 0..ACTORS {
            assert_eq!(
                state_of(&early, key),
                Some(format!("late {}", WRITES - 1)),
                "actor {key}, {fenced} fenced"
            );
        }
    });
}

async fn conformance_scripts_pass_over_bad_links(server: &PostgresServer) {
    let proxy = Proxy::start(server.address()).unwrap();
    for (link, schema) in Link::ALL.into_iter().zip(["cut", "slow"]) {
        let store = connect(&server.url_through(proxy.address()), schema).await;
        blocking(|| links::check_state(link, &proxy, Arc::new(store)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_or_a_stop_loses_no_acknowledged_write() {
    let mut server = PostgresServer::start().unwrap();
    let (crashed, stopped) = (
        connect(&server.url(), "crashed").await,
        connect(&server.url(), "stopped").await,
    );
    blocking(|| {
        let crash = torn::check(Written::State(&crashed), || server.restart().unwrap());
        let stop = torn::check(Written::State(&stopped), || {
            server.stop().unwrap();
            server.restart().unwrap();
        });
        for seen in [crash, stop] {
            assert!(
                seen.not_applied + seen.in_doubt > 0,
                "no write failed while the server was down: {seen:?}"
            );
        }
    });
}

async fn a_write_without_a_reply_ends_as_interrupted(server: &PostgresServer) {
    let proxy = Proxy::start(server.address()).unwrap();
    let store = connect(&server.url_through(proxy.address()), "gone").await;
    blocking(|| {
        ask_state(&store, save(1, 1, "before".to_owned())).unwrap();
        proxy.silence(true);
        let (sender, end) = mpsc::channel();
        let done = move |result| drop(sender.send(result));
        store.submit(save(1, 1, "between".to_owned()), Box::new(done));
        // Without a reply the write is in flight; then the connection breaks.
        assert!(end.recv_timeout(Duration::from_millis(300)).is_err());
        proxy.break_connections();
        let ended = end.recv_timeout(LIMIT).unwrap();
        let Err(StateError::Failed(failure)) = &ended else {
            panic!("the server is silent, but the save ended with {ended:?}");
        };
        assert!(failure.may_be_applied(), "{failure:?}");
        proxy.silence(false);
        await_service(&store);
        assert!(["before", "between"].contains(&state_of(&store, 1).unwrap().as_str()));
        ask_state(&store, save(1, 1, "after".to_owned())).unwrap();
    });
}

async fn large_states_and_many_bytes_are_stored(server: &PostgresServer) {
    let store = connect(&server.url(), "large").await;
    let large = "x".repeat(20 << 20);
    let saves: Vec<_> = (0..4).map(|key| store.call(save(key, 1, large.clone()))).collect();
    for save in saves {
        assert_eq!(tokio::time::timeout(LIMIT, save).await.unwrap(), Ok(StateReply::Saved));
    }
    let claim = StateRequest::Claim {
        actor: actor(3),
        epoch: epoch(2),
        claimer: NodeId(1),
    };
    let claimed = tokio::time::timeout(LIMIT, store.call(claim)).await.unwrap();
    assert_eq!(
        claimed,
        Ok(StateReply::Claimed {
            state: Some(large.into())
        })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_server_is_refused_with_the_reason() {
    let refused = async |url: &str, schema: &str| {
        let refused = PostgresState::connect_with(url, schema, None, Duration::ZERO).await;
        refused.err().unwrap()
    };
    assert!(matches!(
        refused("not an address", "elastin").await,
        PostgresError::Address(_)
    ));
    let name = refused("postgres://user@127.0.0.1:1/none", "x; DROP TABLE y").await;
    assert!(matches!(name, PostgresError::SchemaName(_)), "{name}");
    let unreachable = refused("postgres://user@127.0.0.1:1/none", "elastin").await;
    assert!(
        unreachable.to_string().contains("can't be used: connecting: "),
        "{unreachable}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_authenticates_both_sides() {
    let server = PostgresServer::start_secured().unwrap();
    let tls = |identity| store_tls(server.certificates().unwrap(), identity);
    let store = PostgresState::connect(&server.url(), "test", Some(&tls(true)))
        .await
        .unwrap();
    blocking(|| {
        ask_state(&store, save(1, 1, "secret".into())).unwrap();
        assert_eq!(state_of(&store, 1).as_deref(), Some("secret"));
    });

    let refused = async |tls: Option<&StoreTls>| {
        // Immediately: a retry does not make certificates valid.
        let refused = tokio::time::timeout(LIMIT, PostgresState::connect(&server.url(), "test", tls)).await;
        let refused = refused.expect("it is not retried").err();
        refused.expect("it is refused").to_string()
    };
    let plain = refused(None).await;
    assert!(plain.contains("no pg_hba.conf entry"), "{plain}");
    let anonymous = refused(Some(&tls(false))).await;
    assert!(anonymous.contains("certificate"), "{anonymous}");
    let others = Certificates::make(std::net::Ipv4Addr::LOCALHOST).unwrap();
    let wrong = refused(Some(&store_tls(&others, true))).await;
    assert!(wrong.contains("invalid peer certificate: "), "{wrong}");
    let (authority, identity) = ("no certificate".to_owned(), None);
    let invalid = refused(Some(&StoreTls { authority, identity })).await;
    assert!(
        invalid.contains("the authority's certificate can't be used"),
        "{invalid}"
    );

    let url = format!("{}?sslmode=require", server.url());
    let no_authority = PostgresState::connect(&url, "test", None).await.err().unwrap();
    assert!(matches!(no_authority, PostgresError::NoAuthority), "{no_authority}");
}
