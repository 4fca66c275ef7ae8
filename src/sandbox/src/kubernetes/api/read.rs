//! GET requests for one object or a list, and the start of a watch.

use serde_json::Value;

use super::{
    Api,
    call::{Call, Reply},
    path::RequestInfo,
    status_error::StatusError,
    watch::Watch,
};
use crate::kubernetes::{ObjectError, objects::Key};

/// The server's message for an expired continue token.
const EXPIRED_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                    list without the continue parameter, or use the continue token in this response to retrieve the \
                    remainder of the results. Continuing with the provided token results in an inconsistent list - \
                    objects that were created, modified, or deleted between the time the first chunk was returned \
                    and now may show up in the list.";
/// The only `resourceVersionMatch` for a streaming list.
const NOT_OLDER: &str = "NotOlderThan";

impl Api {
    /// Handles GET: an object, a list or a watch.
    pub(super) fn read(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        match info.sub.as_str() {
            "" | "status" => {}
            "log" => return self.log(info),
            _ => return Err(StatusError::no_method()),
        }
        if info.watch || call.is_watch() {
            return self.watch(call, info);
        }
        if info.name.is_empty() {
            return self.list(call, info);
        }
        if let Some(requested) = version(call.query.get("resourceVersion"))? {
            self.check_current(requested)?;
        }
        let found = self.objects.get(info.kind, &info.namespace, &info.name);
        let object = found.ok_or_else(|| ObjectError::not_found(info.kind, &info.name))?;
        Ok(Reply::object(200, info.kind, object))
    }

    fn check_current(&self, requested: u64) -> Result<(), StatusError> {
        let current = self.objects.revision();
        if requested > current { Err(StatusError::too_large(requested, current)) } else { Ok(()) }
    }

