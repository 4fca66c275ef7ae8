//! The leader of etcd hands over before its machine is powered off: the election that would follow costs the API servers
//! a second or more. Best effort: the work goes on whatever comes of it, for the members are asked again afterwards.

use std::time::Duration;

use super::{Actor, Stop};
use crate::{
    engine::{decide::Guard, snapshot::EffectOutcome},
    store::members::Whose,
};

impl Actor {
    /// Announced in a fenced record, then asked for once.
    pub(super) async fn move_etcd_leader(
        &self,
        guard: &Guard,
        decided: Duration,
        from: &str,
        urls: &[String],
        (to, to_name): (u64, &str),
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let on = format!("etcd member {from}");
        let told = self.tell(&permit, "move etcd leader", &on, Some(format!("to member {to_name}"))).await?;
        // a permit of its own: the record may have taken long
        self.permit(guard, decided)?;
        let whose = if self.etcd_members.configured() { Whose::Kubernetes } else { Whose::Own };
        let result = match self.etcd_members.move_leader(whose, urls, to).await {
            Ok(()) => "done".to_owned(),
            Err(why) => {
                tracing::warn!(member = from, why, "the leader of etcd did not hand over");
                format!("failed: {why}")
            }
        };
        self.came_of(told, result);
        Ok(EffectOutcome::Done)
    }
}
