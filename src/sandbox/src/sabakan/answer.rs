//! sabakan's responses to HTTP requests, including its errors as they were recorded.

use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Map, Value, json};

use super::{
    Sabakan, StateError,
    graphql::{self, Field, Operation, Position},
    params::Params,
    record::State,
};

/// Error response: status and error.
struct ErrorResponse {
    status: u16,
    error: Value,
}

impl ErrorResponse {
    fn invalid(message: impl Into<String>, more: &[(&str, Value)]) -> Self {
        Self::new(422, &message.into(), more, "GRAPHQL_VALIDATION_FAILED")
    }

    fn new(status: u16, message: &str, more: &[(&str, Value)], code: &str) -> Self {
        let mut error = json!({"message": message});
        for (name, value) in more {
            error[*name] = value.clone();
        }
        if !code.is_empty() {
            error["extensions"] = json!({"code": code});
        }
        Self { status, error }
    }
}

fn locations(at: Position) -> (&'static str, Value) {
    ("locations", json!([{"line": at.line, "column": at.column}]))
}

impl Sabakan {
    /// Answers a request as sabakan's server does.
    pub fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let (path, method) = (request.uri().path(), request.method().as_str());
        match (method, path) {
            ("POST", "/graphql") => {
                let kind = request.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
                if kind.split(';').next().map(str::trim) != Some("application/json") {
                    let body = json!({"errors": [{"message": "transport not supported"}], "data": null});
                    return response(400, "text/plain; charset=utf-8", body.to_string());
                }
                match parse_body(request.body()) {
                    Ok((query, variables)) => self.graphql(&query, &variables),
                    Err(why) => error_response(&why),
                }
            }
            ("GET", "/graphql") => {
                let query = query_param(request.uri().query().unwrap_or_default(), "query").unwrap_or_default();
                self.graphql(&query, &Map::new())
            }
            ("GET", "/health") => response(200, JSON, "{\"health\":\"healthy\"}\n".to_owned()),
            ("GET", "/version") => response(200, JSON, "{\"version\":\"3.1.9\"}\n".to_owned()),
            ("GET", "/api/v1/machines") => self.rest_list(request.uri().query().unwrap_or_default()),
            _ => self.rest_state(method, path, request.body()).unwrap_or_else(not_found),
        }
    }

    fn graphql(&self, query: &str, variables: &Map<String, Value>) -> Response<Bytes> {
        match self.execute(query, variables) {
            Ok(data) => response(200, JSON, json!({"data": data}).to_string()),
            Err(why) => error_response(&why),
        }
    }

    fn execute(&self, query: &str, given: &Map<String, Value>) -> Result<Value, ErrorResponse> {
        let operations = graphql::parse(query)
            .map_err(|e| ErrorResponse::new(422, &e.message, &[locations(e.at)], "GRAPHQL_PARSE_FAILED"))?;
        let operation = operations.first().ok_or_else(|| ErrorResponse::invalid("no operation provided", &[]))?;
        for field in &operation.fields {
            check(field, if operation.mutation { "Mutation" } else { "Query" })?;
        }
        let variables = variables(operation, given)?;
        let mut data = Map::new();
        for field in &operation.fields {
            data.insert(field.alias.clone(), self.field(field, &variables)?);
        }
        Ok(Value::Object(data))
    }

    fn field(&self, field: &Field, variables: &Map<String, Value>) -> Result<Value, ErrorResponse> {
        let argument =
            |name: &str| field.arguments.iter().find(|(n, _)| n == name).and_then(|(_, l)| l.json(variables));
        let text = |name: &str| argument(name).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let params = |name: &str| match argument(name) {
            None => Ok(None),
            Some(value) => Params::read(name, &value)
                .map_err(|w| ErrorResponse::invalid(w.message, &[("path", Value::Array(w.path))])),
        };
        let field_error = |message: &str, extensions: Value| {
            let mut error = json!({"message": message, "path": [field.alias], "locations": locations(field.at).1});
            if !extensions.is_null() {
                error["extensions"] = extensions;
            }
            ErrorResponse { status: 200, error }
        };
        match field.name.as_str() {
            "searchMachines" => {
                let (having, not_having) = (params("having")?, params("notHaving")?);
                let now = self.clock.wall();
                let found = self.search(|record| {
                    let days = record.days(now);
                    having.as_ref().is_none_or(|p| p.matches_all(record, days))
                        && !not_having.as_ref().is_some_and(|p| p.matches_any(record, days))
                });
                Ok(found.iter().map(|record| select_fields(&field.fields, &record.answer(now))).collect())
            }
            "machine" => {
                let record = self.get(&text("serial")).ok_or_else(|| field_error("not found", Value::Null))?;
                Ok(select_fields(&field.fields, &record.answer(self.clock.wall())))
            }
            "setMachineState" => {
                let state = State::from_name(&text("state")).unwrap_or_default();
                let serial = text("serial");
                match self.set_state(&serial, state) {
                    Ok(record) => Ok(select_fields(&field.fields, &record.answer(self.clock.wall())["status"])),
                    Err(StateError::NotFound) => Err(field_error("not found", Value::Null)),
                    Err(StateError::Transition(from)) => {
                        let why = format!(
                            "transition from [ {} ] to [ {} ] is forbidden",
                            from.lowercase_name(),
                            state.lowercase_name()
                        );
                        Err(field_error(&why, json!({"serial": serial, "type": "INVALID_STATE_TRANSITION"})))
                    }
                }
            }
            // Introspection supports only the names of the query and mutation types.
            _ => Ok(select_fields(
                &field.fields,
                &json!({"queryType": {"name": "Query"}, "mutationType": {"name": "Mutation"}}),
            )),
        }
    }

    fn rest_list(&self, query: &str) -> Response<Bytes> {
        let param = |name: &str| query_param(query, name);
        let (serial, role, rack, state) = (param("serial"), param("role"), param("rack"), param("state"));
        let now = self.clock.wall();
        let found = self.search(|m| {
            serial.as_ref().is_none_or(|s| *s == m.serial)
                && role.as_ref().is_none_or(|r| *r == m.role)
                && rack.as_ref().is_none_or(|r| *r == m.rack.to_string())
                && state.as_ref().is_none_or(|s| State::from_name(s) == Some(m.state))
        });
        if found.is_empty() {
            return not_found();
        }
        let list: Vec<Value> = found.iter().map(|m| m.rest(now)).collect();
        response(200, JSON, format!("{}\n", Value::Array(list)))
    }

    /// Handles `/api/v1/state/SERIAL` and `/api/v1/machines/SERIAL`, as `sabactl` uses them.
    fn rest_state(&self, method: &str, path: &str, body: &Bytes) -> Option<Response<Bytes>> {
        if let (Some(serial), "DELETE") = (path.strip_prefix("/api/v1/machines/"), method) {
            return self.remove(serial).then(|| response(200, JSON, String::new()));
        }
        let serial = path.strip_prefix("/api/v1/state/")?;
        let record = self.get(serial)?;
        if method == "GET" {
            return Some(response(200, "text/plain; charset=utf-8", record.state.lowercase_name()));
        }
        let word = String::from_utf8_lossy(body).trim().to_owned();
        let bad = |why: String| response(400, JSON, format!("{}\n", json!({"error": why, "status": 400})));
        let Some(state) = State::from_name(&word) else {
            return Some(bad(format!("invalid request: invalid state: {word}")));
        };
        Some(match self.set_state(serial, state) {
            Ok(_) => response(200, JSON, String::new()),
            Err(_) => bad(format!(
                "transition from [ {} ] to [ {} ] is forbidden",
                record.state.lowercase_name(),
                state.lowercase_name()
            )),
        })
    }
}

