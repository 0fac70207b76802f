//! Orlando: a silo in each process, gRPC between them, and a placement that puts the grain on the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use orlando_cluster::{ClusterGrainRef, ClusterSilo, HashRing, NetworkMessage, PlacementStrategy, SiloAddress};
use orlando_core::{Grain, GrainContext, GrainHandler, Message};
use serde::{Deserialize, Serialize};

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const SERVER: &str = "server";
/// The timeout for the silos to join.
const JOIN_TIME_MAX: Duration = Duration::from_secs(20);

struct Echo;

impl Grain for Echo {
    type State = ();
}

#[derive(Serialize, Deserialize)]
struct Body(Vec<u8>);

impl Message for Body {
    type Result = Vec<u8>;
}

impl NetworkMessage for Body {
    fn message_type_name() -> &'static str {
        "Body"
    }
}

#[async_trait]
impl GrainHandler<Body> for Echo {
    async fn handle(_: &mut (), body: Body, _: &GrainContext) -> Vec<u8> {
        body.0
    }
}

/// Places every grain on the server.
struct OnServer;

impl PlacementStrategy for OnServer {
    fn place(&self, _: &str, _: &str, _: &str, ring: &HashRing) -> Option<SiloAddress> {
        ring.members().into_iter().find(|silo| silo.silo_id == SERVER)
    }
}

/// A currently free port: the library can't choose one by itself.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start_silo(name: &str) -> Result<Arc<ClusterSilo>> {
    let silo = ClusterSilo::builder()
        .host("127.0.0.1")
        .port(free_port()?)
        .silo_id(name)
        .placement(Arc::new(OnServer))
        .register::<Echo, Body>()
        .build();
    let silo = Arc::new(silo);
    let serving = silo.clone();
    tokio::spawn(async move {
        if let Err(error) = serving.serve().await {
            eprintln!("Orlando's silo ended: {error}");
        }
    });
    Ok(silo)
}

pub(crate) async fn serve() -> Result<()> {
    let silo = start_silo(SERVER)?;
    let address = SocketAddr::from(([127, 0, 0, 1], silo.local_addr().port));
    let listens = async {
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(JOIN_TIME_MAX, listens).await?;
    process::print_ready(address);
    std::future::pending().await
}

pub(crate) struct Orlando {
    silo: Arc<ClusterSilo>,
    echo: ClusterGrainRef<Echo>,
}

impl Clone for Orlando {
    fn clone(&self) -> Self {
        Self {
            silo: self.silo.clone(),
            echo: self.silo.get_ref("echo"),
        }
    }
}

pub(crate) async fn connect() -> Result<Connected<Orlando, Process>> {
    let server = process::start("orlando").await?;
    let silo = start_silo("client")?;
    let seed = server.address.to_string();
    let joins = async {
        while silo.join_cluster(&seed).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(JOIN_TIME_MAX, joins)
        .await
        .context("Orlando's silos did not join")?;
    let echo = silo.get_ref("echo");
    Ok(Connected {
        name: "Orlando",
        remote: Orlando { silo, echo },
        _server: server,
    })
}

impl Remote for Orlando {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        self.echo.ask(Body(body)).await.map_err(|error| anyhow!("{error}"))
    }
}
