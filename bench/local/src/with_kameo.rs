//! kameo, with its bounded mailbox.

use kameo::prelude::*;

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind, MAILBOX};

pub struct Kameo;

#[derive(Actor)]
pub struct Count(u64);

pub struct Add(Kind);

impl Message<Add> for Count {
    type Reply = u64;

    async fn handle(&mut self, Add(kind): Add, _context: &mut Context<Self, u64>) -> u64 {
        kind.run().await;
        self.0 += 1;
        self.0
    }
}

impl Library for Kameo {
    type Counter = ActorRef<Count>;
    type System = ();

    fn system() {}

    async fn start((): &(), _key: u64) -> ActorRef<Count> {
        Count::spawn_with_mailbox(Count(0), kameo::mailbox::bounded(MAILBOX))
    }
}

impl Counter for ActorRef<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        self.ask(Add(kind)).await.expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        ActorRef::tell(self, Add(kind)).await.expect("the actor is running");
    }
}
