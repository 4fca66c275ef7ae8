//! Members of the Kubernetes etcd as an engine saw them: voters, progress and leader.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use super::boot_time::BootTime;

/// Origin of the list of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// None: no way to query them, or not queried yet.
    #[default]
    Nothing,
    /// The section `cluster_etcd` of the local configuration.
    Configured,
    /// cketerm's own store. It counts only if it holds the objects of Kubernetes, and each of its voting members is on a
    /// control plane.
    OwnStore,
}

/// All members, with their last answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EtcdView {
    /// Origin of the list.
    pub source: Source,
    /// Members by id; empty until the first list.
    pub members: BTreeMap<u64, Member>,
    /// Whether cketerm's own store was seen to hold the objects of Kubernetes. An etcd of cketerm's own on the control
    /// planes does not, and its health proves nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_store_is_kubernetes: bool,
    /// The error of the last list, until one succeeds.
    pub error: Option<String>,
    /// The raft index that the leader reported first in this round.
    pub reported: Option<Reported>,
    /// Static Pods of etcd and whether each is Ready (kubeadm). They are shown if no member can be queried, and are
    /// never proof.
    pub static_pods: BTreeMap<String, bool>,
}

/// One member of the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its name; empty until its first start.
    pub name: String,
    /// Whether it is a learner, which has no vote.
    pub learner: bool,
    /// URLs for the other members.
    pub peer_urls: Vec<String>,
    /// URLs for clients.
    pub client_urls: Vec<String>,
    /// Addresses to which the host names in its URLs resolve.
    pub resolved: Vec<String>,
    /// Its last answer.
    pub state: MemberState,
}

/// Last answer of a member to a request for its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Not queried yet.
    #[default]
    Unasked,
    /// No answer.
    Silent {
        /// Boot time of the request.
        asked: BootTime,
        /// The error.
        why: String,
    },
    /// An answer.
    Answered(Status),
}

/// Status that a member reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Boot time of the request.
    pub asked: BootTime,
    /// Boot time of the answer.
    pub at: BootTime,
    /// The member that it follows; 0 = none.
    pub leader: u64,
    /// The raft index that it has committed.
    pub committed: u64,
    /// The raft index that it has applied.
    pub applied: u64,
    /// Alarms and errors that it reports.
    pub errors: Vec<String>,
}

/// Raft index with which all voting members are compared in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// The leader that reported it.
    pub leader: u64,
    /// The index.
    pub index: u64,
    /// Boot time of the report.
    pub at: BootTime,
}

impl Member {
    /// Returns its name for display, or its peer URL until its first start.
    pub fn shown(&self) -> &str {
        if self.name.is_empty() { self.peer_urls.first().map_or("unnamed", String::as_str) } else { &self.name }
    }

    /// Returns the hosts in its URLs and their resolved addresses, except those that every machine has.
    pub fn hosts(&self) -> impl Iterator<Item = String> {
        let urls = self.peer_urls.iter().chain(&self.client_urls).filter_map(|url| host(url));
        urls.chain(self.resolved.iter().cloned()).filter(|host| !is_unspecific(host))
    }

    /// Returns its last answer, if it gave one.
    pub fn status(&self) -> Option<&Status> {
        match &self.state {
            MemberState::Answered(status) => Some(status),
            MemberState::Unasked | MemberState::Silent { .. } => None,
        }
    }
}

/// Returns the host of a URL: an address in its usual form, or a lower-case name.
pub fn host(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => authority.split(':').next()?,
    };
    let normalized =
        |host: &str| host.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |ip| ip.to_string());
    (!host.is_empty()).then(|| normalized(host))
}

/// Reports whether an address or name does not identify a machine.
fn is_unspecific(host: &str) -> bool {
    let is_unspecific_ip = |ip: IpAddr| {
        ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
    };
    host == "localhost" || host.parse().is_ok_and(is_unspecific_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_parsed_from_every_form_of_url() {
        for (url, expected) in [
            ("https://10.0.0.1:2379", Some("10.0.0.1")),
            ("http://[fd00::0:1]:2380/x", Some("fd00::1")),
            ("https://user:word@ETCD-1.site:2379", Some("etcd-1.site")),
            ("10.0.0.1:2379", Some("10.0.0.1")),
            ("https://", None),
        ] {
            assert_eq!(host(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn loopback_and_unspecified_addresses_identify_no_host() {
        let urls = ["https://127.0.0.1:2379", "https://[::1]:2379", "https://0.0.0.0:2379", "https://localhost:2379"];
        let member = Member {
            client_urls: urls.map(str::to_owned).to_vec(),
            peer_urls: vec!["https://127.0.0.11:2380".to_owned()],
            ..Member::default()
        };
        assert_eq!(member.hosts().collect::<Vec<_>>(), ["127.0.0.11"]);
    }
}
