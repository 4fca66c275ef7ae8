//! Encodes a reply in the requested form: JSON, YAML, a table, or metadata only.

use axum::body::Body;
use http::{HeaderValue, Method, Response};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    columns,
    failure::Failure,
    read::Item,
    table::{self, Columns},
    watch::{Form, Watch},
};
use crate::sandbox::kubernetes::{Resource, objects::Page};

/// Form that `Accept` negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Json,
    Yaml,
    Table,
    Metadata,
}

/// Returns the first supported form in `Accept`. Protobuf is not supported.
fn shape_for(accept: &str) -> Result<Shape, Failure> {
    if accept.trim().is_empty() {
        return Ok(Shape::Json);
    }
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let of = |name: &str| choice.split(';').find_map(|p| p.trim().strip_prefix(name)?.strip_prefix('='));
        match (media, of("as")) {
            ("application/json" | "application/*" | "*/*", None) => return Ok(Shape::Json),
            ("application/json", Some("Table")) if of("v") == Some("v1") => return Ok(Shape::Table),
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList"))
                if of("v") == Some("v1") =>
            {
                return Ok(Shape::Metadata);
            }
            ("application/yaml", None) => return Ok(Shape::Yaml),
            _ => {}
        }
    }
    let mut failure = Failure::new(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    );
    failure.body["details"] = json!({});
    Err(failure)
}

/// Encodes a reply, with the server's time in its `Date` header.
pub(super) fn write(call: &Call, reply: Result<Reply, Failure>, now: Timestamp) -> Response<Body> {
    let written = reply.and_then(|reply| match reply {
        Reply::Text(code, text) => Ok(whole(code, "text/plain; charset=utf-8", text.into_bytes())),
        Reply::Media(media, value) => Ok(whole(200, media, bytes_of(&value))),
        Reply::Value(code, value) => match shape_for(call.header("accept"))? {
            Shape::Yaml => Ok(yaml(code, &value)),
            _ => Ok(json_of(code, &value)),
        },
        Reply::Object(code, kind, object) => {
            let other = super::events::seen_as(kind, &object);
            let object = other.as_ref().unwrap_or(&object);
            match shape_for(call.header("accept"))? {
                Shape::Json => Ok(json_of(code, object)),
                Shape::Yaml => Ok(yaml(code, object)),
                Shape::Metadata => Ok(json_of(code, &table::metadata(object))),
                Shape::Table => {
                    let mut table = columns_for(call, kind).table(&[object], now, true);
                    table["metadata"] = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                    Ok(json_of(code, &table))
                }
            }
        }
        Reply::List { kind, page, next, counted } => list(call, kind, &page, next, counted, now),
        Reply::Watch(watch) => follow(call, *watch),
    });
    let mut response = written.unwrap_or_else(|failure| {
        let mut response = match &failure.body {
            Value::String(text) => whole(failure.code, "text/plain; charset=utf-8", text.clone().into_bytes()),
            status => json_of(failure.code, status),
        };
        if let Some(seconds) = failure.retry_after {
            response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
        }
        response
    });
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    if let Ok(date) = HeaderValue::from_str(&date) {
        response.headers_mut().insert("date", date);
    }
    if call.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

fn columns_for(call: &Call, kind: &'static Resource) -> Columns {
    Columns::of(kind, columns::of(kind), call.query.get("includeObject"))
}

fn list(
    call: &Call,
    kind: &'static Resource,
    page: &Page,
    next: Option<String>,
    counted: bool,
    now: Timestamp,
) -> Result<Response<Body>, Failure> {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = next {
        meta["continue"] = json!(next);
        if counted {
            meta["remainingItemCount"] = json!(page.remaining);
        }
    }
    let shape = shape_for(call.header("accept"))?;
    let others: Vec<Option<Value>> = page.items.iter().map(|object| super::events::seen_as(kind, object)).collect();
    let items = page.items.iter().zip(&others).map(|(object, other)| other.as_ref().unwrap_or(object));
    Ok(match shape {
        Shape::Table => {
            let items: Vec<&Value> = items.collect();
            let mut table = columns_for(call, kind).table(&items, now, true);
            table["metadata"] = meta;
            json_of(200, &table)
        }
        Shape::Metadata => {
            let items: Vec<Value> = items.map(table::metadata).collect();
            json_of(
                200,
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                    "items": items}),
            )
        }
        Shape::Json | Shape::Yaml => {
            let custom = kind.group == "metal3.io";
            let list = List {
                kind: format!("{}List", kind.kind),
                api_version: kind.api_version(),
                metadata: meta,
                items: items.map(|object| Item(object, custom)).collect(),
            };
            if shape == Shape::Yaml { yaml(200, &list) } else { json_of(200, &list) }
        }
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: String,
    metadata: Value,
    items: Vec<Item<'a>>,
}

fn follow(call: &Call, mut watch: Watch) -> Result<Response<Body>, Failure> {
    // `application/json;stream=watch` needs no special case, because a watch always has this form.
    watch.form = match shape_for(call.header("accept"))? {
        Shape::Table => Form::Table(columns_for(call, watch.kind()), true),
        Shape::Metadata => Form::Metadata,
        Shape::Json | Shape::Yaml => Form::Whole,
    };
    let mut response = Response::new(Body::from_stream(watch.stream()));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    Ok(response)
}

fn bytes_of(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn json_of(code: u16, value: &impl Serialize) -> Response<Body> {
    whole(code, "application/json", bytes_of(value))
}

fn yaml(code: u16, value: &impl Serialize) -> Response<Body> {
    whole(code, "application/yaml", serde_yaml::to_string(value).unwrap_or_default().into_bytes())
}

fn whole(code: u16, media: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", HeaderValue::from_static(media));
    response
}
