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
use kube::core::Status;
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

/// Some fields of an object: in protobuf found by their tags, in JSON by their names.
pub(super) trait PartialObject: Message + Debug + Default + DeserializeOwned {
    /// Parameters of the media type, if the server is to convert the list to another kind.
    const CONVERSION: &str;
    /// Returns the object's name. Every object has one.
    fn name(&self) -> &str;
}

/// `runtime.Unknown`, the envelope of an object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// A list of any kind.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, bound = "T: PartialObject")]
struct Page<T: PartialObject> {
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

/// `Status`, in which the server says why it refused.
#[derive(Clone, PartialEq, Eq, Message)]
struct StatusFields {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
}

impl Kube {
    /// Reads a whole list from a quorum, page by page, and adds each object to a value that starts as the default one. It
    /// starts again when the list expires between two pages, at most five times.
    pub(super) async fn fold_partial<T: PartialObject, A: Default>(
        &self,
        path: &str,
        mut add: impl FnMut(&mut A, T),
    ) -> Result<A, Fault> {
        let first = format!("{path}?limit={PAGE}");
        let (mut all, mut url, mut restarts) = (A::default(), first.clone(), 0);
        loop {
            let page = match self.partial_page::<T>(&url).await {
                Err(Fault::Answered(status)) if status.code == 410 && url != first && restarts < MAX_RESTARTS => {
                    (all, url, restarts) = (A::default(), first.clone(), restarts + 1);
                    continue;
                }
                page => page?,
            };
            let Page { metadata: Some(PageMeta { next }), items } = page else {
                return Err(Fault::Silent("the answer is not a list".to_owned()));
            };
            if items.iter().any(|object| object.name().is_empty()) {
                return Err(Fault::Silent("the answer has an object without a name".to_owned()));
            }
            for object in items {
                add(&mut all, object);
            }
            if next.is_empty() {
                return Ok(all);
            }
            url = format!("{first}&continue={}", percent_encode(&next));
        }
    }

