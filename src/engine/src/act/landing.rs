//! Landing check before the first eviction of a drain (policy `landing_check: require`, REB-69).

use std::collections::BTreeSet;

use cketerm_model::{
    drain::{Finding, Preview},
    names::NodeName,
    policy::LandingCheck,
    reason::Reason,
};
use cketerm_rules::landing;

use super::Actor;

impl Actor {
    /// Adds to a preview without objections that of the landing check, if the policy requires it. The node is cordoned
    /// by now, so the placement shows it as the scheduler sees it.
    pub(super) async fn with_landing_check(
        &self,
        mut preview: Preview,
        node: &str,
        unprotected: &BTreeSet<String>,
    ) -> Preview {
        let is_required = self.live.borrow().policy().landing_check == LandingCheck::Require;
        if !is_required || preview.finding != Finding::Clean {
            return preview;
        }
        preview.finding = match self.kube.read_placement().await {
            Ok(view) => {
                landing::gate(&view, &NodeName::new(node), unprotected).map_or(Finding::Clean, Finding::Blocked)
            }
            Err(fault) => {
                Finding::Undecided { reason: Reason::LandingUnknown { why: fault.to_string() }, retry_after: None }
            }
        };
        if preview.finding != Finding::Clean {
            // the next preview starts anew: other pods may come or go meanwhile
            preview.passed.clear();
        }
        preview
    }
}
