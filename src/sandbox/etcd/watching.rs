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
    services::Answers,
    span::Span,
    watch::{Asked, Session, denied},
};

/// Interval between two periodic progress notifications.
const PROGRESS: Duration = Duration::from_mins(10);

pub(super) struct Watch(pub Etcd);

#[tonic::async_trait]
impl PbWatchService for Watch {
    type WatchStream = Answers<PbWatchResponse>;

    async fn watch(&self, request: Request<Streaming<PbWatchRequest>>) -> Result<Response<Self::WatchStream>, Status> {
        let (metadata, _, mut requests) = request.into_parts();
        let number = {
            let mut state = self.0.state();
            state.next_session += 1;
            let number = state.next_session;
            state.sessions.insert(number, Session::default());
            number
        };
        let asking = Asking { etcd: self.0.clone(), number, metadata };
        // Requests that have already arrived are handled at once, so that the watch sees a write that follows directly.
        while let Some(Some(Ok(request))) = requests.next().now_or_never() {
            asking.take(request);
        }
        let mut listening = JoinSet::new();
        listening.spawn(asking.listen(requests));
        let open = Open { etcd: self.0.clone(), number, _listening: listening, progress: Instant::now() + PROGRESS };
        let answers = stream::unfold(open, |mut open| async move { Some((open.next().await?, open)) });
        Ok(Response::new(answers.boxed()))
    }
}

/// An open response stream. It ends with its reader.
struct Open {
    etcd: Etcd,
    number: u64,
    /// Reads the requests, whether or not anybody reads the responses. It ends with this stream.
    _listening: JoinSet<()>,
    /// Time of the next periodic progress notification.
    progress: Instant,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.etcd.state().sessions.remove(&self.number);
    }
}

impl Open {
    async fn next(&mut self) -> Option<Result<PbWatchResponse, Status>> {
        loop {
            let (woken, regular) = {
                let mut state = self.etcd.state();
                let session = state.sessions.get_mut(&self.number)?;
                if let Poll::Ready(message) = session.fetch() {
                    return message;
                }
                (session.woken(), session.wants_progress())
            };
            // Always in this order, so that the same run is reproducible.
            tokio::select! {
                biased;
                () = woken.notified() => {}
                () = sleep_until(self.progress), if regular => {
                    self.progress = Instant::now() + PROGRESS;
                    let mut state = self.etcd.state();
                    let (revision, stalled) = (state.revisions.revision(), state.stalled);
                    if let Some(session) = state.sessions.get_mut(&self.number).filter(|_| !stalled) {
                        session.regular_progress(revision);
                    }
                }
            }
        }
    }
}

/// Request side of a stream.
struct Asking {
    etcd: Etcd,
    number: u64,
    metadata: MetadataMap,
}

impl Asking {
    /// Handles requests until the client sends no more. The client may go on listening after that.
    async fn listen(self, mut requests: Streaming<PbWatchRequest>) {
        while let Some(request) = requests.next().await {
            match request {
                Ok(request) => self.take(request),
                Err(status) => {
                    if let Some(session) = self.etcd.state().sessions.get_mut(&self.number) {
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
        let Some(session) = state.sessions.get_mut(&self.number) else { return };
        match request.request_union {
            Some(PbWatchRequestUnion::CreateRequest(r)) => {
                // An empty key means the smallest key.
                let key: &[u8] = if r.key.is_empty() { &[0] } else { &r.key };
                let asked = Asked {
                    span: Span::new(key, &r.range_end),
                    start: r.start_revision,
                    id: r.watch_id,
                    no_put: r.filters.contains(&0),
                    no_delete: r.filters.contains(&1),
                    prev_kv: r.prev_kv,
                    progress: r.progress_notify,
                };
                let auth = &mut state.auth;
                let allowed = auth.who(&self.metadata).and_then(|who| auth.may_read(&who, &asked.span));
                match allowed {
                    Ok(()) => session.create(asked, &state.revisions, state.stalled),
                    Err(refusal) => session.refuse(revision, &denied(refusal)),
                }
            }
            Some(PbWatchRequestUnion::CancelRequest(r)) => session.cancel(r.watch_id, revision),
            Some(PbWatchRequestUnion::ProgressRequest(_)) => session.progress(revision, state.stalled),
            None => {}
        }
    }
}
