//! Connections that ordinary tokio tasks read and write: one of each for a connection.
//!
//! Senders only fill the send queue, and the writing task coalesces its frames. Follow-ups are left to other threads.

use std::io;

use tokio::net::TcpStream;

use super::inbound::{Broken, Inbound, Received};
use super::{ConnectionIo, Socket};

/// Reads and writes with tokio alone.
pub(super) struct PlainIo;

impl ConnectionIo for PlainIo {
    fn dialled(&self, stream: TcpStream) -> io::Result<Socket> {
        let (reader, writer) = stream.into_split();
        Ok(Socket {
            reader: Box::new(reader),
            writer: Box::new(writer),
            direct: None,
            spawn_reader: Box::new(|inbound| {
                let connection = inbound.connection.clone();
                let handle = connection.inner.handle.clone();
                handle.spawn(connection.run(read(inbound)));
            }),
        })
    }

    fn accepted(&self, stream: TcpStream) -> io::Result<Socket> {
        self.dialled(stream)
    }
}

async fn read(mut inbound: Inbound) -> Result<(), Broken> {
    loop {
        let Received { frames, follow_up } = inbound.receive(None)?;
        drop(follow_up);
        inbound.read_after(frames).await?;
    }
}
