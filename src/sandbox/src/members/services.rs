//! The services of a member: status, alarms, move-leader and the member list.

use std::pin::Pin;

use etcd_client::proto::{
    PbAlarmMember, PbAlarmRequest, PbAlarmResponse, PbClusterService, PbDefragmentRequest, PbDefragmentResponse,
    PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest, PbHashResponse,
    PbMaintenanceService, PbMember, PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest, PbMemberListResponse,
    PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest, PbMemberRemoveResponse,
    PbMemberUpdateRequest, PbMemberUpdateResponse, PbMoveLeaderRequest, PbMoveLeaderResponse, PbResponseHeader,
    PbSnapshotRequest, PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use tonic::{Request, Response, Status};

use super::{MemberStatus, Members, id, url_host};

/// `NOSPACE` among etcd's alarms.
const NOSPACE: i32 = 1;
/// Cluster id, and the only raft term.
const CLUSTER: u64 = 0x6574_6364;
const TERM: u64 = 2;

type RpcResult<T> = Result<Response<T>, Status>;

fn not_supported<T>(what: &str) -> RpcResult<T> {
    Err(Status::unimplemented(format!("the sandbox's members of etcd have no {what}")))
}

/// Service of the member on a machine, or of any member that is up.
#[derive(Clone)]
pub(super) struct Service {
    pub members: Members,
    pub address: Option<String>,
}

impl Service {
    /// Returns the member that answers.
    fn responder(&self) -> Result<MemberStatus, Status> {
        let mut all = self.members.list().into_iter();
        let one = all.find(|m| {
            m.up && !m.trouble.unreachable && self.address.as_ref().is_none_or(|address| *address == m.address)
        });
        one.ok_or_else(|| Status::unavailable("connection refused or unreachable"))
    }

    fn alarms(&self) -> Vec<PbAlarmMember> {
        let raised = self.members.list().into_iter().filter(|member| member.trouble.alarm);
        raised.map(|member| PbAlarmMember { member_id: member.id, alarm: NOSPACE }).collect()
    }
}

#[allow(clippy::unnecessary_wraps)] // the messages need an `Option`
fn header(member: u64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader { cluster_id: CLUSTER, member_id: member, revision: 0, raft_term: TERM })
}

#[tonic::async_trait]
impl PbMaintenanceService for Service {
    type SnapshotStream = Pin<Box<dyn futures::Stream<Item = Result<PbSnapshotResponse, Status>> + Send>>;

    async fn alarm(&self, _: Request<PbAlarmRequest>) -> RpcResult<PbAlarmResponse> {
        let responder = self.responder()?;
        Ok(Response::new(PbAlarmResponse { header: header(responder.id), alarms: self.alarms() }))
    }

    async fn status(&self, _: Request<PbStatusRequest>) -> RpcResult<PbStatusResponse> {
        let responder = self.responder()?;
        let leader = self.members.leader();
        let mut errors: Vec<String> =
            self.alarms().iter().map(|alarm| format!("memberID:{} alarm:NOSPACE ", alarm.member_id)).collect();
        if leader.is_none() {
            errors.insert(0, "etcdserver: no leader".to_owned());
        }
        Ok(Response::new(PbStatusResponse {
            header: header(responder.id),
            version: "3.6.5".to_owned(),
            leader: leader.as_deref().map_or(0, id),
            // A leader that applies slowly still commits.
            raft_index: if leader.as_ref() == Some(&responder.address) {
                self.members.committed()
            } else {
                responder.applied
            },
            raft_term: TERM,
            raft_applied_index: responder.applied,
            errors,
            is_learner: responder.trouble.learner,
            ..PbStatusResponse::default()
        }))
    }

    async fn move_leader(&self, request: Request<PbMoveLeaderRequest>) -> RpcResult<PbMoveLeaderResponse> {
        let responder = self.responder()?;
        if self.members.leader().as_ref() != Some(&responder.address) {
            return Err(Status::failed_precondition("etcdserver: not leader"));
        }
        let to = request.get_ref().target_id;
        let to = self.members.list().into_iter().find(|member| member.id == to);
        if to.is_some_and(|member| self.members.set_leader(&member.address)) {
            return Ok(Response::new(PbMoveLeaderResponse { header: header(responder.id) }));
        }
        Err(Status::failed_precondition("etcdserver: bad leader transferee"))
    }

    async fn defragment(&self, _: Request<PbDefragmentRequest>) -> RpcResult<PbDefragmentResponse> {
        not_supported("file")
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> RpcResult<PbHashResponse> {
        not_supported("hash")
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> RpcResult<PbHashKvResponse> {
        not_supported("hash")
    }

    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> RpcResult<Self::SnapshotStream> {
        not_supported("snapshot")
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> RpcResult<PbDowngradeResponse> {
        not_supported("other version")
    }
}

#[tonic::async_trait]
impl PbClusterService for Service {
    async fn member_list(&self, request: Request<PbMemberListRequest>) -> RpcResult<PbMemberListResponse> {
        let responder = self.responder()?;
        if request.get_ref().linearizable && self.members.leader().is_none() {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        let member = |member: MemberStatus| PbMember {
            id: member.id,
            name: member.name,
            peer_ur_ls: vec![format!("http://{}:2380", url_host(&member.address))],
            client_ur_ls: vec![self.members.url(&member.address)],
            is_learner: member.trouble.learner,
        };
        let members = self.members.list().into_iter().map(member).collect();
        Ok(Response::new(PbMemberListResponse { header: header(responder.id), members }))
    }

    async fn member_add(&self, _: Request<PbMemberAddRequest>) -> RpcResult<PbMemberAddResponse> {
        not_supported("change of members")
    }

    async fn member_remove(&self, _: Request<PbMemberRemoveRequest>) -> RpcResult<PbMemberRemoveResponse> {
        not_supported("change of members")
    }

    async fn member_update(&self, _: Request<PbMemberUpdateRequest>) -> RpcResult<PbMemberUpdateResponse> {
        not_supported("change of members")
    }

    async fn member_promote(&self, _: Request<PbMemberPromoteRequest>) -> RpcResult<PbMemberPromoteResponse> {
        not_supported("change of members")
    }
}
