//! I46: an API server goes down while another one's etcd member is unhealthy.

use super::super::record::EtcdMember;
use super::{
    assert_breaches,
    scene::{Scene, address},
};

/// cp1 is rebooted, a minute after a fault of cp2's member.
fn scene(fault: impl FnOnce(&mut EtcdMember)) -> Scene {
    let mut s = with_member_fault(fault);
    s.add(0, "cp1");
    s.reboot(0, "cp1");
    s
}

/// A fault of cp2's member a minute ago.
fn with_member_fault(fault: impl FnOnce(&mut EtcdMember)) -> Scene {
    let mut s = Scene::new();
    let member = |s: &Scene, name: &str| EtcdMember { at: s.now, address: address(name), ..EtcdMember::default() };
    for name in ["cp1", "cp2", "cp3"] {
        let mut all = member(&s, name);
        all.at = jiff::Timestamp::UNIX_EPOCH;
        s.record.members.push(all);
    }
    let policy = serde_json::to_value(cketerm_model::policy::Policy::default()).unwrap();
    s.write("console", &[("cketerm/policy", policy)], &[]);
    let mut changed = member(&s, "cp2");
    fault(&mut changed);
    s.record.members.push(changed);
    s.advance(60.0);
    s
}

#[test]
fn i46_a_member_that_begins_to_fall_behind_was_healthy_until_then() {
    let with_later_fault = |fault: fn(&mut EtcdMember)| {
        let mut s = with_member_fault(|member| member.stopped = true);
        let mut changed = EtcdMember { at: s.now, address: address("cp2"), ..EtcdMember::default() };
        fault(&mut changed);
        s.record.members.push(changed);
        s.advance(1.0);
        s.add(0, "cp1");
        s.reboot(0, "cp1");
        s
    };
    assert_breaches(&with_later_fault(|member| member.behind = true), &[]);
    assert_breaches(&with_later_fault(|member| member.alarm = true), &["I46"]);
    assert_breaches(&with_later_fault(|member| (member.behind, member.stopped) = (true, true)), &["I46"]);
}

#[test]
fn i46_a_power_down_while_another_member_is_unhealthy_is_reported() {
    assert_breaches(&scene(|_| {}), &[]);
    assert_breaches(&scene(|member| member.stopped = true), &["I46"]);
    assert_breaches(&scene(|member| member.behind = true), &["I46"]);
    assert_breaches(&scene(|member| member.alarm = true), &["I46"]);
}

/// cp1's member is not reached by clients: it counts as down where the two others vote.
#[test]
fn i46_an_unreachable_member_may_go_down_while_the_others_are_a_quorum() {
    let with_unreachable_member = |fault: fn(&mut EtcdMember)| {
        let mut s = with_member_fault(fault);
        let at = s.record.members.last().unwrap().at;
        s.record.members.push(EtcdMember { at, address: address("cp1"), unreachable: true, ..EtcdMember::default() });
        s.add(0, "cp1");
        s.reboot(0, "cp1");
        s
    };
    assert_breaches(&with_unreachable_member(|member| member.alarm = true), &[]);
    assert_breaches(&with_unreachable_member(|member| member.stopped = true), &["I46"]);
}

#[test]
fn i46_a_cordon_while_another_member_is_unhealthy_is_reported() {
    let cordoned = |fault: fn(&mut EtcdMember)| {
        let mut s = scene(|_| {});
        let mut changed = EtcdMember { at: s.now, address: address("cp3"), ..EtcdMember::default() };
        fault(&mut changed);
        s.record.members.push(changed);
        s.advance(60.0);
        s.add(1, "cp2");
        s.moves(1, "draining");
        s.advance(0.5);
        s.cordon(1, "cp2");
        s.breaches().into_iter().filter(|b| b.code == "I46").count()
    };
    assert_eq!(cordoned(|_| {}), 0);
    assert_eq!(cordoned(|member| member.stopped = true), 1);
    // a learner has no vote
    assert_eq!(cordoned(|member| member.learner = true), 0);
}

#[test]
fn i46_nothing_is_reported_while_the_policy_does_not_check_members() {
    let mut s = scene(|member| member.stopped = true);
    let policy = s.record.keys.iter_mut().find(|change| change.key == "cketerm/policy").unwrap();
    let text = String::from_utf8(policy.value.clone().unwrap()).unwrap();
    policy.value = Some(text.replace("\"check\"", "\"none\"").into_bytes());
    assert_breaches(&s, &[]);
}
