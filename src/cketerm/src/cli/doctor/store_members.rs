//! Checks of the members of the etcd that holds the queues. Only cketerm's own rights are used: the list of members and
//! the status of each.

use cketerm_clients::store::{
    EtcdSettings,
    members::{EtcdCluster, EtcdMembers, MemberStatus},
};
use cketerm_model::etcd::Member;
use cketerm_rules::doctor::{Checks, Subject};
use futures::future::join_all;

const SUBJECT: Subject = Subject::Etcd;

/// Adds a check of each member of this etcd, and of what its loss would mean.
pub(super) async fn add(settings: &EtcdSettings, found: &mut Checks) {
    let members = EtcdMembers::network(None, settings.clone());
    let listed = match members.list(EtcdCluster::Own, &settings.endpoints).await {
        Ok(listed) => listed,
        Err(why) => {
            found.unknown(SUBJECT, format!("its members are not known: {why}"), "run `cketerm doctor` again");
            return;
        }
    };
    let asked = listed.iter().map(|(id, member)| {
        // An endpoint of the configuration may reach a member that this host cannot reach at its own URL.
        let urls: Vec<String> = settings.endpoints.iter().chain(&member.client_urls).cloned().collect();
        let members = &members;
        async move { (member, members.status(EtcdCluster::Own, *id, &urls).await) }
    });
    judge(&join_all(asked).await, found);
}

/// Judges the members by their answers.
fn judge(members: &[(&Member, Result<MemberStatus, String>)], found: &mut Checks) {
    let mut healthy = 0;
    for (member, answer) in members {
        let shown = member.shown();
        match answer {
            Ok(status) if !status.errors.is_empty() => found.failed(
                SUBJECT,
                format!("member {shown} reports {}", status.errors.join("; ")),
                "clear the alarm (docs/how-to/own-etcd.md)",
            ),
            Ok(status) if status.leader == 0 => found.failed(
                SUBJECT,
                format!("member {shown} follows no leader"),
                "let a majority of the members reach each other: until then nothing can be written",
            ),
            Ok(status) if status.learner => found.warning(
                SUBJECT,
                format!("member {shown} is a learner: it has no vote"),
                "promote it once it has caught up: `etcdctl member promote`",
            ),
            Ok(_) => healthy += 1,
            Err(why) => found.failed(
                SUBJECT,
                format!("member {shown} does not answer: {why}"),
                "start it, or let this host reach its client URL",
            ),
        }
    }
    let voters = members.iter().filter(|(member, _)| !member.learner).count();
    let needed = voters / 2 + 1;
    if healthy >= needed {
        let may_fail = match healthy - needed {
            0 => "none may fail".to_owned(),
            spare => format!("{spare} may fail"),
        };
        found.good(SUBJECT, format!("{healthy} of {voters} voting members are healthy; {may_fail}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_rules::doctor::Outcome;

    fn member(name: &str, learner: bool) -> Member {
        Member { name: name.to_owned(), learner, ..Member::default() }
    }

    #[allow(clippy::unnecessary_wraps)] // as the answers are
    fn status(leader: u64, errors: &[&str]) -> Result<MemberStatus, String> {
        let errors = errors.iter().map(|&e| e.to_owned()).collect();
        Ok(MemberStatus { leader, committed: 1, applied: 1, learner: false, errors })
    }

    #[test]
    fn each_member_that_is_not_healthy_is_named_with_a_remedy() {
        let (a, b, c) = (member("a", false), member("b", false), member("c", false));
        let mut found = Checks::default();
        judge(&[(&a, status(1, &[])), (&b, status(1, &["NOSPACE"])), (&c, Err("refused".to_owned()))], &mut found);
        let failed: Vec<&str> =
            found.0.iter().filter(|c| c.outcome == Outcome::Failed).map(|c| c.text.as_str()).collect();
        assert_eq!(failed, ["member b reports NOSPACE", "member c does not answer: refused"]);
        assert!(found.0.iter().all(|c| c.outcome == Outcome::Ok || c.remedy.is_some()));
        assert_eq!(found.count(Outcome::Ok), 0, "one of three is no majority");
    }

    #[test]
    fn healthy_members_say_how_many_may_fail() {
        let (a, b, c, d) = (member("a", false), member("b", false), member("c", false), member("d", true));
        let mut found = Checks::default();
        judge(&[(&a, status(1, &[])), (&b, status(1, &[])), (&c, status(1, &[]))], &mut found);
        assert_eq!(found.0[0].text, "3 of 3 voting members are healthy; 1 may fail");
        let mut found = Checks::default();
        judge(&[(&a, status(1, &[])), (&d, status(0, &[]))], &mut found);
        assert_eq!(found.0[0].text, "member d follows no leader");
        assert_eq!(found.0[1].text, "1 of 1 voting members are healthy; none may fail");
    }
}
