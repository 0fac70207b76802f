//! The floor: a tokio task with a bounded channel per actor, written by hand.

use tokio::sync::{mpsc, oneshot};

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind, MAILBOX};

pub struct Floor;

pub struct Message {
    kind: Kind,
    reply: Option<oneshot::Sender<u64>>,
}

impl Library for Floor {
    type Counter = mpsc::Sender<Message>;
    type System = ();

    fn system() {}

    async fn start((): &(), _key: u64) -> mpsc::Sender<Message> {
        let (sender, mut receiver) = mpsc::channel::<Message>(MAILBOX);
        tokio::spawn(async move {
            let mut count = 0;
            while let Some(message) = receiver.recv().await {
                message.kind.run().await;
                count += 1;
                if let Some(reply) = message.reply {
                    let _ = reply.send(count);
                }
            }
        });
        sender
    }
}

impl Counter for mpsc::Sender<Message> {
    async fn call(&self, kind: Kind) -> u64 {
        let (reply, receiver) = oneshot::channel();
        let reply = Some(reply);
        self.send(Message { kind, reply }).await.expect("the actor is running");
        receiver.await.expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        let reply = None;
        self.send(Message { kind, reply }).await.expect("the actor is running");
    }
}
