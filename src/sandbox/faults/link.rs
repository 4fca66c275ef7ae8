//! The connection of one process to one server.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::{sync::watch, time::sleep};
use tower::{BoxError, Service, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{
    Fate, Hits, Odds,
    body::Over,
    dice::{Aim, Dice, Met},
    status::{Muted, State, Status, Stream},
};
use crate::tasks::Gate;

/// A connection with injectable faults. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    name: Option<HeaderValue>,
    status: watch::Sender<Status>,
    dice: Mutex<Dice>,
    gate: Gate,
}

/// Returns the error of a broken connection.
pub(super) fn broken() -> BoxError {
    Box::new(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by the sandbox"))
}

impl Link {
    /// Creates an open link without faults for the process `name` behind `gate`. Servers record the name with each
    /// request.
    pub fn new(name: &str, gate: Gate, seed: u64) -> Self {
        let dice = Dice {
            rng: fastrand::Rng::with_seed(seed),
            odds: Odds::default(),
            crashes_left: 0,
            hits: Hits::new(),
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
        }))
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.0.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the link, silences it, or opens it again. A cut ends all open streams and requests.
    pub fn turn(&self, state: State) {
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
    fn on_its_way(&self) -> Duration {
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
    pub fn next(&self, path: &str, fate: Fate) {
        self.dice().forced = Some((path.to_owned(), fate));
    }

    /// Applies this fate to the first request, read or write, that matches `aim`.
    pub fn aim(&self, aim: Aim, fate: Fate) {
        self.dice().aimed.push((aim, fate));
    }

    /// Drops all aimed fates that were not met.
    pub fn disarm(&self) {
        self.dice().aimed.clear();
    }

    /// Returns the number of hits of each fate so far.
    pub fn hits(&self) -> Hits {
        self.dice().hits.clone()
    }

    /// Returns the fates met so far, in order of time.
    pub fn met(&self) -> Vec<Met> {
        self.dice().met.clone()
    }

    /// Wraps a service in this link. The functions create the bodies of the transport.
    pub fn over<B, R>(
        &self,
        inner: BoxCloneSyncService<Request<B>, Response<R>, BoxError>,
        request_body: fn(Boxed) -> B,
        answer_body: fn(Boxed) -> R,
    ) -> BoxCloneSyncService<Request<B>, Response<R>, BoxError>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        BoxCloneSyncService::new(Disturbed { line: self.clone(), inner, request_body, answer_body })
    }

    /// Wraps a transport whose requests are not streamed.
    pub fn over_whole<R>(&self, wire: Whole<R>, answer_body: fn(Boxed) -> R) -> Whole<R>
    where
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let inner = BoxCloneSyncService::new(service_fn(move |request: Request<Boxed>| {
            let wire = wire.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                wire.oneshot(Request::from_parts(parts, body)).await
            }
        }));
        let over = self.over(inner, |body| body, answer_body);
        BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
            over.clone().oneshot(request.map(|body| full(&body)))
        }))
    }

    fn fate(&self, parts: &http::request::Parts, body: &[u8]) -> Fate {
        let (path, write) = (parts.uri.path(), writes(parts));
        let mut dice = self.dice();
        let dice = &mut *dice;
        if let Some(at) = dice.aimed.iter().position(|(aim, _)| aim.meets(parts, body)) {
            let (aim, fate) = dice.aimed.remove(at);
            dice.count(fate, Some(aim.what));
            return fate;
        }
        if let Some((part, fate)) = &dice.forced
            && write
            && path.contains(part.as_str())
        {
            let fate = *fate;
            dice.forced = None;
            dice.count(fate, None);
            return fate;
        }
        let mut fate = dice.odds.draw(&mut dice.rng, write);
        if fate.of_the_process() {
            match dice.crashes_left.checked_sub(1) {
                Some(left) => dice.crashes_left = left,
                None => fate = Fate::Pass,
            }
        }
        if fate != Fate::Pass {
            dice.count(fate, None);
        }
        fate
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
    async fn passable(&self, stream: Option<&Stream>) -> Result<(), BoxError> {
        let mut status = self.0.status.subscribe();
        let epoch = status.borrow().epoch;
        let open = status.wait_for(|now| !now.silences(stream) || now.epoch != epoch).await;
        match open.map(|now| now.state) {
            Ok(State::Open) => Ok(()),
            _ => Err(broken()),
        }
    }
}

/// A type-erased body.
pub type Boxed = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// A transport whose requests are not streamed.
pub type Whole<R> = BoxCloneSyncService<Request<Bytes>, Response<R>, BoxError>;

/// Header from which the sandbox's servers read the sender.
pub const USER_HEADER: &str = "x-sandbox-user";

fn full(bytes: &Bytes) -> Boxed {
    Full::new(bytes.clone()).map_err(|never| match never {}).boxed_unsync()
}

struct Disturbed<B, R> {
    line: Link,
    inner: BoxCloneSyncService<Request<B>, Response<R>, BoxError>,
    request_body: fn(Boxed) -> B,
    answer_body: fn(Boxed) -> R,
}

