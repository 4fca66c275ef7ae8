//! The connection of one process to one server.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use cketerm_runtime::tasks::Gate;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::{sync::watch, time::sleep};
use tower::{BoxError, Service, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{
    FaultCounts, Odds, RequestFault,
    body::LinkBody,
    dice::{Dice, FaultHit, FaultTarget},
    reset::connection_reset,
    status::{Muted, State, Status, Stream},
};

/// A connection with injectable faults. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    name: Option<HeaderValue>,
    status: watch::Sender<Status>,
    dice: Mutex<Dice>,
    gate: Gate,
    writes: Writes,
}

/// Number of requests under way that change something, and its maximum.
#[derive(Default)]
struct Writes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A request under way that changes something.
struct Write<'a>(&'a Writes);

impl Writes {
    fn begin(&self) -> Write<'_> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Write(self)
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// Creates an open link without faults for the process `name` behind `gate`. Servers record the name with each
    /// request.
    pub fn new(name: &str, gate: Gate, seed: u64) -> Self {
        let dice = Dice {
            rng: fastrand::Rng::with_seed(seed),
            odds: Odds::default(),
            crashes_left: 0,
            hits: FaultCounts::new(),
            met: Vec::new(),
            forced: None,
            aimed: Vec::new(),
            slow: None,
            streams: 0,
        };
        Self(Arc::new(Inner {
            name: HeaderValue::from_str(name).ok(),
            status: watch::Sender::default(),
            dice: Mutex::new(dice),
            gate,
            writes: Writes::default(),
        }))
    }

    /// Returns how many requests that change something were under way at once, at most.
    pub fn most_writes(&self) -> usize {
        self.0.writes.most.load(Ordering::Relaxed)
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.0.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the link, silences it, or opens it again. A cut ends all open streams and requests.
    pub fn set_state(&self, state: State) {
        self.0.status.send_modify(|status| {
            status.state = state;
            status.epoch += u64::from(state == State::Cut);
        });
    }

    /// Ends every stream and request in progress. New ones work.
    pub fn interrupt(&self) {
        self.0.status.send_modify(|status| status.epoch += 1);
    }

    /// Silences the open streams whose path contains `part`, for example `/api/v1/nodes`, while everything else works.
    /// Streams that are opened later work, unless `later` is set. `None` ends the silence, except for streams that were
    /// given up meanwhile.
    pub fn mute(&self, part: Option<&'static str>, later: bool) {
        let until = if later { u64::MAX } else { self.dice().streams };
        self.0.status.send_modify(|status| status.muted = part.map(|part| Muted { part, until }));
    }

    /// Delays every request to the server, including watch requests, by a time between the two bounds. `None` removes
    /// the delay.
    pub fn slow(&self, by: Option<(Duration, Duration)>, seed: u64) {
        self.dice().slow = by.map(|(least, most)| (least, most, fastrand::Rng::with_seed(seed)));
    }

    /// Draws the delay of a request.
    fn draw_delay(&self) -> Duration {
        let mut dice = self.dice();
        let Some((least, most, rng)) = &mut dice.slow else { return Duration::ZERO };
        let (least, most) = (least.as_millis(), most.as_millis());
        Duration::from_millis(u64::try_from(rng.u128(least..=most.max(least))).unwrap_or(0))
    }

    fn stream(&self, path: &str) -> Stream {
        let mut dice = self.dice();
        dice.streams += 1;
        Stream { path: path.into(), number: dice.streams }
    }

    /// Sets the odds of requests, and the maximum number of crashes.
    pub fn odds(&self, odds: Odds, crashes: u32) {
        let mut dice = self.dice();
        dice.odds = odds;
        dice.crashes_left = crashes;
    }

    /// Applies this fate to the next write whose path contains `path`.
    pub fn next(&self, path: &str, request_fault: RequestFault) {
        self.dice().forced = Some((path.to_owned(), request_fault));
    }

    /// Applies this fate to the first request, read or write, that matches `aim`.
    pub fn aim(&self, aim: FaultTarget, request_fault: RequestFault) {
        self.dice().aimed.push((aim, request_fault));
    }

    /// Drops all aimed fates that were not met.
    pub fn disarm(&self) {
        self.dice().aimed.clear();
    }

    /// Returns the number of hits of each fate so far.
    pub fn hits(&self) -> FaultCounts {
        self.dice().hits.clone()
    }

    /// Returns the fates met so far, in order of time.
    pub fn met(&self) -> Vec<FaultHit> {
        self.dice().met.clone()
    }

    /// Wraps a service in this link. The functions create the bodies of the transport.
    pub fn wrap<B, R>(
        &self,
        inner: BoxCloneSyncService<Request<B>, Response<R>, BoxError>,
        request_body: fn(BoxBody) -> B,
        answer_body: fn(BoxBody) -> R,
    ) -> BoxCloneSyncService<Request<B>, Response<R>, BoxError>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        BoxCloneSyncService::new(FaultyService { link: self.clone(), inner, request_body, answer_body })
    }

