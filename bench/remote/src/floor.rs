//! The floor: a remote procedure call written by hand for just this workload. Numbered requests over one connection,
//! coalesced writes, and behind it one tokio task as the actor.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const QUEUE: usize = 1024;
const READ_BYTES: usize = 64 << 10;

type Frame = (u64, Bytes);

/// A request and the sender of its reply.
type Request = (u64, Bytes, mpsc::Sender<Frame>);

pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    process::print_ready(listener.local_addr()?);
    let (actor, mut mailbox) = mpsc::channel::<Request>(QUEUE);
    tokio::spawn(async move {
        while let Some((number, body, replies)) = mailbox.recv().await {
            let _ = replies.send((number, body)).await;
        }
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (mut reader, writer) = stream.into_split();
        let (replies, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(write_frames(writer, waiting));
        let actor = actor.clone();
        tokio::spawn(async move {
            let mut input = BytesMut::new();
            while let Ok((number, body)) = read_frame(&mut reader, &mut input).await {
                if actor.send((number, body, replies.clone())).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[derive(Clone)]
pub(crate) struct Floor {
    requests: mpsc::Sender<Frame>,
    waiting: Arc<std::sync::Mutex<HashMap<u64, oneshot::Sender<Bytes>>>>,
    numbers: Arc<AtomicU64>,
}

pub(crate) async fn connect() -> Result<Connected<Floor, Process>> {
    let server = process::start("floor").await?;
    let stream = TcpStream::connect(server.address).await?;
    stream.set_nodelay(true)?;
    let (mut reader, writer) = stream.into_split();
    let (requests, queued) = mpsc::channel(QUEUE);
    tokio::spawn(write_frames(writer, queued));
    let remote = Floor {
        requests,
        waiting: Arc::default(),
        numbers: Arc::default(),
    };
    let waiting = Arc::clone(&remote.waiting);
    tokio::spawn(async move {
        let mut input = BytesMut::new();
        while let Ok((number, body)) = read_frame(&mut reader, &mut input).await {
            let caller = waiting.lock().expect("no holder of the lock panics").remove(&number);
            if let Some(caller) = caller {
                let _ = caller.send(body);
            }
        }
    });
    Ok(Connected {
        name: "a tokio RPC by hand",
        remote,
        _server: server,
    })
}

impl Remote for Floor {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (reply, replied) = oneshot::channel();
        self.waiting
            .lock()
            .expect("no holder of the lock panics")
            .insert(number, reply);
        self.requests.send((number, body.into())).await?;
        Ok(replied.await.context("the connection broke")?.to_vec())
    }
}

async fn read_frame(reader: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> std::io::Result<Frame> {
    loop {
        if let Some(head) = input.get(..12) {
            let mut head = head;
            let (length, number) = (head.get_u32_le() as usize, head.get_u64_le());
            if input.len() >= 12 + length {
                input.advance(12);
                return Ok((number, input.split_to(length).freeze()));
            }
        }
        input.reserve(READ_BYTES);
        if reader.read_buf(input).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Writes all queued frames at once.
async fn write_frames(mut writer: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>) {
    let mut batch = Vec::new();
    let mut output = BytesMut::new();
    while frames.recv_many(&mut batch, QUEUE).await > 0 {
        for (number, body) in batch.drain(..) {
            output.put_u32_le(body.len() as u32);
            output.put_u64_le(number);
            output.put_slice(&body);
        }
        if writer.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
    }
}
