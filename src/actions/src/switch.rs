//! The switches of the queues and of the integrations.

use cketerm_clients::store::queue::SwitchChange;
use cketerm_model::stored::keys::SwitchName;

use super::{error::ActionError, operator::Operator};

impl Operator {
    /// Enables or disables one of the four switches.
    pub async fn set_switch(
        &self,
        name: SwitchName,
        enabled: bool,
        reason: Option<&str>,
    ) -> Result<SwitchChange, ActionError> {
        if enabled {
            self.refuse_mismatch().await?;
        }
        Ok(self.store.set_switch(name, enabled, &self.person, reason).await?)
    }
}
