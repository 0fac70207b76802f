//! Builder of embedded clusters.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elastin_cluster::{Authority, AuthorityError, CertificateError, Certificates, Role, Security};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_stores::embedded::{EmbeddedCoordination, EmbeddedState, OpenError};
use elastin_stores::secret::Secret;
use elastin_stores::{MeasuredState, served};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::previous_run;
use super::supervisor::Supervisor;
use super::{Embedded, REQUEST_TIME_MAX};
use crate::PolicySource;
use crate::member::{Member, MemberOptions};
use crate::metrics::{Measures, MetricsError, MetricsServer};
use crate::provision::ProcessProvisioner;
use crate::settings::ClusterSettings;
use crate::status::Status;
use crate::trust;
use crate::{App, AppError};

/// The default elasticity period of an embedded cluster.
const PERIOD: Duration = Duration::from_secs(10);

/// Sets up an [`Embedded`] cluster.
pub struct EmbeddedBuilder {
    app: App,
    servers: u32,
    servers_max: u32,
    cpu_share: Option<f64>,
    net_mbit: Option<f64>,
    metrics: Option<SocketAddr>,
    period: Duration,
    policy: PolicySource,
    data: Option<PathBuf>,
    program: Option<PathBuf>,
    node_arguments: Vec<OsString>,
    encrypted: bool,
}

