//! `elastin status`, `move` and `drain`: operating a running cluster.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use elastin::{Cluster, ClusterAddress, Elastin, ServerStatus};
use elastin_types::{ActorId, ActorType, Key};

use crate::output::{print, print_json};

/// Selects the cluster.
#[derive(Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    address: ClusterAddress,
    /// The cluster's name, which is the name of its application
    #[arg(long)]
    cluster: String,
}

/// Shows the status of a cluster's servers.
pub(crate) fn status(args: &ClusterArgs, json: bool) -> anyhow::Result<()> {
    with_cluster(args, async |cluster| {
        let servers = cluster.status().await?;
        if json {
            return print_json(&servers);
        }
        print(&table(&servers));
        Ok(())
    })
}

/// Moves an actor to a server.
pub(crate) fn move_actor(args: &ClusterArgs, actor: &str, server: &str) -> anyhow::Result<()> {
    let id = actor_id(actor)?;
    with_cluster(args, async |cluster| {
        cluster.move_actor(&id, server).await?;
        print(&format!("{actor} is on {server}\n"));
        Ok(())
    })
}

/// Drains a server, which then leaves the cluster.
pub(crate) fn drain(args: &ClusterArgs, server: &str) -> anyhow::Result<()> {
    with_cluster(args, async |cluster| {
        cluster.drain(server).await?;
        print(&format!("{server} was drained and has left\n"));
        Ok(())
    })
}

fn with_cluster(args: &ClusterArgs, work: impl AsyncFnOnce(&Cluster) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let app = Elastin::app().name(&args.cluster);
        // Two operators at the same time need different names.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let name = format!("operator-{}-{}", std::process::id(), now.as_nanos());
        let cluster = Cluster::connect(&app, &args.address, &name).await?;
        let done = work(&cluster).await;
        cluster.leave().await;
        done
    })
}

/// Parses an actor's type and key, such as `Folder/7` or `Folder/letters`.
fn actor_id(text: &str) -> anyhow::Result<ActorId> {
    let (kind, key) = text
        .split_once('/')
        .filter(|(kind, key)| !kind.is_empty() && !key.is_empty())
        .with_context(|| format!("`{text}` is not an actor: write its type and its key, such as `Folder/7`"))?;
    let key = key
        .parse()
        .map_or_else(|_| Key::from(key), |number: u64| Key::from(number));
    Ok(ActorId::new(ActorType::of(kind), key))
}

fn table(servers: &[ServerStatus]) -> String {
    let width = servers
        .iter()
        .map(|server| server.name.len())
        .max()
        .unwrap_or(0)
        .max("server".len());
    let mut text = format!("{:width$}  {:>8}  {:>8}  state\n", "server", "cpu", "actors");
    for server in servers {
        let cpu = server
            .cpu_percent
            .map_or("-".to_owned(), |percent| format!("{percent:.0} %"));
        let state = if server.draining { "draining" } else { "active" };
        text += &format!("{:width$}  {cpu:>8}  {:>8}  {state}\n", server.name, server.actors);
    }
    text
}

#[cfg(test)]
mod tests {
    use elastin_types::NodeId;

    use super::*;

    #[test]
    fn an_actor_is_named_by_type_and_key() {
        let folder = |key: Key| ActorId::new(ActorType::of("Folder"), key);
        assert_eq!(actor_id("Folder/7").unwrap(), folder(7.into()));
        assert_eq!(actor_id("Folder/a/b").unwrap(), folder("a/b".into()));
        for wrong in ["Folder", "Folder/", "/7", ""] {
            let error = actor_id(wrong).unwrap_err().to_string();
            assert!(error.contains("is not an actor"), "{error}");
        }
    }

    #[test]
    fn servers_are_shown_in_a_table() {
        let server = |name: &str, cpu_percent, draining| ServerStatus {
            name: name.into(),
            node: NodeId(1),
            cpu_percent,
            actors: 12,
            draining,
            reserved_for: Vec::new(),
        };
        let shown = table(&[server("a", Some(41.6), false), server("longer-name", None, true)]);
        let expected = "server            cpu    actors  state\n\
                        a                42 %        12  active\n\
                        longer-name         -        12  draining\n";
        assert_eq!(shown, expected);
    }
}
