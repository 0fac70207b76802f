//! The servers of an etcd cluster. The client uses one server at a time and fails over to the next.

use std::error::Error;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// The connect timeout. etcd is expected nearby, so a server that needs longer counts as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval of keep-alive pings. etcd closes the connections of clients that ping more often.
const PING_INTERVAL: Duration = Duration::from_secs(6);
/// The timeout of a keep-alive ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest response: a full range plus one value of the largest size, with its framing.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// The reason why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The request was certainly not applied: another server may be tried.
    NotApplied(String),
    /// The request may have been applied.
    MaybeApplied(String),
    /// The server rejected the request, as every other server would.
    Rejected(Status),
}

/// The servers of an etcd cluster.
pub(super) struct Endpoints {
    servers: Vec<Endpoint>,
    /// Connections by server. A failed one is dropped, and dialled again when that server becomes the current one.
    channels: Mutex<Vec<Option<Channel>>>,
    /// The server in use. Watches follow it, because a partitioned server sends them nothing.
    current: watch::Sender<usize>,
    response_timeout: Duration,
}

/// A connection to the server with this index.
pub(super) struct Connection {
    pub(super) server: usize,
    channel: Channel,
}

impl Endpoints {
    pub(super) fn new(servers: Vec<Endpoint>, response_timeout: Duration) -> Self {
        let servers: Vec<Endpoint> = servers
            .into_iter()
            .map(|server| {
                server
                    .connect_timeout(CONNECT_TIMEOUT)
                    .http2_keep_alive_interval(PING_INTERVAL)
                    .keep_alive_timeout(PING_TIMEOUT)
                    .keep_alive_while_idle(true)
            })
            .collect();
        Self {
            channels: Mutex::new(vec![None; servers.len()]),
            servers,
            current: watch::Sender::new(0),
            response_timeout,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Notifies of changes of the current server.
    pub(super) fn subscribe(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// Returns a connection to the current server. If dialling fails, the next server becomes the current one.
    pub(super) async fn connection(&self) -> Result<Connection, CallError> {
        let server = *self.current.borrow();
        if let Some(channel) = self.channels.lock()[server].clone() {
            return Ok(Connection { server, channel });
        }
        match self.servers[server].connect().await {
            Ok(channel) => {
                self.channels.lock()[server] = Some(channel.clone());
                Ok(Connection { server, channel })
            }
            Err(error) => {
                self.fail_over(server);
                Err(self.with_server(server, CallError::NotApplied(describe(&error))))
            }
        }
    }

    /// Fails over to the next server, unless another caller already has.
    pub(super) fn fail_over(&self, server: usize) {
        self.channels.lock()[server] = None;
        let next = (server + 1) % self.servers.len();
        self.current.send_if_modified(|current| {
            let mine = *current == server && next != server;
            if mine {
                *current = next;
            }
            mine
        });
    }

    /// One unary call to the current server, with failover for later calls.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let outcome = timeout(self.response_timeout, connection.call(path, request)).await;
        self.conclude(connection.server, outcome.unwrap_or_else(|_| Err(timed_out())))
    }

    /// Opens a stream for one request and returns its first response.
    pub(super) async fn call_streaming<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let first = async {
            let requests = tokio_stream::once(request);
            let mut responses = connection.stream(path, requests).await?;
            let response = responses.message().await?;
            response.ok_or_else(|| Status::unavailable("the stream ended without a response"))
        };
        let outcome = timeout(self.response_timeout, first).await;
        self.conclude(connection.server, outcome.unwrap_or_else(|_| Err(timed_out())))
    }

    /// Classifies the outcome of a call, and fails over unless the server rejected the request.
    fn conclude<A>(&self, server: usize, response: Result<A, Status>) -> Result<A, CallError> {
        let error = match response {
            Ok(response) => return Ok(response),
            Err(status) => classify(status),
        };
        if !matches!(error, CallError::Rejected(_)) {
            self.fail_over(server);
        }
        Err(self.with_server(server, error))
    }

    /// Adds the name of the server to a failure.
    fn with_server(&self, server: usize, error: CallError) -> CallError {
        let uri = self.servers[server].uri().to_string();
        let name = uri.trim_end_matches('/');
        match error {
            CallError::NotApplied(reason) => CallError::NotApplied(format!("{name}: {reason}")),
            CallError::MaybeApplied(reason) => CallError::MaybeApplied(format!("{name}: {reason}")),
            CallError::Rejected(status) => CallError::Rejected(status),
        }
    }
}

fn timed_out() -> Status {
    Status::deadline_exceeded("no response in time")
}

/// Determines from an error whether the request was applied and whether another server could succeed.
fn classify(status: Status) -> CallError {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return CallError::NotApplied(describe(&status));
        }
        source = error.source();
    }
    match status.code() {
        // etcd returns this before doing anything, unlike "request timed out", which has the same code.
        Code::Unavailable if status.message() == NO_LEADER => CallError::NotApplied(status.message().to_owned()),
        Code::NotFound
        | Code::InvalidArgument
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => CallError::Rejected(status),
        _ => CallError::MaybeApplied(describe(&status)),
    }
}

const NO_LEADER: &str = "etcdserver: no leader";

/// Formats an error with its causes. A cause that repeats the text before it is left out.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

impl Connection {
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.client().await?;
        let codec = ProstCodec::<Q, A>::default();
        let response = client.unary(require_leader(request), parse(path), codec).await?;
        Ok(response.into_inner())
    }

    /// Opens a bidirectional stream.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.client().await?;
        let codec = ProstCodec::<Q, A>::default();
        let responses = client.streaming(require_leader(requests), parse(path), codec).await?;
        Ok(responses.into_inner())
    }

    async fn client(&self) -> Result<tonic::client::Grpc<Channel>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES_MAX);
        client
            .ready()
            .await
            .map_err(|error| Status::unavailable(describe(&error)))?;
        Ok(client)
    }
}

/// Makes a server without a leader reject the request immediately instead of holding it until there is one.
fn require_leader<Q>(request: Q) -> Request<Q> {
    let mut request = Request::new(request);
    let yes = "true".parse().expect("it is valid ASCII");
    request.metadata_mut().insert("hasleader", yes);
    request
}

fn parse<P: std::str::FromStr<Err: std::fmt::Debug>>(path: &'static str) -> P {
    path.parse().expect("the paths of etcd's methods are valid")
}
