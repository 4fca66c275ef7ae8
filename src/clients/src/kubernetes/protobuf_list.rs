//! Whole lists in Kubernetes' protobuf encoding
//! ([API concepts](https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding)), of which only a few
//! fields are read.
//!
//! A Node of a real cluster is large: it names each image that is present. In JSON, 20,000 Nodes take the API server two
//! to four times as much processor time as in protobuf, and their reader too.

use std::fmt::Debug;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use prost::Message;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    call::{built, percent_encode},
    connect::Kube,
    error::Fault,
    list::{MAX_RESTARTS, PAGE},
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

/// The first bytes of every object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// The fields of an object that are read from a list: in protobuf by their tags, in JSON by their names.
pub(super) trait Fields: Message + Debug + Default + DeserializeOwned {
    /// Parameters of the media type, if the server is to convert the list to another kind.
    const CONVERSION: &str;
}

/// `runtime.Unknown`, the envelope of an object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// A list of any kind.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, bound = "T: Fields")]
struct Page<T: Fields> {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PageMeta>,
    /// Go writes an empty list as `null`.
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "none_if_null")]
    items: Vec<T>,
}

fn none_if_null<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// `ListMeta`.
#[derive(Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default)]
struct PageMeta {
    /// Token of the next page; empty for the last one.
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    next: String,
}

impl Kube {
    /// Reads a whole list from a quorum, page by page, and adds each object to a value that starts as the default one. It
    /// starts again when the list expires between two pages, at most five times.
    pub(super) async fn fold_fields<T: Fields, A: Default>(
        &self,
        path: &str,
        mut add: impl FnMut(&mut A, T),
    ) -> Result<A, Fault> {
        let first = format!("{path}?limit={PAGE}");
        let (mut all, mut url, mut restarts) = (A::default(), first.clone(), 0);
        loop {
            let page = match self.page_of_fields::<T>(&url).await {
                Err(Fault::Answered(status)) if status.code == 410 && url != first && restarts < MAX_RESTARTS => {
                    (all, url, restarts) = (A::default(), first.clone(), restarts + 1);
                    continue;
                }
                page => page?,
            };
            page.items.into_iter().for_each(|object| add(&mut all, object));
            let next = page.metadata.unwrap_or_default().next;
            if next.is_empty() {
                return Ok(all);
            }
            url = format!("{first}&continue={}", percent_encode(&next));
        }
    }

    /// Reads one page, with the timeout of a call.
    async fn page_of_fields<T: Fields>(&self, url: &str) -> Result<Page<T>, Fault> {
        let json = format!("{JSON}{}", T::CONVERSION);
        // A server that has no protobuf, such as the sandbox, answers in JSON.
        let either = format!("{PROTOBUF}{}, {json}", T::CONVERSION);
        let request =
            built(Request::get(url).header(header::ACCEPT, either).body(Vec::new()))?.map(kube::client::Body::from);
        let answer = async {
            let (head, body) = self.client.send(request).await?.into_parts();
            Ok((head, body.collect().await?.to_bytes()))
        };
        let (head, body) = self.call(Box::pin(answer)).await?;
        if !head.status.is_success() {
            // An error would be in protobuf, too. In JSON, it is read like that of any other call.
            let request = built(Request::get(url).header(header::ACCEPT, json).body(Vec::new()))?;
            return page_of_json(self.call(Box::pin(self.client.request_text(request))).await?.as_bytes());
        }
        let media_type = head.headers.get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
        let is_protobuf = media_type.is_some_and(|media_type| media_type.starts_with(PROTOBUF.as_bytes()));
        if is_protobuf { page_of_protobuf(body) } else { page_of_json(&body) }
    }
}

fn page_of_json<T: Fields>(body: &[u8]) -> Result<Page<T>, Fault> {
    serde_json::from_slice(body).map_err(|e| Fault::from(kube::Error::SerdeError(e)))
}

fn page_of_protobuf<T: Fields>(mut body: Bytes) -> Result<Page<T>, Fault> {
    if !body.starts_with(MAGIC) {
        return Err(unreadable("it does not begin with k8s"));
    }
    let envelope = Envelope::decode(body.split_off(MAGIC.len())).map_err(unreadable)?;
    Page::decode(envelope.raw).map_err(unreadable)
}

