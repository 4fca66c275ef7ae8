//! The gRPC services for keys and leases.

use std::pin::Pin;

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService, PbLeaseGrantRequest,
    PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse, PbLeaseLeasesRequest,
    PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse, PbLeaseService, PbLeaseStatus,
    PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse, PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse,
    PbRangeStreamResponse, PbTxnRequest, PbTxnResponse,
};
use futures::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    Etcd,
    auth::Principal,
    expiry,
    key_range::KeyRange,
    state::{RecordedTxn, State},
    txn, wire,
};
use crate::faults::USER_HEADER;

type RpcResult<T> = Result<Response<T>, Status>;
pub(super) type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Number of keys in one page of a streamed read.
const PAGE_SIZE: usize = 1000;

pub(super) struct Kv(pub Etcd);

impl Kv {
    fn read(&self, request: &Request<PbRangeRequest>) -> Result<PbRangeResponse, Status> {
        let r = request.get_ref();
        wire::check_message(wire::range_size(r))?;
        txn::check_range(r)?;
        let mut state = self.0.state();
        let principal = state.auth.principal(request.metadata())?;
        state.auth.check_read_access(&principal, &KeyRange::new(&r.key, &r.range_end))?;
        Ok(PbRangeResponse { header: state.header(), ..txn::range(&state.revisions, r)? })
    }
}

#[tonic::async_trait]
impl PbKvService for Kv {
    type RangeStreamStream = ResponseStream<PbRangeStreamResponse>;

    async fn range(&self, request: Request<PbRangeRequest>) -> RpcResult<PbRangeResponse> {
        Ok(Response::new(self.read(&request)?))
    }

