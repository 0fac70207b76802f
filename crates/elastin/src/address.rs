//! Where a cluster keeps what its members agree on and what its actors save.

use std::net::SocketAddr;
use std::sync::Arc;

use elastin_protocol::store::{Coordination, StateStore};
use elastin_stores::memory::MemoryState;
use elastin_stores::served::StoreClient;

/// Where a cluster keeps what its members agree on and what its actors save: an embedded cluster's supervisor, or an etcd
/// cluster and a PostgreSQL server.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ClusterAddress {
    /// The supervisor of an embedded cluster
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["etcd", "postgres"])]
    pub join: Option<SocketAddr>,
    /// The servers of the etcd cluster that coordinates, such as http://10.0.0.1:2379, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// The PostgreSQL server that keeps state, such as postgres://user:password@host/database; only servers need it
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
}

/// The parts of a cluster that live outside its nodes.
pub(crate) struct Stores {
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) state: Arc<dyn StateStore>,
}

impl ClusterAddress {
    /// Whether there is a supervisor that starts and ends servers.
    pub(crate) fn is_supervised(&self) -> bool {
        self.join.is_some()
    }

    /// Opens the stores of the cluster of this name, for a server.
    pub(crate) async fn open(&self, cluster: &str) -> anyhow::Result<Stores> {
        if let Some(supervisor) = self.join {
            let store = Arc::new(StoreClient::connect(supervisor).await?);
            return Ok(Stores {
                coordination: store.clone(),
                state: store,
            });
        }
        let Some(postgres) = &self.postgres else {
            anyhow::bail!("a server needs `--join`, or `--etcd` and `--postgres`");
        };
        let coordination = self.coordination(cluster)?;
        let state = postgres_state(postgres, cluster).await?;
        Ok(Stores { coordination, state })
    }

    /// Opens what somebody needs who only calls: coordination. What it would save it keeps in memory, but it saves nothing.
    pub(crate) async fn open_to_call(&self, cluster: &str) -> anyhow::Result<Stores> {
        let coordination: Arc<dyn Coordination> = match self.join {
            Some(supervisor) => Arc::new(StoreClient::connect(supervisor).await?),
            None => self.coordination(cluster)?,
        };
        let state = Arc::new(MemoryState::start());
        Ok(Stores { coordination, state })
    }

    #[cfg(feature = "etcd")]
    fn coordination(&self, cluster: &str) -> anyhow::Result<Arc<dyn Coordination>> {
        use elastin_stores::etcd::{EtcdConfig, EtcdCoordination};
        anyhow::ensure!(!self.etcd.is_empty(), "a cluster is found by `--join` or by `--etcd`");
        let config = EtcdConfig {
            endpoints: self.etcd.clone(),
            cluster: cluster.to_owned(),
            tls: None,
        };
        Ok(Arc::new(EtcdCoordination::new(&config)?))
    }

    #[cfg(not(feature = "etcd"))]
    fn coordination(&self, _cluster: &str) -> anyhow::Result<Arc<dyn Coordination>> {
        anyhow::bail!("this program was built without the feature `etcd`")
    }
}

#[cfg(feature = "postgres")]
async fn postgres_state(url: &str, cluster: &str) -> anyhow::Result<Arc<dyn StateStore>> {
    use elastin_stores::postgres::PostgresState;
    // A cluster's name may have characters that a schema's may not.
    let plain = |char: char| {
        if char.is_ascii_alphanumeric() {
            char.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let schema: String = "elastin_".chars().chain(cluster.chars().map(plain)).collect();
    Ok(Arc::new(PostgresState::connect(url, &schema).await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres_state(_url: &str, _cluster: &str) -> anyhow::Result<Arc<dyn StateStore>> {
    anyhow::bail!("this program was built without the feature `postgres`")
}
