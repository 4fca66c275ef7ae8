//! I46: an API server goes down while another one's etcd member is unhealthy.

use super::super::record::EtcdMember;
use super::{
    scene::{Scene, address},
    sees,
};

/// cp1 is rebooted, a minute after a fault of cp2's member.
fn scene(trouble: impl FnOnce(&mut EtcdMember)) -> Scene {
    let mut s = troubled(trouble);
    s.add(0, "cp1");
    s.reboot(0, "cp1");
    s
}

/// A fault of cp2's member a minute ago.
fn troubled(trouble: impl FnOnce(&mut EtcdMember)) -> Scene {
    let mut s = Scene::new();
    let member = |s: &Scene, name: &str| EtcdMember { at: s.now, address: address(name), ..EtcdMember::default() };
    for name in ["cp1", "cp2", "cp3"] {
        let mut all = member(&s, name);
        all.at = jiff::Timestamp::UNIX_EPOCH;
        s.record.members.push(all);
    }
    let policy = serde_json::to_value(cketerm::model::policy::Policy::default()).unwrap();
    s.write("console", &[("cketerm/policy", policy)], &[]);
    let mut changed = member(&s, "cp2");
    trouble(&mut changed);
    s.record.members.push(changed);
    s.pass(60.0);
    s
}

#[test]
fn i46_a_member_that_begins_to_fall_behind_had_caught_up_until_then() {
    let then = |trouble: fn(&mut EtcdMember)| {
        let mut s = troubled(|member| member.stopped = true);
        let mut changed = EtcdMember { at: s.now, address: address("cp2"), ..EtcdMember::default() };
        trouble(&mut changed);
        s.record.members.push(changed);
        s.pass(1.0);
        s.add(0, "cp1");
        s.reboot(0, "cp1");
        s
    };
    sees(&then(|member| member.behind = true), &[]);
    sees(&then(|member| member.alarm = true), &["I46"]);
    sees(&then(|member| (member.behind, member.stopped) = (true, true)), &["I46"]);
}

#[test]
fn i46_an_api_server_that_goes_down_while_another_member_is_not_well_is_seen() {
    sees(&scene(|_| {}), &[]);
    sees(&scene(|member| member.stopped = true), &["I46"]);
    sees(&scene(|member| member.behind = true), &["I46"]);
    sees(&scene(|member| member.alarm = true), &["I46"]);
}

/// cp1's member is not reached by clients: it counts as down where the two others vote.
#[test]
fn i46_the_host_of_a_member_that_nobody_reaches_may_go_down_while_the_others_are_a_quorum() {
    let unreached = |trouble: fn(&mut EtcdMember)| {
        let mut s = troubled(trouble);
        let at = s.record.members.last().unwrap().at;
        s.record.members.push(EtcdMember { at, address: address("cp1"), unreachable: true, ..EtcdMember::default() });
        s.add(0, "cp1");
        s.reboot(0, "cp1");
        s
    };
    sees(&unreached(|member| member.alarm = true), &[]);
    sees(&unreached(|member| member.stopped = true), &["I46"]);
}

#[test]
fn i46_a_cordon_of_its_machine_alone_is_seen() {
    let cordoned = |trouble: fn(&mut EtcdMember)| {
        let mut s = scene(|_| {});
        let mut changed = EtcdMember { at: s.now, address: address("cp3"), ..EtcdMember::default() };
        trouble(&mut changed);
        s.record.members.push(changed);
        s.pass(60.0);
        s.add(1, "cp2");
        s.moves(1, "draining");
        s.pass(0.5);
        s.cordon(1, "cp2");
        s.breaches().into_iter().filter(|b| b.code == "I46").count()
    };
    assert_eq!(cordoned(|_| {}), 0);
    assert_eq!(cordoned(|member| member.stopped = true), 1);
    // a learner has no vote
    assert_eq!(cordoned(|member| member.learner = true), 0);
}

#[test]
fn i46_one_of_three_is_nobodys_while_a_person_answers_for_the_quorum() {
    let mut s = scene(|member| member.stopped = true);
    let policy = s.record.keys.iter_mut().find(|change| change.key == "cketerm/policy").unwrap();
    let text = String::from_utf8(policy.value.clone().unwrap()).unwrap();
    policy.value = Some(text.replace("\"check\"", "\"none\"").into_bytes());
    sees(&s, &[]);
}
