//! The watch service: one stream of requests and one stream of responses.

use std::task::Poll;

use etcd_client::proto::{PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use futures::{FutureExt, StreamExt, stream};
use tokio::{
    task::JoinSet,
    time::{Duration, Instant, sleep_until},
};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};

use super::{
    Etcd,
    key_range::KeyRange,
    services::ResponseStream,
    watch::{Session, WatchOptions, denial_reason},
};

/// Interval between two periodic progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(10);

pub(super) struct Watch(pub Etcd);

#[tonic::async_trait]
impl PbWatchService for Watch {
    type WatchStream = ResponseStream<PbWatchResponse>;

    async fn watch(&self, request: Request<Streaming<PbWatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let (metadata, _, mut requests) = request.into_parts();
        let session_id = {
            let mut state = self.0.state();
            state.next_session += 1;
            let session_id = state.next_session;
            state.sessions.insert(session_id, Session::default());
            session_id
        };
        let reader = RequestReader { etcd: self.0.clone(), session_id, metadata };
        // Requests that have already arrived are handled at once, so that the watch sees a write that follows directly.
        while let Some(Some(Ok(request))) = requests.next().now_or_never() {
            reader.take(request);
        }
        let mut reader_task = JoinSet::new();
        reader_task.spawn(reader.listen(requests));
        let open_watch = OpenWatch {
            etcd: self.0.clone(),
            session_id,
            _reader_task: reader_task,
            progress: Instant::now() + PROGRESS_INTERVAL,
        };
        let answers =
            stream::unfold(open_watch, |mut open_watch| async move { Some((open_watch.next().await?, open_watch)) });
        Ok(Response::new(answers.boxed()))
    }
}

/// An open response stream. It ends with its reader.
struct OpenWatch {
    etcd: Etcd,
    session_id: u64,
    /// Reads the requests, whether or not anybody reads the responses. It ends with this stream.
    _reader_task: JoinSet<()>,
    /// Time of the next periodic progress notification.
    progress: Instant,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.etcd.state().sessions.remove(&self.session_id);
    }
}

impl OpenWatch {
    async fn next(&mut self) -> Option<Result<PbWatchResponse, Status>> {
        loop {
            let (notifier, periodic) = {
                let mut state = self.etcd.state();
                let session = state.sessions.get_mut(&self.session_id)?;
                if let Poll::Ready(message) = session.fetch() {
                    return message;
                }
                (session.notifier(), session.progress_requested())
            };
            // Always in this order, so that the same run is reproducible.
            tokio::select! {
                biased;
                () = notifier.notified() => {}
                () = sleep_until(self.progress), if periodic => {
                    self.progress = Instant::now() + PROGRESS_INTERVAL;
                    let mut state = self.etcd.state();
                    let (revision, stalled) = (state.revisions.revision(), state.stalled);
                    if let Some(session) = state.sessions.get_mut(&self.session_id).filter(|_| !stalled) {
                        session.send_periodic_progress(revision);
                    }
                }
            }
        }
    }
}

/// Request side of a stream.
struct RequestReader {
    etcd: Etcd,
    session_id: u64,
    metadata: MetadataMap,
}

impl RequestReader {
    /// Handles requests until the client sends no more. The client may go on listening after that.
    async fn listen(self, mut requests: Streaming<PbWatchRequest>) {
        while let Some(request) = requests.next().await {
            match request {
                Ok(request) => self.take(request),
                Err(status) => {
                    if let Some(session) = self.etcd.state().sessions.get_mut(&self.session_id) {
                        session.end(status);
                    }
                    return;
                }
            }
        }
    }

    fn take(&self, request: PbWatchRequest) {
        let mut state = self.etcd.state();
        let state = &mut *state;
        let revision = state.revisions.revision();
        let Some(session) = state.sessions.get_mut(&self.session_id) else { return };
        match request.request_union {
            Some(PbWatchRequestUnion::CreateRequest(r)) => {
                // An empty key means the smallest key.
                let key: &[u8] = if r.key.is_empty() { &[0] } else { &r.key };
                let options = WatchOptions {
                    key_range: KeyRange::new(key, &r.range_end),
                    start: r.start_revision,
                    id: r.watch_id,
                    no_put: r.filters.contains(&0),
                    no_delete: r.filters.contains(&1),
                    prev_kv: r.prev_kv,
                    progress: r.progress_notify,
                };
                let auth = &mut state.auth;
                let allowed = auth
                    .principal(&self.metadata)
                    .and_then(|principal| auth.check_read_access(&principal, &options.key_range));
                match allowed {
                    Ok(()) => session.create(options, &state.revisions, state.stalled),
                    Err(rpc_error) => session.refuse(revision, &denial_reason(rpc_error)),
                }
            }
            Some(PbWatchRequestUnion::CancelRequest(r)) => session.cancel(r.watch_id, revision),
            Some(PbWatchRequestUnion::ProgressRequest(_)) => session.progress(revision, state.stalled),
            None => {}
        }
    }
}
