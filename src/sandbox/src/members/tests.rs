//! Tests of the members through a client.

use cketerm_clients::store::members::{EtcdCluster, EtcdMembers};

use super::*;
use crate::{durations::Durations, machines::Machine};

fn members() -> Members {
    let machine = |i: u8| Machine {
        name: format!("cp-{i}"),
        address: format!("10.0.0.{i}"),
        control_plane: i < 4,
        ..Machine::default()
    };
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let machines = Machines::new((1..=4).map(machine).collect(), Durations::default(), clock.clone(), 1);
    Members::new(machines, clock)
}

#[tokio::test(start_paused = true)]
async fn a_client_lists_three_members_with_one_leader() {
    let members = members();
    let mut client = members.client_at(ANY_MEMBER_URL).unwrap();
    let list = client.member_list().await.unwrap();
    assert_eq!(list.members().len(), 3);
    let url = list.members()[1].client_urls()[0].clone();
    let status = members.client_at(&url).unwrap().status().await.unwrap();
    assert_eq!(status.leader(), id("10.0.0.1"));
    assert!(status.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_can_move_leadership() {
    let members = members();
    let to = id("10.0.0.3");
    let mut follower = members.client_at("http://10.0.0.2:2379").unwrap();
    assert!(follower.move_leader(to).await.is_err());
    members.client_at("http://10.0.0.1:2379").unwrap().move_leader(to).await.unwrap();
    assert_eq!(members.leader().as_deref(), Some("10.0.0.3"));
}

#[tokio::test(start_paused = true)]
async fn a_lagging_member_stops_applying_and_a_stopped_one_does_not_answer() {
    let members = members();
    assert!(members.trouble("10.0.0.2", MemberFaults { behind: true, ..MemberFaults::default() }));
    assert!(members.trouble("10.0.0.3", MemberFaults { stopped: true, ..MemberFaults::default() }));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mut leader = members.client_at("http://10.0.0.1:2379").unwrap();
    let mut behind = members.client_at("http://10.0.0.2:2379").unwrap();
    let (first, second) = (leader.status().await.unwrap(), behind.status().await.unwrap());
    assert!(second.raft_applied_index() + 90 < first.raft_index());
    assert!(members.client_at("http://10.0.0.3:2379").unwrap().status().await.is_err());
    // Two members are down, so there is no leader. A member still returns its own list.
    members.trouble("10.0.0.2", MemberFaults { stopped: true, ..MemberFaults::default() });
    assert!(leader.status().await.unwrap().errors()[0].contains("no leader"));
    assert_eq!(leader.member_list().await.unwrap().members().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_status_from_another_member_at_the_same_url_is_rejected() {
    let members = members();
    let source = members.clone();
    let clients = EtcdMembers::in_process(Vec::new(), move |url| source.client_at(url));
    let status =
        async |address: &str, url: &str| clients.status(EtcdCluster::Kubernetes, id(address), &[url.to_owned()]).await;
    assert!(status("10.0.0.1", ANY_MEMBER_URL).await.is_ok());
    let why = status("10.0.0.2", ANY_MEMBER_URL).await.unwrap_err();
    assert!(why.contains("answers there"), "{why}");
    assert!(status("10.0.0.2", "http://10.0.0.2:2379").await.is_ok());
    // It works, but clients cannot reach it.
    members.trouble("10.0.0.2", MemberFaults { unreachable: true, ..MemberFaults::default() });
    assert!(status("10.0.0.2", "http://10.0.0.2:2379").await.is_err());
    assert!(members.leader().is_some());
    // A URL that hangs delays the others only briefly.
    let both = ["http://10.0.0.2:2379".to_owned(), "http://10.0.0.1:2379".to_owned()];
    assert!(clients.status(EtcdCluster::Kubernetes, id("10.0.0.1"), &both).await.is_ok());
}
