//! Values that the columns of several tables share.

use cketerm_model::cketerm_records::Who;
use jiff::Timestamp;

use crate::state::{App, filter::Value};

/// Returns the time from a moment until now.
pub(super) fn age(app: &App, at: Option<Timestamp>) -> Value<'static> {
    at.map_or(Value::None, |at| span(at, app.now.wall))
}

/// Returns the time between two moments.
pub(super) fn span(from: Timestamp, to: Timestamp) -> Value<'static> {
    Value::Span(to.duration_since(from).into())
}

/// Returns a number; none if it is too large.
pub(super) fn count(n: impl TryInto<i32>) -> Value<'static> {
    n.try_into().map_or(Value::None, |n| Value::Number(f64::from(n)))
}

/// Returns an index. Indexes are shown and compared as numbers; values above 2^32 do not occur.
pub(super) fn index(n: u64) -> Value<'static> {
    u32::try_from(n).map_or(Value::None, |n| Value::Number(f64::from(n)))
}

/// Returns a person.
pub(super) fn who(who: &Who) -> Value<'static> {
    Value::text(who.to_string())
}

/// Returns a Node's role. An API server matches under the name on the screen (`api`) and as `control-plane`.
pub(super) fn role(role: &str) -> Value<'_> {
    match role {
        "api" => Value::Known("api".into(), "control-plane"),
        other => Value::text(other),
    }
}
