//! Reminders on real processes: they come after crashes of servers and of the whole cluster, and each is acted on once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use elastin::prelude::*;
use elastin::{Client, Embedded};
use elastin_testkit::{Bell, EtcdElastin, app, server_names, wait_for, wait_for_some};

const PROGRAM: &str = env!("CARGO_BIN_EXE_testkit-server");
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Reminders that an actor has acted on. While a server is being replaced, calls may fail.
async fn rung(client: &Client, bell: u64) -> BTreeSet<Reminder> {
    let bell = client.actor::<Bell>(bell);
    wait_for_some("a bell to be readable", async || {
        bell.rung().deadline(CALL_DEADLINE).await
    })
    .await
}

async fn wait_until_rung(client: &Client, bell: u64, count: usize) -> BTreeSet<Reminder> {
    wait_for_some("a bell to ring", async || {
        let rung = rung(client, bell).await;
        match rung.len() >= count {
            true => Ok(rung),
            false => Err(format!("bell {bell} has rung {rung:?} only")),
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
async fn reminders_come_though_servers_are_killed() {
    let data = tempfile::tempdir().unwrap();
    let cluster = start(data.path()).await;
    let client = cluster.client().await.unwrap();
    let mut expected = Vec::new();
    for bell in 0..40_u64 {
        let actor = client.actor::<Bell>(bell);
        let set = actor.set("ring".into(), 500 + 50 * bell).deadline(CALL_DEADLINE).await;
        expected.push(set.expect("it is set"));
    }
    let forgotten = client.actor::<Bell>(100);
    forgotten.set("never".into(), 1000).await.unwrap();
    assert_eq!(forgotten.forget("never".into()).await, Ok(true));
    assert_eq!(forgotten.forget("never".into()).await, Ok(false));
    let moved_up = client.actor::<Bell>(101);
    moved_up.set("ring".into(), 3_600_000).await.unwrap();
    let sooner = moved_up.set("ring".into(), 100).await.unwrap();
    let repeated = client.actor::<Bell>(102);
    repeated.repeat("tick".into(), 200).await.unwrap();

    // Both servers die while reminders are coming.
    for server in cluster.servers() {
        assert!(cluster.kill(&server.name).await);
        wait_for("a new server in its place", || {
            let now = server_names(&cluster);
            now.len() >= 2 && !now.contains(&server.name)
        })
        .await;
    }

    for (bell, reminder) in (0..).zip(expected) {
        assert_eq!(wait_until_rung(&client, bell, 1).await, BTreeSet::from([reminder]));
    }
    assert_eq!(wait_until_rung(&client, 101, 1).await, BTreeSet::from([sooner]));
    let ticks = wait_until_rung(&client, 102, 5).await;
    let dues: Vec<u64> = ticks.iter().map(|reminder| reminder.due_ms).collect();
    assert!(dues.iter().all(|due| (due - dues[0]).is_multiple_of(200)), "{dues:?}");
    repeated.forget("tick".into()).await.unwrap();
    assert!(rung(&client, 100).await.is_empty(), "it was forgotten");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_come_after_the_whole_cluster_was_killed() {
    const BELLS: u64 = 20;
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["set-bells", data.path().to_str().unwrap(), &BELLS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "set\n");
    // SIGKILL: nothing of it gets a chance to end well.
    child.kill().unwrap();
    child.wait().unwrap();

    let cluster = start(data.path()).await;
    // No call activates an actor before its reminder does.
    wait_for("the bells to come back", || {
        cluster.servers().iter().map(|server| server.actors).sum::<u64>() >= BELLS
    })
    .await;
    let client = cluster.client().await.unwrap();
    for bell in 0..BELLS {
        let rung = wait_until_rung(&client, bell, 1).await;
        let names: Vec<&str> = rung.iter().map(|reminder| reminder.name.as_str()).collect();
        assert_eq!(names, ["ring"]);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reminders_of_a_server_that_died_come_from_the_new_owners_of_its_slots() {
    const BELLS: u64 = 30;
    let mut elastin = EtcdElastin::start(app(), PROGRAM, 1).expect("etcd and PostgreSQL start");
    for server in ["a", "b", "c"] {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    wait_for("the servers to be there", || cluster.server_names().len() == 3).await;
    let mut expected = Vec::new();
    for bell in 0..BELLS {
        // Some are due before the dead server is detected, some later.
        let after_ms = 2_000 + 200 * bell;
        let actor = cluster.client().actor::<Bell>(bell);
        let set = actor.set("ring".into(), after_ms).deadline(CALL_DEADLINE).await;
        expected.push(set.expect("it is set"));
    }
    // A third of the slots, and a third of the bells, are its.
    elastin.kill_server("b");
    for (bell, reminder) in expected.into_iter().enumerate() {
        let rung = wait_until_rung(cluster.client(), bell as u64, 1).await;
        assert_eq!(rung, BTreeSet::from([reminder]), "bell {bell}");
    }
    cluster.leave().await;
}
