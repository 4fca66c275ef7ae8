//! GET requests for one object or a list, and the start of a watch.

use serde_json::Value;

use super::{
    Api,
    call::{Call, Reply},
    failure::Failure,
    path::Place,
    watch::Watch,
};
use crate::sandbox::kubernetes::{Refusal, objects::Key};

/// The server's message for an expired continue token.
const GONE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                    list without the continue parameter, or use the continue token in this response to retrieve the \
                    remainder of the results. Continuing with the provided token results in an inconsistent list - \
                    objects that were created, modified, or deleted between the time the first chunk was returned \
                    and now may show up in the list.";
/// The only `resourceVersionMatch` for a streaming list.
const NOT_OLDER: &str = "NotOlderThan";

impl Api {
    /// Handles GET: an object, a list or a watch.
    pub(super) fn read(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        match place.sub.as_str() {
            "" | "status" => {}
            "log" => return self.log(place),
            _ => return Err(Failure::no_method()),
        }
        if place.watch || call.watches() {
            return self.watch(call, place);
        }
        if place.name.is_empty() {
            return self.list(call, place);
        }
        if let Some(asked) = version(call.query.get("resourceVersion"))? {
            self.check_current(asked)?;
        }
        let found = self.objects.get(place.kind, &place.namespace, &place.name);
        let object = found.ok_or_else(|| Refusal::not_found(place.kind, &place.name))?;
        Ok(Reply::object(200, place.kind, object))
    }

    fn check_current(&self, asked: u64) -> Result<(), Failure> {
        let current = self.objects.revision();
        if asked > current { Err(Failure::too_large(asked, current)) } else { Ok(()) }
    }

    fn list(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        check_options(call, false)?;
        let selection = call.selection(place)?;
        let limit = call.query.number("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(0);
        let (rule, token) = (call.query.get("resourceVersionMatch"), call.query.get("continue"));
        let asked = version(call.query.get("resourceVersion"))?;
        let (at, after) = if token.is_empty() {
            let exact = rule == "Exact" || rule.is_empty() && limit > 0;
            if let Some(asked) = asked {
                self.check_current(asked)?;
            }
            (asked.filter(|version| exact && *version > 0), None)
        } else {
            if asked.is_some_and(|version| version > 0) {
                return Err(Failure::bad("specifying resource version is not allowed when using continue"));
            }
            let (version, key) = continued(token).ok_or_else(|| {
                Failure::bad("invalid continue token: continue key is not valid: it was not given by this server")
            })?;
            (Some(version), Some(key))
        };
        let page = self.objects.page(place.kind, &place.namespace, after.as_ref(), limit, at, |o| selection.matches(o));
        let Some(page) = page else {
            return Err(match &after {
                Some(key) => {
                    let mut failure = Failure::expired(GONE);
                    let rest = token_for(self.objects.revision(), key);
                    failure.body["metadata"] = serde_json::json!({"continue": rest});
                    failure
                }
                None => Failure::expired("The resourceVersion for the provided list is too old."),
            });
        };
        let next = page.next.as_ref().map(|key| token_for(page.revision, key));
        Ok(Reply::List { kind: place.kind, page, next, counted: selection.is_all() })
    }

    fn watch(&self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        check_options(call, true)?;
        let selection = call.selection(place)?;
        let seconds = call.query.number("timeoutSeconds")?;
        let asked = version(call.query.get("resourceVersion")).map_err(|failure| {
            let said = failure.body["message"].as_str().unwrap_or_default();
            Failure::new(500, "", said.trim_start_matches("invalid resource version: "))
        })?;
        let streams = call.query.flag("sendInitialEvents");
        if streams && !self.shared.options.streaming {
            return Ok(Reply::Watch(Box::new(Watch::refused(&Failure::new(
                500,
                "InternalError",
                "a watch stream was requested by the client but the required storage feature RequestWatchProgress \
                 is disabled",
            )))));
        }
        let bookmarks = call.query.flag("allowWatchBookmarks");
        let before = !call.query.get("sendInitialEvents").is_empty();
        // Without a resourceVersion, or with 0, the watch begins with the current objects.
        let listed = streams || !before && asked.is_none_or(|version| version == 0);
        let from = asked.filter(|_| !listed).unwrap_or(0);
        let mut watch = Watch::new(self, place, selection, seconds, bookmarks);
        if listed {
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
fn check_options(call: &Call, watch: bool) -> Result<(), Failure> {
    let query = &call.query;
    let (rule, version) = (query.get("resourceVersionMatch"), query.get("resourceVersion"));
    let streams = !query.get("sendInitialEvents").is_empty();
    let mut faults: Vec<(&str, &str, String)> = Vec::new();
    let mut forbidden = |field, why: &str| faults.push(("FieldValueForbidden", field, format!("Forbidden: {why}")));
    let mut unsupported = None;
    if watch && streams {
        if rule != NOT_OLDER {
            forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
            if !rule.is_empty() {
                unsupported = Some("\"NotOlderThan\"");
            }
        }
    } else if watch {
        if !rule.is_empty() {
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
    } else {
        if !rule.is_empty() {
            if version.is_empty() {
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !query.get("continue").is_empty() {
                forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
            }
            if rule != "Exact" && rule != NOT_OLDER {
                unsupported = Some("\"Exact\", \"NotOlderThan\", \"\"");
            } else if rule == "Exact" && version == "0" {
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
        let text = format!("Unsupported value: \"{rule}\": supported values: {supported}");
        faults.push(("FieldValueNotSupported", "resourceVersionMatch", text));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &faults)) }
}

fn version(text: &str) -> Result<Option<u64>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Failure::bad(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \
             \"{text}\": invalid syntax"
        ))
    })
}

fn token_for(version: u64, (namespace, name): &Key) -> String {
    let mut token = version.to_string();
    for text in [namespace, name] {
        token.push('-');
        for byte in text.bytes() {
            token.extend([byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap_or('0')));
        }
    }
    token
}

fn continued(token: &str) -> Option<(u64, Key)> {
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
    fn a_token_is_read_back_and_another_is_not_one() {
        let key = ("x-y".to_owned(), "p.ü".to_owned());
        assert_eq!(continued(&token_for(217, &key)), Some((217, key)));
        for token in ["zzz", "1", "1-x-y", "1-0", "1-é-a", "-", "1-ff-ff"] {
            assert_eq!(continued(token), None, "{token}");
        }
    }
}
