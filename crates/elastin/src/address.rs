//! The address of a cluster's coordination and state stores, and the credentials of a member.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use elastin_cluster::{Certificates, Security};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_stores::memory::MemoryState;
use elastin_stores::secret::Secret;
use elastin_stores::served::StoreClient;

/// The address of a cluster's stores: an embedded cluster's supervisor, or an etcd cluster and a PostgreSQL server.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ClusterAddress {
    /// The supervisor of an embedded cluster
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["etcd", "postgres"])]
    pub join: Option<SocketAddr>,
    /// The servers of the coordinating etcd cluster, such as http://10.0.0.1:2379, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// The file of the authority that signed the certificates of the etcd servers, whose URLs begin with `https`
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// The file of this member's client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_ca", requires = "etcd_key")]
    pub etcd_certificate: Option<PathBuf>,
    /// The file of that certificate's key
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    pub etcd_key: Option<PathBuf>,
    /// The PostgreSQL server that stores state, such as postgres://user:password@host/database; only servers need it
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// The file of the authority that signed the certificate of the PostgreSQL server; connects over TLS
    #[arg(long, value_name = "FILE", requires = "postgres")]
    pub postgres_ca: Option<PathBuf>,
    /// The file of this member's client certificate for PostgreSQL
    #[arg(long, value_name = "FILE", requires = "postgres_ca", requires = "postgres_key")]
    pub postgres_certificate: Option<PathBuf>,
    /// The file of that certificate's key
    #[arg(long, value_name = "FILE", requires = "postgres_certificate")]
    pub postgres_key: Option<PathBuf>,
    /// The directory of this member's certificates, as `elastin ca issue` writes it
    #[arg(long, value_name = "DIRECTORY")]
    pub certificates: Option<PathBuf>,
    /// The file of the embedded cluster's shared secret; `-` reads the first line of standard input
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Connect in plain text without authentication, on this machine only
    #[arg(long, conflicts_with_all = ["certificates", "secret"])]
    pub plain: bool,
}

/// The credentials of a member.
pub(crate) struct Credentials {
    /// For connections to other members.
    pub(crate) security: Security,
    /// For connections to a supervisor that serves stores.
    secret: Option<Secret>,
}

/// The error of a member that joins an embedded cluster without its secret.
const NEEDS_SECRET: &str = "an embedded cluster needs its secret: pass the file `secret` of the supervisor's data directory with \
                            `--secret`";

/// The stores of a cluster.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) state: Arc<dyn StateStore>,
}

impl ClusterAddress {
    /// Whether there is a supervisor that starts and ends servers.
    pub(crate) fn is_supervised(&self) -> bool {
        self.join.is_some()
    }

    /// The credentials of a member of the cluster with this name.
    pub(crate) fn credentials(&self, cluster: &str) -> anyhow::Result<Credentials> {
        anyhow::ensure!(
            self.join.is_some() || !self.etcd.is_empty(),
            "no cluster address: pass `--join` with the supervisor of an embedded cluster, or `--etcd` with the servers of the \
             coordinating etcd cluster"
        );
        let secret = self.secret.as_deref().map(read_secret).transpose()?;
        anyhow::ensure!(self.join.is_none() || secret.is_some(), NEEDS_SECRET);
        let security = match (&self.certificates, &secret) {
            (Some(directory), _) => Security::Certificates(Arc::new(Certificates::read(directory, cluster)?)),
            (None, Some(secret)) => Security::Secret(secret.clone()),
            (None, None) => {
                anyhow::ensure!(
                    self.plain,
                    "no credentials: pass `--certificates`, or `--plain` on a machine whose users trust each other"
                );
                Security::Trusting
            }
        };
        Ok(Credentials { security, secret })
    }

    /// Opens the stores of the cluster with this name, for a server.
    pub(crate) async fn open(&self, cluster: &str, credentials: &Credentials) -> anyhow::Result<Stores> {
        if let Some(supervisor) = self.join {
            let store = Arc::new(served(supervisor, credentials).await?);
            return Ok(Stores {
                coordination: store.clone(),
                state: store,
            });
        }
        let Some(postgres) = &self.postgres else {
            anyhow::bail!("a server needs `--join`, or `--etcd` and `--postgres`");
        };
        let coordination = self.coordination(cluster)?;
        let state = self.postgres_state(postgres, cluster).await?;
        Ok(Stores { coordination, state })
    }

    /// Opens the stores for a client. It never saves state, so its state store is an empty one in memory.
    pub(crate) async fn open_for_client(&self, cluster: &str, credentials: &Credentials) -> anyhow::Result<Stores> {
        let coordination: Arc<dyn Coordination> = match self.join {
            Some(supervisor) => Arc::new(served(supervisor, credentials).await?),
            None => self.coordination(cluster)?,
        };
        let state = Arc::new(MemoryState::start());
        Ok(Stores { coordination, state })
    }

    #[cfg(feature = "etcd")]
    fn coordination(&self, cluster: &str) -> anyhow::Result<Arc<dyn Coordination>> {
        use elastin_stores::etcd::{EtcdConfig, EtcdCoordination};
        let config = EtcdConfig {
            endpoints: self.etcd.clone(),
            cluster: cluster.to_owned(),
            tls: self.etcd_tls()?,
        };
        Ok(Arc::new(EtcdCoordination::new(&config)?))
    }

