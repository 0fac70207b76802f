//! The operator's commands on a real cluster: certificates, servers over etcd and PostgreSQL, status, move, drain.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use elastin::{Cluster, ClusterAddress};
use elastin_test_servers::{EtcdCluster, PostgresServer, Process, free_port};
use metadata_server::File;

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

fn elastin() -> Command {
    Command::new(env!("CARGO_BIN_EXE_elastin"))
}

fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn fails(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?} succeeds");
    String::from_utf8(stderr).unwrap()
}

/// An operator's command on the cluster over this etcd, with these certificates.
fn operate(arguments: &[&str], etcd: &EtcdCluster, certificates: &Path) -> Command {
    let mut command = elastin();
    command
        .args(arguments)
        .args(["--cluster", "metadata-server", "--etcd", &etcd.endpoints().join(",")])
        .arg("--certificates")
        .arg(certificates);
    command
}

#[test]
fn a_cluster_is_set_up_inspected_changed_and_drained() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    succeeds(
        elastin()
            .args(["ca", "init", "--cluster", "metadata-server"])
            .arg(path("ca")),
    );
    let again = fails(
        elastin()
            .args(["ca", "init", "--cluster", "metadata-server"])
            .arg(path("ca")),
    );
    assert!(again.contains("there is an authority in"), "{again}");
    let mut astray = elastin();
    astray
        .args(["ca", "issue", "--name", "a"])
        .arg(path("nowhere"))
        .arg(path("a"));
    let nowhere = path("nowhere").display().to_string();
    assert_eq!(
        fails(&mut astray),
        format!("error: there is no authority in {nowhere}: `elastin ca init {nowhere} --cluster NAME` makes one\n")
    );
    for (name, more) in [("a", None), ("b", None), ("me", Some("--client"))] {
        let mut issue = elastin();
        issue
            .args(["ca", "issue", "--name", name])
            .arg(path("ca"))
            .arg(path(name))
            .args(more);
        succeeds(&mut issue);
    }

    let etcd = EtcdCluster::start(1).unwrap();
    let postgres = PostgresServer::start().unwrap();
    let node = |name: &str| {
        let mut node = elastin();
        node.args(["demo-server", "node", "--name", name, "--period", "1", "--lease", "2"])
            .args(["--etcd", &etcd.endpoints().join(","), "--postgres", &postgres.url()])
            .arg("--certificates")
            .arg(path(name))
            .env_remove("RUST_LOG");
        Process::start(&mut node, &path(&format!("{name}.log"))).unwrap()
    };
    let (mut a, _b) = (node("a"), node("b"));
    let status = || succeeds(&mut operate(&["status"], &etcd, &path("me")));
    await_status(status, |status| status.contains("\na ") && status.contains("\nb "));

    let nowhere = fails(&mut operate(&["move", "File/1", "a"], &etcd, &path("me")));
    assert_eq!(nowhere, "error: the actor is active nowhere\n");
    let malformed = fails(&mut operate(&["move", "File", "a"], &etcd, &path("me")));
    assert!(malformed.contains("`File` is not an actor"), "{malformed}");
    let unknown = fails(&mut operate(&["drain", "unknown"], &etcd, &path("me")));
    assert_eq!(unknown, "error: there is no server called `unknown`\n");
    let untrusted = fails(elastin().args([
        "status",
        "--cluster",
        "metadata-server",
        "--etcd",
        &etcd.endpoints().join(","),
    ]));
    assert!(
        untrusted.contains("no credentials: pass `--certificates`"),
        "{untrusted}"
    );

    // Moves and drains carry the actor's volatile state along.
    let callers = tokio::runtime::Runtime::new().unwrap();
    let address = ClusterAddress {
        etcd: etcd.endpoints(),
        certificates: Some(path("me")),
        ..ClusterAddress::default()
    };
    let app = metadata_server::app();
    let cluster = callers.block_on(Cluster::connect(&app, &address, "caller")).unwrap();
    let file = cluster.client().actor::<File>(1);
    let reads = || {
        let read = callers.block_on(file.stat().deadline(LIMIT).into_future());
        read.expect("the file is read").reads
    };
    assert_eq!(reads(), 1);
    for server in ["b", "a"] {
        // It is on one of the two, so at least one move succeeds.
        let mut moving = operate(&["move", "File/1", server], &etcd, &path("me"));
        let Output { status, stdout, stderr } = moving.output().unwrap();
        let printed = String::from_utf8([stdout, stderr].concat()).unwrap();
        match status.success() {
            true => assert_eq!(printed, format!("File/1 is on {server}\n")),
            false => assert_eq!((server, printed.as_str()), ("b", "error: the actor is already there\n")),
        }
    }
    let again = fails(&mut operate(&["move", "File/1", "a"], &etcd, &path("me")));
    assert_eq!(again, "error: the actor is already there\n");
    await_status(status, |status| {
        actors(status, "a") == Some(1) && actors(status, "b") == Some(0)
    });
    assert_eq!(reads(), 2);

    let drained = succeeds(&mut operate(&["drain", "a"], &etcd, &path("me")));
    assert_eq!(drained, "a was drained and has left\n");
    await_status(status, |status| {
        actors(status, "a").is_none() && actors(status, "b") == Some(1)
    });
    assert_eq!(reads(), 3, "the drain has moved the volatile state");
    callers.block_on(cluster.leave());
    assert!(a.wait(LIMIT), "its process ends");
    let log = std::fs::read_to_string(path("a.log")).unwrap();
    assert!(
        log.contains("this server has joined") && log.contains("this server has left"),
        "{log}"
    );
}

#[test]
fn an_unreachable_etcd_is_named() {
    let etcd = format!("http://127.0.0.1:{}", free_port());
    let lost = fails(elastin().args(["status", "--cluster", "shop", "--plain", "--etcd", &etcd]));
    let named = format!("error: coordination failed: the store can't be reached: {etcd}: ");
    assert!(lost.starts_with(&named), "{lost}");
}

/// The number of actors of a server in the status; `None` without such a server.
fn actors(status: &str, server: &str) -> Option<u64> {
    let mut rows = status.lines().map(str::split_whitespace);
    let mut row = rows.find(|row| row.clone().next() == Some(server))?;
    // The last column is the state.
    row.nth_back(1)?.parse().ok()
}

fn await_status(status: impl Fn() -> String, expected: impl Fn(&str) -> bool) {
    let began = Instant::now();
    loop {
        let shown = status();
        if expected(&shown) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "the status stays:\n{shown}");
    }
}