    /// Reads one page, with the timeout of a call.
    async fn partial_page<T: PartialObject>(&self, url: &str) -> Result<Page<T>, Fault> {
        // A server that has no protobuf, such as the sandbox, answers in JSON.
        let either = format!("{PROTOBUF}{conversion}, {JSON}{conversion}", conversion = T::CONVERSION);
        let request =
            built(Request::get(url).header(header::ACCEPT, either).body(Vec::new()))?.map(kube::client::Body::from);
        let answer = async {
            let (head, body) = self.client.send(request).await?.into_parts();
            Ok((head, body.collect().await?.to_bytes()))
        };
        let (head, body) = self.call(Box::pin(answer)).await?;
        let media_type = head.headers.get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
        let is_protobuf = media_type.is_some_and(|media_type| media_type.starts_with(PROTOBUF.as_bytes()));
        if !head.status.is_success() {
            return Err(refusal(head.status, is_protobuf, body));
        }
        if is_protobuf { from_protobuf(body) } else { page_of_json(&body) }
    }
}

/// Returns the error of an answer that is no success.
fn refusal(code: http::StatusCode, is_protobuf: bool, body: Bytes) -> Fault {
    let status = if is_protobuf {
        let read: Option<StatusFields> = from_protobuf(body).ok();
        read.map(|StatusFields { message, reason }| Status::failure(&message, &reason))
    } else {
        serde_json::from_slice(&body).ok()
    };
    // An answer of a proxy, for example.
    let status = status.unwrap_or_else(|| Status::failure(code.canonical_reason().unwrap_or_default(), ""));
    Fault::Answered(Box::new(status.with_code(code.as_u16())))
}

fn page_of_json<T: PartialObject>(body: &[u8]) -> Result<Page<T>, Fault> {
    serde_json::from_slice(body).map_err(|e| Fault::from(kube::Error::SerdeError(e)))
}

/// Decodes an object in protobuf.
fn from_protobuf<T: Message + Default>(mut body: Bytes) -> Result<T, Fault> {
    if !body.starts_with(MAGIC) {
        return Err(unreadable("it does not begin with k8s"));
    }
    let envelope = Envelope::decode(body.split_off(MAGIC.len())).map_err(unreadable)?;
    T::decode(envelope.raw).map_err(unreadable)
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

    impl PartialObject for Named {
        const CONVERSION: &str = ";as=Named";

        fn name(&self) -> &str {
            &self.name
        }
    }

    /// Returns a client of a server that gives these answers (status, media type, body), one after the other, and the
    /// queries that it got.
    fn client(answers: Vec<(u16, &'static str, Vec<u8>)>) -> (Kube, Asked) {
        let asked = Asked::default();
        let (seen, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            let expected = "application/vnd.kubernetes.protobuf;as=Named, application/json;as=Named";
            assert_eq!(request.headers()["accept"], expected);
            seen.lock().unwrap().push(request.uri().query().unwrap().to_owned());
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
        in_envelope(&page)
    }

    fn in_envelope(object: &impl Message) -> Vec<u8> {
        [MAGIC, &Envelope { raw: object.encode_to_vec().into() }.encode_to_vec()].concat()
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
        let (message, reason) = ("too old", "Expired");
        let json = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": 410});
        let status = StatusFields { message: message.to_owned(), reason: reason.to_owned() };
        (410, media_type, if media_type == PROTOBUF { in_envelope(&status) } else { json.to_string().into_bytes() })
    }

    async fn names(kube: &Kube) -> Result<Vec<String>, Fault> {
        kube.fold_partial("/api/v1/nodes", |names: &mut Vec<String>, object: Named| names.push(object.name)).await
    }

    #[tokio::test]
    async fn pages_are_read_in_order_and_an_expired_list_from_its_start() {
        let (kube, asked) = client(vec![
            protobuf(&["gone"], "t1"),
            expired(PROTOBUF),
            protobuf(&["x"], "t9"),
            expired(JSON),
            protobuf(&["a", "b"], "t2/="),
            json_page(&["c"], "t3"),
            (200, JSON, json!({"metadata": {}, "items": null}).to_string().into_bytes()),
        ]);
        assert_eq!(names(&kube).await.unwrap(), ["a", "b", "c"]);
        let tokens = ["", "&continue=t1", "", "&continue=t9", "", "&continue=t2%2F%3D", "&continue=t3"];
        assert_eq!(*asked.lock().unwrap(), tokens.map(|token| format!("limit=500{token}")));
    }

    #[tokio::test]
    async fn errors_and_answers_that_cannot_be_read_are_reported() {
        for media_type in [PROTOBUF, JSON] {
            let (kube, _) = client(vec![expired(media_type)]);
            let Err(Fault::Answered(status)) = names(&kube).await else { panic!("{media_type}") };
            assert_eq!((status.code, &*status.message, &*status.reason), (410, "too old", "Expired"), "{media_type}");
        }
        for (media_type, body) in [(PROTOBUF, "k8s"), ("text/html", "<html>"), (JSON, "")] {
            let (kube, _) = client(vec![(502, media_type, body.into())]);
            assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 502), "{media_type}");
        }
        let broken: [(&'static str, &[u8]); 8] = [
            (PROTOBUF, b"no"),
            (PROTOBUF, b"k8s\0"),
            (PROTOBUF, b"k8s\0\x12\x05x"),
            (PROTOBUF, b"k8s\0\x12\x01\x12"),
            ("text/plain", b"<html>"),
            (JSON, b"{}"),
            (JSON, br#"{"kind": "Status", "metadata": null}"#),
            (JSON, br#"{"metadata": {}, "items": [{}]}"#),
        ];
        for (media_type, body) in broken {
            let (kube, _) = client(vec![(200, media_type, body.to_vec())]);
            assert!(matches!(names(&kube).await, Err(Fault::Silent(_))), "{body:?}");
        }
    }

    #[tokio::test]
    async fn a_list_that_expires_again_and_again_is_given_up() {
        let once = [protobuf(&["a"], "t"), expired(PROTOBUF)];
        let (kube, asked) = client(std::iter::repeat_n(once, 7).flatten().collect());
        assert!(matches!(names(&kube).await, Err(Fault::Answered(status)) if status.code == 410));
        assert_eq!(asked.lock().unwrap().len(), 2 * (1 + MAX_RESTARTS));
    }

    #[test]
    fn any_bytes_in_protobuf_are_read_or_refused() {
        let seeds = [encoded(&["a", "b"], "token"), encoded(&[], ""), MAGIC.to_vec()];
        let seeds = seeds.map(|bytes| bytes.iter().map(|byte| char::from(*byte)).collect::<String>());
        // The fuzzer makes texts. Each character stands for a byte.
        Fuzz::new("kube-list-protobuf", 400).seeds(seeds.to_vec()).run(|text| {
            let text = String::from_utf8_lossy(text);
            let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(0xff)).collect();
            Ok(if from_protobuf::<Page<Named>>(bytes.into()).is_ok() { Took::Accepted } else { Took::Refused })
        });
    }
}
