//! Coordination by an etcd cluster.
//!
//! ```text
//!   submit ──► queue (bounded) ──► one task, one request after another ──► the server that answers
//!   signs of life ──► a task each: they must not wait behind a request that hangs
//!   watches ──────► a task and a stream each
//! ```
//!
//! One server is spoken to at a time, and left for the next when it does not answer. A request that certainly was not
//! carried out is put to every server once; one that may have been is only if doing it twice does no harm.

mod endpoints;
mod messages;
mod translate;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::{
    Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, LeaseId, Revision,
    StoreFailure, WatchGuard, WatchSink,
};
use tokio::sync::{Semaphore, mpsc};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use endpoints::{CallFailed, Endpoints};
use messages::{LeaseAnswer, LeaseGrantRequest, LeaseName, LeaseRevokeResponse};
use translate::Namespace;
use watching::Watching;

use crate::tls::StoreTls;

/// How many requests may wait: coordination is asked a few times a second, so more than this is a fault elsewhere.
const QUEUE_MAX: usize = 10_000;
/// How many signs of life may be under way: some for each lease of a process.
const KEEP_ALIVES_MAX: usize = 64;
/// How long a server may take to answer before the next one is asked. Longer than an election of a leader takes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How to reach an etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdConfig {
    /// Its servers, such as `http://10.0.0.1:2379`. The more are named, the more may be lost.
    pub endpoints: Vec<String>,
    /// The name of the Elastin cluster; its keys are below `elastin/NAME/`.
    pub cluster: String,
    /// Certificates, if the servers are named with `https`.
    pub tls: Option<StoreTls>,
}

/// Why coordination by etcd could not be set up. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No server was named.
    #[error("no etcd server is named")]
    NoEndpoint,
    /// An address or a certificate is not valid.
    #[error("`{endpoint}` is not an etcd server that can be reached: {reason}")]
    Invalid {
        /// The address as it was given.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
}

/// Coordination by an etcd cluster.
pub struct EtcdCoordination {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Waiting>,
    runtime: tokio::runtime::Handle,
}

struct Shared {
    endpoints: Arc<Endpoints>,
    namespace: Namespace,
    keep_alives: Arc<Semaphore>,
}

type CoordinationDone = Done<CoordinationReply, CoordinationError>;

struct Waiting {
    request: CoordinationRequest,
    done: CoordinationDone,
}

impl EtcdCoordination {
    /// Coordination by this cluster. Its servers are first dialled when they are needed. Must be called inside a tokio
    /// runtime, whose tasks do the work.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        if config.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let servers = config
            .endpoints
            .iter()
            .map(|endpoint| server(endpoint, config.tls.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared {
            endpoints: Arc::new(Endpoints::new(servers, ANSWER_TIME_MAX)),
            namespace: Namespace::of(&config.cluster),
            keep_alives: Arc::new(Semaphore::new(KEEP_ALIVES_MAX)),
        });
        let (queue, mut waiting) = mpsc::channel::<Waiting>(QUEUE_MAX);
        let runtime = tokio::runtime::Handle::current();
        let serving = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Some(Waiting { request, done }) = waiting.recv().await {
                done(serving.serve(request).await);
            }
        });
        Ok(Self { shared, queue, runtime })
    }
}

fn server(endpoint: &str, tls: Option<&StoreTls>) -> Result<Endpoint, EtcdError> {
    let invalid = |error: tonic::transport::Error| EtcdError::Invalid {
        endpoint: endpoint.to_owned(),
        reason: std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string),
    };
    let url = if endpoint.contains("://") {
        endpoint.to_owned()
    } else {
        format!("http://{endpoint}")
    };
    let server = Endpoint::from_shared(url).map_err(invalid)?;
    let Some(tls) = tls else { return Ok(server) };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    server.tls_config(config).map_err(invalid)
}

impl Coordination for EtcdCoordination {
    fn submit(&self, request: CoordinationRequest, done: CoordinationDone) {
        if let CoordinationRequest::KeepAlive { lease } = request {
            let shared = Arc::clone(&self.shared);
            let Ok(permit) = Arc::clone(&self.shared.keep_alives).try_acquire_owned() else {
                return done(Err(StoreFailure::Overloaded.into()));
            };
            self.runtime.spawn(async move {
                done(shared.keep_alive(lease).await);
                drop(permit);
            });
            return;
        }
        match self.queue.try_send(Waiting { request, done }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(waiting)) => (waiting.done)(Err(StoreFailure::Overloaded.into())),
            Err(mpsc::error::TrySendError::Closed(waiting)) => (waiting.done)(Err(StoreFailure::Closed.into())),
        }
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        let watching = Watching {
            endpoints: Arc::clone(&self.shared.endpoints),
            namespace: self.shared.namespace.clone(),
            prefix,
            next: from,
            sink,
        };
        let task = self.runtime.spawn(watching.run());
        WatchGuard::new(move || task.abort())
    }
}

