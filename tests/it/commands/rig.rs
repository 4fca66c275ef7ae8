//! One etcd of its own and the program pointed at it.

use std::{
    io::Write,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Client, DeleteOptions, GetOptions};
use tempfile::TempDir;

/// What a run of the program left.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// An etcd with nothing in it, ended with the test.
pub struct Rig {
    pub url: String,
    pub dir: TempDir,
    pub client: Client,
    server: Child,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn free_url() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

impl Rig {
    /// Starts it; `None`, with a loud line, where no etcd is installed.
    pub async fn start() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let (url, peer) = (free_url(), free_url());
        let etcd = std::env::var("CKETERM_TEST_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        let server = Command::new(&etcd)
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            eprintln!("SKIPPED: {etcd} is not installed");
            return None;
        };
        let mut client = Client::connect([&url], None).await.unwrap();
        let begun = Instant::now();
        while client.get("x", None).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "etcd did not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(Self { url, dir, client, server })
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs the program on this etcd, as a script of CKE's operators would: with CKE's configuration file.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// The same with something on standard input.
    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let config = self.file("cke.yml", &format!("endpoints: [\"{}\"]\n", self.url));
        let mut all = vec!["--config", &config];
        all.extend(args);
        run(&all, stdin)
    }

    pub async fn put(&self, key: &str, value: &str) {
        self.client.kv_client().put(key, value, None).await.unwrap();
    }

    pub async fn get(&self, key: &str) -> Option<String> {
        let got = self.client.kv_client().get(key, None).await.unwrap();
        got.kvs().first().map(|kv| kv.value_str().unwrap().to_owned())
    }

    pub async fn clear(&self) {
        self.client.kv_client().delete("/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    }

    /// All keys that are CKE's, with value and ModRevision.
    pub async fn keys(&self) -> std::collections::BTreeMap<String, (String, i64)> {
        let got = self.client.kv_client().get("/", Some(GetOptions::new().with_prefix())).await.unwrap();
        got.kvs()
            .iter()
            .map(|kv| (kv.key_str().unwrap().to_owned(), (kv.value_str().unwrap().to_owned(), kv.mod_revision())))
            .filter(|(key, _)| !key.starts_with("/cke/cketerm/"))
            .collect()
    }

    /// Stores a small valid definition: one control plane, three workers.
    pub fn define(&self) {
        let set = self.run(&["cluster", "set", &self.file("good.yml", DEFINITION)]);
        assert_eq!((set.status, set.stderr.as_str()), (0, ""), "{set:?}");
    }
}

/// Runs the program, without any of our variables and in a home without configuration.
pub fn run(args: &[&str], stdin: &str) -> Ran {
    let home = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cketerm"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CKETERM_") {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(args)
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(stdin.as_bytes()); // a program that does not read it may be gone
    drop(input);
    let out = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { status: out.status.code().unwrap_or(-1), stdout: text(out.stdout), stderr: text(out.stderr) }
}

pub const DEFINITION: &str = "\
name: test
nodes:
- {address: 10.0.0.11, user: root, control_plane: true}
- {address: 10.0.0.12, user: root}
- {address: 10.0.0.13, user: root, hostname: worker13}
- {address: 10.0.0.14, user: root}
reboot:
  reboot_command: [/bin/true]
  boot_check_command: [/bin/echo, \"true\"]
";
