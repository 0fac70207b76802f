//! A watch on an etcd cluster, which goes on at another server where it stopped.

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::{CoordinationError, Revision, StoreFailure, WatchBatch, WatchSink};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tonic::Status;

use super::endpoints::Endpoints;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::translate::Namespace;

/// How long to wait before the next server is asked after one has failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(super) struct Watching {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) namespace: Namespace,
    pub(super) prefix: String,
    /// The first revision that has not been delivered.
    pub(super) next: Revision,
    pub(super) sink: WatchSink,
}

/// Why a stream of changes ended.
enum Ended {
    /// Another server can go on.
    Broken(String),
    /// Nobody can.
    For(CoordinationError),
}

impl Watching {
    /// Delivers changes until it is dropped, or the watch can't go on.
    pub(super) async fn run(mut self) {
        let mut followed = self.endpoints.followed();
        loop {
            followed.mark_unchanged();
            let ended = match self.endpoints.connection().await {
                Ok(connection) => {
                    let server = connection.server;
                    let questions = tokio_stream::once(self.request()).chain(tokio_stream::pending());
                    let ended = match connection.stream("/etcdserverpb.Watch/Watch", questions).await {
                        Ok(stream) => self.follow(stream, &mut followed).await,
                        Err(status) => Ended::Broken(status.to_string()),
                    };
                    self.endpoints.failed(server);
                    ended
                }
                Err(failed) => Ended::Broken(format!("{failed:?}")),
            };
            match ended {
                Ended::Broken(reason) => {
                    tracing::debug!(prefix = self.prefix, reason, "a watch goes on at another server");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Ended::For(error) => return (self.sink)(Err(error)),
            }
        }
    }

    fn request(&self) -> WatchRequest {
        WatchRequest {
            create: Some(WatchCreateRequest {
                key: self.namespace.key(&self.prefix),
                range_end: self.namespace.end_of(&self.prefix),
                start_revision: self.next.0 as i64,
            }),
        }
    }

    async fn follow(
        &mut self,
        mut stream: tonic::Streaming<WatchResponse>,
        followed: &mut watch::Receiver<usize>,
    ) -> Ended {
        loop {
            let response = tokio::select! {
                response = stream.message() => response,
                _ = followed.changed() => return Ended::Broken("others have left this server".to_owned()),
            };
            match self.deliver(response) {
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    fn deliver(&mut self, response: Result<Option<WatchResponse>, Status>) -> Result<(), Ended> {
        let response = match response {
            Ok(Some(response)) => response,
            Ok(None) => return Err(Ended::Broken("the server ended the stream".to_owned())),
            Err(status) => return Err(Ended::Broken(status.to_string())),
        };
        if response.compact_revision > 0 {
            let oldest = Revision(response.compact_revision as u64);
            return Err(Ended::For(CoordinationError::Compacted { oldest }));
        }
        if response.canceled {
            return Err(Ended::Broken("the server cancelled the watch".to_owned()));
        }
        if response.events.is_empty() {
            return Ok(());
        }
        let changes = response.events.into_iter().map(|event| self.namespace.change(event));
        let changes = changes
            .collect::<Result<Vec<_>, StoreFailure>>()
            .map_err(|failure| Ended::For(failure.into()))?;
        let revision = changes.last().expect("there is at least one").revision();
        self.next = revision.next();
        (self.sink)(Ok(WatchBatch { changes, revision }));
        Ok(())
    }
}