    /// Wraps a transport whose requests are not streamed.
    pub fn wrap_unary<R>(&self, wire: UnaryTransport<R>, answer_body: fn(BoxBody) -> R) -> UnaryTransport<R>
    where
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let inner = BoxCloneSyncService::new(service_fn(move |request: Request<BoxBody>| {
            let wire = wire.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                wire.oneshot(Request::from_parts(parts, body)).await
            }
        }));
        let service = self.wrap(inner, |body| body, answer_body);
        BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
            service.clone().oneshot(request.map(|body| full(&body)))
        }))
    }

    fn request_fault(&self, parts: &http::request::Parts, body: &[u8]) -> RequestFault {
        let (path, write) = (parts.uri.path(), is_write(&parts.method, parts.uri.path()));
        let mut dice = self.dice();
        let dice = &mut *dice;
        if let Some(at) = dice.aimed.iter().position(|(aim, _)| aim.meets(parts, body)) {
            let (aim, request_fault) = dice.aimed.remove(at);
            dice.count(request_fault, Some(aim.what));
            return request_fault;
        }
        if let Some((part, request_fault)) = &dice.forced
            && write
            && path.contains(part.as_str())
        {
            let request_fault = *request_fault;
            dice.forced = None;
            dice.count(request_fault, None);
            return request_fault;
        }
        let mut request_fault = dice.odds.draw(&mut dice.rng, write);
        if request_fault.affects_process() {
            match dice.crashes_left.checked_sub(1) {
                Some(left) => dice.crashes_left = left,
                None => request_fault = RequestFault::Pass,
            }
        }
        if request_fault != RequestFault::Pass {
            dice.count(request_fault, None);
        }
        request_fault
    }

    /// Freezes the process behind this link for the given time.
    async fn pause(&self, by: Duration) {
        let gate = self.0.gate.clone();
        gate.freeze();
        tokio::spawn(async move {
            sleep(by).await;
            gate.thaw();
        });
        // Yields, so that the frozen process does not continue past this point.
        tokio::task::yield_now().await;
    }

    /// Waits while the link is silent. Fails if the link is cut.
    async fn wait_until_open(&self, stream: Option<&Stream>) -> Result<(), BoxError> {
        let mut status = self.0.status.subscribe();
        let epoch = status.borrow().epoch;
        let open = status.wait_for(|now| !now.is_silent(stream) || now.epoch != epoch).await;
        match open.map(|now| now.state) {
            Ok(State::Open) => Ok(()),
            _ => Err(connection_reset()),
        }
    }
}

/// A type-erased body.
pub type BoxBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// A transport whose requests are not streamed.
pub type UnaryTransport<R> = BoxCloneSyncService<Request<Bytes>, Response<R>, BoxError>;

/// Header from which the sandbox's servers read the sender.
pub const USER_HEADER: &str = "x-sandbox-user";

fn full(bytes: &Bytes) -> BoxBody {
    Full::new(bytes.clone()).map_err(|never| match never {}).boxed_unsync()
}

struct FaultyService<B, R> {
    link: Link,
    inner: BoxCloneSyncService<Request<B>, Response<R>, BoxError>,
    request_body: fn(BoxBody) -> B,
    answer_body: fn(BoxBody) -> R,
}

impl<B, R> Clone for FaultyService<B, R> {
    fn clone(&self) -> Self {
        Self {
            link: self.link.clone(),
            inner: self.inner.clone(),
            request_body: self.request_body,
            answer_body: self.answer_body,
        }
    }
}

impl<B, R> Service<Request<B>> for FaultyService<B, R>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = futures::future::BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.forward(request).await })
    }
}

impl<B, R> FaultyService<B, R>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    async fn forward(self, mut request: Request<B>) -> Result<Response<R>, BoxError> {
        if let Some(name) = &self.link.0.name {
            request.headers_mut().insert(USER_HEADER, name.clone());
        }
        let link = self.link.clone();
        let _write = is_write(request.method(), request.uri().path()).then(|| link.0.writes.begin());
        self.link.wait_until_open(None).await?;
        let delay = self.link.draw_delay();
        if !delay.is_zero() {
            sleep(delay).await;
            self.link.wait_until_open(None).await?;
        }
        if streams(&request) {
            let (parts, body) = request.into_parts();
            let stream = self.link.stream(parts.uri.path());
            self.link.wait_until_open(Some(&stream)).await?;
            let body = (self.request_body)(self.wrap(body, Some(&stream)));
            let answer = self.inner.clone().oneshot(Request::from_parts(parts, body)).await?;
            return Ok(answer.map(|body| (self.answer_body)(self.wrap(body, Some(&stream)))));
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        let request_fault = self.link.request_fault(&parts, &body);
        match request_fault {
            RequestFault::Pass => self.send(&parts, &body).await,
            RequestFault::DelayRequest(by) => {
                sleep(by).await;
                self.send(&parts, &body).await
            }
            RequestFault::DelayReply(by) => {
                let answer = self.apply(&parts, &body).await;
                sleep(by).await;
                answer
            }
            RequestFault::LoseRequest => Err(connection_reset()),
            RequestFault::LoseReply => {
                drop(self.apply(&parts, &body).await);
                Err(connection_reset())
            }
            RequestFault::DropReply => {
                drop(self.apply(&parts, &body).await);
                std::future::pending().await
            }
            RequestFault::Duplicate => {
                drop(self.apply(&parts, &body).await);
                self.send(&parts, &body).await
            }
            RequestFault::CrashBefore => {
                self.link.0.gate.kill();
                std::future::pending().await
            }
            RequestFault::CrashAfter => {
                drop(self.apply(&parts, &body).await);
                self.link.0.gate.kill();
                std::future::pending().await
            }
            RequestFault::PauseBefore(by) => {
                self.link.pause(by).await;
                self.send(&parts, &body).await
            }
            RequestFault::PauseAfter(by) => {
                let answer = self.apply(&parts, &body).await;
                self.link.pause(by).await;
                answer
            }
        }
    }