    async fn range_stream(&self, request: Request<PbRangeRequest>) -> RpcResult<Self::RangeStreamStream> {
        let PbRangeResponse { header, kvs, more, count } = self.read(&request)?;
        let mut pages: Vec<PbRangeResponse> =
            kvs.chunks(PAGE_SIZE).map(|kvs| PbRangeResponse { header, kvs: kvs.to_vec(), more: true, count }).collect();
        if pages.is_empty() {
            pages.push(PbRangeResponse { header, count, ..PbRangeResponse::default() });
        }
        if let Some(last) = pages.last_mut() {
            last.more = more;
        }
        let pages = pages.into_iter().map(|page| Ok(PbRangeStreamResponse { range_response: Some(page) }));
        Ok(Response::new(stream::iter(pages.collect::<Vec<_>>()).boxed()))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> RpcResult<PbPutResponse> {
        let size = wire::put_size(request.get_ref());
        wire::check_message(size)?;
        txn::check_put(request.get_ref())?;
        let mut state = self.0.state();
        let principal = state.auth.principal(request.metadata())?;
        wire::check_write(size)?;
        let r = request.into_inner();
        state.check_put_access(&principal, &r)?;
        Ok(Response::new(state.put_request(r)?))
    }

    async fn delete_range(&self, request: Request<PbDeleteRequest>) -> RpcResult<PbDeleteResponse> {
        let size = wire::delete_size(request.get_ref());
        wire::check_message(size)?;
        txn::check_delete(request.get_ref())?;
        let mut state = self.0.state();
        let principal = state.auth.principal(request.metadata())?;
        wire::check_write(size)?;
        let r = request.into_inner();
        state.check_delete_access(&principal, &r)?;
        Ok(Response::new(state.delete_request(&r)))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> RpcResult<PbTxnResponse> {
        let size = wire::txn_size(request.get_ref());
        wire::check_message(size)?;
        let mut state = self.0.state();
        if let Err(rpc_error) = txn::check_txn(request.get_ref()) {
            state.record_refused_txn(&request);
            return Err(rpc_error.into());
        }
        let principal = state.auth.principal(request.metadata())?;
        let by = sender(&request);
        let r = request.into_inner();
        if txn::is_write(&r)
            && let Err(rpc_error) = wire::check_write(size)
        {
            state.record_txn(by, &r, false);
            return Err(rpc_error.into());
        }
        state.check_txn_access(&principal, &r)?;
        let recorded = state.sent.is_some().then(|| r.clone());
        let answer = state.txn_request(r)?;
        if let Some(request) = recorded {
            state.record_txn(by, &request, answer.succeeded);
        }
        Ok(Response::new(answer))
    }

    async fn compact(&self, request: Request<PbCompactionRequest>) -> RpcResult<PbCompactionResponse> {
        let mut state = self.0.state();
        state.auth.principal(request.metadata())?;
        state.compact(request.get_ref().revision)?;
        Ok(Response::new(PbCompactionResponse { header: state.header() }))
    }
}

/// Returns the sender of a request.
fn sender(request: &Request<PbTxnRequest>) -> String {
    request.metadata().get(USER_HEADER).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

impl State {
    /// Records a transaction while an observer listens.
    fn record_txn(&mut self, by: String, request: &PbTxnRequest, succeeded: bool) {
        let (at, revision) = (self.clock.wall(), self.revisions.revision());
        if let Some(sent) = &mut self.sent {
            sent.push(RecordedTxn { at, by, request: request.clone(), succeeded, revision });
        }
    }

    /// Records a transaction that was refused before it was evaluated.
    fn record_refused_txn(&mut self, request: &Request<PbTxnRequest>) {
        self.record_txn(sender(request), request.get_ref(), false);
    }
}

pub(super) struct Lease(pub Etcd);

#[tonic::async_trait]
impl PbLeaseService for Lease {
    type LeaseKeepAliveStream = ResponseStream<PbLeaseKeepAliveResponse>;

    async fn lease_grant(&self, request: Request<PbLeaseGrantRequest>) -> RpcResult<PbLeaseGrantResponse> {
        let mut state = self.0.state();
        state.auth.principal(request.metadata())?;
        let r = request.get_ref();
        state.check_space()?;
        let (id, ttl) = state.leases.grant(r.id, r.ttl)?;
        let header = state.header();
        expiry::schedule_expiry(&self.0, state);
        Ok(Response::new(PbLeaseGrantResponse { header, id, ttl, error: String::new() }))
    }

    async fn lease_revoke(&self, request: Request<PbLeaseRevokeRequest>) -> RpcResult<PbLeaseRevokeResponse> {
        let mut state = self.0.state();
        let principal = state.auth.principal(request.metadata())?;
        let id = request.get_ref().id;
        state.check_revoke_access(&principal, id)?;
        if !state.revoke(id) {
            return Err(super::RpcError::LeaseNotFound.into());
        }
        Ok(Response::new(PbLeaseRevokeResponse { header: state.header() }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> RpcResult<Self::LeaseKeepAliveStream> {
        let etcd = self.0.clone();
        let answers = request.into_inner().map(move |message| {
            let id = message?.id;
            let mut state = etcd.state();
            let ttl = state.leases.keep_alive(id).unwrap_or(0);
            Ok(PbLeaseKeepAliveResponse { header: state.header(), id, ttl })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> RpcResult<PbLeaseTimeToLiveResponse> {
        let mut state = self.0.state();
        let PbLeaseTimeToLiveRequest { id, keys } = *request.get_ref();
        // As in etcd: a caller that does not request the keys is not authenticated.
        let principal = if keys { state.auth.principal(request.metadata())? } else { Principal::Unchecked };
        state.auth.check_authenticated(&principal)?;
        let header = state.header();
        let Some(lease) = state.leases.get(id) else {
            let unknown = PbLeaseTimeToLiveResponse { header, id, ttl: -1, ..PbLeaseTimeToLiveResponse::default() };
            return Ok(Response::new(unknown));
        };
        if keys {
            for key in &lease.keys {
                state.auth.check_read_access(&principal, &KeyRange::One(key.to_vec()))?;
            }
        }
        let keys = if keys { lease.keys.iter().map(|k| k.to_vec()).collect() } else { Vec::new() };
        let (ttl, granted_ttl) = (lease.remaining_seconds(), lease.ttl);
        Ok(Response::new(PbLeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(&self, _: Request<PbLeaseLeasesRequest>) -> RpcResult<PbLeaseLeasesResponse> {
        let state = self.0.state();
        let mut all: Vec<_> = state.leases.iter().map(|(id, lease)| (lease.deadline, id)).collect();
        // As in etcd: sorted by deadline, earliest first.
        all.sort_unstable();
        let leases = all.into_iter().map(|(_, id)| PbLeaseStatus { id }).collect();
        Ok(Response::new(PbLeaseLeasesResponse { header: state.header(), leases }))
    }
}
