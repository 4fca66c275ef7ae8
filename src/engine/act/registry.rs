//! Writing what was generated from the registry, and putting it on Nodes.

use std::{sync::Arc, time::Duration};

use super::{Actor, SHOWN_WITHIN, Stop};
use crate::{
    engine::{
        decide::{Apply, Guard, Registering, compares},
        registry::{Basis, sync},
        snapshot::Came,
    },
    kubernetes::WriteError,
    model::kube::{Description, KubeView, NodeRow},
    store::commit::{Change, CommitError, Put},
};

impl Actor {
    pub(super) async fn register(&self, decided: Duration, what: Registering) -> Result<Came, Stop> {
        match what {
            Registering::Apply(apply) => self.apply(decided, *apply).await,
            Registering::DropApprovals(gone) => {
                let permit = self.permit(&Guard::default(), decided)?;
                let keys = self.store.keys();
                let compares: Vec<_> =
                    gone.iter().map(|(digest, revision)| (keys.approval(digest), *revision)).collect();
                let digests: Vec<&str> = gone.iter().map(|(digest, _)| digest.as_str()).collect();
                let change = Change {
                    deletes: compares.iter().map(|(key, _)| key.clone()).collect(),
                    puts: vec![self.audit(
                        "approval ends",
                        &digests.join(" "),
                        None,
                        "the plan is another one, or an hour is over",
                    )],
                    compares,
                };
                self.commit(&permit, change).await.map(|_| Came::Done)
            }
            Registering::Describe { node, description } => self.describe(decided, &node, &description).await,
        }
    }

    /// One fenced transaction: the definition, the revision of its template, what is remembered of it.
    async fn apply(&self, decided: Duration, apply: Apply) -> Result<Came, Stop> {
        let permit = self.permit(&Guard::default(), decided)?;
        let view = self.live.borrow();
        if !view.sabakan.enabled() || view.registry.hold.is_some() || Basis::of(&view) != apply.basis {
            return Ok(Came::Stale);
        }
        let keys = self.store.keys();
        let plain = |key: String, value: String| Put { key, value, leased: false };
        let bytes = apply.json.len();
        let result = format!("{}; {bytes} bytes", apply.generated.action);
        let change = Change {
            compares: compares(&apply, keys, view.sabakan.mod_revision),
            puts: vec![
                plain(keys.cluster(), apply.json.clone()),
                plain(keys.cluster_revision(), apply.basis.template.to_string()),
                Put::json(keys.generated(), &apply.generated),
                self.audit("generate", "cluster", Some(apply.generated.reason.clone()), &result),
            ],
            deletes: apply.approval.iter().map(|(digest, _)| keys.approval(digest)).collect(),
        };
        match self.store.commit(&permit, change.clone()).await {
            Err(CommitError::Refused(why)) if too_large(&why) => {
                return Ok(Came::TooLarge(format!(
                    "etcd refuses the definition of {bytes} bytes ({why}): raise its --max-request-bytes (1.5 MiB by default), \
                     or use fewer machines (`constraints set maximum-workers`, `sabakan set-variables`)"
                )));
            }
            Err(CommitError::LostLeadership) => return Err(Stop(Came::Lost)),
            Err(CommitError::Conflict { keys }) => {
                tracing::info!(keys = keys.join(", "), "not applied: changed meanwhile");
                return Ok(Came::Stale);
            }
            Err(CommitError::Refused(why)) => return Ok(Came::Failed(why)),
            Err(CommitError::Unknown(why)) => {
                let audits = keys.audit_prefix();
                let witness = change.puts.iter().find(|p| p.key.starts_with(&audits)).map(|p| p.key.clone());
                if self.read_again(witness.as_deref()).await?.is_none() {
                    return Ok(Came::Failed(why));
                }
            }
            Ok(revision) => self.shown(revision).await?,
        }
        tracing::info!(action = apply.generated.action, reason = apply.generated.reason, bytes, "definition generated");
        Ok(Came::Done)
    }

    async fn describe(&self, decided: Duration, node: &Arc<NodeRow>, description: &Description) -> Result<Came, Stop> {
        // what the definition says now, not what it said
        let (view, kube) = (self.live.borrow(), self.kube_live.borrow());
        let member = view
            .definition()
            .and_then(|d| d.cluster.nodes.iter().find(|n| node.addresses.contains(&n.address)).cloned());
        let current = kube.by_name.get(&node.name).filter(|n| n.resource_version == node.resource_version);
        let still = member.zip(current).and_then(|(m, n)| sync::description(&m, &n.described));
        if still.as_ref() != Some(description) || !view.sabakan.enabled() {
            return Ok(Came::Stale);
        }
        let permit = self.permit(&Guard::default(), decided)?;
        let told = self.tell(&permit, "describe", &node.name, Some(description.to_string())).await?;
        let permit = self.permit(&Guard::default(), decided)?;
        let written = self.kube.describe(&permit, node, description).await;
        self.came_of(told, written.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned()));
        match written {
            Ok(row) => {
                let mut live = self.kube_live.subscribe();
                let shown = |view: &Arc<KubeView>| {
                    view.by_name.get(&row.name).is_none_or(|n| n.resource_version != node.resource_version)
                };
                let _ = tokio::time::timeout(SHOWN_WITHIN, live.wait_for(shown)).await;
                Ok(Came::Done)
            }
            Err(WriteError::Conflict | WriteError::NotFound) => Ok(Came::Stale),
            Err(e) => Ok(Came::Failed(format!("{}: {e}", node.name))),
        }
    }
}

/// etcd's and gRPC's words for a request beyond their limit.
fn too_large(why: &str) -> bool {
    ["too large", "larger than", "bytes in one transaction"].iter().any(|words| why.contains(words))
}
