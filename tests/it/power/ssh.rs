//! Reboots over SSH with a real `sshd`, whose machine's reboot is a script that kills the connection.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::{config, power};
use crate::world::{free_port, skipped, wait_for};

/// An `sshd` that ends with this.
struct Server {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl Server {
    fn start() -> Option<Self> {
        if !Path::new("/usr/sbin/sshd").exists() || !Path::new("/usr/bin/ssh").exists() {
            return skipped("no sshd: no SSH host");
        }
        let (dir, port) = (TempDir::new().unwrap(), free_port());
        let at = dir.path().display().to_string();
        for key in ["host", "id", "stranger"] {
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.path().join(key));
            assert!(made.status().unwrap().success());
        }
        fs::copy(dir.path().join("id.pub"), dir.path().join("authorized")).unwrap();
        let host = fs::read_to_string(dir.path().join("host.pub")).unwrap();
        fs::write(dir.path().join("known"), format!("[127.0.0.1]:{port} {host}")).unwrap();
        // It records the reboot, and takes the connection with it: the nearest sshd above this shell.
        let script = "p=$PPID\nuntil [ \"$(cat /proc/$p/comm)\" = sshd ]; do p=$(ps -o ppid= -p $p | tr -d ' '); done\n\
                      kill -9 $p\nsleep 5\n";
        fs::write(dir.path().join("reboot"), format!("echo reboot >> {at}/reboots\n{script}")).unwrap();
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\n\
             PidFile {at}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        );
        fs::write(dir.path().join("sshd.conf"), text).unwrap();
        let _ = fs::create_dir_all("/run/sshd");
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(dir.path().join("sshd.conf"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(dir.path().join("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        wait_for("sshd accepts connections", 20, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Some(Self { child, dir, port })
    }

    fn reboots(&self) -> usize {
        fs::read_to_string(self.dir.path().join("reboots")).unwrap_or_default().lines().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_machine_is_tested_and_rebooted_once_over_ssh() {
    let Some(server) = Server::start() else { return };
    let (dir, port) = (server.dir.path(), server.port);
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let settings = |key: &str, known: &str| {
        format!(
            "{{driver: ssh, settings: {{host: 127.0.0.1, port: {port}, user: {}, identity-file: {key}, \
             known-hosts-file: {known}, command: [/bin/sh, {}/reboot]}}}}",
            user.trim(),
            dir.display()
        )
    };
    let text = format!(
        "bmcs:\n  10.0.0.1: {}\n  10.0.0.2: {}\n  10.0.0.3: {}\nothers: {}\n",
        settings("id", "known"),
        settings("stranger", "known"),
        settings("id", "nothing"),
        // the host of all others is the machine itself
        settings("id", "known").replace("host: 127.0.0.1", "host: '{address}'")
    );
    let config = &config(dir, &text);
    let tested = power(config, &["test", "--all"]);
    assert!(tested.status == 1 && tested.stderr.contains("2 of 3 machines failed a check"), "{tested:?}");
    for text in [
        "10.0.0.1 reboot      ok     root can run",
        "10.0.0.2 login       FAILED SSH host 127.0.0.1 refused the login: check user and identity-file",
        "10.0.0.3 login       FAILED SSH host 127.0.0.1: its host key is not known",
    ] {
        assert!(tested.stdout.contains(text) || user.trim() != "root", "{text}: {}", tested.stdout);
    }
    assert_eq!(server.reboots(), 0, "a test reboots nothing");
    let cycled = power(config, &["cycle", "127.0.0.1"]);
    assert!(cycled.status == 0 && cycled.stderr.contains("took the order to reboot"), "{cycled:?}");
    assert_eq!(server.reboots(), 1);
    for address in ["10.0.0.2", "10.0.0.3"] {
        assert_eq!(power(config, &["cycle", address]).status, 1);
    }
    assert_eq!(server.reboots(), 1);
    // The uptime shows when the machine booted, if neither Kubernetes nor a BMC does.
    let uptime: f64 = fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
    let now = jiff::Timestamp::now().as_second();
    for (age, booted) in [(60, "false\n"), (1 << 30, "true\n")] {
        if uptime > 120.0 {
            assert_eq!(power(config, &["booted", "10.0.0.1", &(now - age).to_string()]).stdout, booted, "{age}");
        }
    }
    drop(server);
}
