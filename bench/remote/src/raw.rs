//! The lower bound of a call: bytes to a TCP socket and back, sequentially.

use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::contestant::{BODY_BYTES, Connected, Remote};
use crate::process::{self, Process};

pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    process::print_ready(listener.local_addr()?);
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut body = [0; BODY_BYTES];
            while stream.read_exact(&mut body).await.is_ok() && stream.write_all(&body).await.is_ok() {}
        });
    }
}

/// Shared, because every handle can be cloned; only one caller uses it at a time.
#[derive(Clone)]
pub(crate) struct Raw(Arc<Mutex<TcpStream>>);

pub(crate) async fn connect() -> Result<Connected<Raw, Process>> {
    let server = process::start("raw").await?;
    let stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    Ok(Connected {
        name: "raw TCP",
        remote: Raw(Arc::new(Mutex::new(stream))),
        _server: server,
    })
}

impl Remote for Raw {
    async fn call(&mut self, mut body: Vec<u8>) -> Result<Vec<u8>> {
        let mut stream = self.0.lock().await;
        stream.write_all(&body).await?;
        stream.read_exact(&mut body).await?;
        Ok(body)
    }
}
