//! Requests of maintenance, and their release, by an operator.

use cketerm_clients::store::maintenance::NewMaintenance;
use cketerm_model::{
    acceptance::{LeaderKind, OperatorCommand},
    cketerm_records::Request,
    cluster::Members,
    entry::{EntryId, Stored},
    maintenance_request::MAX_MAINTENANCE_DAYS,
    names::Address,
    stored::view::StoreView,
};
use jiff::Timestamp;

use super::{accept::checked_again, added::Added, error::ActionError, operator::Operator};

impl Operator {
    /// Requests maintenance of these machines until this time. The reason is needed: it is what everybody else sees while
    /// the Node is out of use. Refused under a leader that knows no maintenance.
    pub async fn add_maintenance(
        &self,
        addresses: &[Address],
        until: Timestamp,
        reason: Option<&str>,
    ) -> Result<Added, ActionError> {
        self.accepted(OperatorCommand::Maintain).await?;
        let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) else {
            return Err(ActionError::misused("a maintenance needs a reason: give --reason TEXT; everybody sees it"));
        };
        let now = self.store.clock().wall();
        check_end(until, now)?;
        let (cluster, note) = self.check_members(addresses, "drained").await?;
        let members = Members::of(&cluster);
        let uids = self.node_uids(addresses, &cluster, &members).await;
        let request =
            Request { who: self.who().clone(), at: now, reason: Some(reason.to_owned()), node_uid: None, batch: None };
        let indexes = checked_again(|| async {
            let leadership = self.accepted(OperatorCommand::Maintain).await?;
            refuse_double(&self.store.read_view().await?, addresses)?;
            let wanted = NewMaintenance { addresses, uids: &uids, until };
            Ok(self.store.add_maintenance(&self.person, wanted, &request, &leadership.under).await)
        })
        .await?;
        Ok(Added { indexes, batch: None, notes: note.into_iter().collect() })
    }

    /// Returns the indexes of the maintenances that these words name: a Node by name or address, or `maintenance/3`, also
    /// of a machine that has left the definition.
    pub async fn maintenances(&self, words: &[String]) -> Result<Vec<u64>, ActionError> {
        let view = self.store.read_view().await?;
        let mut indexes = Vec::new();
        for word in words {
            let address = match word.parse::<EntryId>() {
                Ok(id) if id == EntryId::maintenance(id.index) && view.has_entry(id) => {
                    indexes.push(id.index);
                    continue;
                }
                _ => Address::new(word),
            };
            let before = indexes.len();
            indexes.extend(of_machine(&view, &address));
            if indexes.len() == before {
                let resolved = self.resolve(std::slice::from_ref(word)).await?;
                indexes.extend(resolved.iter().flat_map(|address| of_machine(&view, address)));
            }
            if indexes.len() == before {
                return Err(ActionError::failed(format!(
                    "{word} is not in maintenance; see `cketerm maintenance list`"
                )));
            }
        }
        Ok(indexes)
    }

    /// Ends the maintenance of these machines and returns the indexes. It is refused if one of them has none.
    pub async fn release_maintenance(&self, words: &[String], reason: Option<&str>) -> Result<Vec<u64>, ActionError> {
        let indexes = self.maintenances(words).await?;
        for &index in &indexes {
            self.end_maintenance(index, reason).await?;
        }
        Ok(indexes)
    }

    /// Moves the end of the maintenance of these machines and returns the indexes.
    pub async fn extend_maintenance(
        &self,
        words: &[String],
        until: Timestamp,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, ActionError> {
        check_end(until, self.store.clock().wall())?;
        let indexes = self.maintenances(words).await?;
        for &index in &indexes {
            self.store.extend_maintenance(index, until, &self.person, reason).await?;
        }
        Ok(indexes)
    }

    /// Returns a note for the operator about a release, while no cketerm engine leads: it waits for one.
    pub async fn release_note(&self) -> Option<String> {
        let leadership = self.store.leadership().await.ok()?;
        (leadership.lead != LeaderKind::Cketerm)
            .then(|| format!("note: {}: the node stays cordoned until a cketerm engine leads", leadership.message))
    }

    /// Ends one maintenance.
    pub async fn end_maintenance(&self, index: u64, reason: Option<&str>) -> Result<(), ActionError> {
        Ok(self.store.release_maintenance(index, &self.person, reason).await?)
    }
}

fn check_end(until: Timestamp, now: Timestamp) -> Result<(), ActionError> {
    if until <= now {
        return Err(ActionError::misused(format!("--until {until} is in the past: give a later time")));
    }
    if until.duration_since(now).as_secs() > MAX_MAINTENANCE_DAYS * 86_400 {
        return Err(ActionError::misused(format!("--until {until} is more than {MAX_MAINTENANCE_DAYS} days ahead")));
    }
    Ok(())
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
            return Err(ActionError::refused(format!(
                "{address} is in maintenance already ({id}); move its end with `cketerm maintenance extend {address} --until TIME`"
            )));
        }
        if addresses.iter().take(place).any(|earlier| earlier == address) {
            return Err(ActionError::misused(format!("{address} is given twice")));
        }
    }
    Ok(())
}
