//! Other libraries with calls between processes, each running the same workload.

mod with_erlang;
mod with_kameo;
mod with_murmer;
mod with_orlando;
mod with_ractor;
mod with_rio;
mod with_tonic;

use anyhow::{Result, bail};

use crate::contestant::Contestant;

/// All libraries that are available on this machine.
pub(crate) async fn connect() -> Result<Vec<Box<dyn Contestant>>> {
    let mut peers: Vec<Box<dyn Contestant>> = vec![
        Box::new(with_tonic::connect().await?),
        Box::new(with_rio::connect().await?),
        Box::new(with_ractor::connect().await?),
        Box::new(with_kameo::connect().await?),
        Box::new(with_murmer::connect().await?),
        Box::new(with_orlando::connect().await?),
    ];
    match with_erlang::connect().await? {
        Some(erlang) => peers.push(Box::new(erlang)),
        None => eprintln!("Erlang is not installed: it is not measured"),
    }
    Ok(peers)
}

/// Runs the server process of a library.
pub(crate) async fn serve(name: &str) -> Result<()> {
    match name {
        "tonic" => with_tonic::serve().await,
        "rio" => with_rio::serve().await,
        "kameo" => with_kameo::serve().await,
        "murmer" => with_murmer::serve().await,
        "orlando" => with_orlando::serve().await,
        "ractor" => with_ractor::serve().await,
        other => bail!("unknown server: {other}"),
    }
}
