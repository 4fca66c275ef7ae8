//! Files that an operator writes: settings, BMC files, templates of notifications. Also texts with secrets to mask.

use std::path::Path;

use cketerm_clients::{
    notices::{Template, sample},
    power::BmcClients,
};
use cketerm_fuzz::{Fuzz, Took, one_line};
use cketerm_model::notice::Kind;

use crate::config::Settings;

const CONFIG: &str = "\
etcd:
  endpoints: [\"https://10.0.0.1:2379\"]
  prefix: /cke/
  username: u
  password: hunter2
kubernetes: {kubeconfig: /etc/kubeconfig, context: c}
engine: {lease_ttl_seconds: 60, http: \"127.0.0.1:10181\", command_env: [PATH]}
console: {theme: auto}
log: {level: info, json: true}
power: {bmcs: /etc/bmcs.yaml}
notices:
- {name: chat, url: \"https://hooks.example.com/x\", kinds: [stuck, failed], timeout: 3s, per_minute: 5}
- {name: mail, program: [/usr/local/bin/mail, ops]}
";

const CKE: &str = "endpoints: [\"http://127.0.0.1:2379\"]\nprefix: /cke/\ntimeout: 2s\ntls-ca: |\n  -----BEGIN\nusername: u\npassword: hunter2\n";

/// Writes the bytes to a file that only its owner can read.
fn private(dir: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join("file.yaml");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    path
}

/// Checks that an error names the file and does not repeat its password.
fn check_error(why: &str, path: &Path) -> Result<(), String> {
    if !why.contains(&path.display().to_string()) && !why.contains("engine.") {
        return Err(format!("the error does not name the file: {why}"));
    }
    if why.contains("hunter2") { Err(format!("the password is in the message: {why}")) } else { Ok(()) }
}

#[test]
fn fuzz_configuration_files() {
    let dir = tempfile::tempdir().unwrap();
    let default = Settings::default_yaml();
    Fuzz::new("config", 700).seeds([CONFIG, CONFIG, CKE, default]).run(|bytes| {
        let path = private(dir.path(), bytes);
        let read = Settings::load_file(&path);
        if let Err(why) = &read {
            check_error(&why.to_string(), &path)?;
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn fuzz_bmc_files() {
    let dir = tempfile::tempdir().unwrap();
    let inventory = "defaults: {username: root, password: hunter2, soft-seconds: 5, sign-in: basic, registry-port: 8443}\n\
                bmcs:\n  10.0.0.1: {url: \"https://10.1.0.1\", system: \"1\", insecure: true}\n  10.0.0.2: {url: \"http://b\"}\n";
    let programs = "bmcs:\n  10.0.0.3: {driver: command, settings: {on: [/a, hunter2], off: [/b], soft-off: [/d], \
                    state: [/c, '{address}'], timeout-seconds: 9}}\n  \
                    10.0.0.4: {driver: bare-metal-host, settings: {host: m/hunter2}}\n";
    Fuzz::new("bmcs-file", 400).seeds([inventory, inventory, programs]).run(|bytes| {
        let path = private(dir.path(), bytes);
        let clients = BmcClients::network(Some(path.clone()));
        let read = clients.inventory();
        match &read {
            Err(why) => check_error(&why.to_string(), &path)?,
            Ok(inventory) => {
                let refused = inventory.addresses().filter_map(|a| inventory.find(a, clients.connector()).err());
                for why in refused {
                    check_error(&why.to_string(), &path)?;
                }
            }
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn fuzz_notice_templates() {
    let seeds = [
        r#"{"text": {{ kind ~ ": " ~ text }}, "n": {{ index }}, "who": {{ requested_by }}}"#,
        r#"{% if kind == "stuck" %}{"a": {{ text | upper }}}{% else %}[{% for x in [1,2] %}{{ x }},{% endfor %}0]{% endif %}"#,
        r#"{{ {"text": text, "at": at} | tojson }}"#,
    ];
    // No seed loops without end. Such a template would delay only the operator who wrote it.
    Fuzz::new("notice-template", 300).seeds(seeds).run(|bytes| {
        let read = Template::new(&String::from_utf8_lossy(bytes));
        if let Ok(template) = &read {
            let mut notice = sample(Kind::Stuck);
            notice.text = "\"}],\u{1b}[2J{{ 7*7 }}\u{202e}".to_owned();
            // Text in a notification never breaks out of its JSON string.
            let text = template.render(&notice);
            if let Ok(text) = text {
                serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|e| e.to_string())?;
            }
        }
        Ok(Took::of(&read))
    });
}

#[test]
fn fuzz_secret_masking() {
    let seeds = [
        "ipmitool -I lanplus -H 10.0.0.1 -U root -P hunter2 power cycle",
        "curl -H 'X-Auth-Token: hunter2' https://root:hunter2@bmc/redfish?token=hunter2&n=1",
        "{\"argv\":[\"sshpass\",\"-p\",\"hunter2\"],\"Password\":\"hunter2\",\"a\":\"{\\\"token\\\":\\\"hunter2\\\"}\"}",
        "PASSWORD='hunter2 x' cmd \"--password=hunter2\" Authorization: Basic hunter2",
    ];
    Fuzz::new("secret-mask", 1500).seeds(seeds).run(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let masked = cketerm_model::secret::masked(&text);
        let visible = cketerm_model::text::visible(&masked, false);
        one_line(&visible)?;
        let url = cketerm_model::secret::url(&text);
        Ok(if masked == text && url == text { Took::Accepted } else { Took::Refused })
    });
}
