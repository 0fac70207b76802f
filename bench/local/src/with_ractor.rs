//! ractor, with its unbounded mailbox.

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call};

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind};

pub struct Ractor;

pub struct Count;

pub struct Message(Kind, Option<RpcReplyPort<u64>>);

impl Actor for Count {
    type Msg = Message;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _me: ActorRef<Message>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _me: ActorRef<Message>,
        Message(kind, reply): Message,
        count: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        kind.run().await;
        *count += 1;
        if let Some(reply) = reply {
            let _ = reply.send(*count);
        }
        Ok(())
    }
}

impl Library for Ractor {
    type Counter = ActorRef<Message>;
    type System = ();

    fn system() {}

    async fn start((): &(), _key: u64) -> ActorRef<Message> {
        Actor::spawn(None, Count, ()).await.expect("the actor starts").0
    }
}

impl Counter for ActorRef<Message> {
    async fn call(&self, kind: Kind) -> u64 {
        call!(self, |reply| Message(kind, Some(reply))).expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        self.cast(Message(kind, None)).expect("the actor is running");
    }
}