    fn list(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        check_options(call, false)?;
        let selection = call.selection(info)?;
        let limit = call.query.number("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(0);
        let (version_match, token) = (call.query.get("resourceVersionMatch"), call.query.get("continue"));
        let requested = version(call.query.get("resourceVersion"))?;
        let (at, after) = if token.is_empty() {
            let exact = version_match == "Exact" || version_match.is_empty() && limit > 0;
            if let Some(requested) = requested {
                self.check_current(requested)?;
            }
            (requested.filter(|version| exact && *version > 0), None)
        } else {
            if requested.is_some_and(|version| version > 0) {
                return Err(StatusError::bad("specifying resource version is not allowed when using continue"));
            }
            let (version, key) = decode_token(token).ok_or_else(|| {
                StatusError::bad("invalid continue token: continue key is not valid: it was not given by this server")
            })?;
            (Some(version), Some(key))
        };
        let page = self.objects.page(info.kind, &info.namespace, after.as_ref(), limit, at, |o| selection.matches(o));
        let Some(page) = page else {
            return Err(match &after {
                Some(key) => {
                    let mut status_error = StatusError::expired(EXPIRED_CONTINUE);
                    let rest = encode_token(self.objects.revision(), key);
                    status_error.body["metadata"] = serde_json::json!({"continue": rest});
                    status_error
                }
                None => StatusError::expired("The resourceVersion for the provided list is too old."),
            });
        };
        let next = page.next.as_ref().map(|key| encode_token(page.revision, key));
        Ok(Reply::List { kind: info.kind, page, next, counted: selection.is_all() })
    }

    fn watch(&self, call: &Call, info: &RequestInfo) -> Result<Reply, StatusError> {
        check_options(call, true)?;
        let selection = call.selection(info)?;
        let seconds = call.query.number("timeoutSeconds")?;
        let requested = version(call.query.get("resourceVersion")).map_err(|status_error| {
            let message = status_error.body["message"].as_str().unwrap_or_default();
            StatusError::new(500, "", message.trim_start_matches("invalid resource version: "))
        })?;
        let streams = call.query.flag("sendInitialEvents");
        if streams && !self.shared.options.streaming {
            return Ok(Reply::Watch(Box::new(Watch::refused(&StatusError::new(
                500,
                "InternalError",
                "a watch stream was requested by the client but the required storage feature RequestWatchProgress \
                 is disabled",
            )))));
        }
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let before = !call.query.get("sendInitialEvents").is_empty();
        // Without a resourceVersion, or with 0, the watch begins with the current objects.
        let with_initial_list = streams || !before && requested.is_none_or(|version| version == 0);
        let from = requested.filter(|_| !with_initial_list).unwrap_or(0);
        let mut watch = Watch::new(self, info, selection, seconds, bookmarks);
        if with_initial_list {
            watch.begin_with_list(&self.objects, streams && bookmarks);
        } else if from == 0 {
            watch.begin_at(self.objects.revision());
        } else {
            watch.begin_at(from);
        }
        Ok(Reply::Watch(Box::new(watch)))
    }
}

/// Checks that the options of a list or a watch are consistent.
fn check_options(call: &Call, watch: bool) -> Result<(), StatusError> {
    let query = &call.query;
    let (version_match, version) = (query.get("resourceVersionMatch"), query.get("resourceVersion"));
    let streams = !query.get("sendInitialEvents").is_empty();
    let mut field_errors: Vec<(&str, &str, String)> = Vec::new();
    let mut forbidden =
        |field, why: &str| field_errors.push(("FieldValueForbidden", field, format!("Forbidden: {why}")));
    let mut unsupported = None;
    if watch && streams {
        if version_match != NOT_OLDER {
            forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
            if !version_match.is_empty() {
                unsupported = Some("\"NotOlderThan\"");
            }
        }
    } else if watch {
        if !version_match.is_empty() {
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
    } else {
        if !version_match.is_empty() {
            if version.is_empty() {
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !query.get("continue").is_empty() {
                forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
            }
            if version_match != "Exact" && version_match != NOT_OLDER {
                unsupported = Some("\"Exact\", \"NotOlderThan\", \"\"");
            } else if version_match == "Exact" && version == "0" {
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                );
            }
        }
        if streams {
            forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
    }
    if let Some(supported) = unsupported {
        let text = format!("Unsupported value: \"{version_match}\": supported values: {supported}");
        field_errors.push(("FieldValueNotSupported", "resourceVersionMatch", text));
    }
    if field_errors.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &field_errors))
    }
}

fn version(text: &str) -> Result<Option<u64>, StatusError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        StatusError::bad(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \
             \"{text}\": invalid syntax"
        ))
    })
}

fn encode_token(version: u64, (namespace, name): &Key) -> String {
    let mut token = version.to_string();
    for text in [namespace, name] {
        token.push('-');
        for byte in text.bytes() {
            token.extend([byte >> 4, byte & 15].map(|nibble| char::from_digit(u32::from(nibble), 16).unwrap_or('0')));
        }
    }
    token
}

fn decode_token(token: &str) -> Option<(u64, Key)> {
    let mut parts = token.split('-');
    let version = parts.next()?.parse().ok()?;
    let mut text = || -> Option<String> {
        let hex = parts.next()?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        String::from_utf8(hex.chunks(2).map(byte).collect::<Option<_>>()?).ok()
    };
    Some((version, (text()?, text()?)))
}

/// An object as an item of a list: without `kind` and `apiVersion`, unless it is a custom resource.
pub(super) struct Item<'a>(pub(super) &'a Value, pub(super) bool);

impl serde::Serialize for Item<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) if !self.1 => {
                to.collect_map(fields.iter().filter(|(key, _)| *key != "kind" && *key != "apiVersion"))
            }
            whole => whole.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_round_trips_and_invalid_ones_are_rejected() {
        let key = ("x-y".to_owned(), "p.ü".to_owned());
        assert_eq!(decode_token(&encode_token(217, &key)), Some((217, key)));
        for token in ["zzz", "1", "1-x-y", "1-0", "1-é-a", "-", "1-ff-ff"] {
            assert_eq!(decode_token(token), None, "{token}");
        }
    }
}