/// Whether a request that may have been carried out can be put to another server.
#[derive(Clone, Copy, PartialEq)]
enum Twice {
    DoesNoHarm,
    IsNotTheSame,
}

impl Shared {
    async fn serve(&self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        match request {
            CoordinationRequest::Grant { ttl } => self.grant(ttl).await,
            CoordinationRequest::KeepAlive { lease } => self.keep_alive(lease).await,
            CoordinationRequest::Revoke { lease } => self.revoke(lease).await,
            CoordinationRequest::Commit(commit) => self.commit(commit).await,
            CoordinationRequest::Get { key } => {
                let range = self.namespace.get(&key);
                let ask = || self.endpoints.ask("/etcdserverpb.KV/Range", range.clone());
                let response = self.go_round(Twice::DoesNoHarm, ask).await?;
                Ok(self.namespace.got(response)?)
            }
            CoordinationRequest::Range { prefix, after, limit } => {
                let range = self.namespace.range(&prefix, after.as_deref(), limit);
                let ask = || self.endpoints.ask("/etcdserverpb.KV/Range", range.clone());
                let response = self.go_round(Twice::DoesNoHarm, ask).await?;
                Ok(self.namespace.entries(response, limit)?)
            }
        }
    }

    async fn grant(&self, ttl: Duration) -> Result<CoordinationReply, CoordinationError> {
        // etcd counts in seconds.
        let seconds = ttl.as_millis().div_ceil(1000).max(1);
        let grant = LeaseGrantRequest {
            ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        let ask = || self.endpoints.ask("/etcdserverpb.Lease/LeaseGrant", grant);
        // A lease that nobody knows of ends by itself.
        let LeaseAnswer { id, ttl } = self.go_round(Twice::DoesNoHarm, ask).await?;
        let (lease, ttl) = (LeaseId(id as u64), seconds_of(ttl));
        Ok(CoordinationReply::Granted { lease, ttl })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<CoordinationReply, CoordinationError> {
        let name = LeaseName { id: lease.0 as i64 };
        let ask = || self.endpoints.ask_streaming("/etcdserverpb.Lease/LeaseKeepAlive", name);
        let LeaseAnswer { ttl, .. } = self.go_round(Twice::DoesNoHarm, ask).await?;
        if ttl <= 0 {
            return Err(CoordinationError::LeaseUnknown);
        }
        let ttl = seconds_of(ttl);
        Ok(CoordinationReply::KeptAlive { ttl })
    }

    async fn revoke(&self, lease: LeaseId) -> Result<CoordinationReply, CoordinationError> {
        let name = LeaseName { id: lease.0 as i64 };
        let ask = || self.endpoints.ask("/etcdserverpb.Lease/LeaseRevoke", name);
        let LeaseRevokeResponse {} = self.go_round(Twice::IsNotTheSame, ask).await?;
        Ok(CoordinationReply::Revoked)
    }

    async fn commit(&self, commit: Commit) -> Result<CoordinationReply, CoordinationError> {
        commit.check()?;
        let transaction = self.namespace.transaction(&commit);
        let ask = || self.endpoints.ask("/etcdserverpb.KV/Txn", transaction.clone());
        let response = self.go_round(Twice::IsNotTheSame, ask).await?;
        self.namespace.committed(&commit, response)
    }

    /// Asks one server after another until one answers, each at most once.
    async fn go_round<A, F>(&self, twice: Twice, ask: impl Fn() -> F) -> Result<A, CoordinationError>
    where
        F: Future<Output = Result<A, CallFailed>>,
    {
        let mut reasons = Vec::new();
        for _ in 0..self.endpoints.count() {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(CallFailed::Refused(status)) => return Err(refusal(&status)),
                Err(CallFailed::InDoubt(reason)) if twice == Twice::IsNotTheSame => {
                    return Err(StoreFailure::Interrupted { reason }.into());
                }
                Err(CallFailed::NotDone(reason) | CallFailed::InDoubt(reason)) => reasons.push(reason),
            }
        }
        let reason = reasons.join("; ");
        Err(StoreFailure::Unreachable { reason }.into())
    }
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(ttl.unsigned_abs())
}

/// What a refusal of etcd means. Nothing was changed.
fn refusal(status: &Status) -> CoordinationError {
    let message = status.message();
    match status.code() {
        Code::NotFound if message.contains("lease") => CoordinationError::LeaseUnknown,
        Code::ResourceExhausted if message.contains("space exceeded") => StoreFailure::DiskFull.into(),
        Code::ResourceExhausted => StoreFailure::Overloaded.into(),
        Code::PermissionDenied | Code::Unauthenticated => {
            let reason = message.to_owned();
            StoreFailure::ReadOnly { reason }.into()
        }
        _ => CoordinationError::Invalid(message.to_owned()),
    }
}
