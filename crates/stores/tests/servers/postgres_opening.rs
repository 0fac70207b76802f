//! Opening a connection to a PostgreSQL server: the schema is created once, later connections only check it, and a
//! server that is not up yet is retried.

use std::time::Duration;

use elastin_protocol::store::{StateError, StateReply, StateRequest};
use elastin_stores::StateStoreExt;
use elastin_stores::postgres::PostgresState;
use elastin_test_servers::PostgresServer;
use elastin_types::{ActivationEpoch, ActorId, ActorType};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::blocking::LIMIT;

/// The advisory lock that serializes changes of the schema.
const SCHEMA_LOCK: i64 = 0x656c_6173_7469_6e00;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_created_once_and_then_checked() {
    let server = PostgresServer::start().unwrap();
    concurrent_connections_create_one_schema(&server).await;
    a_further_connection_only_reads(&server).await;
    a_schema_without_a_recorded_layout_gets_one(&server).await;
    a_later_schema_is_used_if_compatible(&server).await;
    a_foreign_schema_is_refused(&server).await;
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

async fn is_stored(store: &PostgresState, key: u64) -> bool {
    let load = StateRequest::Load { actor: actor(key) };
    match tokio::time::timeout(LIMIT, store.call(load)).await.unwrap() {
        Ok(StateReply::Loaded { state, .. }) => state.is_some(),
        other => panic!("a load ended with {other:?}"),
    }
}

/// A plain connection, as an operator would use.
async fn operator(server: &PostgresServer) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn connect(url: &str, schema: &str) -> Result<PostgresState, String> {
    let connecting = PostgresState::connect(url, schema, None);
    let connected = tokio::time::timeout(LIMIT, connecting).await;
    connected
        .expect("connecting completes in time")
        .map_err(|error| error.to_string())
}

/// The address of the server with read-only transactions.
fn to_read_only(server: &PostgresServer) -> String {
    format!("{}?options=-c%20default_transaction_read_only%3Don", server.url())
}

async fn concurrent_connections_create_one_schema(server: &PostgresServer) {
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
        assert!(is_stored(store, 0).await && is_stored(store, 7).await && !is_stored(store, 8).await);
    }
}

async fn a_further_connection_only_reads(server: &PostgresServer) {
    let refused = connect(&to_read_only(server), "checked").await.err().unwrap();
    assert!(
        refused.contains("creating the schema: ") && refused.contains("read-only"),
        "{refused}"
    );
    let first = connect(&server.url(), "checked").await.unwrap();
    save(&first, 1).await;
    // It does not even need the lock, which another client holds.
    let operator = operator(server).await;
    operator
        .execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK])
        .await
        .unwrap();
    let further = connect(&to_read_only(server), "checked").await.unwrap();
    assert!(is_stored(&further, 1).await);
}

/// A schema as earlier versions have left it.
async fn a_schema_without_a_recorded_layout_gets_one(server: &PostgresServer) {
    let store = connect(&server.url(), "unmarked").await.unwrap();
    save(&store, 1).await;
    let operator = operator(server).await;
    operator.batch_execute("DROP TABLE unmarked.layout").await.unwrap();
    let store = connect(&server.url(), "unmarked").await.unwrap();
    assert!(is_stored(&store, 1).await);
    let marks = operator
        .query("SELECT version FROM unmarked.layout", &[])
        .await
        .unwrap();
    assert_eq!(marks.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1]);
}

async fn a_later_schema_is_used_if_compatible(server: &PostgresServer) {
    let store = connect(&server.url(), "later").await.unwrap();
    save(&store, 1).await;
    let operator = operator(server).await;
    let mark = async |usable_from: i32| {
        let mark = "UPDATE later.layout SET version = 7, usable_from = $1";
        assert_eq!(operator.execute(mark, &[&usable_from]).await.unwrap(), 1);
    };
    mark(1).await;
    let store = connect(&server.url(), "later").await.unwrap();
    assert!(is_stored(&store, 1).await);
    let version = operator.query_one("SELECT version FROM later.layout", &[]).await;
    assert_eq!(version.unwrap().get::<_, i32>(0), 7, "the layout is not downgraded");
    mark(7).await;
    let refused = connect(&server.url(), "later").await.err().unwrap();
    assert!(
        refused.contains("a later version of Elastin") && refused.contains("knows only 1"),
        "{refused}"
    );
}

async fn a_foreign_schema_is_refused(server: &PostgresServer) {
    let operator = operator(server).await;
    let theirs = "CREATE SCHEMA theirs; CREATE TABLE theirs.actors
        (actor bytea PRIMARY KEY, slot bigint, counter bigint, claimer bigint, state text)";
    operator.batch_execute(theirs).await.unwrap();
    let refused = connect(&server.url(), "theirs").await.err().unwrap();
    assert!(
        refused.contains("preparing the statements: ") && refused.contains("`state` is of type text, not bytea"),
        "{refused}"
    );
    // An unreadable row fails the request instead of the program.
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
async fn a_server_that_starts_later_is_retried() {
    let mut server = PostgresServer::start().unwrap();
    server.stop().unwrap();
    let url = server.url();
    let absent = PostgresState::connect_with(&url, "elastin", None, Duration::ZERO).await;
    let absent = absent.err().expect("the server is down").to_string();
    assert!(absent.contains("connecting: "), "{absent}");
    let connecting = tokio::spawn(async move { PostgresState::connect(&url, "elastin", None).await });
    tokio::task::block_in_place(|| server.restart()).unwrap();
    let store = tokio::time::timeout(LIMIT, connecting).await.unwrap().unwrap().unwrap();
    save(&store, 1).await;
}
