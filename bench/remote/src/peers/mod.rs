//! Other libraries that call between processes, and how the same is done with each.

mod with_erlang;
mod with_kameo;
mod with_ractor;
mod with_rio;
mod with_tonic;

use anyhow::{Result, bail};

use crate::contestant::Contestant;

/// All of them that there are on this machine.
pub(crate) async fn connect() -> Result<Vec<Box<dyn Contestant>>> {
    let mut peers: Vec<Box<dyn Contestant>> = vec![
        Box::new(with_tonic::connect().await?),
        Box::new(with_rio::connect().await?),
        Box::new(with_ractor::connect().await?),
        Box::new(with_kameo::connect().await?),
    ];
    match with_erlang::connect().await? {
        Some(erlang) => peers.push(Box::new(erlang)),
        None => eprintln!("Erlang is not installed: it is not measured"),
    }
    Ok(peers)
}

/// The process that is called.
pub(crate) async fn serve(what: &str) -> Result<()> {
    match what {
        "tonic" => with_tonic::serve().await,
        "rio" => with_rio::serve().await,
        "kameo" => with_kameo::serve().await,
        "ractor" => with_ractor::serve().await,
        other => bail!("there is no server called {other}"),
    }
}
