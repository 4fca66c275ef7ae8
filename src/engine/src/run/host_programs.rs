//! Programs of this host that the definition, the hooks and the file of BMCs name.

use std::sync::Arc;

use cketerm_clients::power::{BmcClients, BmcInventory, Version};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    stored::view::StoreView,
};
use cketerm_rules::snapshot::{BmcAccess, Engine};

use crate::{command::Spawner, preflight};

/// Time between two looks at programs that can appear and disappear by themselves.
const INTERVAL: Seconds = Seconds::new(5.0);

/// State of the looks at the host's programs.
#[derive(Default)]
pub(super) struct HostPrograms {
    /// Revisions of definition and policy, and version of the file of BMCs, at the last complete look.
    of: ((Option<i64>, Option<i64>), Option<Version>),
    /// Boot time of the next look at the programs that this host lacks.
    next: BootTime,
    /// File of BMCs that names programs of this host, and the boot time of the next look at them.
    power: Option<(Arc<BmcInventory>, BootTime)>,
}

impl HostPrograms {
    /// Looks at all programs after a change of their names, and at the missing ones once in a while.
    pub(super) fn look(
        &mut self,
        engine: &mut Engine,
        store: &StoreView,
        bmcs: &BmcClients,
        spawner: &Spawner,
        now: BootTime,
    ) {
        let cluster = store.cluster.as_ref().map(|cluster| cluster.mod_revision);
        let of = ((cluster, store.policy.as_ref().map(|policy| policy.mod_revision)), bmcs.version());
        let definition = store.definition();
        if of != self.of {
            self.of = of;
            engine.missing_programs = definition
                .map_or_else(Vec::new, |d| preflight::missing_programs(&d.cluster, &store.policy().hooks, spawner));
            let (access, programs) =
                definition.map_or((BmcAccess::Open, None), |d| preflight::bmc_access(&d.cluster, bmcs));
            engine.bmcs = access;
            self.power = programs.map(|inventory| (inventory, now + INTERVAL));
        }
        if !engine.missing_programs.is_empty() && self.next <= now {
            self.next = now + INTERVAL;
            engine.missing_programs.retain(|program| !spawner.has(program));
        }
        if let (Some((inventory, next)), Some(definition)) = (&mut self.power, definition)
            && *next <= now
        {
            *next = now + INTERVAL;
            engine.bmcs = preflight::bmc_access_by(&definition.cluster, inventory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Mutex};

    use cketerm_model::{
        attempt::Ended,
        cluster::{Cluster, Members},
        entry::Stored,
        stored::view::Definition,
    };
    use futures::future::BoxFuture;

    use super::*;
    use crate::command::{CommandLine, Commands};

    /// Programs that the host has.
    #[derive(Clone, Default)]
    struct Installed(Arc<Mutex<BTreeSet<String>>>);

    impl Installed {
        fn install(&self, program: &str) {
            self.0.lock().unwrap().insert(program.to_owned());
        }
    }

    impl Commands for Installed {
        fn has(&self, program: &str) -> bool {
            self.0.lock().unwrap().contains(program)
        }

        fn run(&self, _: CommandLine) -> BoxFuture<'static, (Ended, String, String)> {
            Box::pin(std::future::pending())
        }
    }

    /// etcd with a definition whose machines are rebooted by this program.
    fn store(mod_revision: i64, program: &str) -> StoreView {
        let text = format!("reboot: {{reboot_command: [{program}], boot_check_command: [check]}}");
        let cluster: Cluster = serde_yaml::from_str(&text).unwrap();
        let definition = Definition { members: Members::of(&cluster), cluster };
        let stored = Stored { key: String::new(), mod_revision, value: Ok(Arc::new(definition)) };
        StoreView { cluster: Some(stored), ..StoreView::default() }
    }

    #[test]
    fn a_program_is_missing_until_a_look_every_five_seconds_finds_it() {
        let host = Installed::default();
        let spawner = Spawner::elsewhere(host.clone());
        let (mut programs, mut engine) = (HostPrograms::default(), Engine::default());
        let mut missing_at = |second: f64, store: &StoreView| {
            programs.look(&mut engine, store, &BmcClients::network(None), &spawner, BootTime::new(second));
            engine.missing_programs.clone()
        };
        let ipmi = store(11, "ipmi");
        assert_eq!(missing_at(100.0, &ipmi), ["check", "ipmi"]);
        host.install("ipmi");
        assert_eq!(missing_at(104.9, &ipmi), ["check", "ipmi"], "it is not looked for in each pass");
        assert_eq!(missing_at(105.0, &ipmi), ["check"]);
        assert_eq!(
            missing_at(105.1, &store(12, "redfish")),
            ["check", "redfish"],
            "a new definition is examined at once"
        );
        host.install("check");
        host.install("redfish");
        assert!(missing_at(110.0, &store(12, "redfish")).is_empty());
        assert!(missing_at(111.0, &StoreView::default()).is_empty(), "without a definition nothing is missing");
    }
}