    /// The TLS settings for etcd, if it is reached over TLS.
    #[cfg(feature = "etcd")]
    fn etcd_tls(&self) -> anyhow::Result<Option<elastin_stores::StoreTls>> {
        let tls = store_tls(&self.etcd_ca, &self.etcd_certificate, &self.etcd_key)?;
        let secured = self.etcd.iter().find(|endpoint| endpoint.starts_with("https://"));
        anyhow::ensure!(
            tls.is_some() || secured.is_none(),
            "{} uses TLS: pass the authority that signed its certificate with `--etcd-ca`",
            secured.map_or("", String::as_str)
        );
        Ok(tls)
    }

    #[cfg(not(feature = "etcd"))]
    fn coordination(&self, _cluster: &str) -> anyhow::Result<Arc<dyn Coordination>> {
        anyhow::bail!("this program was built without etcd support: enable the feature `etcd`")
    }

    #[cfg(feature = "postgres")]
    async fn postgres_state(&self, url: &str, cluster: &str) -> anyhow::Result<Arc<dyn StateStore>> {
        use elastin_stores::postgres::{PostgresError, PostgresState};
        // A cluster's name may contain characters that a schema's may not.
        let sanitized = |char: char| {
            if char.is_ascii_alphanumeric() {
                char.to_ascii_lowercase()
            } else {
                '_'
            }
        };
        let schema: String = "elastin_".chars().chain(cluster.chars().map(sanitized)).collect();
        let tls = store_tls(&self.postgres_ca, &self.postgres_certificate, &self.postgres_key)?;
        match PostgresState::connect(url, &schema, tls.as_ref()).await {
            Err(error @ PostgresError::NoAuthority) => anyhow::bail!("{error}, with `--postgres-ca`"),
            connected => Ok(Arc::new(connected?)),
        }
    }

    #[cfg(not(feature = "postgres"))]
    async fn postgres_state(&self, _url: &str, _cluster: &str) -> anyhow::Result<Arc<dyn StateStore>> {
        anyhow::bail!("this program was built without PostgreSQL support: enable the feature `postgres`")
    }
}

/// The TLS settings of a store from these files; `None` without an authority.
#[cfg(any(feature = "etcd", feature = "postgres"))]
fn store_tls(
    authority: &Option<PathBuf>,
    certificate: &Option<PathBuf>,
    key: &Option<PathBuf>,
) -> anyhow::Result<Option<elastin_stores::StoreTls>> {
    let Some(authority) = authority else { return Ok(None) };
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((read_text(certificate)?, read_text(key)?)),
        _ => None,
    };
    let authority = read_text(authority)?;
    Ok(Some(elastin_stores::StoreTls { authority, identity }))
}

/// Connects to the stores that a supervisor serves.
async fn served(supervisor: SocketAddr, credentials: &Credentials) -> anyhow::Result<StoreClient> {
    let secret = credentials.secret.as_ref().context(NEEDS_SECRET)?;
    Ok(StoreClient::connect(supervisor, secret).await?)
}

#[cfg(any(feature = "etcd", feature = "postgres"))]
fn read_text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("{} can't be read: {error}", file.display()))
}

fn read_secret(file: &Path) -> anyhow::Result<Secret> {
    if file == Path::new("-") {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        return Ok(Secret::from_text(&line)?);
    }
    Secret::read(file).map_err(|error| anyhow::anyhow!("the secret in {} can't be used: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_missing_argument() {
        let check = |address: ClusterAddress, missing: &str| {
            let error = address.credentials("shop").err().expect("an argument is missing");
            assert!(error.to_string().contains(missing), "{error}");
        };
        check(ClusterAddress::default(), "`--join`");
        let join = Some("127.0.0.1:1".parse().unwrap());
        let embedded = ClusterAddress {
            join,
            ..ClusterAddress::default()
        };
        check(embedded, "`--secret`");
        let coordinated = ClusterAddress {
            etcd: vec!["http://10.0.0.1:2379".into()],
            ..ClusterAddress::default()
        };
        check(coordinated, "`--certificates`");
    }
}

#[cfg(all(test, feature = "etcd"))]
mod etcd_tests {
    use super::*;

    fn refused(address: ClusterAddress) -> String {
        let etcd = vec!["https://10.0.0.1:2379".to_owned()];
        let address = ClusterAddress { etcd, ..address };
        address.coordination("shop").err().expect("it is refused").to_string()
    }

    #[test]
    fn etcd_over_tls_needs_readable_files() {
        assert_eq!(
            refused(ClusterAddress::default()),
            "https://10.0.0.1:2379 uses TLS: pass the authority that signed its certificate with `--etcd-ca`"
        );
        let etcd_ca = Some("no such file".into());
        let unreadable = refused(ClusterAddress {
            etcd_ca,
            ..ClusterAddress::default()
        });
        assert!(unreadable.starts_with("no such file can't be read: "), "{unreadable}");
    }
}
