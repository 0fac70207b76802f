//! The servers of an etcd cluster, one of which is spoken to at a time: the next one when it does not answer.

use std::error::Error;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long a server may take to accept a connection. A cluster is near; one that takes longer is as good as gone.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// How often an idle connection is probed: etcd closes the connections of clients that do it more often.
const PROBE_EVERY: Duration = Duration::from_secs(6);
/// How long an answer to a probe may take.
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
/// The largest answer: what a range may have, with the largest value on top and what is around it.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Why a server did not do what was asked.
#[derive(Debug)]
pub(super) enum CallFailed {
    /// It has certainly not done it, and will not: another one may be asked.
    NotDone(String),
    /// It may have done it.
    InDoubt(String),
    /// It has refused, as every other would.
    Refused(Status),
}

/// The servers of an etcd cluster.
pub(super) struct Endpoints {
    servers: Vec<Endpoint>,
    /// Connections by server. One that has failed is dropped, and dialled anew when its turn comes.
    channels: Mutex<Vec<Option<Channel>>>,
    /// The server that is spoken to. Watches follow it, because a server that answers nobody says nothing to them.
    current: watch::Sender<usize>,
    answer_time_max: Duration,
}

/// A connection to the server of this number.
pub(super) struct Connection {
    pub(super) server: usize,
    channel: Channel,
}

impl Endpoints {
    pub(super) fn new(servers: Vec<Endpoint>, answer_time_max: Duration) -> Self {
        let servers: Vec<Endpoint> = servers
            .into_iter()
            .map(|server| {
                server
                    .connect_timeout(CONNECT_TIME_MAX)
                    .http2_keep_alive_interval(PROBE_EVERY)
                    .keep_alive_timeout(PROBE_TIME_MAX)
                    .keep_alive_while_idle(true)
            })
            .collect();
        Self {
            channels: Mutex::new(vec![None; servers.len()]),
            servers,
            current: watch::Sender::new(0),
            answer_time_max,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Tells when another server is spoken to.
    pub(super) fn followed(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// A connection to the current server. If there is none, the next one becomes the current one.
    pub(super) async fn connection(&self) -> Result<Connection, CallFailed> {
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
                self.failed(server);
                Err(self.named(server, CallFailed::NotDone(told(&error))))
            }
        }
    }

    /// A server does not answer: turn to the next one, unless somebody has already.
    pub(super) fn failed(&self, server: usize) {
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

    /// One question to the current server. A server that does not answer is left for the next one.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, question: Q) -> Result<A, CallFailed>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let asked = timeout(self.answer_time_max, connection.ask(path, question)).await;
        self.judge(connection.server, asked.unwrap_or_else(|_| Err(late())))
    }

    /// One question on a stream of its own, and its first answer.
    pub(super) async fn ask_streaming<Q, A>(&self, path: &'static str, question: Q) -> Result<A, CallFailed>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let first = async {
            let questions = tokio_stream::once(question);
            let mut answers = connection.stream(path, questions).await?;
            let answer = answers.message().await?;
            answer.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
        };
        let asked = timeout(self.answer_time_max, first).await;
        self.judge(connection.server, asked.unwrap_or_else(|_| Err(late())))
    }

    /// What an answer says about the request, and about the server.
    fn judge<A>(&self, server: usize, answer: Result<A, Status>) -> Result<A, CallFailed> {
        let failed = match answer {
            Ok(answer) => return Ok(answer),
            Err(status) => classify(status),
        };
        if !matches!(failed, CallFailed::Refused(_)) {
            self.failed(server);
        }
        Err(self.named(server, failed))
    }

    /// The same failure, with the name of the server, so that whoever reads of it knows where to look.
    fn named(&self, server: usize, failed: CallFailed) -> CallFailed {
        let uri = self.servers[server].uri().to_string();
        let name = uri.trim_end_matches('/');
        match failed {
            CallFailed::NotDone(reason) => CallFailed::NotDone(format!("{name}: {reason}")),
            CallFailed::InDoubt(reason) => CallFailed::InDoubt(format!("{name}: {reason}")),
            CallFailed::Refused(status) => CallFailed::Refused(status),
        }
    }
}

fn late() -> Status {
    Status::deadline_exceeded("no answer in time")
}

/// What an error says about the request: whether it was carried out, and whether another server would do better.
fn classify(status: Status) -> CallFailed {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return CallFailed::NotDone(told(&status));
        }
        source = error.source();
    }
    match status.code() {
        // Said before anything is done, unlike "request timed out", which has the same code.
        Code::Unavailable if status.message() == NO_LEADER => CallFailed::NotDone(status.message().to_owned()),
        Code::NotFound
        | Code::InvalidArgument
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => CallFailed::Refused(status),
        _ => CallFailed::InDoubt(told(&status)),
    }
}

const NO_LEADER: &str = "etcdserver: no leader";

/// An error with its causes, for people. A cause that says the same again is left out.
fn told(error: &dyn Error) -> String {
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
    async fn ask<Q, A>(&self, path: &'static str, question: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.client().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(with_leader(question), parsed(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream of questions and answers.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        questions: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.client().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answers = client.streaming(with_leader(questions), parsed(path), codec).await?;
        Ok(answers.into_inner())
    }

    async fn client(&self) -> Result<tonic::client::Grpc<Channel>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        client
            .ready()
            .await
            .map_err(|error| Status::unavailable(told(&error)))?;
        Ok(client)
    }
}

/// A request that a server without a leader refuses at once, instead of keeping it until there is one.
fn with_leader<Q>(question: Q) -> Request<Q> {
    let mut request = Request::new(question);
    let yes = "true".parse().expect("it is plain text");
    request.metadata_mut().insert("hasleader", yes);
    request
}

fn parsed<P: std::str::FromStr<Err: std::fmt::Debug>>(path: &'static str) -> P {
    path.parse().expect("the paths of etcd's calls are valid")
}
