//! Tests of the members through a client.

use super::*;
use crate::{
    sandbox::{durations::Durations, machines::Machine},
    store::members::{EtcdMembers, Whose},
};

fn members() -> Members {
    let machine = |i: u8| Machine {
        name: format!("cp-{i}"),
        address: format!("10.0.0.{i}"),
        control_plane: i < 4,
        ..Machine::default()
    };
    let clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
    let machines = Machines::new((1..=4).map(machine).collect(), Durations::default(), clock.clone(), 1);
    Members::new(machines, clock)
}

#[tokio::test(start_paused = true)]
async fn a_client_sees_three_members_of_which_one_leads() {
    let members = members();
    let mut client = members.client_at(FRONT).unwrap();
    let list = client.member_list().await.unwrap();
    assert_eq!(list.members().len(), 3);
    let url = list.members()[1].client_urls()[0].clone();
    let status = members.client_at(&url).unwrap().status().await.unwrap();
    assert_eq!(status.leader(), id("10.0.0.1"));
    assert!(status.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_leader_hands_over_and_nobody_else_does() {
    let members = members();
    let to = id("10.0.0.3");
    let mut follower = members.client_at("http://10.0.0.2:2379").unwrap();
    assert!(follower.move_leader(to).await.is_err());
    members.client_at("http://10.0.0.1:2379").unwrap().move_leader(to).await.unwrap();
    assert_eq!(members.leader().as_deref(), Some("10.0.0.3"));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_behind_stays_where_it_is_and_one_that_is_stopped_is_silent() {
    let members = members();
    assert!(members.trouble("10.0.0.2", Trouble { behind: true, ..Trouble::default() }));
    assert!(members.trouble("10.0.0.3", Trouble { stopped: true, ..Trouble::default() }));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mut leader = members.client_at("http://10.0.0.1:2379").unwrap();
    let mut behind = members.client_at("http://10.0.0.2:2379").unwrap();
    let (first, second) = (leader.status().await.unwrap(), behind.status().await.unwrap());
    assert!(second.raft_applied_index() + 90 < first.raft_index());
    assert!(members.client_at("http://10.0.0.3:2379").unwrap().status().await.is_err());
    // Two members are down, so there is no leader. A member still returns its own list.
    members.trouble("10.0.0.2", Trouble { stopped: true, ..Trouble::default() });
    assert!(leader.status().await.unwrap().errors()[0].contains("no leader"));
    assert_eq!(leader.member_list().await.unwrap().members().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_member_is_none_of_another_that_answers_at_its_url() {
    let members = members();
    let asked = members.clone();
    let clients = EtcdMembers::within(Vec::new(), move |url| asked.client_at(url));
    let status =
        async |address: &str, url: &str| clients.status(Whose::Kubernetes, id(address), &[url.to_owned()]).await;
    assert!(status("10.0.0.1", FRONT).await.is_ok());
    let why = status("10.0.0.2", FRONT).await.unwrap_err();
    assert!(why.contains("answers there"), "{why}");
    assert!(status("10.0.0.2", "http://10.0.0.2:2379").await.is_ok());
    // It works, but clients cannot reach it.
    members.trouble("10.0.0.2", Trouble { unreachable: true, ..Trouble::default() });
    assert!(status("10.0.0.2", "http://10.0.0.2:2379").await.is_err());
    assert!(members.leader().is_some());
    // A URL that hangs delays the others only briefly.
    let both = ["http://10.0.0.2:2379".to_owned(), "http://10.0.0.1:2379".to_owned()];
    assert!(clients.status(Whose::Kubernetes, id("10.0.0.1"), &both).await.is_ok());
}
