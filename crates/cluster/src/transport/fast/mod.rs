//! Connections that are read and written with few thread wake-ups.
//!
//! Senders write to a quiet connection themselves ([`Link`](super::Link)). A lone caller reads its own reply
//! ([`reply_reader`]). Calls from peers are read by two [I/O threads](io_threads), which busy-poll before they park and can run
//! follow-ups.

mod accepted_reader;
mod accepted_socket;
mod busy_poll;
mod dialled_reader;
mod dialled_socket;
mod io_threads;
mod reply_reader;

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{ConnectionIo, Socket};
use accepted_reader::AcceptedReader;
use accepted_socket::AcceptedSocket;
pub(crate) use busy_poll::busy_poll_time;
use dialled_reader::DialledReader;
use dialled_socket::DialledSocket;
use io_threads::IoThreads;

/// Reads and writes with direct writes, I/O threads and busy-polls.
pub(super) struct FastIo;

impl ConnectionIo for FastIo {
    /// Only replies arrive on it, which tokio tasks await: a tokio task reads it, or a lone caller that busy-polls.
    fn dialled(&self, stream: TcpStream) -> io::Result<Socket> {
        let socket = DialledSocket::new(stream)?;
        Ok(Socket {
            reader: Box::new(socket.clone()),
            writer: Box::new(socket.clone()),
            direct: Some(socket.direct()?),
            spawn_reader: Box::new(move |inbound| DialledReader::spawn(inbound, socket)),
        })
    }

    /// Calls arrive on it: the I/O threads read it, which can run follow-ups.
    fn accepted(&self, stream: TcpStream) -> io::Result<Socket> {
        let io_threads = IoThreads::of_process()?;
        let stream = stream.into_std()?;
        let direct = Some(stream.try_clone()?);
        let socket = AcceptedSocket::new(stream, io_threads)?;
        Ok(Socket {
            reader: Box::new(socket.clone()),
            writer: Box::new(socket),
            direct,
            spawn_reader: Box::new(|inbound| AcceptedReader::spawn(inbound, io_threads)),
        })
    }

    fn caught_up(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async {
            // Without I/O threads there are no tasks.
            let Ok(io_threads) = IoThreads::of_process() else {
                return;
            };
            let (done, receive) = oneshot::channel::<()>();
            // Enqueued behind all others.
            io_threads.spawn(&Handle::current(), async { drop(done) });
            let _ = receive.await;
        })
    }
}

#[cfg(test)]
mod socket_tests;
