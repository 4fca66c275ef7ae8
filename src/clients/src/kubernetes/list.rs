//! Whole lists, page by page. While one page is converted, the API server prepares the next one.

use cketerm_runtime::tasks::held;
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::task::JoinSet;

use super::{
    call::{built, percent_encode},
    connect::Kube,
    error::Fault,
};

/// Objects of one page of a list.
pub(super) const PAGE: u32 = 500;
/// Number of times that a list is started again because its rest had expired.
pub(super) const MAX_RESTARTS: usize = 5;

/// Media type of a list.
const WHOLE: &str = "application/json";

/// A page of a list without its objects.
#[derive(Deserialize)]
pub(super) struct PageHead {
    metadata: ListMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    /// Token of the next page; empty for the last one.
    #[serde(rename = "continue")]
    next: String,
}

/// The objects of a page.
#[derive(Deserialize)]
#[serde(bound = "W: DeserializeOwned")]
struct PageItems<W> {
    /// Go writes an empty list as `null`.
    items: Option<Vec<W>>,
}

impl Kube {
    /// Reads a whole list from a quorum, page by page. Each page is converted before the one after the next is
    /// requested. `query` is empty or like `fieldSelector=…`, percent-encoded.
    pub(super) async fn list<W, R>(&self, path: &str, query: &str) -> Result<(Vec<R>, String), Fault>
    where
        W: DeserializeOwned,
        R: From<W>,
    {
        self.fold_list(path, query, |rows: &mut Vec<R>, object: W| rows.push(R::from(object))).await
    }

    /// Reads a whole list like [`Kube::list`], and adds each object to a value that starts as the default one. It starts
    /// again when the list expires between two pages, at most five times.
    pub(super) async fn fold_list<W, A>(
        &self,
        path: &str,
        query: &str,
        mut add: impl FnMut(&mut A, W),
    ) -> Result<(A, String), Fault>
    where
        W: DeserializeOwned,
        A: Default,
    {
        let mut url = format!("{path}?limit={PAGE}");
        if !query.is_empty() {
            url = format!("{url}&{query}");
        }
        let (mut all, mut text, mut restarts) = (A::default(), self.page(url.clone()).await?, 0);
        loop {
            let head: PageHead = parse(&text)?;
            // The request is sent by a task of its own, because this one is busy converting. It ends with this future.
            let mut following = JoinSet::new();
            if !head.metadata.next.is_empty() {
                let (kube, next) = (self.clone(), format!("{url}&continue={}", percent_encode(&head.metadata.next)));
                following.spawn(held(async move { kube.page(next).await }));
            }
            let page: PageItems<W> = parse(&text)?;
            page.items.into_iter().flatten().for_each(|object| add(&mut all, object));
            let Some(answer) = following.join_next().await else {
                return Ok((all, head.metadata.resource_version));
            };
            text = match answer.map_err(|why| Fault::Silent(format!("the request was not sent: {why}")))? {
                // The rest of an old list is gone: start again.
                Err(Fault::Answered(status)) if status.code == 410 && restarts < MAX_RESTARTS => {
                    (all, restarts) = (A::default(), restarts + 1);
                    self.page(url.clone()).await?
                }
                answer => answer?,
            };
        }
    }

    /// Reads the text of one page, with the timeout of a call.
    async fn page(&self, url: String) -> Result<String, Fault> {
        let request = built(Request::get(url).header("accept", WHOLE).body(Vec::new()))?;
        self.call(Box::pin(self.client.request_text(request))).await
    }
}

/// Parses a page. The error reads as that of any other answer.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|e| Fault::from(kube::Error::SerdeError(e)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use cketerm_model::clock::Clock;
    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    /// Returns a client of a server that gives these answers, one after the other, and the queries that it got.
    fn client(answers: Vec<(u16, Value)>) -> (Kube, Asked) {
        let asked = Asked::default();
        let (seen, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            seen.lock().unwrap().push(request.uri().query().unwrap().to_owned());
            let (code, answer) = answers.lock().unwrap().next().unwrap();
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            async { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        (Kube::from_client(kube::Client::new(service, "default"), Clock::host()), asked)
    }

    fn page(names: &[&str], next: &str) -> (u16, Value) {
        let items = names.iter().map(|name| json!({"metadata": {"name": name}})).collect::<Vec<_>>();
        (200, json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items}))
    }

    fn expired() -> (u16, Value) {
        (410, json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410}))
    }

    async fn names(kube: &Kube) -> Result<Vec<String>, Fault> {
        let add = |names: &mut Vec<String>, object: Value| {
            names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
        };
        Ok(kube.fold_list("/api/v1/nodes", "labelSelector=a", add).await?.0)
    }

    #[tokio::test]
    async fn pages_are_read_in_order_and_an_expired_list_from_its_start() {
        let (kube, asked) = client(vec![
            page(&["gone"], "t1"),
            expired(),
            page(&["a", "b"], "t2/="),
            page(&["c"], "t3"),
            (200, json!({"metadata": {}, "items": null})),
        ]);
        assert_eq!(names(&kube).await.unwrap(), ["a", "b", "c"]);
        let first = "limit=500&labelSelector=a";
        let tokens = ["", "&continue=t1", "", "&continue=t2%2F%3D", "&continue=t3"];
        assert_eq!(*asked.lock().unwrap(), tokens.map(|token| format!("{first}{token}")));
    }

    #[tokio::test]
    async fn a_list_that_is_expired_at_once_and_an_unreadable_page_are_errors() {
        let (kube, _) = client(vec![expired()]);
        assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 410));
        let (kube, asked) = client(vec![page(&["a"], "t1"), (200, json!({"items": 3, "metadata": {}}))]);
        assert!(matches!(names(&kube).await, Err(Fault::Silent(_))));
        assert_eq!(asked.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_list_that_expires_again_and_again_is_given_up() {
        let (kube, asked) = client(std::iter::repeat_n([page(&["a"], "t"), expired()], 7).flatten().collect());
        assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 410));
        assert_eq!(asked.lock().unwrap().len(), 2 * (1 + MAX_RESTARTS));
    }
}
