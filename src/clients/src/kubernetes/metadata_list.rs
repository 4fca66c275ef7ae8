//! Names, UIDs and labels of all objects of a kind, without the rest of them, in Kubernetes' protobuf encoding
//! ([API concepts](https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding)).
//!
//! A Node of a real cluster is many times larger than its metadata: it names each image that is present. And in JSON,
//! the metadata of 20,000 Nodes take the API server three to four times as much processor time as in protobuf.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use prost::Message;
use serde::Deserialize;

use super::{
    call::{built, percent_encode},
    connect::Kube,
    error::Fault,
    wire::Meta,
};

/// Objects of one page.
const PAGE: u32 = 500;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// A server that has no protobuf, such as the sandbox, answers in JSON.
const EITHER: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
                      application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The first bytes of every object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`, the envelope of an object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// `PartialObjectMetadataList`.
#[derive(Clone, PartialEq, Message)]
struct MetadataPage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PageMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Item>,
}

/// `ListMeta`.
#[derive(Clone, PartialEq, Message)]
struct PageMeta {
    /// Token of the next page; empty for the last one.
    #[prost(string, tag = "3")]
    next: String,
}

/// `PartialObjectMetadata`.
#[derive(Clone, PartialEq, Message)]
struct Item {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// The part of an object's metadata that is read.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: BTreeMap<String, String>,
}

/// The same page in JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonPage {
    metadata: JsonPageMeta,
    /// Go writes an empty list as `null`.
    items: Option<Vec<JsonItem>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonPageMeta {
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonItem {
    metadata: Meta,
}

/// Objects of one page, and the token of the next one, which is empty for the last one.
struct Page {
    objects: Vec<ObjectMeta>,
    next: String,
}

impl Kube {
    /// Reads the metadata of a whole list from a quorum, page by page, and adds each object to a value that starts as the
    /// default one. It starts again when the list expires between two pages.
    pub(super) async fn fold_metadata<A: Default>(
        &self,
        path: &str,
        mut add: impl FnMut(&mut A, ObjectMeta),
    ) -> Result<A, Fault> {
        let first = format!("{path}?limit={PAGE}");
        let (mut all, mut url) = (A::default(), first.clone());
        loop {
            let page = match self.metadata_page(&url).await {
                Err(Fault::Answered(status)) if status.code == 410 && url != first => {
                    (all, url) = (A::default(), first.clone());
                    continue;
                }
                page => page?,
            };
            page.objects.into_iter().for_each(|object| add(&mut all, object));
            if page.next.is_empty() {
                return Ok(all);
            }
            url = format!("{first}&continue={}", percent_encode(&page.next));
        }
    }

    /// Reads one page, with the timeout of a call.
    async fn metadata_page(&self, url: &str) -> Result<Page, Fault> {
        let request =
            built(Request::get(url).header(header::ACCEPT, EITHER).body(Vec::new()))?.map(kube::client::Body::from);
        let answer = async {
            let (head, body) = self.client.send(request).await?.into_parts();
            Ok((head, body.collect().await?.to_bytes()))
        };
        let (head, body) = self.call(Box::pin(answer)).await?;
        if !head.status.is_success() {
            // An error would be in protobuf, too. In JSON, it is read like that of any other call.
            let request = built(Request::get(url).header(header::ACCEPT, JSON).body(Vec::new()))?;
            return page_of_json(self.call(Box::pin(self.client.request_text(request))).await?.as_bytes());
        }
        let media_type = head.headers.get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
        let is_protobuf = media_type.is_some_and(|media_type| media_type.starts_with(PROTOBUF.as_bytes()));
        if is_protobuf { page_of_protobuf(body) } else { page_of_json(&body) }
    }
}

fn page_of_json(body: &[u8]) -> Result<Page, Fault> {
    let page: JsonPage = serde_json::from_slice(body).map_err(|e| Fault::from(kube::Error::SerdeError(e)))?;
    let of = |item: JsonItem| {
        let Meta { name, uid, labels, .. } = item.metadata;
        ObjectMeta { name, uid, labels }
    };
    let objects = page.items.into_iter().flatten().map(of).collect();
    Ok(Page { objects, next: page.metadata.next })
}

fn page_of_protobuf(mut body: Bytes) -> Result<Page, Fault> {
    if !body.starts_with(MAGIC) {
        return Err(unreadable("it does not begin with k8s"));
    }
    let envelope = Envelope::decode(body.split_off(MAGIC.len())).map_err(unreadable)?;
    let page = MetadataPage::decode(envelope.raw).map_err(unreadable)?;
    let objects = page.items.into_iter().map(|item| item.metadata.unwrap_or_default()).collect();
    Ok(Page { objects, next: page.metadata.unwrap_or_default().next })
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

    /// Returns a client of a server that gives these answers (status, media type, body), one after the other, and the
    /// queries that it got, each with `json` if it may not be answered in protobuf.
    fn client(answers: Vec<(u16, &'static str, Vec<u8>)>) -> (Kube, Asked) {
        let asked = Asked::default();
        let (seen, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers.into_iter())));
        let service = tower::service_fn(move |request: Request<Body>| {
            let only_json = request.headers()["accept"] == JSON;
            let query = request.uri().query().unwrap();
            seen.lock().unwrap().push(format!("{query}{}", if only_json { " json" } else { "" }));
            let (code, media_type, answer) = answers.lock().unwrap().next().unwrap();
            let answer = Response::builder().status(code).header("content-type", media_type).body(Body::from(answer));
            async { Ok::<_, Infallible>(answer.unwrap()) }
        });
        (Kube::from_client(kube::Client::new(service, "default"), Clock::host()), asked)
    }

    fn encoded(names: &[&str], next: &str) -> Vec<u8> {
        let item = |name: &&str| {
            let labels = BTreeMap::from([("rack".to_owned(), "1".to_owned())]);
            Item { metadata: Some(ObjectMeta { name: (*name).to_owned(), uid: format!("uid-{name}"), labels }) }
        };
        let page = MetadataPage {
            metadata: Some(PageMeta { next: next.to_owned() }),
            items: names.iter().map(item).collect(),
        };
        [MAGIC, &Envelope { raw: page.encode_to_vec().into() }.encode_to_vec()].concat()
    }

    fn protobuf(names: &[&str], next: &str) -> (u16, &'static str, Vec<u8>) {
        (200, PROTOBUF, encoded(names, next))
    }

    fn json_page(names: &[&str], next: &str) -> (u16, &'static str, Vec<u8>) {
        let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name, "uid": "u"}})).collect();
        let page = json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items});
        (200, "application/json", page.to_string().into_bytes())
    }

    fn expired(media_type: &'static str) -> (u16, &'static str, Vec<u8>) {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410});
        (410, media_type, if media_type == PROTOBUF { MAGIC.to_vec() } else { status.to_string().into_bytes() })
    }

    async fn names(kube: &Kube) -> Result<Vec<String>, Fault> {
        kube.fold_metadata("/api/v1/nodes", |names: &mut Vec<String>, object| names.push(object.name)).await
    }

    #[tokio::test]
    async fn pages_are_read_in_order_and_an_expired_list_from_its_start() {
        let (kube, asked) = client(vec![
            protobuf(&["gone"], "t1"),
            expired(PROTOBUF),
            expired("application/json"),
            protobuf(&["a", "b"], "t2/="),
            json_page(&["c"], "t3"),
            (200, "application/json", json!({"metadata": {}, "items": null}).to_string().into_bytes()),
        ]);
        assert_eq!(names(&kube).await.unwrap(), ["a", "b", "c"]);
        let tokens = ["", "&continue=t1", "&continue=t1 json", "", "&continue=t2%2F%3D", "&continue=t3"];
        assert_eq!(*asked.lock().unwrap(), tokens.map(|token| format!("limit=500{token}")));
    }

    #[tokio::test]
    async fn errors_and_answers_that_cannot_be_read_are_reported() {
        let (kube, _) = client(vec![expired(PROTOBUF), expired("application/json")]);
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

    #[test]
    fn any_bytes_in_protobuf_are_read_or_refused() {
        let seeds = [encoded(&["a", "b"], "token"), encoded(&[], ""), MAGIC.to_vec()];
        let seeds = seeds.map(|bytes| bytes.iter().map(|byte| char::from(*byte)).collect::<String>());
        // The fuzzer makes texts. Each character stands for a byte.
        Fuzz::new("kube-metadata-protobuf", 400).seeds(seeds.to_vec()).run(|text| {
            let text = String::from_utf8_lossy(text);
            let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(0xff)).collect();
            Ok(if page_of_protobuf(bytes.into()).is_ok() { Took::Accepted } else { Took::Refused })
        });
    }
}
