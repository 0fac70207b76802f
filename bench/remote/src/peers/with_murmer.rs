//! murmer: an edge client and a node over QUIC, encrypted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iroh::{EndpointAddr, SecretKey, TransportAddr};
use murmer::MurmerClient;
use murmer::cluster::config::ClusterConfig;
use murmer::prelude::*;

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const COOKIE: &str = "bench";
const LABEL: &str = "echo";
/// The seed of the server's identity, so that the client can dial it.
const SERVER_SEED: [u8; 32] = [9; 32];
/// The timeout for the client to find the actor.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Echo;

impl Actor for Echo {
    type State = ();
}

#[handlers]
impl Echo {
    #[handler]
    fn send_back(&mut self, _context: &ActorContext<Self>, _state: &mut (), body: Vec<u8>) -> Vec<u8> {
        body
    }
}

pub(crate) async fn serve() -> Result<()> {
    let config = ClusterConfig::builder()
        .name("server")
        .listen(SocketAddr::from(([127, 0, 0, 1], 0)))
        .cookie(COOKIE)
        .secret_key(SecretKey::from_bytes(&SERVER_SEED))
        .build()
        .map_err(|error| anyhow!(error))?;
    let system = System::clustered_auto(config).await?;
    system.start_public(LABEL, Echo, ());
    process::print_ready(system.local_addr().context("a clustered system listens")?);
    std::future::pending().await
}

#[derive(Clone)]
pub(crate) struct Murmer {
    /// The connection lives as long as the client.
    _client: Arc<MurmerClient>,
    echo: Endpoint<Echo>,
}

pub(crate) async fn connect() -> Result<Connected<Murmer, Process>> {
    let server = process::start("murmer").await?;
    let id = SecretKey::from_bytes(&SERVER_SEED).public();
    let address = EndpointAddr::from_parts(id, [TransportAddr::Ip(server.address)]);
    let client = MurmerClient::connect(address, COOKIE).await?;
    let echo = client.lookup_wait::<Echo>(LABEL, LOOKUP_TIME_MAX).await?;
    Ok(Connected {
        name: "murmer",
        remote: Murmer {
            _client: Arc::new(client),
            echo,
        },
        _server: server,
    })
}

impl Remote for Murmer {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        self.echo.send_back(body).await.map_err(|error| anyhow!("{error}"))
    }
}
