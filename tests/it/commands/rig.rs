//! An etcd for a test, and the program pointed at it.

use std::{
    collections::BTreeMap,
    io::Write,
    process::{Child, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use etcd_client::{Client, DeleteOptions, GetOptions};
use tempfile::TempDir;

use crate::world::{Etcd, EtcdVersion, program};

/// Result of a run of the program.
#[derive(Debug)]
pub struct RunOutput {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A prefix of its own in an etcd. Tests see it as `/cke/` whatever the prefix is.
pub struct Rig {
    pub url: String,
    pub dir: TempDir,
    pub client: Client,
    prefix: String,
    _etcd: Option<Arc<Etcd>>,
}

/// The etcd that tests share, as long as one of them runs.
static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl Rig {
    /// Creates a prefix of its own in a shared etcd (Debian's). Returns `None` with a clear message if this machine has
    /// no etcd.
    pub async fn start() -> Option<Self> {
        let etcd = {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(etcd) = shared.upgrade() {
                etcd
            } else {
                let etcd = Arc::new(Etcd::start(EtcdVersion::V34)?);
                *shared = Arc::downgrade(&etcd);
                etcd
            }
        };
        let prefix = format!("/cke-{}/", NEXT.fetch_add(1, Ordering::Relaxed));
        let url = etcd.url.clone();
        Some(Self { prefix, _etcd: Some(etcd), ..Self::on(&url).await })
    }

    /// Starts an etcd for this test alone, under `/cke/`.
    pub async fn dedicated() -> Option<Self> {
        let etcd = Etcd::start(EtcdVersion::V34)?;
        let url = etcd.url.clone();
        Some(Self { _etcd: Some(Arc::new(etcd)), ..Self::on(&url).await })
    }

    /// Uses an etcd that is there already.
    pub async fn on(url: &str) -> Self {
        let client = Client::connect([url], None).await.unwrap();
        Self { url: url.to_owned(), dir: TempDir::new().unwrap(), client, prefix: "/cke/".to_owned(), _etcd: None }
    }

    /// The key in etcd that a test calls `/cke/…`.
    pub fn key(&self, key: &str) -> String {
        key.replacen("/cke/", &self.prefix, 1)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs the program on this etcd with CKE's configuration file, as a script of CKE's operators would.
    pub fn run(&self, args: &[&str]) -> RunOutput {
        self.run_with(args, "")
    }

    /// Same as [`Self::run`], with this text on standard input.
    pub fn run_with(&self, args: &[&str], stdin: &str) -> RunOutput {
        let text = format!("endpoints: [\"{}\"]\nprefix: {}\ntimeout: 20s\n", self.url, self.prefix);
        let config = self.file("cke.yml", &text);
        let mut all = vec!["--config", &config];
        all.extend(args);
        let output = run(&all, stdin);
        let with_cke_prefix = |text: String| text.replace(&self.prefix, "/cke/");
        RunOutput {
            status: output.status,
            stdout: with_cke_prefix(output.stdout),
            stderr: with_cke_prefix(output.stderr),
        }
    }

    pub async fn put(&self, key: &str, value: &str) {
        self.client.kv_client().put(self.key(key), value, None).await.unwrap();
    }

    pub async fn get(&self, key: &str) -> Option<String> {
        let got = self.client.kv_client().get(self.key(key), None).await.unwrap();
        got.kvs().first().map(|kv| kv.value_str().unwrap().to_owned())
    }

    pub async fn delete(&self, key: &str) {
        self.client.kv_client().delete(self.key(key), None).await.unwrap();
    }

    pub async fn clear(&self) {
        let all = DeleteOptions::new().with_prefix();
        self.client.kv_client().delete(self.prefix.as_str(), Some(all)).await.unwrap();
    }

    /// All keys of CKE, with value and ModRevision.
    pub async fn keys(&self) -> BTreeMap<String, (String, i64)> {
        let all = GetOptions::new().with_prefix();
        let got = self.client.kv_client().get(self.prefix.as_str(), Some(all)).await.unwrap();
        got.kvs()
            .iter()
            .map(|kv| {
                let key = kv.key_str().unwrap().replacen(&self.prefix, "/cke/", 1);
                (key, (kv.value_str().unwrap().to_owned(), kv.mod_revision()))
            })
            .filter(|(key, _)| !key.starts_with("/cke/cketerm/"))
            .collect()
    }

    /// Stores a small valid definition: one control plane, three workers.
    pub fn define(&self) {
        let set = self.run(&["cluster", "set", &self.file("good.yml", DEFINITION)]);
        assert_eq!((set.status, set.stderr.as_str()), (0, ""), "{set:?}");
    }
}

/// Runs the program without this machine's environment variables that could name a server.
pub fn run(args: &[&str], stdin: &str) -> RunOutput {
    let mut child: Child = program::command()
        .args(args)
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(stdin.as_bytes()); // a program that reads no input may have exited already
    drop(input);
    let out = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    RunOutput { status: out.status.code().unwrap_or(-1), stdout: text(out.stdout), stderr: text(out.stderr) }
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
options:
  kubelet: {cri_endpoint: /run/containerd/containerd.sock}
";
