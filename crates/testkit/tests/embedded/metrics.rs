//! Metrics of a real cluster, scraped as Prometheus does.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use elastin::Embedded;
use elastin_testkit::{Ledger, Probe, app, wait_for_some};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The capacity of an actor's mailbox.
const MAILBOX_MAX: usize = 1024;

/// The address of the metrics: no other process uses this loopback address, so a free port stays free.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The first of two consecutive free ports.
fn free_ports() -> SocketAddr {
    loop {
        let first = TcpListener::bind((HOST, 0)).unwrap();
        let mut address = first.local_addr().unwrap();
        let port = address.port();
        if port < u16::MAX {
            address.set_port(port + 1);
            if TcpListener::bind(address).is_ok() {
                return first.local_addr().unwrap();
            }
        }
    }
}

async fn read(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    Ok(answer)
}

/// The value of a metric, labels included in its name.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{text}"))
        .parse()
        .unwrap()
}

/// Reads a process's metrics until they are as expected. A server serves them a moment after it has joined.
async fn read_until(label: &str, address: SocketAddr, expected: impl Fn(&str) -> bool) -> String {
    wait_for_some(label, async || match read(address).await {
        Ok(text) if expected(&text) => Ok(text),
        Ok(text) => Err(text),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// A cluster of one server, with the metrics addresses of its supervisor and of the server.
async fn start() -> (Embedded, SocketAddr, SocketAddr) {
    let supervisor = free_ports();
    let cluster = app()
        .embedded()
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .period(Duration::from_millis(200))
        .metrics(supervisor)
        .start()
        .await
        .expect("the cluster starts");
    let mut server = supervisor;
    server.set_port(supervisor.port() + 1);
    (cluster, supervisor, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_exports_its_metrics() {
    let (cluster, supervisor, server) = start().await;
    let client = cluster.client().await.unwrap();
    for number in 1..=50 {
        client.actor::<Ledger>(1).append(1, number).await.unwrap();
    }
    let text = read(supervisor).await.unwrap();
    assert_eq!(value(&text, "elastin_servers"), 1.0);
    assert!(value(&text, "elastin_store_requests_total{kind=\"save\"}") >= 50.0);
    assert!(value(&text, "elastin_store_seconds_bucket{le=\"+Inf\"}") >= 51.0);

    // Sampled counts appear at the end of a period.
    let turns = "elastin_turns_total{type=\"Ledger\"}";
    let counted = |text: &str| text.contains(turns) && value(text, turns) >= 49.0;
    let text = read_until("the turns to be counted", server, counted).await;
    assert_eq!(value(&text, "elastin_activations"), 1.0);
    assert_eq!(value(&text, "elastin_panics_total"), 0.0);
    assert!(value(&text, "elastin_capacity{resource=\"cpu\"}") >= 100.0);
    assert!(value(&text, "elastin_used{resource=\"mem\"}") > 1e6);
    // Each call was received in a frame, and its reply sent in one.
    for stage in ["receive", "send"] {
        let of_stage = |unit: &str| value(&text, &format!("elastin_{stage}_{unit}_total"));
        assert!(of_stage("frames") >= 50.0 && of_stage("bytes") >= 50.0 * 10.0, "{text}");
        assert!(of_stage("batches") >= 1.0 && of_stage("seconds") > 0.0, "{text}");
    }
    assert!(
        value(&text, "elastin_links") >= 2.0,
        "to the supervisor and to the client"
    );

    let both = text + &read(supervisor).await.unwrap();
    let documented = include_str!("../../../../docs/observability.md");
    let documented = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for metric in documented.filter(|name| name.starts_with("elastin_")) {
        assert!(both.contains(&format!("# TYPE {metric} ")), "{metric} is not served");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tells_to_a_full_mailbox_of_another_process_are_counted() {
    let (cluster, _, server) = start().await;
    let client = cluster.client().await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let end = files.path().join("end");
    let probe = client.actor::<Probe>(1);
    probe.hold_until(end.display().to_string()).tell().await.unwrap();
    // More than the mailbox holds. Tells to another process succeed anyway, because its mailbox is not known here.
    for _ in 0..MAILBOX_MAX + 500 {
        probe.relay(vec![]).tell().await.unwrap();
    }
    let overloads = "elastin_overloads_total{by=\"actor\"}";
    let counted = |text: &str| value(text, overloads) >= 499.0;
    read_until("the rejected tells to be counted", server, counted).await;
    std::fs::write(end, "").unwrap();
    cluster.shutdown().await;
}
