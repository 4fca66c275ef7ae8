//! `StatefulSets`: each pod has a fixed name and is recreated under it, in order unless the set specifies otherwise.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Manager,
    index::{Name, Pod},
    object_fields,
    owners::count,
};

/// Returns the pod with this ordinal.
pub(crate) fn replica(set: &Value, name: &str, ordinal: usize) -> Value {
    let pod_name = format!("{name}-{ordinal}");
    let mut pod = object_fields::from_template(set, &pod_name);
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["spec"]["hostname"] = json!(pod_name);
    pod
}

impl Manager {
    pub(super) fn stateful_set(&mut self, uid: &str, name: &Name, object: &Value) {
        let desired = count(&object["spec"]["replicas"]);
        let in_order = object["spec"]["podManagementPolicy"] != "Parallel";
        let name_of_ordinal = |ordinal: usize| Arc::new((name.0.clone(), format!("{}-{ordinal}", name.1)));
        for ordinal in 0..desired {
            match self.index.pods.get(&name_of_ordinal(ordinal)) {
                None => self.create_pod(&name.0, replica(object, &name.1, ordinal)),
                Some(pod) if pod.finished() => self.delete_pod(&name_of_ordinal(ordinal)),
                Some(pod) if pod.active() && pod.ready => continue,
                Some(_) => {}
            }
            // The later ones wait until this one is Ready.
            if in_order {
                break;
            }
        }
        let ordinal_of = |pod: &Name| pod.1.strip_prefix(&format!("{}-", name.1)).and_then(|o| o.parse::<usize>().ok());
        let mut surplus: Vec<_> =
            self.index.of(uid).into_iter().filter_map(|pod| Some((ordinal_of(&pod)?, pod))).collect();
        surplus.retain(|(ordinal, pod)| *ordinal >= desired && self.index.pods.get(pod).is_some_and(Pod::active));
        surplus.sort();
        if let Some((_, last)) = surplus.last() {
            self.delete_pod(last);
        }
        self.catch_up();
        let (active, ready) = self.index.counts(uid);
        self.write_status(uid, |status, generation| {
            for field in ["replicas", "currentReplicas", "updatedReplicas"] {
                status[field] = json!(active);
            }
            status["readyReplicas"] = json!(ready);
            status["availableReplicas"] = json!(ready);
            status["observedGeneration"] = generation;
        });
    }
}
