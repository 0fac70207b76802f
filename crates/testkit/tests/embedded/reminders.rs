//! Reminders on real processes: they fire after crashes of servers and of the whole cluster, and each takes effect
//! once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use elastin::prelude::*;
use elastin::{Client, Embedded};
use elastin_testkit::{EtcdElastin, ReminderActor, app, server_names, wait_for, wait_for_some};

const PROGRAM: &str = env!("CARGO_BIN_EXE_testkit-server");
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Reminders that an actor has acted on. While a server is being replaced, calls may fail.
async fn fired(client: &Client, key: u64) -> BTreeSet<Reminder> {
    let actor = client.actor::<ReminderActor>(key);
    wait_for_some("the actor to be readable", async || {
        actor.fired().deadline(CALL_DEADLINE).await
    })
    .await
}

async fn wait_until_fired(client: &Client, key: u64, count: usize) -> BTreeSet<Reminder> {
    wait_for_some("the reminders to fire", async || {
        let fired = fired(client, key).await;
        match fired.len() >= count {
            true => Ok(fired),
            false => Err(format!("only {fired:?} of actor {key} have fired")),
        }
    })
    .await
}

async fn start(data: &std::path::Path) -> Embedded {
    let builder = app().embedded().servers(2).program(PROGRAM).data(data);
    let builder = builder.period(Duration::from_millis(500));
    builder.start().await.expect("the cluster starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_fire_although_servers_are_killed() {
    let data = tempfile::tempdir().unwrap();
    let cluster = start(data.path()).await;
    let client = cluster.client().await.unwrap();
    let mut expected = Vec::new();
    for key in 0..40_u64 {
        let actor = client.actor::<ReminderActor>(key);
        let set = actor.set("due".into(), 500 + 50 * key).deadline(CALL_DEADLINE).await;
        expected.push(set.expect("it is set"));
    }
    let forgotten = client.actor::<ReminderActor>(100);
    forgotten.set("never".into(), 1000).await.unwrap();
    assert_eq!(forgotten.forget("never".into()).await, Ok(true));
    assert_eq!(forgotten.forget("never".into()).await, Ok(false));
    let moved_up = client.actor::<ReminderActor>(101);
    moved_up.set("due".into(), 3_600_000).await.unwrap();
    let sooner = moved_up.set("due".into(), 100).await.unwrap();
    let repeated = client.actor::<ReminderActor>(102);
    repeated.repeat("tick".into(), 200).await.unwrap();

    // Both servers die while reminders fire.
    for server in cluster.servers() {
        assert!(cluster.kill(&server.name).await);
        wait_for("a new server in its place", || {
            let now = server_names(&cluster);
            now.len() >= 2 && !now.contains(&server.name)
        })
        .await;
    }

    for (key, reminder) in (0..).zip(expected) {
        assert_eq!(wait_until_fired(&client, key, 1).await, BTreeSet::from([reminder]));
    }
    assert_eq!(wait_until_fired(&client, 101, 1).await, BTreeSet::from([sooner]));
    let ticks = wait_until_fired(&client, 102, 5).await;
    let dues: Vec<u64> = ticks.iter().map(|reminder| reminder.due_ms).collect();
    assert!(dues.iter().all(|due| (due - dues[0]).is_multiple_of(200)), "{dues:?}");
    repeated.forget("tick".into()).await.unwrap();
    assert!(fired(&client, 100).await.is_empty(), "the reminder was cancelled");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_fire_after_the_whole_cluster_was_killed() {
    const ACTORS: u64 = 20;
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["set-reminders", data.path().to_str().unwrap(), &ACTORS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "set\n");
    // SIGKILL: no server can shut down cleanly.
    child.kill().unwrap();
    child.wait().unwrap();

    let cluster = start(data.path()).await;
    // No call activates an actor before its reminder does.
    wait_for("the reminder actors to be active again", || {
        cluster.servers().iter().map(|server| server.actors).sum::<u64>() >= ACTORS
    })
    .await;
    let client = cluster.client().await.unwrap();
    for key in 0..ACTORS {
        let fired = wait_until_fired(&client, key, 1).await;
        let names: Vec<&str> = fired.iter().map(|reminder| reminder.name.as_str()).collect();
        assert_eq!(names, ["due"]);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_owners_of_slots_fire_the_reminders_of_a_dead_server() {
    const ACTORS: u64 = 30;
    let mut elastin = EtcdElastin::start(app(), PROGRAM, 1).expect("etcd and PostgreSQL start");
    for server in ["a", "b", "c"] {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    wait_for("the servers to be there", || cluster.server_names().len() == 3).await;
    let mut expected = Vec::new();
    for key in 0..ACTORS {
        // Some are due before the dead server is detected, some later.
        let after_ms = 2_000 + 200 * key;
        let actor = cluster.client().actor::<ReminderActor>(key);
        let set = actor.set("due".into(), after_ms).deadline(CALL_DEADLINE).await;
        expected.push(set.expect("it is set"));
    }
    // It owns a third of the slots, and hosts a third of the actors.
    elastin.kill_server("b");
    for (key, reminder) in expected.into_iter().enumerate() {
        let fired = wait_until_fired(cluster.client(), key as u64, 1).await;
        assert_eq!(fired, BTreeSet::from([reminder]), "actor {key}");
    }
    cluster.leave().await;
}
