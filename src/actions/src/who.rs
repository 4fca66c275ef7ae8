//! Identity of the user who runs this process, for requests and audit records.

use std::{env, fs};

use cketerm_model::cketerm_records::Who;
use cketerm_runtime::host::host_name;

/// Returns the user behind this process; under sudo, the user who called it.
pub(super) fn current_user() -> Who {
    let uid = rustix::process::getuid();
    let sudo = env::var("SUDO_USER").ok().filter(|_| uid.is_root());
    let user = sudo.or_else(|| name_of(uid.as_raw())).or_else(|| env::var("USER").ok());
    let ssh = env::var("SSH_CONNECTION").or_else(|_| env::var("SSH_CLIENT")).ok();
    Who {
        user: user.filter(|u| !u.is_empty()).unwrap_or_else(|| format!("uid {}", uid.as_raw())),
        host: host_name(),
        ssh_client: ssh.and_then(|s| s.split_whitespace().next().map(str::to_owned)),
    }
}

/// Returns the login name from `/etc/passwd`, because an environment variable could be set to anything.
fn name_of(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}
