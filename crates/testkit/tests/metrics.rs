//! Metrics of a real cluster, read as Prometheus does.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use elastin_testkit::{Ledger, app};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Two ports that follow each other, and that nobody uses.
fn free_ports() -> SocketAddr {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
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

async fn read(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("metrics are served");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

/// The value of a metric, labels included in its name.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{text}"))
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_tells_what_it_does() {
    let supervisor = free_ports();
    let cluster = app()
        .embedded()
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .period(Duration::from_millis(200))
        .metrics(supervisor)
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.unwrap();
    for number in 1..=50 {
        client.actor::<Ledger>(1).append(1, number).await.unwrap();
    }
    let text = read(supervisor).await;
    assert_eq!(value(&text, "elastin_servers"), 1.0);
    assert!(value(&text, "elastin_store_requests_total{kind=\"save\"}") >= 50.0);
    assert!(value(&text, "elastin_store_seconds_bucket{le=\"+Inf\"}") >= 51.0);

    let mut server = supervisor;
    server.set_port(supervisor.port() + 1);
    let began = Instant::now();
    loop {
        // What is counted by sampling comes at the end of a period.
        let text = read(server).await;
        let name = "elastin_turns_total{type=\"Ledger\"}";
        if text.contains(name) && value(&text, name) >= 49.0 {
            assert_eq!(value(&text, "elastin_activations"), 1.0);
            assert_eq!(value(&text, "elastin_panics_total"), 0.0);
            assert!(value(&text, "elastin_capacity{resource=\"cpu\"}") >= 100.0);
            assert!(value(&text, "elastin_used{resource=\"mem\"}") > 1e6);
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the turns were not counted:\n{text}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.shutdown().await;
}
