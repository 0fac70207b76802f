//! kameo's remote actors: two libp2p swarms over TCP, with an actor registered at one and looked up by the other.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kameo::prelude::*;
use kameo::remote::{self, messaging};
use libp2p::futures::StreamExt;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use serde::{Deserialize, Serialize};

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const NAME: &str = "echo";
/// The seed of the server's identity, so that the client knows its peer id.
const SERVER_SEED: [u8; 32] = [7; 32];
/// Each request is a stream of its own: more than are ever in flight, where the default is 100.
const STREAMS_MAX: usize = 4096;
/// Keeps a connection open while others are measured.
const IDLE_TIME_MAX: Duration = Duration::from_secs(3600);
/// The timeout for the nodes to learn of each other's actors.
const MEET_TIME_MAX: Duration = Duration::from_secs(20);

#[derive(Actor, RemoteActor)]
struct Echo;

#[derive(Serialize, Deserialize)]
struct Body(Vec<u8>);

#[remote_message]
impl Message<Body> for Echo {
    type Reply = Vec<u8>;

    async fn handle(&mut self, body: Body, _: &mut Context<Self, Vec<u8>>) -> Vec<u8> {
        body.0
    }
}

/// Starts a swarm that listens on loopback, and returns its address.
async fn start_swarm(identity: Keypair) -> Result<(Swarm<remote::Behaviour>, SocketAddr)> {
    let multiplexing = || {
        let mut config = yamux::Config::default();
        config.set_max_num_streams(STREAMS_MAX);
        config
    };
    let messaging = messaging::Config::default().with_max_concurrent_streams(STREAMS_MAX);
    let mut swarm = SwarmBuilder::with_existing_identity(identity)
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, multiplexing)?
        .with_behaviour(|key| remote::Behaviour::new(key.public().to_peer_id(), messaging))?
        .with_swarm_config(|config| config.with_idle_connection_timeout(IDLE_TIME_MAX))
        .build();
    swarm.behaviour().init_global();
    swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    let listens = async {
        loop {
            if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                return address;
            }
        }
    };
    let address = tokio::time::timeout(MEET_TIME_MAX, listens).await?;
    let port = address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    let port = port.context("it listens on TCP")?;
    Ok((swarm, SocketAddr::from(([127, 0, 0, 1], port))))
}

fn run(mut swarm: Swarm<remote::Behaviour>) {
    tokio::spawn(async move {
        loop {
            swarm.select_next_some().await;
        }
    });
}

pub(crate) async fn serve() -> Result<()> {
    let (swarm, address) = start_swarm(Keypair::ed25519_from_bytes(SERVER_SEED)?).await?;
    run(swarm);
    let echo = Echo::spawn(Echo);
    echo.register(NAME).await?;
    process::print_ready(address);
    std::future::pending().await
}

#[derive(Clone)]
pub(crate) struct Kameo(RemoteActorRef<Echo>);

pub(crate) async fn connect() -> Result<Connected<Kameo, Process>> {
    let server = process::start("kameo").await?;
    let (mut swarm, _) = start_swarm(Keypair::generate_ed25519()).await?;
    let peer = Keypair::ed25519_from_bytes(SERVER_SEED)?.public().to_peer_id();
    let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/{}", server.address.port()).parse()?;
    swarm.add_peer_address(peer, address.clone());
    swarm.dial(address)?;
    run(swarm);
    let find = async {
        loop {
            if let Ok(Some(echo)) = RemoteActorRef::<Echo>::lookup(NAME).await {
                return echo;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Ok(echo) = tokio::time::timeout(MEET_TIME_MAX, find).await else {
        bail!("the actor of the other node was not found");
    };
    Ok(Connected {
        name: "kameo remote",
        remote: Kameo(echo),
        _server: server,
    })
}

impl Remote for Kameo {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        let reply = self.0.ask(&Body(body)).await;
        reply.map_err(|error| anyhow!("the call failed: {error}"))
    }
}
