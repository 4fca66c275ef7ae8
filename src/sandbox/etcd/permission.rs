//! Permissions that a request needs, by its keys.

use etcd_client::proto::{PbDeleteRequest, PbPutRequest, PbTxnOpRequest, PbTxnRequest};

use super::{Refusal, auth::Who, span::Span, state::State};

impl State {
    /// Checks the permissions of a put. A put writes its key; with `prev_kv` it also reads it. A sender may use a lease
    /// if it may write every key attached to the lease, because it can revoke the lease.
    pub fn may_put(&self, who: &Who, r: &PbPutRequest) -> Result<(), Refusal> {
        let span = Span::One(r.key.clone());
        self.auth.may_write(who, &span)?;
        self.may_revoke(who, r.lease)?;
        if r.prev_kv { self.auth.may_read(who, &span) } else { Ok(()) }
    }

    /// Checks the permissions of a deletion. A deletion writes its range; with `prev_kv` it also reads it.
    pub fn may_delete(&self, who: &Who, r: &PbDeleteRequest) -> Result<(), Refusal> {
        let span = Span::new(&r.key, &r.range_end);
        self.auth.may_write(who, &span)?;
        if r.prev_kv { self.auth.may_read(who, &span) } else { Ok(()) }
    }

    /// Checks the permissions of a transaction. It needs the permissions of both branches, and reads what it compares.
    pub fn may_txn(&self, who: &Who, r: &PbTxnRequest) -> Result<(), Refusal> {
        for compare in &r.compare {
            self.auth.may_read(who, &Span::new(&compare.key, &compare.range_end))?;
        }
        for op in r.success.iter().chain(&r.failure) {
            match &op.request {
                Some(PbTxnOpRequest::RequestRange(r)) => {
                    self.auth.may_read(who, &Span::new(&r.key, &r.range_end))?;
                }
                Some(PbTxnOpRequest::RequestPut(r)) => self.may_put(who, r)?,
                Some(PbTxnOpRequest::RequestDeleteRange(r)) => self.may_delete(who, r)?,
                Some(PbTxnOpRequest::RequestTxn(r)) => self.may_txn(who, r)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Checks the permissions to revoke a lease, which deletes its keys.
    pub fn may_revoke(&self, who: &Who, lease: i64) -> Result<(), Refusal> {
        let keys = self.leases.get(lease).into_iter().flat_map(|lease| &lease.keys);
        keys.map(|key| Span::One(key.to_vec())).try_for_each(|key| self.auth.may_write(who, &key))
    }
}
