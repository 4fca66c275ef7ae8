//! The guide for a site without CKE, on real servers: 3 control planes and 9 workers whose boots take 15 s, with the
//! default policy. Meanwhile Nodes join and leave.

use serde_json::Value;

use super::{
    Reader, commands,
    members::{ClusterEtcd, api_servers},
    own_etcd::OwnEtcd,
};
use crate::{
    stalls::Stopwatch,
    world::{Options, World, cluster::Machine, cluster::machines, program::Daemon, wait_for},
};

const GUIDE: &str = include_str!("../../../docs/how-to/without-cke.md");

/// First three parts of the control planes' addresses.
const NETWORK: &str = "127.0.49";

/// Three control planes at loopback addresses, and ten workers.
fn site() -> Vec<Machine> {
    let all = machines(3, 10).into_iter().zip(1_u8..);
    all.map(|(machine, i)| {
        let address = if machine.control_plane { format!("{NETWORK}.{i}") } else { machine.address };
        Machine { address, ..machine }
    })
    .collect()
}

#[test]
fn a_site_without_cke_is_set_up_and_rebooted_by_its_guide() {
    let Some(world) = World::start(Options { kcm: true, kwok: true, audit: true, etcd34: false, scheduler: false })
    else {
        return;
    };
    let Some(kubernetes_etcd) = ClusterEtcd::start(world.dir(), NETWORK) else { return };
    let Some((_etcd, reader)) = OwnEtcd::start(world.dir(), "127.0.48") else { return };
    let all = site();
    world.add_nodes(&all[..12]);
    api_servers(&world, all[..3].iter().map(|machine| machine.address.clone()));
    world.set_command_seconds(15);
    let began = Stopwatch::start();

    let mut reader = at_this_site(&world, &kubernetes_etcd, reader);
    reader.run_all(&commands(GUIDE, "1. Give cketerm an account in Kubernetes"));
    let [init] = &commands(GUIDE, "2. Write the configuration and the definition")[..] else { panic!("one command") };
    let dry = reader.run(&format!("{init} --dry-run"));
    assert!(dry.contains("nothing was written") && !world.dir().join("etc/config.yaml").exists(), "{dry}");
    let said = reader.run(init);
    for words in
        ["12 Nodes, 3 of them control planes", "stored the definition with 12 members", "plan of a first reboot, of w1"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    let again = reader.run(&without_new_settings(init));
    assert!(again.contains("kept the stored definition"), "{again}");

    // before an engine runs, only that is wrong
    let [doctor] = &commands(GUIDE, "3. Check")[..] else { panic!("one command") };
    let checks: Value =
        serde_json::from_str(reader.run(&format!("{doctor} -o json 2>/dev/null")).trim()).expect("JSON");
    let problems: Vec<&Value> =
        checks["checks"].as_array().expect("checks").iter().filter(|check| check["outcome"] != "ok").collect();
    assert!(problems.len() == 1 && problems[0]["text"] == "nobody processes the queues", "{problems:#?}");

    let [start, leader] = &commands(GUIDE, "4. Start the engines")[..] else { panic!("two commands") };
    assert!(start.starts_with("systemctl enable --now cketerm"), "{start}");
    let config = world.dir().join("etc/config.yaml");
    let _engines = ["engine-1", "engine-2"].map(|name| Daemon::start(world.dir(), &config, name));
    wait_for("an engine leads", 60, || reader.attempt(leader).ok());

    let rolling = commands(GUIDE, "5. Reboot");
    reader.run_all(&rolling[..2]);
    // Nodes join and leave during the rolling reboot
    reader.run(&rolling[2]);
    world.add_nodes(&all[12..]);
    wait_for("the new Node is a member", 60, || reader.run("cketerm membership list").contains("w10").then_some(()));
    world.ok("DELETE", "/api/v1/nodes/w1", None);
    reader.run_all(&rolling[3..]);
    let seconds = began.elapsed().as_secs();
    eprintln!("from nothing to the end of the first rolling reboot: {seconds} s");

    let rebooted: Vec<String> = world.power().into_iter().filter(|p| p.what == "end").map(|p| p.address).collect();
    let mut once = rebooted.clone();
    once.sort();
    let mut expected: Vec<String> = all[..12].iter().map(|machine| machine.address.clone()).collect();
    expected.sort();
    assert_eq!(once, expected, "every machine is rebooted once");
    assert!(rebooted[9..].iter().all(|address| address.starts_with(NETWORK)), "control planes are last: {rebooted:?}");
    assert_eq!(world.cordoned(), Vec::<String>::new());
    let members = reader.run("cketerm membership list");
    assert!(members.contains("w10") && members.contains("no Node; leaves at"), "{members}");
    // ten minutes are the aim, measured where nothing else runs; a busy machine gets twice as long
    assert!(seconds <= 1200, "{seconds} s");
}

/// Replaces what the guide cannot know: paths of this machine, the etcd of Kubernetes, and the site's own commands.
fn at_this_site(world: &World, kubernetes_etcd: &ClusterEtcd, etcd: Reader) -> Reader {
    let text = |path: &str| world.dir().join(path).display().to_string();
    let command =
        |verb: &str| format!("\"{}/tests/servers/fake-reboot {} {verb}\"", crate::ROOT, world.dir().display());
    let pki = "/etc/kubernetes/pki/etcd";
    let mut here = vec![
        (
            format!(
                "--cluster-etcd-ca {pki}/ca.crt --cluster-etcd-cert {pki}/healthcheck-client.crt --cluster-etcd-key \
                 {pki}/healthcheck-client.key"
            ),
            format!("--write-config {} --cluster-etcd-endpoints {}", text("etc/config.yaml"), kubernetes_etcd.urls),
        ),
        ("\"cketerm power cycle\"".to_owned(), command("reboot")),
        ("\"cketerm power booted\"".to_owned(), command("check")),
        ("/usr/share/doc/cketerm/".to_owned(), format!("{}/docs/", crate::ROOT)),
    ];
    for file in ["ca.crt", "client.crt", "client.key"] {
        here.push((format!("/etc/cketerm/{file}"), text(&format!("cketerm-etcd/{file}"))));
    }
    here.push(("/etc/cketerm".to_owned(), text("etc")));
    here.extend(etcd.here);
    let exported = format!("export KUBECONFIG={}; ", world.kubeconfig.display());
    Reader { here, exported, dir: world.dir().to_owned(), path: etcd.path }
}

/// Returns the command without the options that only a new configuration file can have.
fn without_new_settings(init: &str) -> String {
    let from = init.find("--etcd-endpoints").expect("the first option");
    let to = init.find("--reboot-command").expect("the option after them");
    format!("{}{}", &init[..from], &init[to..])
}
