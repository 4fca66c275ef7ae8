//! The sandbox's etcd over a loopback port, used by `etcdctl`.

use std::process::Output;

use tokio::{net::TcpListener, process::Command};
use tokio_stream::wrappers::TcpListenerStream;

use super::*;

/// Returns the output of `etcdctl`; panics if it failed.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    text.trim().replace('\n', " ")
}

#[tokio::test]
async fn etcdctl_finds_an_etcd() {
    let etcd = Etcd::new(Clock::Host);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Without `http://`: etcdctl 3.4 puts it into HTTP/2's authority when it requests the status, and h2 refuses that.
    let place = listener.local_addr().unwrap().to_string();
    etcd.advertise(vec![format!("http://{place}")]);
    let served = tonic::transport::Server::builder().add_routes(etcd.routes());
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let run = |words: &str| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&place).args(words.split(' ')).kill_on_drop(true);
        command
    };
    if run("version").output().await.is_err() {
        eprintln!("SKIP: etcdctl is missing (Debian: etcd-client)");
        return;
    }
    let ctl = async |words: &str| said(&run(words).output().await.unwrap());
    assert_eq!(ctl("put /cke/a 1").await, "OK");
    assert_eq!(ctl("get --prefix /cke/").await, "/cke/a 1");
    assert!(ctl("endpoint status -w simple").await.contains("3.6.5"));
    assert!(ctl("endpoint health -w json").await.contains(r#""health":true"#));
    assert!(ctl("member list").await.contains(&place));
    let lease = ctl("lease grant 60").await;
    let lease = lease.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(ctl(&format!("put --lease={lease} /cke/b 2")).await, "OK");
    assert!(ctl(&format!("lease timetolive --keys {lease}")).await.contains("/cke/b"));
    assert!(ctl("lease list").await.contains(&lease));
    assert!(ctl(&format!("lease keep-alive --once {lease}")).await.contains("TTL(60)"));
    assert!(ctl(&format!("lease revoke {lease}")).await.contains("revoked"));
    assert_eq!(ctl("lock name echo locked").await, "locked");
    assert_eq!(ctl("del /cke/a").await, "1");
    assert!(ctl("compaction 3").await.contains("compacted revision 3"));
    assert_eq!(ctl("user add root:pw").await, "User root created");
    assert!(ctl("role add root").await.contains("created"));
    assert!(ctl("user grant-role root root").await.contains("granted"));
    assert!(ctl("auth enable").await.contains("Enabled"));
    assert!(!run("get a").output().await.unwrap().status.success());
    assert_eq!(ctl("--user root:pw get a").await, "");
    assert!(ctl("--user root:pw auth disable").await.contains("Disabled"));
}
