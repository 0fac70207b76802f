//! coerce, with its unbounded mailbox.

use coerce::actor::context::ActorContext;
use coerce::actor::message::{Handler, Message};
use coerce::actor::system::ActorSystem;
use coerce::actor::{Actor, IntoActor, LocalActorRef};

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind};

pub struct Coerce;

pub struct Count(u64);

#[async_trait::async_trait]
impl Actor for Count {}

pub struct Add(Kind);

impl Message for Add {
    type Result = u64;
}

#[async_trait::async_trait]
impl Handler<Add> for Count {
    async fn handle(&mut self, Add(kind): Add, _context: &mut ActorContext) -> u64 {
        kind.run().await;
        self.0 += 1;
        self.0
    }
}

impl Library for Coerce {
    type Counter = LocalActorRef<Count>;
    type System = ActorSystem;

    fn system() -> ActorSystem {
        ActorSystem::new()
    }

    async fn start(system: &ActorSystem, _key: u64) -> LocalActorRef<Count> {
        let started = Count(0).into_anon_actor(None::<String>, system).await;
        started.expect("the actor starts")
    }
}

impl Counter for LocalActorRef<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        self.send(Add(kind)).await.expect("the actor replies")
    }

    async fn tell(&self, kind: Kind) {
        self.notify(Add(kind)).expect("the actor is running");
    }
}