    /// Sends a request and returns its response, while the link holds.
    async fn send(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Response<R>, BoxError> {
        let answer = self.apply(parts, body);
        tokio::select! {
            biased;
            () = wait_until_cut(self.link.0.status.subscribe()) => Err(connection_reset()),
            answer = answer => {
                self.link.wait_until_open(None).await?;
                answer
            }
        }
    }

    /// Applies a request on the server, even if the caller disappears: a request that was sent is executed.
    async fn apply(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Response<R>, BoxError> {
        let full = full(body);
        let request = Request::from_parts(parts.clone(), (self.request_body)(full));
        let answer = tokio::spawn(self.inner.clone().oneshot(request)).await;
        answer.map_err(BoxError::from)?.map(|answer| self.answer(answer))
    }

    fn answer(&self, answer: Response<R>) -> Response<R> {
        answer.map(|body| (self.answer_body)(self.wrap(body, None)))
    }

    fn wrap<X>(&self, body: X, stream: Option<&Stream>) -> BoxBody
    where
        X: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        LinkBody::new(body, self.link.0.status.subscribe(), stream.cloned()).boxed_unsync()
    }
}

/// Resolves when everything that is open now has ended.
async fn wait_until_cut(mut status: watch::Receiver<Status>) {
    let epoch = status.borrow().epoch;
    // The sender lives as long as the link.
    let _ = status.wait_for(|now| now.epoch != epoch).await;
}

/// Returns true for requests with a long-lived body or response. Single fates do not apply to them, only the state of
/// the link.
fn streams<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let path = uri.path();
    path.ends_with("/Watch")
        || path.ends_with("/LeaseKeepAlive")
        || uri.query().is_some_and(|q| q.contains("watch=true") || q.contains("watch=1"))
}

/// Returns true for requests that change something.
fn is_write(method: &http::Method, path: &str) -> bool {
    if path.starts_with("/etcdserverpb.") {
        return ["/Put", "/Txn", "/DeleteRange", "/LeaseGrant", "/LeaseRevoke"].iter().any(|w| path.ends_with(w));
    }
    !matches!(*method, http::Method::GET | http::Method::HEAD)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn patch(path: &str) -> http::request::Parts {
        Request::patch(path).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_targeted_fault_hits_once_when_method_path_and_body_match() {
        let link = Link::new("engine-0", Gate::default(), 1);
        let cordon = FaultTarget { what: "cordon", path: "PATCH /api/v1/nodes/", body: "unschedulable" };
        link.aim(cordon, RequestFault::CrashAfter);
        let get = Request::get("/api/v1/nodes/w1").body(()).unwrap().into_parts().0;
        assert_eq!(link.request_fault(&get, b"unschedulable"), RequestFault::Pass);
        assert_eq!(link.request_fault(&patch("/api/v1/nodes/w1"), b"{}"), RequestFault::Pass);
        assert_eq!(
            link.request_fault(&patch("/api/v1/nodes/w1"), b"{\"unschedulable\":true}"),
            RequestFault::CrashAfter
        );
        assert_eq!(link.request_fault(&patch("/api/v1/nodes/w1"), b"{\"unschedulable\":true}"), RequestFault::Pass);
        assert_eq!(link.met().len(), 1);
        link.aim(cordon, RequestFault::CrashAfter);
        link.disarm();
        assert_eq!(link.request_fault(&patch("/api/v1/nodes/w1"), b"unschedulable"), RequestFault::Pass);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_process_resumes_after_the_pause() {
        let gate = Gate::default();
        let link = Link::new("engine-0", gate.clone(), 1);
        let long = Duration::from_secs(40);
        let task = tokio::spawn(gate.hold(async move {
            link.pause(long).await;
            Instant::now()
        }));
        let began = Instant::now();
        assert!(task.await.unwrap() - began >= long);
    }
}
