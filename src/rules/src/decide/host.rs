//! Machines that do not recover because of their BareMetalHost: a power error, or a key that holds the host off
//! (MET-3). The result replaces a plain waiting reason; no decision depends on it.

use std::sync::Arc;

use cketerm_model::{
    host::{Hindrance, HostRow},
    reason::Reason,
};

use super::{Pass, entry_context::EntryContext};

impl<'a> Pass<'a> {
    /// Returns the reason of an entry whose command was sent, with the trouble of its host if the entry waits for that.
    /// A stuck entry stays stuck, and the trouble is added (I35).
    pub(super) fn with_host_reason(&self, ctx: EntryContext<'a>, reason: Reason) -> Reason {
        use Reason::{CommandRunning, WaitingForBoot, WaitingForHealth};
        if !matches!(reason, CommandRunning { .. } | WaitingForBoot { .. } | WaitingForHealth { .. }) {
            return reason;
        }
        let Some(why) = self.host_of(ctx).and_then(|host| host_trouble(host)) else { return reason };
        let with_previous = |last: String| if last.is_empty() { why.to_string() } else { format!("{last}; {why}") };
        if let Reason::WaitingForBoot { since, last, stuck: true, awaited } = reason {
            Reason::WaitingForBoot { since, last: with_previous(last), stuck: true, awaited }
        } else {
            why
        }
    }

    /// Returns the machine's BareMetalHost, if the cluster has that resource.
    fn host_of(&self, ctx: EntryContext<'a>) -> Option<&'a Arc<HostRow>> {
        let kube = &self.snap.kube;
        let node = self.node_of(ctx);
        kube.hosts.values().find(|host| {
            // Names first: there may be thousands of hosts.
            let named = |name: &str| [&*host.node, &*host.hostname, &*host.name].contains(&name);
            host.addresses.iter().any(|a| a == ctx.address)
                || node.is_some_and(|node| {
                    let is_candidate = named(&node.name) || host.addresses.iter().any(|a| node.addresses.contains(a));
                    is_candidate && kube.node_of_host(host).is_some_and(|(found, _)| found.name == node.name)
                })
        })
    }
}

/// Returns the reason why this host does not power on.
fn host_trouble(host: &HostRow) -> Option<Reason> {
    if let Some(Hindrance::Error(text)) = host.hindrance() {
        return Some(Reason::PowerError { text });
    }
    let keys: Vec<String> = host.asked.keys.keys().cloned().collect();
    (!keys.is_empty()).then_some(Reason::HeldByOtherKey { keys })
}