fn unreadable(why: impl std::fmt::Display) -> Fault {
    Fault::Silent(format!("the answer in protobuf cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use cketerm_fuzz::{Fuzz, Took};
    use cketerm_model::clock::Clock;
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    #[derive(Clone, PartialEq, Eq, Message, Deserialize)]
    #[serde(default)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }

    impl Fields for Named {
        const CONVERSION: &str = ";as=Named";
    }

    /// Returns a client of a server that gives these answers (status, media type, body), one after the other, and the
    /// queries that it got, each with `json` if it may not be answered in protobuf.
    fn client(answers: Vec<(u16, &'static str, Vec<u8>)>) -> (Kube, Asked) {
        let asked = Asked::default();
        let (seen, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            let only_json = request.headers()["accept"] == "application/json;as=Named";
            let query = request.uri().query().unwrap();
            seen.lock().unwrap().push(format!("{query}{}", if only_json { " json" } else { "" }));
            let (code, media_type, answer) = answers.lock().unwrap().next().unwrap();
            let answer = Response::builder().status(code).header("content-type", media_type).body(Body::from(answer));
            async { Ok::<_, Infallible>(answer.unwrap()) }
        });
        (Kube::from_client(kube::Client::new(service, "default"), Clock::host()), asked)
    }

    fn encoded(names: &[&str], next: &str) -> Vec<u8> {
        let page = Page {
            metadata: Some(PageMeta { next: next.to_owned() }),
            items: names.iter().map(|name| Named { name: (*name).to_owned() }).collect(),
        };
        [MAGIC, &Envelope { raw: page.encode_to_vec().into() }.encode_to_vec()].concat()
    }

    fn protobuf(names: &[&str], next: &str) -> (u16, &'static str, Vec<u8>) {
        (200, PROTOBUF, encoded(names, next))
    }

    fn json_page(names: &[&str], next: &str) -> (u16, &'static str, Vec<u8>) {
        let items: Vec<_> = names.iter().map(|name| json!({"name": name, "uid": "u"})).collect();
        let page = json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items});
        (200, JSON, page.to_string().into_bytes())
    }

    fn expired(media_type: &'static str) -> (u16, &'static str, Vec<u8>) {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410});
        (410, media_type, if media_type == PROTOBUF { MAGIC.to_vec() } else { status.to_string().into_bytes() })
    }

    async fn names(kube: &Kube) -> Result<Vec<String>, Fault> {
        kube.fold_fields("/api/v1/nodes", |names: &mut Vec<String>, object: Named| names.push(object.name)).await
    }

    #[tokio::test]
    async fn pages_are_read_in_order_and_an_expired_list_from_its_start() {
        let (kube, asked) = client(vec![
            protobuf(&["gone"], "t1"),
            expired(PROTOBUF),
            expired(JSON),
            protobuf(&["a", "b"], "t2/="),
            json_page(&["c"], "t3"),
            (200, JSON, json!({"metadata": {}, "items": null}).to_string().into_bytes()),
        ]);
        assert_eq!(names(&kube).await.unwrap(), ["a", "b", "c"]);
        let tokens = ["", "&continue=t1", "&continue=t1 json", "", "&continue=t2%2F%3D", "&continue=t3"];
        assert_eq!(*asked.lock().unwrap(), tokens.map(|token| format!("limit=500{token}")));
    }

    #[tokio::test]
    async fn errors_and_answers_that_cannot_be_read_are_reported() {
        let (kube, _) = client(vec![expired(PROTOBUF), expired(JSON)]);
        assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 410));
        let broken: [(&'static str, &[u8]); 4] = [
            (PROTOBUF, b"no"),
            (PROTOBUF, b"k8s\0\x12\x05x"),
            (PROTOBUF, b"k8s\0\x12\x01\x12"),
            ("text/plain", b"<html>"),
        ];
        for (media_type, body) in broken {
            let (kube, _) = client(vec![(200, media_type, body.to_vec())]);
            assert!(matches!(names(&kube).await, Err(Fault::Silent(_))), "{body:?}");
        }
    }

    #[tokio::test]
    async fn a_list_that_expires_again_and_again_is_given_up() {
        let once = [protobuf(&["a"], "t"), expired(PROTOBUF), expired(JSON)];
        let (kube, asked) = client(std::iter::repeat_n(once, 7).flatten().collect());
        assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 410));
        assert_eq!(asked.lock().unwrap().len(), 3 * (1 + MAX_RESTARTS));
    }

    #[test]
    fn any_bytes_in_protobuf_are_read_or_refused() {
        let seeds = [encoded(&["a", "b"], "token"), encoded(&[], ""), MAGIC.to_vec()];
        let seeds = seeds.map(|bytes| bytes.iter().map(|byte| char::from(*byte)).collect::<String>());
        // The fuzzer makes texts. Each character stands for a byte.
        Fuzz::new("kube-list-protobuf", 400).seeds(seeds.to_vec()).run(|text| {
            let text = String::from_utf8_lossy(text);
            let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(0xff)).collect();
            Ok(if page_of_protobuf::<Named>(bytes.into()).is_ok() { Took::Accepted } else { Took::Refused })
        });
    }
}
