//! How a connection to a PostgreSQL server begins: the schema is made once and then only looked at, and a server that is not
//! there yet is waited for.

use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest};
use elastin_stores::StateStoreExt;
use elastin_stores::postgres::PostgresState;
use elastin_test_servers::PostgresServer;
use elastin_types::{ActivationEpoch, ActorId, ActorType};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::blocking::LIMIT;

/// The number by which those who change a schema exclude each other.
const SCHEMA_LOCK: i64 = 0x656c_6173_7469_6e00;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_made_once_and_then_looked_at() {
    let server = PostgresServer::start().unwrap();
    several_connect_at_once_on_an_empty_database(&server).await;
    a_further_connection_only_reads(&server).await;
    a_schema_without_a_mark_gets_one(&server).await;
    a_later_schema_is_used_if_it_allows_it(&server).await;
    a_schema_of_somebody_else_is_refused(&server).await;
}

fn actor(key: u64) -> ActorId {
    ActorId::new(ActorType::of("Folder"), key)
}

async fn save(store: &PostgresState, key: u64) {
    let save = StateRequest::Save {
        actor: actor(key),
        epoch: ActivationEpoch::default(),
        state: "kept".into(),
    };
    let saved = tokio::time::timeout(LIMIT, store.call(save)).await.unwrap();
    assert_eq!(saved, Ok(StateReply::Saved));
}

async fn is_kept(store: &PostgresState, key: u64) -> bool {
    let load = StateRequest::Load { actor: actor(key) };
    match tokio::time::timeout(LIMIT, store.call(load)).await.unwrap() {
        Ok(StateReply::Loaded { state, .. }) => state.is_some(),
        other => panic!("a load ended with {other:?}"),
    }
}

/// A connection like that of an operator.
async fn operator(server: &PostgresServer) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn connect(url: &str, schema: &str) -> Result<PostgresState, String> {
    let connecting = PostgresState::connect(url, schema, None);
    let connected = tokio::time::timeout(LIMIT, connecting).await;
    connected.expect("it ends in time").map_err(|error| error.to_string())
}

/// The server for somebody whose transactions can't write.
fn to_read_only(server: &PostgresServer) -> String {
    format!("{}?options=-c%20default_transaction_read_only%3Don", server.url())
}

async fn several_connect_at_once_on_an_empty_database(server: &PostgresServer) {
    let mut connecting = JoinSet::new();
    for _ in 0..8 {
        let url = server.url();
        connecting.spawn(async move { connect(&url, "together").await.unwrap() });
    }
    let stores = connecting.join_all().await;
    for (key, store) in (0..).zip(&stores) {
        save(store, key).await;
    }
    for store in &stores {
        assert!(is_kept(store, 0).await && is_kept(store, 7).await && !is_kept(store, 8).await);
    }
}

async fn a_further_connection_only_reads(server: &PostgresServer) {
    let refused = connect(&to_read_only(server), "looked_at").await.err().unwrap();
    assert!(
        refused.contains("making the schema: ") && refused.contains("read-only"),
        "{refused}"
    );
    let first = connect(&server.url(), "looked_at").await.unwrap();
    save(&first, 1).await;
    // Not even the lock is needed, which somebody holds.
    let operator = operator(server).await;
    operator
        .execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK])
        .await
        .unwrap();
    let further = connect(&to_read_only(server), "looked_at").await.unwrap();
    assert!(is_kept(&further, 1).await);
}

/// As earlier versions have left it.
async fn a_schema_without_a_mark_gets_one(server: &PostgresServer) {
    let store = connect(&server.url(), "unmarked").await.unwrap();
    save(&store, 1).await;
    let operator = operator(server).await;
    operator.batch_execute("DROP TABLE unmarked.layout").await.unwrap();
    let store = connect(&server.url(), "unmarked").await.unwrap();
    assert!(is_kept(&store, 1).await);
    let marks = operator
        .query("SELECT version FROM unmarked.layout", &[])
        .await
        .unwrap();
    assert_eq!(marks.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1]);
}

async fn a_later_schema_is_used_if_it_allows_it(server: &PostgresServer) {
    let store = connect(&server.url(), "later").await.unwrap();
    save(&store, 1).await;
    let operator = operator(server).await;
    let mark = async |usable_from: i32| {
        let mark = "UPDATE later.layout SET version = 7, usable_from = $1";
        assert_eq!(operator.execute(mark, &[&usable_from]).await.unwrap(), 1);
    };
    mark(1).await;
    let store = connect(&server.url(), "later").await.unwrap();
    assert!(is_kept(&store, 1).await);
    let version = operator.query_one("SELECT version FROM later.layout", &[]).await;
    assert_eq!(version.unwrap().get::<_, i32>(0), 7, "it is not turned back");
    mark(7).await;
    let refused = connect(&server.url(), "later").await.err().unwrap();
    assert!(
        refused.contains("a later version of Elastin") && refused.contains("knows only 1"),
        "{refused}"
    );
}

async fn a_schema_of_somebody_else_is_refused(server: &PostgresServer) {
    let operator = operator(server).await;
    let theirs = "CREATE SCHEMA theirs; CREATE TABLE theirs.actors
        (actor bytea PRIMARY KEY, slot bigint, counter bigint, claimer bigint, state text)";
    operator.batch_execute(theirs).await.unwrap();
    let refused = connect(&server.url(), "theirs").await.err().unwrap();
    assert!(
        refused.contains("preparing the statements: ") && refused.contains("`state` is of type text, not bytea"),
        "{refused}"
    );
    // What can't be read is an error of the store, and not the end of the program.
    let store = connect(&server.url(), "odd").await.unwrap();
    save(&store, 2).await;
    let odd = "ALTER TABLE odd.actors ALTER slot DROP NOT NULL; UPDATE odd.actors SET slot = NULL";
    operator.batch_execute(odd).await.unwrap();
    let load = StateRequest::Load { actor: actor(2) };
    let unreadable = tokio::time::timeout(LIMIT, store.call(load)).await.unwrap();
    assert!(matches!(unreadable, Err(StateError::Failed(_))), "{unreadable:?}");
    save(&store, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_later_is_waited_for() {
    let mut server = PostgresServer::start().unwrap();
    server.stop().unwrap();
    let url = server.url();
    let absent = PostgresState::connect_with(&url, "elastin", None, Duration::ZERO).await;
    let absent = absent.err().expect("nobody is there").to_string();
    assert!(absent.contains("connecting: "), "{absent}");
    let connecting = tokio::spawn(async move { PostgresState::connect(&url, "elastin", None).await });
    tokio::task::block_in_place(|| server.restart()).unwrap();
    let store = tokio::time::timeout(LIMIT, connecting).await.unwrap().unwrap().unwrap();
    save(&store, 1).await;
}
