//! Reads, writes and transactions: validation of the request, and execution.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use etcd_client::proto::{
    PbCompare, PbCompareTarget, PbDeleteRequest, PbDeleteResponse, PbPutRequest, PbPutResponse, PbRangeRequest,
    PbRangeResponse, PbResponseHeader, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest,
    PbTxnRequestOp, PbTxnResponse,
};

use super::{
    Refusal,
    revisions::{Revisions, Version},
    span::Span,
    state::State,
    wire::key_value,
};

/// etcd's default limit of operations in one transaction (`--max-txn-ops`).
const MOST_OPS: usize = 128;

/// Returns a header inside a transaction. It carries only the revision.
#[allow(clippy::unnecessary_wraps)] // prost's messages need an `Option`
fn inner_header(revision: i64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader { revision, ..PbResponseHeader::default() })
}

/// Validates a read without looking at the keys.
pub(super) fn check_range(r: &PbRangeRequest) -> Result<(), Refusal> {
    if r.key.is_empty() {
        return Err(Refusal::EmptyKey);
    }
    if !(0..=2).contains(&r.sort_order) || !(0..=4).contains(&r.sort_target) {
        return Err(Refusal::InvalidSort);
    }
    Ok(())
}

/// Validates a put without looking at the keys.
pub(super) fn check_put(r: &PbPutRequest) -> Result<(), Refusal> {
    match r {
        r if r.key.is_empty() => Err(Refusal::EmptyKey),
        r if r.ignore_value && !r.value.is_empty() => Err(Refusal::ValueProvided),
        r if r.ignore_lease && r.lease != 0 => Err(Refusal::LeaseProvided),
        _ => Ok(()),
    }
}

/// Validates a deletion without looking at the keys.
pub(super) fn check_delete(r: &PbDeleteRequest) -> Result<(), Refusal> {
    if r.key.is_empty() { Err(Refusal::EmptyKey) } else { Ok(()) }
}

/// Validates a transaction: its size, its operations, and that no key is written twice.
pub(super) fn check_txn(r: &PbTxnRequest) -> Result<(), Refusal> {
    check_operations(r, MOST_OPS)?;
    written(&r.success)?;
    written(&r.failure)?;
    Ok(())
}

fn check_operations(r: &PbTxnRequest, most: usize) -> Result<(), Refusal> {
    let longest = r.compare.len().max(r.success.len()).max(r.failure.len());
    if longest > most {
        return Err(Refusal::TooManyOps);
    }
    if r.compare.iter().any(|c| c.key.is_empty()) {
        return Err(Refusal::EmptyKey);
    }
    for op in r.success.iter().chain(&r.failure) {
        match &op.request {
            None => return Err(Refusal::KeyNotFound),
            Some(PbTxnOpRequest::RequestRange(r)) => check_range(r)?,
            Some(PbTxnOpRequest::RequestPut(r)) => check_put(r)?,
            Some(PbTxnOpRequest::RequestDeleteRange(r)) => check_delete(r)?,
            Some(PbTxnOpRequest::RequestTxn(r)) => check_operations(r, most - longest)?,
        }
    }
    Ok(())
}

/// Returns the keys that a list of operations puts and the ranges that it deletes. A put must not overlap with another
/// put or a deletion. Both branches of a nested transaction may put the same key, because only one of them is executed.
fn written(ops: &[PbTxnRequestOp]) -> Result<(BTreeSet<&[u8]>, Vec<Span>), Refusal> {
    let mut deleted: Vec<Span> = ops
        .iter()
        .filter_map(|op| match &op.request {
            Some(PbTxnOpRequest::RequestDeleteRange(r)) => Some(Span::new(&r.key, &r.range_end)),
            _ => None,
        })
        .collect();
    let mut put = BTreeSet::new();
    for op in ops {
        let Some(PbTxnOpRequest::RequestTxn(inner)) = &op.request else { continue };
        let (then, then_deleted) = written(&inner.success)?;
        let (otherwise, otherwise_deleted) = written(&inner.failure)?;
        let both: BTreeSet<&[u8]> = then.union(&otherwise).copied().collect();
        if both.iter().any(|key| put.contains(key) || deleted.iter().any(|span| span.contains(key))) {
            return Err(Refusal::DuplicateKey);
        }
        put.extend(both);
        deleted.extend(then_deleted.into_iter().chain(otherwise_deleted));
    }
    for op in ops {
        let Some(PbTxnOpRequest::RequestPut(r)) = &op.request else { continue };
        if deleted.iter().any(|span| span.contains(&r.key)) || !put.insert(&r.key) {
            return Err(Refusal::DuplicateKey);
        }
    }
    Ok((put, deleted))
}

