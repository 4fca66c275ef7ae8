//! One sushy-emulator with two machines, started from `tests/servers/bmc`.

use std::{
    fmt::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::world::{free_port, skipped, wait_for};

/// The machine `one`, which is on.
pub const ONE: &str = "11111111-9e44-4fa7-8e91-f3527a1ef094";
/// The machine `two`, which is off.
pub const TWO: &str = "22222222-9e44-4fa7-8e91-f3527a1ef094";

/// The emulator; it ends with this.
pub struct Emulator {
    child: Child,
    pub dir: TempDir,
    pub url: String,
    /// Certificate of its authority.
    pub ca: PathBuf,
}

impl Emulator {
    /// Starts one, with TLS and a password (`admin`, `hunter2`) or with neither. Returns `None` with a clear message if
    /// Python or `PyPI` is missing.
    pub fn start(secured: bool) -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/bmc");
        let out = Command::new(script).output().expect("bash starts");
        if !out.status.success() {
            return skipped(&format!("NO REDFISH BMC: {}", String::from_utf8_lossy(&out.stderr).trim()));
        }
        let bin = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        let port = free_port();
        let mut config = format!(
            // the configuration is Python code; this one makes the emulator log the resets
            "import logging\nlogging.basicConfig(level=logging.INFO)\n\
             SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
             SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_STATE_DIR = '{state}'\n\
             SUSHY_EMULATOR_FAKE_SYSTEMS = [\n\
             {{'uuid': '{ONE}', 'name': 'one', 'power_state': 'On', 'nics': []}},\n\
             {{'uuid': '{TWO}', 'name': 'two', 'power_state': 'Off', 'nics': []}}]\n",
            state = at("state").display()
        );
        std::fs::create_dir(at("state")).unwrap();
        let ca = at("emulator.crt");
        if secured {
            let key = at("emulator.key");
            // a self-signed certificate like a BMC's, but with a subject name and not a CA
            let form = "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=bmc\n\
                        [ext]\nbasicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n";
            std::fs::write(at("openssl.conf"), form).unwrap();
            let made = Command::new("openssl")
                .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-config"])
                .args([&at("openssl.conf"), &PathBuf::from("-keyout"), &key, &PathBuf::from("-out"), &ca])
                .output();
            if !made.is_ok_and(|o| o.status.success()) {
                return skipped("no openssl: no certificate for a BMC");
            }
            let digest = Command::new(bin.join("python"))
                .args(["-c", "import bcrypt; print(bcrypt.hashpw(b'hunter2', bcrypt.gensalt(4)).decode())"])
                .output()
                .expect("python starts");
            let line = format!("admin:{}", String::from_utf8_lossy(&digest.stdout));
            std::fs::write(at("users"), line).unwrap();
            for (name, file) in [("SSL_CERT", &ca), ("SSL_KEY", &key), ("AUTH_FILE", &at("users"))] {
                writeln!(config, "SUSHY_EMULATOR_{name} = '{}'", file.display()).unwrap();
            }
        }
        std::fs::write(at("emulator.conf"), config).unwrap();
        let log = std::fs::File::create(at("emulator.log")).unwrap();
        let child = Command::new(bin.join("python"))
            .arg(bin.join("sushy-emulator"))
            .arg("--config")
            .arg(at("emulator.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("python starts");
        wait_for("the emulator accepts connections", 60, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let scheme = if secured { "https" } else { "http" };
        Some(Self { child, url: format!("{scheme}://127.0.0.1:{port}"), ca, dir })
    }

    /// The resets that it accepted, in order.
    pub fn resets(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("emulator.log")).unwrap();
        let taken = log.lines().filter_map(|line| line.split("power state set to \"").nth(1)?.split('"').next());
        taken.map(str::to_owned).collect()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
