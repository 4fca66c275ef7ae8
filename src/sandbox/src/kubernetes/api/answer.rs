//! Encodes a reply in the requested form: JSON, YAML, a table, or metadata only.

use axum::body::Body;
use http::{HeaderValue, Method, Response};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    columns,
    read::Item,
    status_error::StatusError,
    table::{self, Columns},
    watch::{Form, Watch},
};
use crate::kubernetes::{Resource, objects::Page};

/// Form that `Accept` negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputFormat {
    Json,
    Yaml,
    Table,
    Metadata,
}

/// Returns the first supported form in `Accept`. Protobuf is not supported.
fn negotiate_format(accept: &str) -> Result<OutputFormat, StatusError> {
    if accept.trim().is_empty() {
        return Ok(OutputFormat::Json);
    }
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let of = |name: &str| choice.split(';').find_map(|p| p.trim().strip_prefix(name)?.strip_prefix('='));
        match (media, of("as")) {
            ("application/json" | "application/*" | "*/*", None) => return Ok(OutputFormat::Json),
            ("application/json", Some("Table")) if of("v") == Some("v1") => return Ok(OutputFormat::Table),
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList"))
                if of("v") == Some("v1") =>
            {
                return Ok(OutputFormat::Metadata);
            }
            ("application/yaml", None) => return Ok(OutputFormat::Yaml),
            _ => {}
        }
    }
    let mut status_error = StatusError::new(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    );
    status_error.body["details"] = json!({});
    Err(status_error)
}

/// Encodes a reply, with the server's time in its `Date` header.
pub(super) fn write(call: &Call, reply: Result<Reply, StatusError>, now: Timestamp) -> Response<Body> {
    let written = reply.and_then(|reply| match reply {
        Reply::Text(code, text) => Ok(respond(code, "text/plain; charset=utf-8", text.into_bytes())),
        Reply::Media(media, value) => Ok(respond(200, media, json_line(&value))),
        Reply::Value(code, value) => match negotiate_format(call.header("accept"))? {
            OutputFormat::Yaml => Ok(yaml_response(code, &value)),
            _ => Ok(json_response(code, &value)),
        },
        Reply::Object(code, kind, object) => {
            let other = super::events::converted_to(kind, &object);
            let object = other.as_ref().unwrap_or(&object);
            match negotiate_format(call.header("accept"))? {
                OutputFormat::Json => Ok(json_response(code, object)),
                OutputFormat::Yaml => Ok(yaml_response(code, object)),
                OutputFormat::Metadata => Ok(json_response(code, &table::metadata(object))),
                OutputFormat::Table => {
                    let mut table = columns_for(call, kind).table(&[object], now, true);
                    table["metadata"] = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                    Ok(json_response(code, &table))
                }
            }
        }
        Reply::List { kind, page, next, counted } => list_response(call, kind, &page, next, counted, now),
        Reply::Watch(watch) => watch_response(call, *watch),
    });
    let mut response = written.unwrap_or_else(|status_error| {
        let mut response = match &status_error.body {
            Value::String(text) => respond(status_error.code, "text/plain; charset=utf-8", text.clone().into_bytes()),
            status => json_response(status_error.code, status),
        };
        if let Some(seconds) = status_error.retry_after {
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

fn list_response(
    call: &Call,
    kind: &'static Resource,
    page: &Page,
    next: Option<String>,
    counted: bool,
    now: Timestamp,
) -> Result<Response<Body>, StatusError> {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = next {
        meta["continue"] = json!(next);
        if counted {
            meta["remainingItemCount"] = json!(page.remaining);
        }
    }
    let output_format = negotiate_format(call.header("accept"))?;
    let others: Vec<Option<Value>> =
        page.items.iter().map(|object| super::events::converted_to(kind, object)).collect();
    let items = page.items.iter().zip(&others).map(|(object, other)| other.as_ref().unwrap_or(object));
    Ok(match output_format {
        OutputFormat::Table => {
            let items: Vec<&Value> = items.collect();
            let mut table = columns_for(call, kind).table(&items, now, true);
            table["metadata"] = meta;
            json_response(200, &table)
        }
        OutputFormat::Metadata => {
            let items: Vec<Value> = items.map(table::metadata).collect();
            json_response(
                200,
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                    "items": items}),
            )
        }
        OutputFormat::Json | OutputFormat::Yaml => {
            let custom = kind.group == "metal3.io";
            let list_response = List {
                kind: format!("{}List", kind.kind),
                api_version: kind.api_version(),
                metadata: meta,
                items: items.map(|object| Item(object, custom)).collect(),
            };
            if output_format == OutputFormat::Yaml {
                yaml_response(200, &list_response)
            } else {
                json_response(200, &list_response)
            }
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

fn watch_response(call: &Call, mut watch: Watch) -> Result<Response<Body>, StatusError> {
    // `application/json;stream=watch` needs no special case, because a watch always has this form.
    watch.form = match negotiate_format(call.header("accept"))? {
        OutputFormat::Table => Form::Table(columns_for(call, watch.kind()), true),
        OutputFormat::Metadata => Form::Metadata,
        OutputFormat::Json | OutputFormat::Yaml => Form::Whole,
    };
    let mut response = Response::new(Body::from_stream(watch.stream()));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    Ok(response)
}

fn json_line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn json_response(code: u16, value: &impl Serialize) -> Response<Body> {
    respond(code, "application/json", json_line(value))
}

fn yaml_response(code: u16, value: &impl Serialize) -> Response<Body> {
    respond(code, "application/yaml", serde_yaml::to_string(value).unwrap_or_default().into_bytes())
}

fn respond(code: u16, media: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", HeaderValue::from_static(media));
    response
}
