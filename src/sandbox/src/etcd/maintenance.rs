//! The services of the member and of the cluster, which has one member.

use etcd_client::proto::{
    PbAlarmMember, PbAlarmRequest, PbAlarmResponse, PbClusterService, PbDefragmentRequest, PbDefragmentResponse,
    PbDowngradeInfo, PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest,
    PbHashResponse, PbMaintenanceService, PbMember, PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest,
    PbMemberListResponse, PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest,
    PbMemberRemoveResponse, PbMemberUpdateRequest, PbMemberUpdateResponse, PbMoveLeaderRequest, PbMoveLeaderResponse,
    PbSnapshotRequest, PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::{
    Etcd, RpcError,
    header::{MEMBER, TERM, header_at},
    services::ResponseStream,
};

/// Version that this etcd reports.
const VERSION: &str = "3.6.5";
/// `NOSPACE` among etcd's alarms.
const NOSPACE: i32 = 1;
/// Size of bbolt's smallest file in bytes.
const EMPTY_FILE: usize = 20 << 10;

type RpcResult<T> = Result<Response<T>, Status>;

fn not_supported<T>(what: &str) -> RpcResult<T> {
    Err(Status::unimplemented(format!("the sandbox's etcd has no {what}")))
}

pub(super) struct Maintenance(pub Etcd);

impl Maintenance {
    fn check_root(&self, metadata: &MetadataMap) -> Result<(), RpcError> {
        let mut state = self.0.state();
        let principal = state.auth.principal(metadata)?;
        state.auth.check_root(&principal)
    }
}

#[tonic::async_trait]
impl PbMaintenanceService for Maintenance {
    type SnapshotStream = ResponseStream<PbSnapshotResponse>;

    async fn alarm(&self, request: Request<PbAlarmRequest>) -> RpcResult<PbAlarmResponse> {
        let mut state = self.0.state();
        let principal = state.auth.principal(request.metadata())?;
        let raised = |full: bool| if full { vec![PbAlarmMember { member_id: MEMBER, alarm: NOSPACE }] } else { vec![] };
        let r = request.get_ref();
        // Actions: get, activate, deactivate. Both changes return the alarm that they changed.
        let alarms = match (r.action, r.alarm) {
            (0, 0 | NOSPACE) => raised(state.full),
            (action @ (1 | 2), NOSPACE) => {
                state.auth.check_root(&principal)?;
                let before = std::mem::replace(&mut state.full, action == 1);
                raised(before || action == 1)
            }
            _ => Vec::new(),
        };
        Ok(Response::new(PbAlarmResponse { header: state.header(), alarms }))
    }

    async fn status(&self, request: Request<PbStatusRequest>) -> RpcResult<PbStatusResponse> {
        self.check_root(request.metadata())?;
        let state = self.0.state();
        let index = state.revisions.revision().unsigned_abs() + 3;
        let bytes = state.revisions.bytes();
        let size = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(Response::new(PbStatusResponse {
            header: state.header(),
            version: VERSION.to_owned(),
            db_size: size(EMPTY_FILE + bytes),
            leader: MEMBER,
            raft_index: index,
            raft_term: TERM,
            raft_applied_index: index,
            errors: if state.full { vec![format!("memberID:{MEMBER} alarm:NOSPACE ")] } else { Vec::new() },
            db_size_in_use: size(EMPTY_FILE / 5 * 4 + bytes),
            is_learner: false,
            storage_version: "3.6.0".to_owned(),
            db_size_quota: 2 << 30,
            downgrade_info: Some(PbDowngradeInfo { enabled: false, target_version: String::new() }),
        }))
    }

    async fn defragment(&self, request: Request<PbDefragmentRequest>) -> RpcResult<PbDefragmentResponse> {
        self.check_root(request.metadata())?;
        Ok(Response::new(PbDefragmentResponse { header: None }))
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

    async fn move_leader(&self, _: Request<PbMoveLeaderRequest>) -> RpcResult<PbMoveLeaderResponse> {
        not_supported("other member")
    }

    async fn downgrade(&self, _: Request<PbDowngradeRequest>) -> RpcResult<PbDowngradeResponse> {
        not_supported("other version")
    }
}

pub(super) struct Cluster(pub Etcd);

#[tonic::async_trait]
impl PbClusterService for Cluster {
    async fn member_list(&self, _: Request<PbMemberListRequest>) -> RpcResult<PbMemberListResponse> {
        let urls = self.0.urls();
        let member = PbMember {
            id: MEMBER,
            name: "sandbox".to_owned(),
            peer_ur_ls: vec!["http://127.0.0.1:2380".to_owned()],
            client_ur_ls: urls,
            is_learner: false,
        };
        // Headers of the cluster service carry no revision.
        Ok(Response::new(PbMemberListResponse { header: Some(header_at(0)), members: vec![member] }))
    }

    async fn member_add(&self, _: Request<PbMemberAddRequest>) -> RpcResult<PbMemberAddResponse> {
        not_supported("other member")
    }

    async fn member_remove(&self, _: Request<PbMemberRemoveRequest>) -> RpcResult<PbMemberRemoveResponse> {
        not_supported("other member")
    }

    async fn member_update(&self, _: Request<PbMemberUpdateRequest>) -> RpcResult<PbMemberUpdateResponse> {
        not_supported("other member")
    }

    async fn member_promote(&self, _: Request<PbMemberPromoteRequest>) -> RpcResult<PbMemberPromoteResponse> {
        not_supported("other member")
    }
}
