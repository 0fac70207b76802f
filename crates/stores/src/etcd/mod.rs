//! Coordination by an etcd cluster.
//!
//! ```text
//!   submit ──► queue (bounded) ──► one task, requests in order ──► the current server
//!   keep-alives ──► a task each: they must not wait behind a request that hangs
//!   watches ──────► a task and a stream each
//! ```
//!
//! The client uses one server at a time and fails over to the next. A request that was certainly not applied is tried
//! once on every server; one that may have been applied only if it is idempotent.

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

use endpoints::{CallError, Endpoints};
use messages::{LeaseGrantRequest, LeaseIdRequest, LeaseResponse, LeaseRevokeResponse};
use translate::Namespace;
use watching::WatchTask;

use crate::tls::StoreTls;

/// The most queued requests. Coordination sees a few requests a second, so a longer queue means a fault elsewhere.
const QUEUE_MAX: usize = 10_000;
/// The most concurrent keep-alives: some for each lease of a process.
const KEEP_ALIVES_MAX: usize = 64;
/// The response timeout before the next server is tried. Longer than a leader election takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses and credentials of an etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct EtcdConfig {
    /// Its servers, such as `http://10.0.0.1:2379`. With more of them named, more may fail.
    pub endpoints: Vec<String>,
    /// The name of the Elastin cluster; its keys are below `elastin/NAME/`.
    pub cluster: String,
    /// Certificates, if the addresses start with `https`.
    pub tls: Option<StoreTls>,
}

/// The reason why coordination by etcd could not be set up. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No server was named.
    #[error("no etcd server is given: name at least one")]
    NoEndpoint,
    /// An address or a certificate is not valid.
    #[error("`{endpoint}` is not an etcd server's address: {reason}")]
    Invalid {
        /// The address as it was given.
        endpoint: String,
        /// The reason.
        reason: String,
    },
}

/// Coordination by an etcd cluster.
pub struct EtcdCoordination {
    client: Arc<EtcdClient>,
    queue: mpsc::Sender<QueuedRequest>,
    runtime: tokio::runtime::Handle,
}

struct EtcdClient {
    endpoints: Arc<Endpoints>,
    namespace: Namespace,
    keep_alives: Arc<Semaphore>,
}

type CoordinationDone = Done<CoordinationReply, CoordinationError>;

struct QueuedRequest {
    request: CoordinationRequest,
    done: CoordinationDone,
}

impl EtcdCoordination {
    /// Creates a client of this cluster. It dials servers on demand. Must be called inside a tokio runtime, whose tasks
    /// do the work.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        if config.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let servers = config
            .endpoints
            .iter()
            .map(|endpoint| server(endpoint, config.tls.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let client = Arc::new(EtcdClient {
            endpoints: Arc::new(Endpoints::new(servers, RESPONSE_TIMEOUT)),
            namespace: Namespace::of(&config.cluster),
            keep_alives: Arc::new(Semaphore::new(KEEP_ALIVES_MAX)),
        });
        let (queue, mut queued) = mpsc::channel::<QueuedRequest>(QUEUE_MAX);
        let runtime = tokio::runtime::Handle::current();
        let executor = Arc::clone(&client);
        runtime.spawn(async move {
            while let Some(QueuedRequest { request, done }) = queued.recv().await {
                done(executor.execute(request).await);
            }
        });
        Ok(Self { client, queue, runtime })
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
            let client = Arc::clone(&self.client);
            let Ok(permit) = Arc::clone(&self.client.keep_alives).try_acquire_owned() else {
                return done(Err(StoreFailure::Overloaded.into()));
            };
            self.runtime.spawn(async move {
                done(client.keep_alive(lease).await);
                drop(permit);
            });
            return;
        }
        match self.queue.try_send(QueuedRequest { request, done }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(queued)) => (queued.done)(Err(StoreFailure::Overloaded.into())),
            Err(mpsc::error::TrySendError::Closed(queued)) => (queued.done)(Err(StoreFailure::Closed.into())),
        }
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        let watching = WatchTask {
            endpoints: Arc::clone(&self.client.endpoints),
            namespace: self.client.namespace.clone(),
            prefix,
            next: from,
            sink,
        };
        let task = self.runtime.spawn(watching.run());
        WatchGuard::new(move || task.abort())
    }
}

