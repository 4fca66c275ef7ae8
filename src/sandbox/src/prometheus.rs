//! Prometheus in the simulated data centre: its answers to instant queries, by a behaviour that can be set for alerts and
//! for all other queries. It evaluates no expression.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cketerm_model::clock::Clock;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Number of bytes of a large answer.
const LARGE: usize = 10 << 20;

/// Behaviour for one kind of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// The result is empty: nothing fires.
    #[default]
    Quiet,
    /// The result has a series: an alert fires.
    Fires,
    /// The result is empty, and comes after so many seconds.
    Slow(u64),
    /// An error with status 500.
    Fails,
    /// No answer.
    Hangs,
    /// A body that is not JSON.
    Garbage,
    /// An answer of 10 MB.
    Large,
}

/// Kinds of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Those that select alerts.
    Alerts,
    /// All others.
    Other,
}

/// A query that it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Time of the request.
    pub at: Timestamp,
    /// Process that sent it.
    pub by: String,
    /// The expression.
    pub expression: String,
    /// Time of the answer; none = there is none.
    pub answered: Option<Timestamp>,
    /// Whether the answer is an empty result.
    pub empty: bool,
}

/// Prometheus. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Prometheus {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    alerts: Behaviour,
    other: Behaviour,
    queries: Vec<Query>,
}

impl Prometheus {
    /// Creates a Prometheus in which nothing fires.
    pub fn new(clock: Clock) -> Self {
        Self { clock, inner: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the behaviour for queries of this kind.
    pub fn behave(&self, kind: Kind, behaviour: Behaviour) {
        let mut inner = self.lock();
        match kind {
            Kind::Alerts => inner.alerts = behaviour,
            Kind::Other => inner.other = behaviour,
        }
    }

    /// Returns all queries so far.
    pub fn queries(&self) -> Vec<Query> {
        self.lock().queries.clone()
    }

    /// Returns the response to a request of this process.
    pub async fn serve(&self, by: &str, request: &Request<Bytes>) -> Response<Bytes> {
        let query = request.uri().query().unwrap_or_default();
        let expression = query.split('&').find_map(|field| field.strip_prefix("query=")).map(decoded);
        let Some(expression) = expression.filter(|_| request.uri().path().ends_with("/api/v1/query")) else {
            return answer(404, Bytes::from_static(b"404 page not found\n"));
        };
        let (place, behaviour) = {
            let mut inner = self.lock();
            let behaviour = if expression.starts_with("ALERTS") { inner.alerts } else { inner.other };
            let query = Query { at: self.clock.wall(), by: by.to_owned(), expression, answered: None, empty: false };
            inner.queries.push(query);
            (inner.queries.len() - 1, behaviour)
        };
        let (status, body, empty) = match behaviour {
            Behaviour::Quiet => (200, result(&[]), true),
            Behaviour::Fires => (200, result(&[series()]), false),
            Behaviour::Slow(seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                (200, result(&[]), true)
            }
            Behaviour::Fails => (500, Bytes::from_static(b"{\"status\":\"error\",\"error\":\"out of memory\"}"), false),
            Behaviour::Hangs => std::future::pending().await,
            Behaviour::Garbage => (200, Bytes::from_static(b"<html>welcome</html>"), false),
            Behaviour::Large => (200, Bytes::from(vec![b' '; LARGE]), false),
        };
        if let Some(query) = self.lock().queries.get_mut(place) {
            (query.answered, query.empty) = (Some(self.clock.wall()), empty);
        }
        answer(status, body)
    }
}

fn answer(status: u16, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn series() -> Value {
    let labels = json!({"__name__": "ALERTS", "alertname": "HostDown", "alertstate": "firing", "instance": "w1"});
    json!({"metric": labels, "value": [0, "1"]})
}

fn result(series: &[Value]) -> Bytes {
    Bytes::from(json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string())
}

/// Decodes the value of a query's field.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut place) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(place) {
        let hex = bytes.get(place + 1..place + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        place += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_kind_of_queries_has_its_behaviour_and_everything_is_recorded() {
        let prometheus = Prometheus::new(Clock::host());
        prometheus.behave(Kind::Alerts, Behaviour::Fires);
        let ask = async |query: &str| {
            let request = Request::get(format!("http://p/api/v1/query?query={query}")).body(Bytes::new()).unwrap();
            let response = prometheus.serve("engine-0", &request).await;
            (response.status().as_u16(), serde_json::from_slice::<Value>(response.body()).unwrap_or_default())
        };
        let (status, body) = ask("ALERTS%7Balertstate%3D%22firing%22%7D").await;
        assert_eq!((status, body["data"]["result"].as_array().unwrap().len()), (200, 1));
        let (status, body) = ask("up+%3D%3D%200").await;
        assert_eq!((status, body["data"]["result"].as_array().unwrap().len()), (200, 0));
        prometheus.behave(Kind::Other, Behaviour::Fails);
        assert_eq!(ask("up").await.0, 500);
        let queries = prometheus.queries();
        let seen: Vec<(&str, bool)> = queries.iter().map(|query| (query.expression.as_str(), query.empty)).collect();
        assert_eq!(seen, [("ALERTS{alertstate=\"firing\"}", false), ("up == 0", true), ("up", false)]);
        assert!(queries.iter().all(|query| query.answered.is_some()));
    }
}
