//! Permissions that a request needs, by its keys.

use etcd_client::proto::{PbDeleteRequest, PbPutRequest, PbTxnOpRequest, PbTxnRequest};

use super::{RpcError, auth::Principal, key_range::KeyRange, state::State};

impl State {
    /// Checks the permissions of a put. A put writes its key; with `prev_kv` it also reads it. A sender may use a lease
    /// if it may write every key attached to the lease, because it can revoke the lease.
    pub fn check_put_access(&self, principal: &Principal, request: &PbPutRequest) -> Result<(), RpcError> {
        let key_range = KeyRange::One(request.key.clone());
        self.auth.check_write_access(principal, &key_range)?;
        self.check_revoke_access(principal, request.lease)?;
        if request.prev_kv { self.auth.check_read_access(principal, &key_range) } else { Ok(()) }
    }

    /// Checks the permissions of a deletion. A deletion writes its range; with `prev_kv` it also reads it.
    pub fn check_delete_access(&self, principal: &Principal, request: &PbDeleteRequest) -> Result<(), RpcError> {
        let key_range = KeyRange::new(&request.key, &request.range_end);
        self.auth.check_write_access(principal, &key_range)?;
        if request.prev_kv { self.auth.check_read_access(principal, &key_range) } else { Ok(()) }
    }

    /// Checks the permissions of a transaction. It needs the permissions of both branches, and reads what it compares.
    pub fn check_txn_access(&self, principal: &Principal, request: &PbTxnRequest) -> Result<(), RpcError> {
        for compare in &request.compare {
            self.auth.check_read_access(principal, &KeyRange::new(&compare.key, &compare.range_end))?;
        }
        for op in request.success.iter().chain(&request.failure) {
            match &op.request {
                Some(PbTxnOpRequest::RequestRange(request)) => {
                    self.auth.check_read_access(principal, &KeyRange::new(&request.key, &request.range_end))?;
                }
                Some(PbTxnOpRequest::RequestPut(request)) => self.check_put_access(principal, request)?,
                Some(PbTxnOpRequest::RequestDeleteRange(request)) => self.check_delete_access(principal, request)?,
                Some(PbTxnOpRequest::RequestTxn(request)) => self.check_txn_access(principal, request)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Checks the permissions to revoke a lease, which deletes its keys.
    pub fn check_revoke_access(&self, principal: &Principal, lease: i64) -> Result<(), RpcError> {
        let keys = self.leases.get(lease).into_iter().flat_map(|lease| &lease.keys);
        keys.map(|key| KeyRange::One(key.to_vec())).try_for_each(|key| self.auth.check_write_access(principal, &key))
    }
}