/// Reports whether a transaction may change anything. A transaction that only reads is not written to the Raft log.
pub(super) fn writes(r: &PbTxnRequest) -> bool {
    r.success.iter().chain(&r.failure).any(|op| match &op.request {
        Some(PbTxnOpRequest::RequestTxn(r)) => writes(r),
        Some(PbTxnOpRequest::RequestPut(_) | PbTxnOpRequest::RequestDeleteRange(_)) => true,
        Some(PbTxnOpRequest::RequestRange(_)) | None => false,
    })
}

/// Executes a read.
pub(super) fn range(revisions: &Revisions, r: &PbRangeRequest) -> Result<PbRangeResponse, Refusal> {
    revisions.check(r.revision)?;
    let span = Span::new(&r.key, &r.range_end);
    let header = inner_header(revisions.visible());
    let mut found: Vec<&Arc<Version>> = revisions.range(&span, r.revision).collect();
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    if r.count_only {
        return Ok(PbRangeResponse { header, count, ..PbRangeResponse::default() });
    }
    let within = |value: i64, least: i64, most: i64| (least == 0 || value >= least) && (most == 0 || value <= most);
    found.retain(|v| {
        within(v.mod_revision, r.min_mod_revision, r.max_mod_revision)
            && within(v.create_revision, r.min_create_revision, r.max_create_revision)
    });
    let limit = usize::try_from(r.limit).ok().filter(|l| *l > 0).unwrap_or(usize::MAX);
    let bounds = [r.min_mod_revision, r.max_mod_revision, r.min_create_revision, r.max_create_revision];
    if r.sort_order == 0 && bounds == [0; 4] {
        // As in etcd: without an order it reads no more than it must, but sorts the keys that it has read anyway.
        found.truncate(limit.saturating_add(1));
    }
    // Sort targets: key, version, create revision, mod revision, value.
    match r.sort_target {
        1 => found.sort_by_key(|v| v.version),
        2 => found.sort_by_key(|v| v.create_revision),
        3 => found.sort_by_key(|v| v.mod_revision),
        4 => found.sort_by(|a, b| a.value.cmp(&b.value)),
        _ => {}
    }
    if r.sort_order == 2 {
        found.reverse();
    }
    let more = found.len() > limit;
    let mut kvs: Vec<_> = found.into_iter().take(limit).map(|v| key_value(v)).collect();
    if r.keys_only {
        for kv in &mut kvs {
            kv.value = Vec::new();
        }
    }
    Ok(PbRangeResponse { header, kvs, more, count })
}

impl State {
    /// Checks the preconditions of a put: the key whose value or lease it keeps, and its lease.
    fn ready_to_put(&self, r: &PbPutRequest) -> Result<(), Refusal> {
        if (r.ignore_value || r.ignore_lease) && self.revisions.get(&r.key).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        if r.lease != 0 && self.leases.get(r.lease).is_none() {
            return Err(Refusal::LeaseNotFound);
        }
        Ok(())
    }

    fn apply_put(&mut self, r: PbPutRequest) -> PbPutResponse {
        let before = self.revisions.get(&r.key).cloned();
        let kept = |keep: bool| before.as_deref().filter(|_| keep);
        let value = kept(r.ignore_value).and_then(|b| b.value.clone()).unwrap_or_else(|| Bytes::from(r.value));
        let lease = kept(r.ignore_lease).map_or(r.lease, |b| b.lease);
        self.put(&r.key, value, lease);
        let prev_kv = kept(r.prev_kv).map(key_value);
        PbPutResponse { header: inner_header(self.revisions.visible()), prev_kv }
    }

    fn apply_delete(&mut self, r: &PbDeleteRequest) -> PbDeleteResponse {
        let found = self.delete(&Span::new(&r.key, &r.range_end));
        let prev_kvs = if r.prev_kv { found.iter().map(|v| key_value(v)).collect() } else { Vec::new() };
        let deleted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        PbDeleteResponse { header: inner_header(self.revisions.visible()), deleted, prev_kvs }
    }

    /// Executes a single put.
    pub fn put_request(&mut self, r: PbPutRequest) -> Result<PbPutResponse, Refusal> {
        self.must_have_space()?;
        self.ready_to_put(&r)?;
        let answer = self.apply_put(r);
        self.finish();
        Ok(PbPutResponse { header: self.header(), ..answer })
    }

