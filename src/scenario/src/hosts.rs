//! Other clients of Metal3's reboot interface in a scenario.

use cketerm_sandbox::{Sandbox, kubernetes::resource::BARE_METAL_HOSTS, metal3::NAMESPACE};
use serde_json::json;

use super::data::HostAnnotation;

/// Sets or removes an annotation on the host of the machine `name`, like `kubectl annotate`.
pub(super) fn annotate(sandbox: &Sandbox, name: &str, what: &HostAnnotation) -> Result<(), String> {
    let changed = sandbox.objects.update(&BARE_METAL_HOSTS, NAMESPACE, name, |host| {
        if !host["metadata"]["annotations"].is_object() {
            host["metadata"]["annotations"] = json!({});
        }
        if let Some(all) = host["metadata"]["annotations"].as_object_mut() {
            match &what.value {
                Some(value) => all.insert(what.key.clone(), json!(value)),
                None => all.remove(&what.key),
            };
        }
        Ok(())
    });
    changed.map(drop).map_err(|e| e.message)
}
