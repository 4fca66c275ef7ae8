//! Handover of etcd's leadership before the leader's machine is powered off. Without it, the election costs the API
//! servers a second or more. It is best effort: the work goes on whatever the answer is, after the members were asked
//! again (SAF-26).

use cketerm_clients::store::members::EtcdCluster;
use cketerm_model::boot_time::BootTime;
use cketerm_rules::{decide::Guard, snapshot::EffectOutcome};

use super::{Actor, Stop};

impl Actor {
    /// Writes the fenced audit record, then sends the request once.
    pub(super) async fn move_etcd_leader(
        &self,
        guard: &Guard,
        decided: BootTime,
        from: &str,
        urls: &[String],
        (to, to_name): (u64, &str),
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let on = format!("etcd member {from}");
        let intent = self.record_intent(&permit, "move etcd leader", &on, Some(format!("to member {to_name}"))).await?;
        // Needs a permit of its own, because writing the record may have taken long.
        let permit = self.permit(guard, decided)?;
        let whose = if self.etcd_members.configured() { EtcdCluster::Kubernetes } else { EtcdCluster::Own };
        let result = match self.etcd_members.move_leader(&permit, whose, urls, to).await {
            Ok(()) => Ok("done".to_owned()),
            Err(why) => {
                tracing::warn!(member = from, why, "the etcd leader did not hand over its leadership");
                Err(format!("failed: {why}"))
            }
        };
        self.record_outcome(intent, result);
        Ok(EffectOutcome::Done)
    }
}