    /// Executes a single deletion.
    pub fn delete_request(&mut self, r: &PbDeleteRequest) -> PbDeleteResponse {
        let answer = self.apply_delete(r);
        self.finish();
        PbDeleteResponse { header: self.header(), ..answer }
    }

    /// Executes a transaction. All comparisons, also those of nested transactions, see the state before it. A failure
    /// of any operation is detected before the first one is executed.
    pub fn txn_request(&mut self, r: PbTxnRequest) -> Result<PbTxnResponse, Refusal> {
        if !written(&r.success)?.0.is_empty() || !written(&r.failure)?.0.is_empty() {
            self.must_have_space()?;
        }
        let mut path = Vec::new();
        self.decide(&r, &mut path)?;
        let mut path = path.into_iter();
        let answer = self.apply_txn(r, &mut path)?;
        self.finish();
        Ok(PbTxnResponse { header: self.header(), ..answer })
    }

    /// Records the branches that are taken, outermost first. Checks that all their operations can be executed.
    fn decide(&self, r: &PbTxnRequest, path: &mut Vec<bool>) -> Result<(), Refusal> {
        let succeeded = r.compare.iter().all(|c| self.holds(c));
        path.push(succeeded);
        for op in if succeeded { &r.success } else { &r.failure } {
            match &op.request {
                Some(PbTxnOpRequest::RequestRange(r)) => self.revisions.check(r.revision)?,
                Some(PbTxnOpRequest::RequestPut(r)) => self.ready_to_put(r)?,
                Some(PbTxnOpRequest::RequestTxn(r)) => self.decide(r, path)?,
                Some(PbTxnOpRequest::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    fn apply_txn(&mut self, r: PbTxnRequest, path: &mut std::vec::IntoIter<bool>) -> Result<PbTxnResponse, Refusal> {
        let succeeded = path.next().unwrap_or_default();
        let mut responses = Vec::new();
        for op in if succeeded { r.success } else { r.failure } {
            let response = match op.request {
                Some(PbTxnOpRequest::RequestRange(r)) => PbTxnOpResponse::ResponseRange(range(&self.revisions, &r)?),
                Some(PbTxnOpRequest::RequestPut(r)) => PbTxnOpResponse::ResponsePut(self.apply_put(r)),
                Some(PbTxnOpRequest::RequestDeleteRange(r)) => {
                    PbTxnOpResponse::ResponseDeleteRange(self.apply_delete(&r))
                }
                Some(PbTxnOpRequest::RequestTxn(r)) => PbTxnOpResponse::ResponseTxn(self.apply_txn(r, path)?),
                None => continue,
            };
            responses.push(PbResponseOp { response: Some(response) });
        }
        Ok(PbTxnResponse { header: Some(PbResponseHeader::default()), succeeded, responses })
    }

    /// Reports whether a comparison holds for every key of its range. A missing key compares as zeros. A comparison of
    /// a missing key's value never holds.
    fn holds(&self, c: &PbCompare) -> bool {
        let found: Vec<&Arc<Version>> = self.revisions.range(&Span::new(&c.key, &c.range_end), 0).collect();
        if found.is_empty() {
            return c.target != PbCompareTarget::Value as i32 && compares(c, None);
        }
        found.into_iter().all(|v| compares(c, Some(v)))
    }
}

fn compares(c: &PbCompare, version: Option<&Version>) -> bool {
    let number = |of: fn(&Version) -> i64| version.map_or(0, of);
    let asked = match &c.target_union {
        Some(
            PbTargetUnion::Version(n)
            | PbTargetUnion::CreateRevision(n)
            | PbTargetUnion::ModRevision(n)
            | PbTargetUnion::Lease(n),
        ) => *n,
        _ => 0,
    };
    let order = match c.target {
        0 => number(|v| v.version).cmp(&asked),
        1 => number(|v| v.create_revision).cmp(&asked),
        2 => number(|v| v.mod_revision).cmp(&asked),
        3 => {
            let asked: &[u8] = match &c.target_union {
                Some(PbTargetUnion::Value(value)) => value,
                _ => &[],
            };
            version.and_then(|v| v.value.as_deref()).unwrap_or_default().cmp(asked)
        }
        4 => number(|v| v.lease).cmp(&asked),
        _ => Ordering::Equal,
    };
    match c.result {
        0 => order == Ordering::Equal,
        1 => order == Ordering::Greater,
        2 => order == Ordering::Less,
        3 => order != Ordering::Equal,
        _ => true,
    }
}