impl<B, R> Clone for Disturbed<B, R> {
    fn clone(&self) -> Self {
        Self {
            line: self.line.clone(),
            inner: self.inner.clone(),
            request_body: self.request_body,
            answer_body: self.answer_body,
        }
    }
}

impl<B, R> Service<Request<B>> for Disturbed<B, R>
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
        Box::pin(async move { this.carry(request).await })
    }
}

impl<B, R> Disturbed<B, R>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    async fn carry(self, mut request: Request<B>) -> Result<Response<R>, BoxError> {
        if let Some(name) = &self.line.0.name {
            request.headers_mut().insert(USER_HEADER, name.clone());
        }
        self.line.passable(None).await?;
        let late = self.line.on_its_way();
        if !late.is_zero() {
            sleep(late).await;
            self.line.passable(None).await?;
        }
        if streams(&request) {
            let (parts, body) = request.into_parts();
            let stream = self.line.stream(parts.uri.path());
            self.line.passable(Some(&stream)).await?;
            let body = (self.request_body)(self.over(body, Some(&stream)));
            let answer = self.inner.clone().oneshot(Request::from_parts(parts, body)).await?;
            return Ok(answer.map(|body| (self.answer_body)(self.over(body, Some(&stream)))));
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        let fate = self.line.fate(&parts, &body);
        match fate {
            Fate::Pass => self.send(&parts, &body).await,
            Fate::DelayRequest(by) => {
                sleep(by).await;
                self.send(&parts, &body).await
            }
            Fate::DelayReply(by) => {
                let answer = self.apply(&parts, &body).await;
                sleep(by).await;
                answer
            }
            Fate::LoseRequest => Err(broken()),
            Fate::LoseReply => {
                drop(self.apply(&parts, &body).await);
                Err(broken())
            }
            Fate::Swallow => {
                drop(self.apply(&parts, &body).await);
                std::future::pending().await
            }
            Fate::Double => {
                drop(self.apply(&parts, &body).await);
                self.send(&parts, &body).await
            }
            Fate::CrashBefore => {
                self.line.0.gate.kill();
                std::future::pending().await
            }
            Fate::CrashAfter => {
                drop(self.apply(&parts, &body).await);
                self.line.0.gate.kill();
                std::future::pending().await
            }
            Fate::PauseBefore(by) => {
                self.line.pause(by).await;
                self.send(&parts, &body).await
            }
            Fate::PauseAfter(by) => {
                let answer = self.apply(&parts, &body).await;
                self.line.pause(by).await;
                answer
            }
        }
    }

    /// Sends a request and returns its response, while the link holds.
    async fn send(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Response<R>, BoxError> {
        let answer = self.apply(parts, body);
        tokio::select! {
            biased;
            () = ended(self.line.0.status.subscribe()) => Err(broken()),
            answer = answer => {
                self.line.passable(None).await?;
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
        answer.map(|body| (self.answer_body)(self.over(body, None)))
    }

    fn over<X>(&self, body: X, stream: Option<&Stream>) -> Boxed
    where
        X: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Over::new(body, self.line.0.status.subscribe(), stream.cloned()).boxed_unsync()
    }
}

/// Resolves when everything that is open now has ended.
async fn ended(mut status: watch::Receiver<Status>) {
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
fn writes(parts: &http::request::Parts) -> bool {
    let path = parts.uri.path();
    if path.starts_with("/etcdserverpb.") {
        return ["/Put", "/Txn", "/DeleteRange", "/LeaseGrant", "/LeaseRevoke"].iter().any(|w| path.ends_with(w));
    }
    !matches!(parts.method, http::Method::GET | http::Method::HEAD)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn patch(path: &str) -> http::request::Parts {
        Request::patch(path).body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_is_aimed_waits_for_its_method_path_and_body_and_hits_once() {
        let line = Link::new("engine-0", Gate::default(), 1);
        let cordon = Aim { what: "cordon", path: "PATCH /api/v1/nodes/", body: "unschedulable" };
        line.aim(cordon, Fate::CrashAfter);
        let get = Request::get("/api/v1/nodes/w1").body(()).unwrap().into_parts().0;
        assert_eq!(line.fate(&get, b"unschedulable"), Fate::Pass);
        assert_eq!(line.fate(&patch("/api/v1/nodes/w1"), b"{}"), Fate::Pass);
        assert_eq!(line.fate(&patch("/api/v1/nodes/w1"), b"{\"unschedulable\":true}"), Fate::CrashAfter);
        assert_eq!(line.fate(&patch("/api/v1/nodes/w1"), b"{\"unschedulable\":true}"), Fate::Pass);
        assert_eq!(line.met().len(), 1);
        line.aim(cordon, Fate::CrashAfter);
        line.disarm();
        assert_eq!(line.fate(&patch("/api/v1/nodes/w1"), b"unschedulable"), Fate::Pass);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_holds_the_process_and_lets_it_go_on() {
        let gate = Gate::default();
        let line = Link::new("engine-0", gate.clone(), 1);
        let long = Duration::from_secs(40);
        let task = tokio::spawn(gate.hold(async move {
            line.pause(long).await;
            Instant::now()
        }));
        let began = Instant::now();
        assert!(task.await.unwrap() - began >= long);
    }
}