/// Whether a request that may have been applied can be retried on another server.
#[derive(Clone, Copy, PartialEq)]
enum Idempotence {
    Idempotent,
    NotIdempotent,
}

impl EtcdClient {
    async fn execute(&self, request: CoordinationRequest) -> Result<CoordinationReply, CoordinationError> {
        match request {
            CoordinationRequest::Grant { ttl } => self.grant(ttl).await,
            CoordinationRequest::KeepAlive { lease } => self.keep_alive(lease).await,
            CoordinationRequest::Revoke { lease } => self.revoke(lease).await,
            CoordinationRequest::Commit(commit) => self.commit(commit).await,
            CoordinationRequest::Get { key } => {
                let range = self.namespace.get(&key);
                let call = || self.endpoints.call("/etcdserverpb.KV/Range", range.clone());
                let response = self.try_each_server(Idempotence::Idempotent, call).await?;
                Ok(self.namespace.got(response)?)
            }
            CoordinationRequest::Range { prefix, after, limit } => {
                let range = self.namespace.range(&prefix, after.as_deref(), limit);
                let call = || self.endpoints.call("/etcdserverpb.KV/Range", range.clone());
                let response = self.try_each_server(Idempotence::Idempotent, call).await?;
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
        let call = || self.endpoints.call("/etcdserverpb.Lease/LeaseGrant", grant);
        // A lease that no client knows expires by itself.
        let LeaseResponse { id, ttl } = self.try_each_server(Idempotence::Idempotent, call).await?;
        let (lease, ttl) = (LeaseId(id as u64), seconds_of(ttl));
        Ok(CoordinationReply::Granted { lease, ttl })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<CoordinationReply, CoordinationError> {
        let name = LeaseIdRequest { id: lease.0 as i64 };
        let call = || {
            self.endpoints
                .call_streaming("/etcdserverpb.Lease/LeaseKeepAlive", name)
        };
        let LeaseResponse { ttl, .. } = self.try_each_server(Idempotence::Idempotent, call).await?;
        if ttl <= 0 {
            return Err(CoordinationError::LeaseUnknown);
        }
        let ttl = seconds_of(ttl);
        Ok(CoordinationReply::KeptAlive { ttl })
    }

    async fn revoke(&self, lease: LeaseId) -> Result<CoordinationReply, CoordinationError> {
        let name = LeaseIdRequest { id: lease.0 as i64 };
        let call = || self.endpoints.call("/etcdserverpb.Lease/LeaseRevoke", name);
        let LeaseRevokeResponse {} = self.try_each_server(Idempotence::NotIdempotent, call).await?;
        Ok(CoordinationReply::Revoked)
    }

    async fn commit(&self, commit: Commit) -> Result<CoordinationReply, CoordinationError> {
        commit.check()?;
        let transaction = self.namespace.transaction(&commit);
        let call = || self.endpoints.call("/etcdserverpb.KV/Txn", transaction.clone());
        let response = self.try_each_server(Idempotence::NotIdempotent, call).await?;
        self.namespace.committed(&commit, response)
    }

    /// Tries one server after another until one responds, each at most once.
    async fn try_each_server<A, F>(
        &self,
        idempotence: Idempotence,
        call: impl Fn() -> F,
    ) -> Result<A, CoordinationError>
    where
        F: Future<Output = Result<A, CallError>>,
    {
        let mut reasons = Vec::new();
        for _ in 0..self.endpoints.count() {
            match call().await {
                Ok(response) => return Ok(response),
                Err(CallError::Rejected(status)) => return Err(rejection(&status)),
                Err(CallError::MaybeApplied(reason)) if idempotence == Idempotence::NotIdempotent => {
                    return Err(StoreFailure::Interrupted { reason }.into());
                }
                Err(CallError::NotApplied(reason) | CallError::MaybeApplied(reason)) => reasons.push(reason),
            }
        }
        let reason = reasons.join("; ");
        Err(StoreFailure::Unreachable { reason }.into())
    }
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(ttl.unsigned_abs())
}

/// Translates a rejection by etcd. Nothing was changed.
fn rejection(status: &Status) -> CoordinationError {
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
