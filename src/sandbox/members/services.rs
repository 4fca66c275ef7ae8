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

use super::{Members, Seen, bracketed, id};

/// `NOSPACE` among etcd's alarms.
const NOSPACE: i32 = 1;
/// Cluster id, and the only raft term.
const CLUSTER: u64 = 0x6574_6364;
const TERM: u64 = 2;

type Answer<T> = Result<Response<T>, Status>;

fn missing<T>(what: &str) -> Answer<T> {
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
    fn here(&self) -> Result<Seen, Status> {
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

    async fn alarm(&self, _: Request<PbAlarmRequest>) -> Answer<PbAlarmResponse> {
        let here = self.here()?;
        Ok(Response::new(PbAlarmResponse { header: header(here.id), alarms: self.alarms() }))
    }

    async fn status(&self, _: Request<PbStatusRequest>) -> Answer<PbStatusResponse> {
        let here = self.here()?;
        let leader = self.members.leader();
        let mut errors: Vec<String> =
            self.alarms().iter().map(|alarm| format!("memberID:{} alarm:NOSPACE ", alarm.member_id)).collect();
        if leader.is_none() {
            errors.insert(0, "etcdserver: no leader".to_owned());
        }
        Ok(Response::new(PbStatusResponse {
            header: header(here.id),
            version: "3.6.5".to_owned(),
            leader: leader.as_deref().map_or(0, id),
            // A leader that applies slowly still commits.
            raft_index: if leader.as_ref() == Some(&here.address) { self.members.committed() } else { here.applied },
            raft_term: TERM,
            raft_applied_index: here.applied,
            errors,
            is_learner: here.trouble.learner,
            ..PbStatusResponse::default()
        }))
    }

    async fn move_leader(&self, request: Request<PbMoveLeaderRequest>) -> Answer<PbMoveLeaderResponse> {
        let here = self.here()?;
        if self.members.leader().as_ref() != Some(&here.address) {
            return Err(Status::failed_precondition("etcdserver: not leader"));
        }
        let to = request.get_ref().target_id;
        let to = self.members.list().into_iter().find(|member| member.id == to);
        if to.is_some_and(|member| self.members.lead(&member.address)) {
            return Ok(Response::new(PbMoveLeaderResponse { header: header(here.id) }));
        }
        Err(Status::failed_precondition("etcdserver: bad leader transferee"))
    }

    async fn defragment(&self, _: Request<PbDefragmentRequest>) -> Answer<PbDefragmentResponse> {
        missing("file")
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Answer<PbHashResponse> {
        missing("hash")
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Answer<PbHashKvResponse> {
        missing("hash")
    }

    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> Answer<Self::SnapshotStream> {
        missing("snapshot")
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> Answer<PbDowngradeResponse> {
        missing("other version")
    }
}

#[tonic::async_trait]
impl PbClusterService for Service {
    async fn member_list(&self, request: Request<PbMemberListRequest>) -> Answer<PbMemberListResponse> {
        let here = self.here()?;
        if request.get_ref().linearizable && self.members.leader().is_none() {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        let member = |member: Seen| PbMember {
            id: member.id,
            name: member.name,
            peer_ur_ls: vec![format!("http://{}:2380", bracketed(&member.address))],
            client_ur_ls: vec![self.members.url(&member.address)],
            is_learner: member.trouble.learner,
        };
        let members = self.members.list().into_iter().map(member).collect();
        Ok(Response::new(PbMemberListResponse { header: header(here.id), members }))
    }

    async fn member_add(&self, _: Request<PbMemberAddRequest>) -> Answer<PbMemberAddResponse> {
        missing("change of members")
    }

    async fn member_remove(&self, _: Request<PbMemberRemoveRequest>) -> Answer<PbMemberRemoveResponse> {
        missing("change of members")
    }

    async fn member_update(&self, _: Request<PbMemberUpdateRequest>) -> Answer<PbMemberUpdateResponse> {
        missing("change of members")
    }

    async fn member_promote(&self, _: Request<PbMemberPromoteRequest>) -> Answer<PbMemberPromoteResponse> {
        missing("change of members")
    }
}
