//! `MachineParams`: the conditions of a search, and sabakan's errors for invalid ones.

use serde_json::{Map, Value, json};

use super::record::{Record, State};

/// The conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Params {
    labels: Vec<(String, String)>,
    racks: Vec<i64>,
    roles: Vec<String>,
    states: Vec<State>,
    days: Option<i64>,
}

/// Validation error: message, and path in the variable.
#[derive(Debug, PartialEq)]
pub(super) struct ParamError {
    pub message: String,
    pub path: Vec<Value>,
}

impl Params {
    /// Parses a variable or a literal of this name; `null` means no condition.
    pub fn read(name: &str, value: &Value) -> Result<Option<Self>, ParamError> {
        let path = vec![json!("variable"), json!(name)];
        match value {
            Value::Null => Ok(None),
            Value::Object(fields) => Self::fields(fields, &path).map(Some),
            _ => Err(ParamError { message: "must be a MachineParams".to_owned(), path }),
        }
    }

    fn fields(fields: &Map<String, Value>, path: &[Value]) -> Result<Self, ParamError> {
        let mut params = Self::default();
        let at = |more: &[Value]| path.iter().chain(more).cloned().collect::<Vec<_>>();
        let wrong = |message: &str, more: &[Value]| ParamError { message: message.to_owned(), path: at(more) };
        for (field, value) in fields {
            // A single value stands for a list of one.
            let each: Vec<&Value> = match value {
                Value::Null => continue,
                Value::Array(items) => items.iter().collect(),
                one => vec![one],
            };
            for (i, item) in each.into_iter().enumerate() {
                let place = [json!(field), json!(i)];
                match field.as_str() {
                    "labels" => {
                        let text = |part: &str| {
                            let inner = [place[0].clone(), place[1].clone(), json!(part)];
                            let text = item.get(part).and_then(Value::as_str).map(str::to_owned);
                            text.ok_or_else(|| wrong("must be defined", &inner))
                        };
                        params.labels.push((text("name")?, text("value")?));
                    }
                    "racks" => params.racks.push(as_integer(item).ok_or_else(|| wrong("cannot use as Int", &place))?),
                    "roles" => {
                        let role = item.as_str().ok_or_else(|| wrong("cannot use as String", &place))?;
                        params.roles.push(role.to_owned());
                    }
                    "states" => {
                        let word = item.as_str().unwrap_or_default();
                        let state = State::from_name(word);
                        let bad = || wrong(&format!("{word} is not a valid MachineState"), &place);
                        params.states.push(state.ok_or_else(bad)?);
                    }
                    "minDaysBeforeRetire" => {
                        let days = as_integer(item).ok_or_else(|| wrong("cannot use as Int", &place[..1]))?;
                        params.days = Some(days);
                    }
                    _ => return Err(wrong("unknown field", &place[..1])),
                }
            }
        }
        Ok(params)
    }

    /// Reports whether the record has every label, and one value of each non-empty list.
    pub fn matches_all(&self, record: &Record, days: i64) -> bool {
        self.labels.iter().all(|l| record.labels.contains(l))
            && (self.racks.is_empty() || self.racks.contains(&record.rack))
            && (self.roles.is_empty() || self.roles.contains(&record.role))
            && (self.states.is_empty() || self.states.contains(&record.state))
            && self.days.is_none_or(|least| days >= least)
    }

    /// Reports whether the record matches any condition.
    pub fn matches_any(&self, record: &Record, days: i64) -> bool {
        self.labels.iter().any(|l| record.labels.contains(l))
            || self.racks.contains(&record.rack)
            || self.roles.contains(&record.role)
            || self.states.contains(&record.state)
            || self.days.is_some_and(|least| days >= least)
    }
}

fn as_integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
