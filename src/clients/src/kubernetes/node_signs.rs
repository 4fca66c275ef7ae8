//! Conditions on Nodes by which cketerm tells others of its work.

use cketerm_model::{
    fence::Permit,
    kube::{ConditionChange, NodeRow},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{call::with_body, connect::Kube, nodes::WriteError, read::node_path, wire::Node};

/// A list of conditions is merged by their types: the others stay as they are.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

impl Kube {
    /// Sets and removes conditions of a Node, in one patch. Conditions of other types are not part of it. Errors:
    /// [`WriteError::Conflict`] if the Node has changed since `node` was read, also if another program has set a
    /// condition of such a type meanwhile.
    pub async fn set_conditions(
        &self,
        _: &Permit,
        node: &NodeRow,
        changes: &[ConditionChange],
        at: Timestamp,
    ) -> Result<NodeRow, WriteError> {
        let path = format!("{}/status", node_path(&node.name));
        let conditions: Vec<Value> = changes.iter().map(|change| condition(change, at)).collect();
        let body = json!({
            "metadata": {"resourceVersion": node.resource_version},
            "status": {"conditions": conditions},
        });
        let answer: Node = self.send(with_body("PATCH", &path, STRATEGIC_MERGE_PATCH, &body)).await?;
        Ok(answer.into())
    }
}

/// Returns a condition's part of the patch. The time of its transition stays if it held before.
fn condition(change: &ConditionChange, at: Timestamp) -> Value {
    let Some(content) = &change.content else {
        return json!({"type": change.condition.as_str(), "$patch": "delete"});
    };
    let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut condition = json!({
        "type": change.condition.as_str(),
        "status": "True",
        "reason": content.reason,
        "message": content.message,
        "lastHeartbeatTime": at,
    });
    if content.begins {
        condition["lastTransitionTime"] = json!(at);
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::kube::{ConditionContent, LifecycleCondition};

    #[test]
    fn only_a_condition_that_begins_gets_a_new_time_of_transition() {
        let change = |content: Option<bool>| ConditionChange {
            condition: LifecycleCondition::Drained,
            content: content.map(|begins| ConditionContent {
                begins,
                reason: "CketermReboot",
                message: "m".to_owned(),
            }),
        };
        let at = "2026-06-01T00:00:20.5Z".parse().unwrap();
        let begun = condition(&change(Some(true)), at);
        assert_eq!(
            begun,
            json!({"type": "Drained", "status": "True", "reason": "CketermReboot", "message": "m",
                "lastHeartbeatTime": "2026-06-01T00:00:20Z", "lastTransitionTime": "2026-06-01T00:00:20Z"})
        );
        assert!(condition(&change(Some(false)), at).get("lastTransitionTime").is_none());
        assert_eq!(condition(&change(None), at), json!({"type": "Drained", "$patch": "delete"}));
    }
}
