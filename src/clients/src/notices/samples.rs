//! A sample notice of every kind. Templates are checked with them, and `notices test` sends one.

use cketerm_model::{
    names::{Address, NodeName},
    notice::{Kind, Notice, Severity},
};
use jiff::Timestamp;

/// Returns a sample of this kind.
pub fn sample(kind: Kind) -> Notice {
    let at = Timestamp::from_second(1_780_000_000).unwrap_or_default();
    let mut n = match kind {
        Kind::Stuck => {
            let title = "reboots/12 on w12 needs an operator: BlockedByPDB";
            let mut n = Notice::new(kind, "stuck/reboots/12/BlockedByPDB".to_owned(), title.to_owned(), at);
            "pod shop/web-1 blocked by pdb shop/web (healthy 2, needs 2)".clone_into(&mut n.text);
            n.reason = Some("BlockedByPDB".to_owned());
            n.runbook = Some("docs/runbook.md#blockedbypdb".to_owned());
            n.since = Some(at);
            with_entry(n)
        }
        Kind::Failed => {
            let title = "reboot command of reboots/12 on w12 failed: exit 1";
            let mut n = Notice::new(kind, "failed/reboots/12/1".to_owned(), title.to_owned(), at);
            "ipmi-reboot 10.0.0.12: exit 1: no route to host".clone_into(&mut n.text);
            n.reason = Some("CommandFailed".to_owned());
            n.runbook = Some("docs/runbook.md#commandfailed".to_owned());
            with_entry(n)
        }
        Kind::Finished => {
            let title = "reboots/12 on w12 ended: booted";
            with_entry(Notice::new(kind, "ended/reboots/12".to_owned(), title.to_owned(), at))
        }
        Kind::Leader => Notice::new(kind, "leader".to_owned(), "boot-1 leads, before: boot-0".to_owned(), at),
        Kind::Approval => {
            let title = "a change of the definition waits for approval: 3f9a1c";
            Notice::new(kind, "approval/3f9a1c".to_owned(), title.to_owned(), at)
        }
        Kind::Freeze => {
            let title = "frozen until 2026-06-02T06:00:00Z: end of year";
            Notice::new(kind, "freeze".to_owned(), title.to_owned(), at)
        }
        Kind::Broken => {
            let title = "/cke/reboots/data/0000000000000007 cannot be read";
            Notice::new(kind, "broken//cke/reboots/data/0000000000000007".to_owned(), title.to_owned(), at)
        }
        Kind::Cleared => {
            let title = "resolved: reboots/12 on w12 needs an operator: BlockedByPDB";
            with_entry(Notice::new(kind, "stuck/reboots/12/BlockedByPDB".to_owned(), title.to_owned(), at))
        }
        Kind::Many => {
            let mut n = Notice::new(kind, "many".to_owned(), "8 notices: 5 finished, 3 failed".to_owned(), at);
            "reboots/12 on w12 ended: booted\ncommand of reboots/13 on w13 failed: exit 1".clone_into(&mut n.text);
            n.severity = Severity::Error;
            n.count = 8;
            n.counts = [("finished".to_owned(), 5), ("failed".to_owned(), 3)].into();
            n.ids = vec!["8a3f-41".to_owned(), "8a3f-42".to_owned()];
            n
        }
        Kind::Test => Notice::new(kind, "test".to_owned(), "a test: nothing has happened".to_owned(), at),
    };
    "8a3f-43".clone_into(&mut n.id);
    n.cluster = Some("sample".to_owned());
    n.cluster_uid = Some("7f0a3c52-1f6e-4a8a-9d0b-2f2f5c9f1d11".to_owned());
    "boot-0".clone_into(&mut n.leader);
    n
}

fn with_entry(mut n: Notice) -> Notice {
    n.entry = Some("reboots/12".to_owned());
    n.queue = Some("reboot".to_owned());
    n.index = Some(12);
    n.address = Some(Address::new("10.0.0.12"));
    n.node = Some(NodeName::new("w12"));
    n.role = Some("cs".to_owned());
    n.rack = Some("3".to_owned());
    n.requested_by = Some("anna@ops-1".to_owned());
    n.request_reason = Some("INC-1".to_owned());
    n
}
