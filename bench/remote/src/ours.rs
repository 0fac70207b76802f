//! Elastin: an embedded cluster of one server process, called by a client in this process.

use anyhow::Result;
use bytes::Bytes;
use elastin::prelude::*;
use elastin::{App, Embedded, EmbeddedBuilder};

use crate::bodies::{Counter, Keeper, Mover, Prober, Taker};
use crate::contestant::{Connected, Remote};

/// Returns its argument.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Echo {}

#[handlers]
impl Echo {
    async fn echo(&mut self, bytes: Bytes) -> Bytes {
        bytes
    }
}

/// The application whose processes are the servers.
pub(crate) fn app() -> App {
    Elastin::app()
        .name("bench-remote")
        .actor::<Echo>()
        .actor::<Mover>()
        .actor::<Keeper>()
        .actor::<Prober>()
        .actor::<Taker>()
        .actor::<Counter>()
}

#[derive(Clone)]
pub(crate) struct Ours(Client);

pub(crate) async fn connect() -> Result<Connected<Ours, Embedded>> {
    connect_to("Elastin", app().embedded()).await
}

/// Like [`connect`], in TLS.
pub(crate) async fn connect_encrypted() -> Result<Connected<Ours, Embedded>> {
    connect_to("Elastin in TLS", app().embedded().encrypted()).await
}

async fn connect_to(name: &'static str, cluster: EmbeddedBuilder) -> Result<Connected<Ours, Embedded>> {
    let cluster = cluster.servers(1).without_policy().start().await?;
    let client = cluster.client().await?;
    Ok(Connected {
        name,
        remote: Ours(client),
        _server: cluster,
    })
}

impl Remote for Ours {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        let echo = self.0.actor::<Echo>(1);
        Ok(echo.echo(Bytes::from(body)).await?.to_vec())
    }
}
