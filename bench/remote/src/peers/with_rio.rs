//! rio-rs: its client has one call in flight per connection, so every caller has its own connection.

use anyhow::{Context, Result};
use async_trait::async_trait;
use rio_rs::cluster::membership_protocol::local::LocalClusterProvider;
use rio_rs::cluster::storage::local::LocalStorage;
use rio_rs::cluster::storage::{Member, MembershipStorage};
use rio_rs::object_placement::local::LocalObjectPlacement;
use rio_rs::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::contestant::{Connected, Remote};
use crate::process::{self, Process};

/// The timeout of a call, far longer than any takes.
const TIME_MAX_MS: u64 = 10_000;

#[derive(Default, WithId, TypeName)]
struct EchoService {
    id: String,
}

#[derive(Message, TypeName, Serialize, Deserialize)]
struct Body {
    bytes: Vec<u8>,
}

#[async_trait]
impl Handler<Body> for EchoService {
    type Returns = Body;
    type Error = NoopError;

    async fn handle(&mut self, body: Body, _: Arc<AppData>) -> Result<Body, NoopError> {
        Ok(body)
    }
}

pub(crate) async fn serve() -> Result<()> {
    let mut registry = Registry::new();
    registry.add_type::<EchoService>();
    registry.add_handler::<EchoService, Body>();
    let members_storage = LocalStorage::default();
    let mut server = Server::builder()
        .address("127.0.0.1:0".to_string())
        .registry(registry)
        .app_data(AppData::new())
        .cluster_provider(LocalClusterProvider {
            members_storage: members_storage.clone(),
        })
        .object_placement_provider(LocalObjectPlacement::default())
        .build();
    let listener = server.bind().await.map_err(|error| anyhow::anyhow!("{error}"))?;
    let address = listener.local_addr()?;
    members_storage
        .push(member(address))
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    process::print_ready(address);
    server.run(listener).await.map_err(|error| anyhow::anyhow!("{error}"))
}

fn member(address: std::net::SocketAddr) -> Member {
    let mut member = Member::new(address.ip().to_string(), address.port().to_string());
    member.set_active(true);
    member
}

pub(crate) struct Rio {
    members: LocalStorage,
    client: Option<rio_rs::client::Client<LocalStorage>>,
}

impl Clone for Rio {
    fn clone(&self) -> Self {
        Self {
            members: self.members.clone(),
            client: None,
        }
    }
}

pub(crate) async fn connect() -> Result<Connected<Rio, Process>> {
    let server = process::start("rio").await?;
    let members = LocalStorage::default();
    members
        .push(member(server.address))
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(Connected {
        name: "rio-rs",
        remote: Rio { members, client: None },
        _server: server,
    })
}

impl Remote for Rio {
    async fn call(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if self.client.is_none() {
            let builder = ClientBuilder::new()
                .members_storage(self.members.clone())
                .timeout_millis(TIME_MAX_MS);
            self.client = Some(builder.build().ok().context("the client is fully configured")?);
        }
        let client = self.client.as_mut().context("it was created just now")?;
        let reply = client
            .send::<Body, NoopError>("EchoService", "1", &Body { bytes })
            .await;
        Ok(reply.map_err(|error| anyhow::anyhow!("{error}"))?.bytes)
    }
}
