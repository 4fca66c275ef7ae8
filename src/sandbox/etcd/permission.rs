//! What a request needs to be allowed, by its keys.

use etcd_client::proto::{PbDeleteRequest, PbPutRequest, PbTxnOpRequest, PbTxnRequest};

use super::{Refusal, auth::Who, span::Span, state::State};

impl State {
    /// A put writes its key; whoever asks for what was there reads it too. A lease may be used by those who may write
    /// everything that is attached to it, since they can take it away.
    pub fn may_put(&self, who: &Who, r: &PbPutRequest) -> Result<(), Refusal> {
        let span = Span::One(r.key.clone());
        self.auth.may_write(who, &span)?;
        self.may_revoke(who, r.lease)?;
        if r.prev_kv { self.auth.may_read(who, &span) } else { Ok(()) }
    }

    /// A deletion writes its range.
    pub fn may_delete(&self, who: &Who, r: &PbDeleteRequest) -> Result<(), Refusal> {
        let span = Span::new(&r.key, &r.range_end);
        self.auth.may_write(who, &span)?;
        if r.prev_kv { self.auth.may_read(who, &span) } else { Ok(()) }
    }

    /// A transaction needs what both its branches need, and reads what it compares.
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

    /// Taking a lease away deletes its keys.
    pub fn may_revoke(&self, who: &Who, lease: i64) -> Result<(), Refusal> {
        let keys = self.leases.get(lease).into_iter().flat_map(|lease| &lease.keys);
        keys.map(|key| Span::One(key.to_vec())).try_for_each(|key| self.auth.may_write(who, &key))
    }
}
