//! A watch on an etcd cluster, resumed on another server after a failure.

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::{CoordinationError, Revision, StoreFailure, WatchBatch, WatchSink};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tonic::Status;

use super::endpoints::Endpoints;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::translate::Namespace;

/// The delay before the next server is tried.
const RETRY_DELAY: Duration = Duration::from_millis(100);

pub(super) struct WatchTask {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) namespace: Namespace,
    pub(super) prefix: String,
    /// The first revision that has not been delivered.
    pub(super) next: Revision,
    pub(super) sink: WatchSink,
}

/// The reason why a watch stream ended.
enum StreamEnd {
    /// The watch can resume on another server.
    Resumable(String),
    /// The watch can't resume.
    Fatal(CoordinationError),
}

impl WatchTask {
    /// Delivers changes until the task is dropped or the watch can't resume.
    pub(super) async fn run(mut self) {
        let mut current_server = self.endpoints.subscribe();
        loop {
            current_server.mark_unchanged();
            let ended = match self.endpoints.connection().await {
                Ok(connection) => {
                    let server = connection.server;
                    let requests = tokio_stream::once(self.request()).chain(tokio_stream::pending());
                    let ended = match connection.stream("/etcdserverpb.Watch/Watch", requests).await {
                        Ok(stream) => self.follow(stream, &mut current_server).await,
                        Err(status) => StreamEnd::Resumable(status.to_string()),
                    };
                    self.endpoints.fail_over(server);
                    ended
                }
                Err(error) => StreamEnd::Resumable(format!("{error:?}")),
            };
            match ended {
                StreamEnd::Resumable(reason) => {
                    tracing::debug!(prefix = self.prefix, reason, "resuming a watch on another server");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                StreamEnd::Fatal(error) => return (self.sink)(Err(error)),
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
        current_server: &mut watch::Receiver<usize>,
    ) -> StreamEnd {
        loop {
            let response = tokio::select! {
                response = stream.message() => response,
                _ = current_server.changed() => return StreamEnd::Resumable("the client failed over".to_owned()),
            };
            match self.deliver(response) {
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    fn deliver(&mut self, response: Result<Option<WatchResponse>, Status>) -> Result<(), StreamEnd> {
        let response = match response {
            Ok(Some(response)) => response,
            Ok(None) => return Err(StreamEnd::Resumable("the server ended the stream".to_owned())),
            Err(status) => return Err(StreamEnd::Resumable(status.to_string())),
        };
        if response.compact_revision > 0 {
            let oldest = Revision(response.compact_revision as u64);
            return Err(StreamEnd::Fatal(CoordinationError::Compacted { oldest }));
        }
        if response.canceled {
            return Err(StreamEnd::Resumable("the server cancelled the watch".to_owned()));
        }
        if response.events.is_empty() {
            return Ok(());
        }
        let changes = response.events.into_iter().map(|event| self.namespace.change(event));
        let changes = changes
            .collect::<Result<Vec<_>, StoreFailure>>()
            .map_err(|failure| StreamEnd::Fatal(failure.into()))?;
        let revision = changes.last().expect("there is at least one").revision();
        self.next = revision.next();
        (self.sink)(Ok(WatchBatch { changes, revision }));
        Ok(())
    }
}
