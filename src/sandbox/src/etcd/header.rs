//! Header of every answer: the cluster, its only member, and a revision.

use etcd_client::proto::PbResponseHeader;

/// Cluster id in every header.
pub(super) const CLUSTER: u64 = 0xc4e7_0000_5a2d_b0c5;
/// Id of the only member.
pub(super) const MEMBER: u64 = 0x8e9e_05c5_2164_694d;
/// Raft term of the first leader.
pub(super) const TERM: u64 = 2;

/// Returns a header at a revision.
pub(super) fn header_at(revision: i64) -> PbResponseHeader {
    PbResponseHeader { cluster_id: CLUSTER, member_id: MEMBER, revision, raft_term: TERM }
}
