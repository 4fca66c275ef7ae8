//! One request and its timeout.

use std::time::Duration;

use http::Request;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    connect::Kube,
    error::{Fault, KubeError},
};

/// Timeout of a call. Watches have their own.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows of one page of a list.
pub(super) const PAGE: u32 = 500;

/// Media types of a list of whole objects, and of one with their metadata alone.
const WHOLE: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// One page of a list with its resource version and the token of the next page.
#[derive(Deserialize)]
#[serde(bound = "W: DeserializeOwned")]
pub(super) struct ListPage<W> {
    pub(super) metadata: ListMeta,
    #[serde(default = "Vec::new", deserialize_with = "items")]
    pub(super) items: Vec<W>,
}

/// Go writes an empty list as `null`.
fn items<'de, D: serde::Deserializer<'de>, W: Deserialize<'de>>(from: D) -> Result<Vec<W>, D::Error> {
    Ok(Option::<Vec<W>>::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) next: String,
}

impl Kube {
    /// Sends a request that was built, with the timeout [`CALL_TIMEOUT`].
    pub(super) async fn send<T: DeserializeOwned>(&self, request: RequestResult) -> Result<T, Fault> {
        let request = request.map_err(|e| Fault::Silent(format!("the request cannot be built: {e}")))?;
        match tokio::time::timeout(CALL_TIMEOUT, self.client.request(request)).await {
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

    /// Reads a whole list from a quorum, page by page. Each page is converted before the next is requested. `query` is
    /// empty or like `fieldSelector=…`, percent-encoded.
    pub(super) async fn list<W, R>(&self, path: &str, query: &str) -> Result<(Vec<R>, String), Fault>
    where
        W: DeserializeOwned,
        R: From<W>,
    {
        self.fold_list(path, query, |rows: &mut Vec<R>, object: W| rows.push(R::from(object))).await
    }

    /// Reads the metadata of a whole list like [`Kube::fold_list`]. A Node of a real cluster is many times larger: it
    /// names each image that is present.
    pub(super) async fn fold_metadata<W, A>(&self, path: &str, add: impl FnMut(&mut A, W)) -> Result<A, Fault>
    where
        W: DeserializeOwned,
        A: Default,
    {
        Ok(self.fold_list_as(METADATA, path, "", add).await?.0)
    }

    /// Reads a whole list like [`Kube::list`], and adds each object to a value that starts as the default one. It starts
    /// again when the list expires between two pages.
    pub(super) async fn fold_list<W, A>(
        &self,
        path: &str,
        query: &str,
        add: impl FnMut(&mut A, W),
    ) -> Result<(A, String), Fault>
    where
        W: DeserializeOwned,
        A: Default,
    {
        self.fold_list_as(WHOLE, path, query, add).await
    }

    async fn fold_list_as<W, A>(
        &self,
        accept: &str,
        path: &str,
        query: &str,
        mut add: impl FnMut(&mut A, W),
    ) -> Result<(A, String), Fault>
    where
        W: DeserializeOwned,
        A: Default,
    {
        let (mut all, mut next) = (A::default(), String::new());
        loop {
            let mut url = format!("{path}?limit={PAGE}");
            for (name, value) in [("", query), ("continue=", next.as_str())] {
                if !value.is_empty() {
                    url = format!("{url}&{name}{value}");
                }
            }
            let request = Request::get(&url).header("accept", accept).body(Vec::new());
            let page: ListPage<W> = match self.send(request).await {
                // The rest of an old list is gone: start again.
                Err(Fault::Answered(status)) if status.code == 410 && !next.is_empty() => {
                    all = A::default();
                    next.clear();
                    continue;
                }
                answer => answer?,
            };
            page.items.into_iter().for_each(|object| add(&mut all, object));
            if page.metadata.next.is_empty() {
                return Ok((all, page.metadata.resource_version));
            }
            next = percent_encode(&page.metadata.next);
        }
    }
}

/// A request, or the error of building it.
pub(super) type RequestResult = Result<Request<Vec<u8>>, http::Error>;

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
