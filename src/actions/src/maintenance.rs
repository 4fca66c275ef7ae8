//! Requests of maintenance, and their release, by an operator.

use cketerm_clients::store::maintenance::NewMaintenance;
use cketerm_model::{
    acceptance::OperatorCommand,
    cketerm_records::Request,
    cluster::Members,
    entry::{EntryId, Stored},
    names::Address,
    stored::view::StoreView,
};
use jiff::Timestamp;

use super::{added::Added, error::ActionError, operator::Operator};

/// Longest time of a maintenance: a typing error must not take a Node out for ever.
const MAX_DAYS: i64 = 366;

impl Operator {
    /// Requests maintenance of these machines until this time. The reason is needed: it is what everybody else sees while
    /// the Node is out of use. Refused under a leader that knows no maintenance.
    pub async fn add_maintenance(
        &self,
        addresses: &[Address],
        until: Timestamp,
        reason: Option<&str>,
    ) -> Result<Added, ActionError> {
        let leadership = self.accepted(OperatorCommand::Maintain).await?;
        let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) else {
            return Err(ActionError::misused("a maintenance needs a reason: give --reason TEXT; everybody sees it"));
        };
        let now = self.store.clock().wall();
        if until <= now {
            return Err(ActionError::misused(format!("--until {until} is in the past: give a later time")));
        }
        if until.duration_since(now).as_secs() > MAX_DAYS * 86_400 {
            return Err(ActionError::misused(format!("--until {until} is more than {MAX_DAYS} days ahead")));
        }
        let (cluster, notes) = self.check_reboots(addresses).await?;
        let members = Members::of(&cluster);
        let uids = self.node_uids(addresses, &cluster, &members).await;
        refuse_double(&self.store.read_view().await?, addresses)?;
        let request =
            Request { who: self.who().clone(), at: now, reason: Some(reason.to_owned()), node_uid: None, batch: None };
        let wanted = NewMaintenance { addresses, uids: &uids, until };
        let indexes = self.store.add_maintenance(&self.person, wanted, &request, &leadership.under).await?;
        Ok(Added { indexes, batch: None, notes })
    }

    /// Ends the maintenance of these machines and returns the indexes. It is refused if one of them has none.
    pub async fn release_maintenance(
        &self,
        addresses: &[Address],
        reason: Option<&str>,
    ) -> Result<Vec<u64>, ActionError> {
        let view = self.store.read_view().await?;
        let mut indexes = Vec::new();
        for address in addresses {
            let before = indexes.len();
            indexes.extend(of_machine(&view, address));
            if indexes.len() == before {
                return Err(ActionError::failed(format!(
                    "{address} is not in maintenance; see `cketerm maintenance list`"
                )));
            }
        }
        for &index in &indexes {
            self.store.release_maintenance(index, &self.person, reason).await?;
        }
        Ok(indexes)
    }

    /// Ends one maintenance.
    pub async fn end_maintenance(&self, index: u64, reason: Option<&str>) -> Result<(), ActionError> {
        Ok(self.store.release_maintenance(index, &self.person, reason).await?)
    }
}

/// Returns the indexes of all maintenances of a machine.
fn of_machine<'a>(view: &'a StoreView, address: &'a Address) -> impl Iterator<Item = u64> + 'a {
    let all = view.maintenance.entries.iter();
    all.filter(move |(_, stored)| stored.get().is_some_and(|entry| entry.node == *address)).map(|(index, _)| *index)
}

fn refuse_double(view: &StoreView, addresses: &[Address]) -> Result<(), ActionError> {
    let is_open = |index: &u64| {
        let stored = view.maintenance.entries.get(index).and_then(Stored::get);
        stored.is_some_and(|entry| entry.released.is_none())
    };
    for (place, address) in addresses.iter().enumerate() {
        if let Some(index) = of_machine(view, address).find(is_open) {
            let id = EntryId::maintenance(index);
            return Err(ActionError::failed(format!(
                "{address} is in maintenance already ({id}); end it first with `cketerm maintenance release {address}`"
            )));
        }
        if addresses.iter().take(place).any(|earlier| earlier == address) {
            return Err(ActionError::misused(format!("{address} is given twice")));
        }
    }
    Ok(())
}
