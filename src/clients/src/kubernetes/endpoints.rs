//! The addresses behind the API server's service and CKE's etcd service, which CKE writes itself (SAF-32). Both objects
//! of both services are read by name, so the account needs `get` and `patch` only.

use std::collections::BTreeSet;

use cketerm_model::{fence::Permit, kube::EndpointsRow, names::Address};
use serde_json::{Map, Value, json};

use super::{
    call::{percent_encode, with_body},
    connect::Kube,
    error::KubeError,
    nodes::{MERGE_PATCH, WriteError},
};

/// The services, by namespace and name.
const SERVICES: [(&str, &str); 2] = [("default", "kubernetes"), ("kube-system", "cke-etcd")];
/// Label with the writer of a slice. A slice of a controller follows its Endpoints or pods by itself.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

fn path(kind: &str, namespace: &str, name: &str) -> String {
    let (namespace, name) = (percent_encode(namespace), percent_encode(name));
    if kind == "EndpointSlice" {
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}")
    } else {
        format!("/api/v1/namespaces/{namespace}/endpoints/{name}")
    }
}

impl Kube {
    /// Reads the objects that exist and that no controller writes.
    pub async fn endpoints(&self) -> Result<Vec<EndpointsRow>, KubeError> {
        let mut rows = Vec::new();
        for (namespace, name) in SERVICES {
            for kind in ["Endpoints", "EndpointSlice"] {
                let Some(object) = self.get::<Value>(&path(kind, namespace, name)).await? else { continue };
                if object["metadata"]["labels"][MANAGED_BY].as_str().is_some_and(|by| by.contains("-controller.k8s.io"))
                {
                    continue;
                }
                rows.push(row(kind, namespace, name, &object));
            }
        }
        Ok(rows)
    }

