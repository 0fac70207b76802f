//! Sockets of both kinds.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

/// More bytes than the kernel buffers of a connection that is not read.
const PAYLOAD_BYTES: usize = 32 << 20;

trait SharedSocket: AsyncRead + AsyncWrite + Clone + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Clone + Send + Unpin + 'static> SharedSocket for S {}

/// Runs tests with both kinds of sockets.
macro_rules! over_both {
    ($($test:ident),+ $(,)?) => {
        mod dialled {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::dialled).await;
            })+
        }

        mod accepted {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::accepted).await;
            })+
        }
    };
}

over_both!(
    writes_beyond_the_socket_buffer_wait_for_the_reader,
    all_bytes_are_read_before_the_end,
    a_broken_connection_fails_the_read,
    the_last_clone_closes_it,
);

/// Both ends of a connection.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (dialled, listener.accept().await.unwrap().0)
}

async fn dialled() -> (DialledSocket, TcpStream) {
    let (dialled, other) = connection().await;
    (DialledSocket::new(dialled).unwrap(), other)
}

async fn accepted() -> (AcceptedSocket, TcpStream) {
    let (other, accepted) = connection().await;
    let io_threads = IoThreads::of_process().unwrap();
    (
        AcceptedSocket::new(accepted.into_std().unwrap(), io_threads).unwrap(),
        other,
    )
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("no timeout")
}

fn bytes() -> Vec<u8> {
    (0..PAYLOAD_BYTES).map(|at| (at % 251) as u8).collect()
}

async fn writes_beyond_the_socket_buffer_wait_for_the_reader<S: SharedSocket>(pair: impl AsyncFn() -> (S, TcpStream)) {
    let (mut ours, mut other) = pair().await;
    let writes = tokio::spawn(async move { ours.write_all(&bytes()).await });
    // The writer blocks until the remote end reads.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!writes.is_finished());
    let mut received = vec![0; PAYLOAD_BYTES];
    in_time(other.read_exact(&mut received)).await.unwrap();
    assert!(received == bytes());
    in_time(writes).await.unwrap().unwrap();
}

async fn all_bytes_are_read_before_the_end<S: SharedSocket>(pair: impl AsyncFn() -> (S, TcpStream)) {
    for piece in [1_000, 64 << 10] {
        let (mut ours, mut other) = pair().await;
        let writes = tokio::spawn(async move {
            other.write_all(&bytes()).await.unwrap();
        });
        let (mut received, mut room) = (Vec::new(), vec![0; piece]);
        loop {
            match in_time(ours.read(&mut room)).await.unwrap() {
                0 => break,
                read => received.extend_from_slice(&room[..read]),
            }
        }
        assert!(received == bytes());
        writes.await.unwrap();
    }
}

async fn a_broken_connection_fails_the_read<S: SharedSocket>(pair: impl AsyncFn() -> (S, TcpStream)) {
    let (mut ours, other) = pair().await;
    let reads = tokio::spawn(async move { ours.read(&mut [0]).await });
    other.set_zero_linger().unwrap();
    drop(other);
    assert!(in_time(reads).await.unwrap().is_err());
}

async fn the_last_clone_closes_it<S: SharedSocket>(pair: impl AsyncFn() -> (S, TcpStream)) {
    let (ours, mut other) = pair().await;
    let clone = ours.clone();
    drop(ours);
    let reads = tokio::spawn(async move { other.read(&mut [0]).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!reads.is_finished());
    drop(clone);
    assert_eq!(in_time(reads).await.unwrap().unwrap(), 0);
}