const JSON: &str = "application/json";

fn response(status: u16, kind: &str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

fn error_response(why: &ErrorResponse) -> Response<Bytes> {
    response(why.status, JSON, json!({"errors": [why.error], "data": null}).to_string())
}

fn not_found() -> Response<Bytes> {
    let body = json!({"error": "requested resource is not found", "request_id": "sandbox", "status": 404});
    response(404, JSON, format!("{body}\n"))
}

/// Parses the query and the variables of a body.
fn parse_body(body: &Bytes) -> Result<(String, Map<String, Value>), ErrorResponse> {
    let text = String::from_utf8_lossy(body);
    let decode_error = |why: &str| {
        ErrorResponse::new(400, &format!("json request body could not be decoded: {why} body:{text}"), &[], "")
    };
    if body.is_empty() {
        return Err(decode_error("EOF"));
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(mut fields)) => {
            let query = fields.get("query").and_then(Value::as_str).unwrap_or_default().to_owned();
            let variables = match fields.remove("variables") {
                Some(Value::Object(variables)) => variables,
                _ => Map::new(),
            };
            Ok((query, variables))
        }
        Ok(_) => Err(decode_error("json: cannot unmarshal array into Go value of type graphql.RawParams")),
        Err(e) => Err(decode_error(&e.to_string())),
    }
}

