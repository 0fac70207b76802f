//! A minimal HTTP/1.1 server for metrics: `GET /metrics`, one response per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{Measures, text};

/// The longest accepted request head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The timeout of a connection.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The most connections served at the same time; further ones wait.
const CONNECTIONS_MAX: usize = 8;

/// The backoff after a failed accept, such as when too many files are open.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The reason why metrics can't be served. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address is reachable from other machines, and metrics need no authentication.
    #[error("metrics are served on the loopback interface only, not on {0}: use an address such as 127.0.0.1")]
    NotLoopback(SocketAddr),
    /// The listener can't be bound.
    #[error("metrics can't be served on {0}: {1}")]
    Io(SocketAddr, io::Error),
}

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl MetricsServer {
    /// Serves the result of `measure` at this address. Runs on the current tokio runtime.
    pub(crate) async fn start(
        address: SocketAddr,
        measure: impl Fn() -> Measures + Send + Sync + 'static,
    ) -> Result<Self, MetricsError> {
        if !address.ip().is_loopback() {
            return Err(MetricsError::NotLoopback(address));
        }
        let failed = |error| MetricsError::Io(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let accepting = tokio::spawn(accept(listener, Arc::new(measure)));
        Ok(Self { address, accepting })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<M: Fn() -> Measures + Send + Sync + 'static>(listener: TcpListener, measure: Arc<M>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let measure = Arc::clone(&measure);
                tokio::spawn(async move {
                    // Clients that time out or disconnect are not worth a log line.
                    let _ = tokio::time::timeout(TIME_MAX, serve(stream, &*measure)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a metrics connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn serve(mut stream: TcpStream, measure: &(impl Fn() -> Measures + Sync)) -> io::Result<()> {
    let mut head = Vec::new();
    let whole = loop {
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            break true;
        }
        if head.len() >= HEAD_BYTES_MAX || stream.read_buf(&mut head).await? == 0 {
            break false;
        }
    };
    let answer = if whole { answer(&head, measure) } else { bad_request() };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// The response to a request head.
fn answer(head: &[u8], measure: impl Fn() -> Measures) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return bad_request();
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return bad_request();
    };
    if !version.starts_with("HTTP/1.") {
        return bad_request();
    }
    match (method, target.split('?').next()) {
        ("GET" | "HEAD", Some("/metrics")) => {
            let text = text::render(&measure());
            let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
            let body = if method == "HEAD" { "" } else { &text };
            response("200 OK", kind, text.len(), body)
        }
        ("GET" | "HEAD", _) => plain("404 Not Found", "", "metrics are at /metrics\n"),
        _ => plain(
            "405 Method Not Allowed",
            "Allow: GET, HEAD\r\n",
            "metrics can only be read\n",
        ),
    }
}

fn bad_request() -> String {
    plain("400 Bad Request", "", "this is not an HTTP/1.1 request\n")
}

fn plain(status: &str, headers: &str, body: &str) -> String {
    response(status, headers, body.len(), body)
}

fn response(status: &str, headers: &str, length: usize, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> String {
        let answer = answer(head, Measures::default);
        answer.lines().next().unwrap().to_owned()
    }

    #[test]
    fn only_the_metrics_path_is_served() {
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status(b"GET /metrics?name=x HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(
            status(b"POST /metrics HTTP/1.1\r\n\r\n"),
            "HTTP/1.1 405 Method Not Allowed"
        );
        for garbage in [
            &b"\r\n\r\n"[..],
            b"GET /metrics\r\n\r\n",
            b"GET /metrics SMTP\r\n\r\n",
            b"\xff\xfe \r\n\r\n",
        ] {
            assert_eq!(status(garbage), "HTTP/1.1 400 Bad Request");
        }
        let head = answer(b"HEAD /metrics HTTP/1.1\r\n\r\n", Measures::default);
        assert!(
            head.ends_with("\r\n\r\n") && !head.contains("Content-Length: 0"),
            "{head}"
        );
    }

    async fn request(address: SocketAddr, head: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_over_loopback_only() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = MetricsServer::start(loopback, Measures::default).await.unwrap();
        let answer = request(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(body.contains("elastin_info"));
        let endless = vec![b'x'; HEAD_BYTES_MAX + 1];
        assert!(request(server.address(), &endless).await.starts_with("HTTP/1.1 400"));
        let open = SocketAddr::from(([0, 0, 0, 0], 0));
        let refused = MetricsServer::start(open, Measures::default).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "metrics are served on the loopback interface only, not on 0.0.0.0:0: use an address such as 127.0.0.1"
        );
    }
}
