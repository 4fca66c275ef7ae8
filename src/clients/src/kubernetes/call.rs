//! One request and its timeout.

use std::time::Duration;

use http::Request;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    connect::{Kube, MAX_CALLS},
    error::{Fault, KubeError},
};

/// Timeout of a call. Watches have their own.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that a call waits for others. It is short, because a permit to write was checked before.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

impl Kube {
    /// Sends a request that was built, with the timeout [`CALL_TIMEOUT`].
    pub(super) async fn send<T: DeserializeOwned>(&self, request: RequestResult) -> Result<T, Fault> {
        let request = built(request)?;
        self.call(Box::pin(self.client.request(request))).await
    }

    /// Waits for a call: first until few enough others are under way, then for its answer.
    pub(super) async fn call<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> Result<T, Fault> {
        // the semaphore is never closed
        let Ok(_permit) = timeout(TURN_TIMEOUT, self.calls.acquire()).await else {
            return Err(Fault::Silent(format!("not sent, because {MAX_CALLS} other calls have no answer yet")));
        };
        match timeout(CALL_TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => Err(Fault::Silent(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))),
        }
    }

    /// Sends a GET. Returns none for a 404.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, KubeError> {
        match self.send(get(path)).await {
            Ok(object) => Ok(Some(object)),
            Err(Fault::Answered(status)) if status.code == 404 => Ok(None),
            Err(fault) => Err(self.error(&format!("GET {path}"), fault)),
        }
    }
}

/// A request, or the error of building it.
pub(super) type RequestResult = Result<Request<Vec<u8>>, http::Error>;

/// Returns a request that was built.
pub(super) fn built(request: RequestResult) -> Result<Request<Vec<u8>>, Fault> {
    request.map_err(|e| Fault::Silent(format!("the request cannot be built: {e}")))
}

/// Builds a GET.
pub(super) fn get(path: &str) -> RequestResult {
    Request::get(path).body(Vec::new())
}

/// Builds a request with a JSON body.
pub(super) fn with_body(method: &str, path: &str, kind: &str, body: &serde_json::Value) -> RequestResult {
    Request::builder().method(method).uri(path).header("content-type", kind).body(body.to_string().into_bytes())
}

/// Percent-encodes everything that is not plain in a query or a path segment.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    out
}

/// Returns one hexadecimal digit.
fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use cketerm_model::clock::Clock;
    use http::Response;
    use kube::client::Body;

    use super::*;

    /// An API server that needs 300 ms for each answer, and counts the calls: all of them, and the most at once.
    #[tokio::test(start_paused = true)]
    async fn as_many_calls_as_permitted_are_under_way_and_the_others_follow() {
        let [now, most, all] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (counted, highest, sent) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&all));
        let service = tower::service_fn(move |_: Request<Body>| {
            let (counted, highest) = (Arc::clone(&counted), Arc::clone(&highest));
            sent.fetch_add(1, Ordering::Relaxed);
            async move {
                highest.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(300)).await;
                counted.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(b"{}".to_vec())))
            }
        });
        let kube = Kube::from_client(kube::Client::new(service, "default"), Clock::host());
        let call = || kube.get::<serde_json::Value>("/version");
        let answers = futures::future::join_all((0..3 * MAX_CALLS).map(|_| call())).await;
        assert!(answers.into_iter().all(|answer| answer.is_ok()));
        assert_eq!(most.load(Ordering::Relaxed), MAX_CALLS);
        let before = all.load(Ordering::Relaxed);
        let answers = futures::future::join_all((0..12 * MAX_CALLS).map(|_| call())).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((3 * MAX_CALLS..12 * MAX_CALLS).contains(&answered), "{answered}");
        assert_eq!(all.load(Ordering::Relaxed) - before, answered, "a call that waited too long was not sent");
        assert!(call().await.is_ok());
    }
}