/// Returns the given variables, or else their defaults. Variables that the operation does not declare are ignored.
fn variables(operation: &Operation, given: &Map<String, Value>) -> Result<Map<String, Value>, ErrorResponse> {
    let mut all = Map::new();
    for (name, default) in &operation.variables {
        let value = given.get(name).cloned().or_else(|| default.as_ref().and_then(|d| d.json(&Map::new())));
        if let Some(value) = value {
            Params::read(name, &value)
                .map_err(|w| ErrorResponse::invalid(w.message, &[("path", Value::Array(w.path))]))?;
            all.insert(name.clone(), value);
        }
    }
    Ok(all)
}

/// Returns the fields of a type, each with its own type; empty for a scalar.
fn fields_of(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        "Query" => &[("searchMachines", "Machine"), ("machine", "Machine"), ("__schema", "__Schema")],
        "Mutation" => &[("setMachineState", "MachineStatus")],
        "Machine" => &[("spec", "MachineSpec"), ("status", "MachineStatus"), ("info", "MachineInfo")],
        "MachineSpec" => &[
            ("serial", ""),
            ("labels", "Label"),
            ("rack", ""),
            ("indexInRack", ""),
            ("role", ""),
            ("ipv4", ""),
            ("registerDate", ""),
            ("retireDate", ""),
            ("bmc", "BMC"),
        ],
        "Label" => &[("name", ""), ("value", "")],
        "BMC" => &[("bmcType", ""), ("ipv4", "")],
        "MachineStatus" => &[("state", ""), ("timestamp", ""), ("duration", "")],
        "MachineInfo" => &[("network", "NetworkInfo"), ("bmc", "BMCInfo")],
        "NetworkInfo" | "BMCInfo" => &[("ipv4", "NICConfig")],
        "NICConfig" => &[("address", ""), ("netmask", ""), ("maskbits", ""), ("gateway", "")],
        "__Schema" => &[("queryType", "__Type"), ("mutationType", "__Type")],
        "__Type" => &[("name", "")],
        _ => &[],
    }
}

/// Checks that a field exists in this type, and checks its arguments and subfields.
fn check(field: &Field, kind: &str) -> Result<(), ErrorResponse> {
    let at = locations(field.at);
    let Some((_, inner)) = fields_of(kind).iter().find(|(name, _)| *name == field.name) else {
        let why = format!("Cannot query field {:?} on type {kind:?}.", field.name);
        return Err(ErrorResponse::invalid(why, &[at]));
    };
    for (_, literal) in &field.arguments {
        if let Some((word, at)) = literal.enum_values().into_iter().find(|(word, _)| State::from_name(word).is_none()) {
            let why = format!("Value {word:?} does not exist in \"MachineState!\" enum.");
            return Err(ErrorResponse::invalid(why, &[locations(at)]));
        }
    }
    if inner.is_empty() != field.fields.is_empty() {
        let why = if inner.is_empty() {
            format!("Field {:?} must not have a selection since it has no subfields.", field.name)
        } else {
            format!("Field {:?} of type {inner:?} must have a selection of subfields.", field.name)
        };
        return Err(ErrorResponse::invalid(why, &[at]));
    }
    field.fields.iter().try_for_each(|f| check(f, inner))
}

/// Returns the selected fields in the order of the query.
fn select_fields(fields: &[Field], from: &Value) -> Value {
    match from {
        Value::Array(items) => items.iter().map(|i| select_fields(fields, i)).collect(),
        Value::Object(all) if !fields.is_empty() => {
            let each = fields
                .iter()
                .map(|f| (f.alias.clone(), select_fields(&f.fields, all.get(&f.name).unwrap_or(&Value::Null))));
            Value::Object(each.collect())
        }
        other => other.clone(),
    }
}

/// Returns one value of a URL's query.
fn query_param(query: &str, name: &str) -> Option<String> {
    let raw = query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))?;
    let (mut out, mut bytes) = (Vec::new(), raw.bytes());
    while let Some(b) = bytes.next() {
        match b {
            b'+' => out.push(b' '),
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}
