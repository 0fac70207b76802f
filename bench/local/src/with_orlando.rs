//! Orlando: virtual actors in a silo, no one-way messages.

use async_trait::async_trait;
use orlando_core::{Grain, GrainContext, GrainHandler, GrainRef, Message};
use orlando_runtime::Silo;

use crate::tokio_peer::Library;
use crate::workload::{Counter, Kind};

pub struct Orlando;

pub struct Count;

impl Grain for Count {
    type State = u64;
}

pub struct Add(Kind);

impl Message for Add {
    type Result = u64;
}

#[async_trait]
impl GrainHandler<Add> for Count {
    async fn handle(total: &mut u64, Add(kind): Add, _context: &GrainContext) -> u64 {
        kind.run().await;
        *total += 1;
        *total
    }
}

impl Library for Orlando {
    type Counter = GrainRef<Count>;
    type System = Silo;

    fn system() -> Silo {
        Silo::new()
    }

    async fn start(silo: &Silo, key: u64) -> GrainRef<Count> {
        silo.get_ref::<Count>(key.to_string())
    }
}

impl Counter for GrainRef<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        self.ask(Add(kind)).await.expect("the grain replies")
    }

    async fn tell(&self, _kind: Kind) {
        unreachable!("Orlando takes no part in rows with one-way messages");
    }
}
