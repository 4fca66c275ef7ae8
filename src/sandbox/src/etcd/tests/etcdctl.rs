//! The sandbox's etcd over a loopback port, used by `etcdctl`.

use std::process::Output;

use tokio::{net::TcpListener, process::Command};
use tokio_stream::wrappers::TcpListenerStream;

use super::*;

/// Returns the output of `etcdctl`; panics if it failed.
fn stdout_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    text.trim().replace('\n', " ")
}

#[tokio::test]
async fn etcdctl_works_with_the_sandbox_etcd() {
    let etcd = Etcd::new(Clock::host());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Without `http://`: etcdctl 3.4 puts it into HTTP/2's authority when it requests the status, and h2 refuses that.
    let endpoint = listener.local_addr().unwrap().to_string();
    etcd.advertise(vec![format!("http://{endpoint}")]);
    let served = tonic::transport::Server::builder().add_routes(etcd.routes());
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let run = |args: &str| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&endpoint).args(args.split(' ')).kill_on_drop(true);
        command
    };
    if run("version").output().await.is_err() {
        eprintln!("SKIP: etcdctl is missing (Debian: etcd-client)");
        return;
    }
    let etcdctl = async |args: &str| stdout_of(&run(args).output().await.unwrap());
    assert_eq!(etcdctl("put /cke/a 1").await, "OK");
    assert_eq!(etcdctl("get --prefix /cke/").await, "/cke/a 1");
    assert!(etcdctl("endpoint status -w simple").await.contains("3.6.5"));
    assert!(etcdctl("endpoint health -w json").await.contains(r#""health":true"#));
    assert!(etcdctl("member list").await.contains(&endpoint));
    let lease = etcdctl("lease grant 60").await;
    let lease = lease.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(etcdctl(&format!("put --lease={lease} /cke/b 2")).await, "OK");
    assert!(etcdctl(&format!("lease timetolive --keys {lease}")).await.contains("/cke/b"));
    assert!(etcdctl("lease list").await.contains(&lease));
    assert!(etcdctl(&format!("lease keep-alive --once {lease}")).await.contains("TTL(60)"));
    assert!(etcdctl(&format!("lease revoke {lease}")).await.contains("revoked"));
    assert_eq!(etcdctl("lock name echo locked").await, "locked");
    assert_eq!(etcdctl("del /cke/a").await, "1");
    assert!(etcdctl("compaction 3").await.contains("compacted revision 3"));
    assert_eq!(etcdctl("user add root:pw").await, "User root created");
    assert!(etcdctl("role add root").await.contains("created"));
    assert!(etcdctl("user grant-role root root").await.contains("granted"));
    assert!(etcdctl("auth enable").await.contains("Enabled"));
    assert!(!run("get a").output().await.unwrap().status.success());
    assert_eq!(etcdctl("--user root:pw get a").await, "");
    assert!(etcdctl("--user root:pw auth disable").await.contains("Disabled"));
}
