//! Deployments: one `ReplicaSet` for each template. The newest grows while the others shrink.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Manager, Work, expected,
    index::{self, Name},
    object_fields::{self, text},
    owners::count,
};
use crate::kubernetes::resource::REPLICA_SETS;

const HASH: &str = "pod-template-hash";

/// Returns the `ReplicaSet` of a Deployment's current template.
pub(crate) fn replica_set_of(deployment: &Value) -> Value {
    let spec = &deployment["spec"];
    let hash = object_fields::hash(&spec["template"]);
    let (mut template, mut selector) = (spec["template"].clone(), spec["selector"].clone());
    template["metadata"]["labels"][HASH] = json!(hash);
    selector["matchLabels"][HASH] = json!(hash);
    json!({
        "metadata": {
            "name": format!("{}-{hash}", text(&deployment["metadata"]["name"])),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [object_fields::reference(deployment)],
        },
        "spec": {"replicas": count(&spec["replicas"]), "selector": selector, "template": template},
        "status": {"replicas": 0},
    })
}

impl Manager {
    pub(super) fn replica_set_changed(&mut self, name: &Name, object: &Value, deleted: bool) {
        let Some(owner) = object_fields::controller(object) else { return };
        let owner = text(&owner["uid"]).to_owned();
        if deleted {
            index::remove(&mut self.index.replica_sets, &owner, name);
        } else {
            index::insert(&mut self.index.replica_sets, &owner, name);
        }
        if self.index.owners.contains_key(&owner) {
            self.enqueue(Work::Owner(owner));
        } else if !deleted {
            self.enqueue(Work::Dependants(owner));
        }
    }

    pub(super) fn deployment(&mut self, uid: &str, name: &Name, object: &Value) {
        let newest = replica_set_of(object);
        let newest_name = text(&newest["metadata"]["name"]).to_owned();
        let desired = count(&object["spec"]["replicas"]);
        let sets: Vec<Name> = self.index.replica_sets.get(uid).into_iter().flatten().map(Arc::clone).collect();
        if !sets.iter().any(|set| set.1 == newest_name) && !self.index.terminating_namespaces.contains(&name.0) {
            expected(self.objects.create(&REPLICA_SETS, &name.0, newest));
            return self.enqueue(Work::Owner(uid.to_owned()));
        }
        let pods = |set: &Name| {
            let set = self.objects.get(&REPLICA_SETS, &set.0, &set.1);
            set.map_or((0, 0), |set| self.index.counts(text(&set["metadata"]["uid"])))
        };
        let all: Vec<_> = sets.iter().map(|set| (set, pods(set))).collect();
        let (updated, updated_ready) =
            all.iter().find(|(set, _)| set.1 == newest_name).map_or((0, 0), |(_, counts)| *counts);
        let mut old = desired.saturating_sub(updated_ready);
        for (set, (active, _)) in &all {
            let replicas = if set.1 == newest_name { desired } else { old.min(*active) };
            if set.1 != newest_name {
                old -= replicas;
            }
            expected(self.objects.update(&REPLICA_SETS, &set.0, &set.1, |set| {
                set["spec"]["replicas"] = json!(replicas);
                Ok(())
            }));
        }
        let (active, ready) = all.iter().fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1));
        let stamp = self.objects.stamp();
        self.write_status(uid, |status, generation| {
            for (field, number) in [
                ("replicas", active),
                ("updatedReplicas", updated),
                ("readyReplicas", ready),
                ("availableReplicas", ready),
                ("unavailableReplicas", desired.saturating_sub(ready)),
            ] {
                status[field] = json!(number);
            }
            status["observedGeneration"] = generation;
            let enough = if ready >= desired { "True" } else { "False" };
            let why = if ready >= desired { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
            let mut holder = json!({"status": status.take()});
            object_fields::set_condition(&mut holder, &stamp, "Available", enough, why, "");
            *status = holder["status"].take();
        });
    }
}
