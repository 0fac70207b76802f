//! ractor_cluster: two nodes, an actor in a process group on one, found and called from the other.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call_t, pg};
use ractor_cluster::{NodeServer, NodeServerMessage, RactorClusterMessage, client_connect};

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

const GROUP: &str = "echo";
const COOKIE: &str = "bench";
/// The timeout of a call, far longer than any takes.
const TIME_MAX_MS: u64 = 10_000;
/// The timeout for the nodes to learn of each other's actors.
const MEET_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(RactorClusterMessage)]
enum EchoMessage {
    #[rpc]
    Echo(Vec<u8>, RpcReplyPort<Vec<u8>>),
}

struct Echo;

impl Actor for Echo {
    type Msg = EchoMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<EchoMessage>, _: ()) -> Result<(), ActorProcessingErr> {
        pg::join(GROUP.to_string(), vec![myself.get_cell()]);
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<EchoMessage>,
        message: EchoMessage,
        _: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let EchoMessage::Echo(body, reply) = message;
        reply.send(body)?;
        Ok(())
    }
}

async fn start_node(port: u16, name: &str) -> Result<ActorRef<NodeServerMessage>> {
    let node = NodeServer::new(port, COOKIE.into(), name.into(), "localhost".into(), None, None);
    let (node, _) = Actor::spawn(None, node, ())
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(node)
}

pub(crate) async fn serve() -> Result<()> {
    // The node does not report the port it got, so it is given one that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    start_node(port, "server").await?;
    Actor::spawn(None, Echo, ())
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    process::print_ready(SocketAddr::from(([127, 0, 0, 1], port)));
    std::future::pending().await
}

#[derive(Clone)]
pub(crate) struct Ractor(ActorRef<EchoMessage>);

pub(crate) async fn connect() -> Result<Connected<Ractor, Process>> {
    let server = process::start("ractor").await?;
    let node = start_node(0, "client").await?;
    client_connect(&node, server.address)
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let find = async {
        loop {
            if let Some(echo) = pg::get_members(&GROUP.to_string()).into_iter().next() {
                return echo;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Ok(echo) = tokio::time::timeout(MEET_TIME_MAX, find).await else {
        bail!("the actor of the other node was not found");
    };
    Ok(Connected {
        name: "ractor_cluster",
        remote: Ractor(echo.into()),
        _server: server,
    })
}

impl Remote for Ractor {
    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>> {
        call_t!(self.0, EchoMessage::Echo, TIME_MAX_MS, body)
            .ok()
            .context("the call failed")
    }
}