    /// Gives an object exactly these addresses. Ports and other facts about an address stay. Errors:
    /// [`WriteError::Conflict`] if the object has changed since `row` was read. An empty list is refused, so that the
    /// last address never leaves.
    pub async fn set_endpoints(&self, _: &Permit, row: &EndpointsRow, addresses: &[Address]) -> Result<(), WriteError> {
        if addresses.is_empty() {
            return Err(WriteError::Refused {
                code: 0,
                message: format!("{} {}/{} would lose its last address", row.kind, row.namespace, row.name),
            });
        }
        let object_path = path(&row.kind, &row.namespace, &row.name);
        let object: Value = self.send(super::call::get(&object_path)).await?;
        if object["metadata"]["resourceVersion"].as_str() != Some(&row.resource_version) {
            return Err(WriteError::Conflict);
        }
        let desired: BTreeSet<&str> = addresses.iter().map(Address::as_str).collect();
        let mut patch = json!({"metadata": {"resourceVersion": row.resource_version}});
        if row.kind == "EndpointSlice" {
            patch["endpoints"] = slice(&object, &desired);
        } else {
            patch["subsets"] = subsets(&object, &desired);
        }
        let written = self.send::<Value>(with_body("PATCH", &object_path, MERGE_PATCH, &patch)).await;
        self.endpoints_written.notify_one();
        written?;
        Ok(())
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Reports whether a slice's endpoint is ready. An absent `ready` means ready.
fn is_ready(endpoint: &Value) -> bool {
    endpoint["conditions"]["ready"].as_bool().unwrap_or(true)
}

fn row(kind: &str, namespace: &str, name: &str, object: &Value) -> EndpointsRow {
    let mut addresses: Vec<Address> = Vec::new();
    let mut add = |address: Option<&str>| {
        if let Some(address) = address.filter(|a| !addresses.iter().any(|known| known == a)) {
            addresses.push(Address::new(address));
        }
    };
    for subset in list(&object["subsets"]) {
        for address in list(&subset["addresses"]) {
            add(address["ip"].as_str());
        }
    }
    for endpoint in list(&object["endpoints"]).iter().filter(|e| is_ready(e)) {
        for address in list(&endpoint["addresses"]) {
            add(address.as_str());
        }
    }
    EndpointsRow {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        resource_version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        addresses,
    }
}

/// Returns the subsets with exactly these ready addresses. Missing ones are added to the first subset.
fn subsets(object: &Value, desired: &BTreeSet<&str>) -> Value {
    let mut missing = desired.clone();
    let mut out: Vec<Map<String, Value>> = Vec::new();
    for subset in list(&object["subsets"]) {
        let mut subset = subset.as_object().cloned().unwrap_or_default();
        let kept: Vec<Value> = subset
            .get("addresses")
            .map(list)
            .unwrap_or_default()
            .iter()
            .filter(|a| a["ip"].as_str().is_some_and(|ip| desired.contains(ip)))
            .cloned()
            .collect();
        for ip in kept.iter().filter_map(|a| a["ip"].as_str()) {
            missing.remove(ip);
        }
        subset.insert("addresses".to_owned(), Value::Array(kept));
        out.push(subset);
    }
    if out.is_empty() {
        out.push(Map::new());
    }
    for (i, subset) in out.iter_mut().enumerate() {
        // An address must not be ready and unready at once.
        if let Some(Value::Array(unready)) = subset.get_mut("notReadyAddresses") {
            unready.retain(|a| !a["ip"].as_str().is_some_and(|ip| desired.contains(ip)));
        }
        if i == 0
            && let Value::Array(addresses) = subset.entry("addresses").or_insert_with(|| json!([]))
        {
            addresses.extend(missing.iter().map(|ip| json!({"ip": ip})));
        }
    }
    let empty = |s: &Map<String, Value>, key: &str| s.get(key).is_none_or(|v| list(v).is_empty());
    out.retain(|s| !empty(s, "addresses") || !empty(s, "notReadyAddresses"));
    json!(out)
}

/// Returns the endpoints with exactly these ready addresses. Unready ones stay unless they are wanted.
fn slice(object: &Value, desired: &BTreeSet<&str>) -> Value {
    let addresses = |e: &Value| list(&e["addresses"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut missing = desired.clone();
    let mut out = Vec::new();
    for endpoint in list(&object["endpoints"]) {
        let current: Vec<String> = addresses(endpoint);
        let is_desired = current.iter().any(|a| desired.contains(a.as_str()));
        if is_desired {
            for address in &current {
                missing.remove(address.as_str());
            }
            let mut endpoint = endpoint.clone();
            if !is_ready(&endpoint) {
                endpoint["conditions"]["ready"] = json!(true);
            }
            out.push(endpoint);
        } else if !is_ready(endpoint) {
            out.push(endpoint.clone());
        }
    }
    out.extend(missing.iter().map(|a| json!({"addresses": [a], "conditions": {"ready": true}})));
    json!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(addresses: &[&'a str]) -> BTreeSet<&'a str> {
        addresses.iter().copied().collect()
    }

    #[test]
    fn removing_and_adding_an_address_keeps_the_ports() {
        let ports = json!([{"name": "https", "port": 6443}]);
        let object = json!({"subsets": [{"addresses": [{"ip": "1"}, {"ip": "2", "nodeName": "n"}], "ports": ports}]});
        let less = subsets(&object, &set(&["2"]));
        assert_eq!(less, json!([{"addresses": [{"ip": "2", "nodeName": "n"}], "ports": ports}]));
        let again = subsets(&json!({"subsets": less}), &set(&["1", "2"]));
        assert_eq!(again, json!([{"addresses": [{"ip": "2", "nodeName": "n"}, {"ip": "1"}], "ports": ports}]));
    }

    #[test]
    fn an_endpoint_slice_keeps_the_fields_of_remaining_addresses() {
        let object = json!({"endpoints": [{"addresses": ["1"], "nodeName": "a"}, {"addresses": ["2"]}]});
        assert_eq!(slice(&object, &set(&["1"])), json!([{"addresses": ["1"], "nodeName": "a"}]));
        assert_eq!(
            slice(&object, &set(&["2", "3"])),
            json!([{"addresses": ["2"]}, {"addresses": ["3"], "conditions": {"ready": true}}])
        );
    }
}