/// The reason why an embedded cluster could not be started. No part of it is running.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The application has an error.
    #[error(transparent)]
    App(#[from] AppError),
    /// The cluster's files can't be opened.
    #[error("the cluster's files can't be opened: {0}")]
    Files(#[from] OpenError),
    /// The cluster's stores can't be served.
    #[error("the cluster's stores can't be served: {0}")]
    Serve(#[from] served::ServeError),
    /// An operation of the operating system failed.
    #[error("the operating system refused an operation: {0}")]
    System(#[from] std::io::Error),
    /// The servers repeatedly exited before they had joined.
    #[error("the cluster's servers keep exiting before they join: {reason}")]
    ServersEnd {
        /// The exit status of the last one.
        reason: String,
    },
    /// Not all servers joined in time.
    #[error("only {started} of {wanted} servers joined within {limit:?}")]
    ServersMissing {
        /// The number of servers that joined.
        started: usize,
        /// The number of servers that were started.
        wanted: u32,
        /// The timeout.
        limit: Duration,
    },
    /// The metrics can't be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The certificates could not be created.
    #[error("the certificates could not be created: {0}")]
    Authority(#[from] AuthorityError),
    /// The certificates can't be used.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The supervisor could not join the cluster.
    #[error("the supervisor could not start: {0}")]
    Supervisor(anyhow::Error),
}

impl EmbeddedBuilder {
    pub(crate) fn new(app: App) -> Self {
        let policy = app.policy_source().clone();
        Self {
            app,
            servers: 1,
            servers_max: 8,
            cpu_share: None,
            net_mbit: None,
            metrics: None,
            period: PERIOD,
            policy,
            data: None,
            program: None,
            node_arguments: vec!["node".into()],
            encrypted: false,
        }
    }

    /// Sets the initial number of servers, which is also the minimum; 1 by default.
    pub fn servers(mut self, count: u32) -> Self {
        self.servers = count;
        self.servers_max = self.servers_max.max(count);
        self
    }

    /// Sets the maximum number of servers; 8 by default.
    pub fn servers_max(mut self, count: u32) -> Self {
        self.servers_max = count.max(self.servers);
        self
    }

    /// Sets the share of one core that each server may use.
    pub fn cpu_share(mut self, cores: f64) -> Self {
        self.cpu_share = Some(cores);
        self
    }

    /// Sets the network capacity of each server, in megabits per second. Without it, `server.net.perc` is unknown.
    pub fn net_mbit(mut self, mbit: f64) -> Self {
        self.net_mbit = Some(mbit);
        self
    }

    /// Serves the supervisor's metrics at this address, which must be on the loopback interface, and those of
    /// `server-N` at the Nth port after it.
    pub fn metrics(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Sets the elasticity period, unless the policy sets one; 10 seconds by default.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Replaces the application's policy.
    pub fn policy(mut self, policy: PolicySource) -> Self {
        self.policy = policy;
        self
    }

    /// Removes the policy: actors stay where they are.
    pub fn without_policy(self) -> Self {
        self.policy(PolicySource::none())
    }

    /// Sets the directory of the cluster's files; without it they are temporary.
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Some(directory.into());
        self
    }

    /// Sets the program whose processes are the servers; this program by default.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Sets the first arguments of server processes, which make the program run as a node. The program must then call
    /// [`App::run`](crate::App::run) with the arguments from `node` on. The default is `node`, which
    /// [`App::main`](crate::App::main) handles.
    pub fn node_arguments<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.node_arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Connects the cluster's processes over TLS, with certificates of an authority made for this run. On one machine
    /// the shared secret is enough; this option is for measuring the cost of encryption.
    pub fn encrypted(mut self) -> Self {
        self.encrypted = true;
        self
    }

    /// Starts the cluster and waits until its servers have joined.
    pub async fn start(self) -> Result<Embedded, EmbeddedError> {
        self.app.check()?;
        let policy = Arc::new(self.app.compile(&self.policy)?);
        let (directory, temporary) = match &self.data {
            Some(directory) => {
                std::fs::create_dir_all(directory)?;
                (directory.clone(), None)
            }
            None => {
                let temporary = tempfile::tempdir()?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        let coordination: Arc<dyn Coordination> =
            Arc::new(EmbeddedCoordination::open(directory.join("coordination.redb"))?);
        let state = Arc::new(EmbeddedState::open(directory.join("state.redb"))?);
        let measured = Arc::new(MeasuredState::new(state));
        let state: Arc<dyn StateStore> = measured.clone();
        let secret = Secret::generate();
        secret.write(&directory.join("secret"))?;
        let certificates = directory.join("certificates");
        let security = match self.encrypted {
            true => {
                let cluster = self.app.cluster_name();
                Authority::create(cluster)?.issue(cluster, true, &certificates)?;
                Security::Certificates(Arc::new(Certificates::read(&certificates, cluster)?))
            }
            false => Security::Secret(secret.clone()),
        };
        let stores = TcpListener::bind("127.0.0.1:0").await?;
        let stores = served::serve(stores, Arc::clone(&state), Arc::clone(&coordination), secret.clone())?;

        let settings = ClusterSettings {
            policy: self.policy,
            period: self.period,
            servers_min: self.servers,
            servers_max: self.servers_max,
        };
        let failed = |error: anyhow::Error| EmbeddedError::Supervisor(error);
        previous_run::end_leases(&*coordination)
            .await
            .map_err(|error| failed(error.into()))?;
        settings
            .store(&*coordination)
            .await
            .map_err(|error| failed(error.into()))?;
        // A previous run had another secret.
        trust::agree(&coordination, &security).await.map_err(failed)?;
        let options = MemberOptions::new(
            "supervisor",
            Role::Supervisor,
            Arc::clone(&coordination),
            Arc::clone(&state),
            security.clone(),
        );
        let member = Member::join(&self.app, options).await.map_err(failed)?;

        let program = match self.program {
            Some(program) => program,
            None => std::env::current_exe()?,
        };
        let mut arguments = self.node_arguments;
        arguments.extend(["--join".into(), stores.address().to_string().into()]);
        arguments.extend(["--secret".into(), "-".into()]);
        if self.encrypted {
            arguments.extend(["--certificates".into(), certificates.into()]);
        }
        if let Some(share) = self.cpu_share {
            arguments.extend(["--cpu-share".into(), share.to_string().into()]);
        }
        if let Some(mbit) = self.net_mbit {
            arguments.extend(["--net-mbit".into(), mbit.to_string().into()]);
        }
        let status = Arc::new(Mutex::new(Status::default()));
        let metrics = match self.metrics {
            Some(address) => {
                let (driver, status) = (member.driver.clone(), Arc::clone(&status));
                let measure = move || Measures {
                    name: "supervisor".into(),
                    server: None,
                    store: measured.measures(),
                    driver: driver.measures(),
                    servers: Some(status.lock().servers().len() as u64),
                };
                Some(MetricsServer::start(address, measure).await?)
            }
            None => None,
        };
        let (exits, exited) = mpsc::unbounded_channel();
        let metrics_at = metrics.as_ref().map(MetricsServer::address);
        let provisioner = ProcessProvisioner::new(program, arguments, secret.clone(), metrics_at, exits);
        let (requests, request_receiver) = mpsc::unbounded_channel();
        let supervisor = Supervisor::new(member, provisioner, policy, &settings, Arc::clone(&status));
        let all_joined = supervisor.start(self.servers, exited, request_receiver)?;
        match tokio::time::timeout(REQUEST_TIME_MAX, all_joined).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(reason))) => return Err(EmbeddedError::ServersEnd { reason }),
            _ => {
                let started = status.lock().servers().len();
                return Err(EmbeddedError::ServersMissing {
                    started,
                    wanted: self.servers,
                    limit: REQUEST_TIME_MAX,
                });
            }
        }
        Ok(Embedded {
            app: self.app,
            coordination,
            state,
            security,
            requests,
            status,
            clients: Mutex::default(),
            clients_made: Default::default(),
            stores,
            _metrics: metrics,
            _temporary: temporary,
        })
    }
}
