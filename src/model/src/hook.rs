//! Hooks: commands or HTTP requests of a site around a drain (policy `hooks`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    cluster,
    entry::QueueKind,
    hook_runs::HookPoint,
    labels::{Labels, attribute},
    selector::Selector,
};

/// Maximum number of hooks.
const MAX_HOOKS: usize = 16;
/// Longest timeout of one try, in seconds.
const MAX_TIMEOUT: u64 = 3600;
/// Longest timeout of a request, in seconds.
const MAX_REQUEST_TIMEOUT: u64 = 60;
/// Maximum number of further tries.
const MAX_RETRIES: u32 = 100;
/// Number of characters shown of a command.
const MAX_TARGET: usize = 200;
/// Longest interval between two tries, in seconds.
const MAX_INTERVAL: u64 = 3600;

/// Action of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// A program of the leader's host with its arguments. It gets the address of the machine as its last argument, and
    /// a JSON document ([`HookRequest`]) on its standard input.
    Command(Vec<String>),
    /// A POST of the same document.
    Post {
        /// URL. It may be a secret: only scheme and host are shown.
        url: String,
        /// File on the leader's host with headers, one `NAME: VALUE` per line.
        header_file: Option<String>,
    },
}

/// One hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenHook", into = "WrittenHook")]
pub struct Hook {
    /// Its name. Its runs are recorded under it.
    pub name: String,
    /// Moment at which it runs.
    pub at: HookPoint,
    /// Its action.
    pub action: HookAction,
    /// Seconds after which one try has failed.
    pub timeout_seconds: u64,
    /// Number of tries after the first.
    pub retries: u32,
    /// Seconds between two tries.
    pub retry_interval_seconds: u64,
    /// For a hook after the uncordon: whether its machine keeps its slot until it has succeeded.
    pub holds_slot: bool,
    written: WrittenHook,
    selector: Option<Selector>,
}

/// A hook as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WrittenHook {
    name: String,
    at: HookPoint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<QueueKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rack: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selector: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header_file: Option<String>,
    #[serde(default = "thirty")]
    timeout_seconds: u64,
    #[serde(default)]
    retries: u32,
    #[serde(default = "ten")]
    retry_interval_seconds: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    holds_slot: bool,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

fn thirty() -> u64 {
    30
}

fn ten() -> u64 {
    10
}

impl WrittenHook {
    fn rack(&self) -> Option<String> {
        self.rack.as_ref().map(|rack| rack.as_str().map_or_else(|| rack.to_string(), str::to_owned))
    }

    fn action(&self) -> Result<HookAction, String> {
        match (&self.command, &self.url) {
            (Some(argv), None) if self.header_file.is_none() => match argv.first() {
                Some(program) if program.starts_with('/') => Ok(HookAction::Command(argv.clone())),
                Some(program) => Err(format!("command: {program:?} is not an absolute path")),
                None => Err("command is empty".to_owned()),
            },
            (None, Some(url)) if is_url(url) => {
                Ok(HookAction::Post { url: url.clone(), header_file: self.header_file.clone() })
            }
            (None, Some(_)) => Err("url is not a URL such as https://host/path, without user and password".to_owned()),
            (Some(_), None) => Err("header_file is for a url".to_owned()),
            (Some(_), Some(_)) | (None, None) => Err("give either command or url".to_owned()),
        }
    }
}

/// Reports whether the text looks like an HTTP URL without user and password. The request parses it again.
fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty() && !host.contains('@')) && !text.contains(char::is_whitespace)
}

impl TryFrom<WrittenHook> for Hook {
    type Error = String;

    fn try_from(written: WrittenHook) -> Result<Self, String> {
        let name = &written.name;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
            return Err(format!("{name:?} is no name: use up to 40 lower-case letters, digits and -"));
        }
        let wrong = |why: String| format!("{name}: {why}");
        let action = written.action().map_err(wrong)?;
        let selector = written.selector.as_ref().map(|text| text.parse::<Selector>()).transpose();
        let selector = selector.map_err(|why| wrong(format!("selector: {why}")))?;
        if !(1..=MAX_TIMEOUT).contains(&written.timeout_seconds) {
            return Err(wrong(format!("timeout_seconds must be 1 to {MAX_TIMEOUT}")));
        }
        let is_request = matches!(action, HookAction::Post { .. });
        if is_request && written.timeout_seconds > MAX_REQUEST_TIMEOUT {
            return Err(wrong(format!("timeout_seconds of a url must be at most {MAX_REQUEST_TIMEOUT}")));
        }
        if written.retries > MAX_RETRIES {
            return Err(wrong(format!("retries must be at most {MAX_RETRIES}")));
        }
        if written.retry_interval_seconds > MAX_INTERVAL {
            return Err(wrong(format!("retry_interval_seconds must be at most {MAX_INTERVAL}")));
        }
        if written.holds_slot && written.at != HookPoint::AfterUncordon {
            return Err(wrong("holds_slot is for after_uncordon: the others hold the slot anyway".to_owned()));
        }
        Ok(Self {
            name: name.clone(),
            at: written.at,
            action,
            timeout_seconds: written.timeout_seconds,
            retries: written.retries,
            retry_interval_seconds: written.retry_interval_seconds,
            holds_slot: written.holds_slot,
            selector,
            written,
        })
    }
}

impl From<Hook> for WrittenHook {
    fn from(hook: Hook) -> Self {
        hook.written
    }
}

impl Hook {
    /// Reports whether the hook is for an entry of this queue, on a machine with these labels.
    pub fn is_for(&self, queue: QueueKind, labels: &Labels) -> bool {
        let written = &self.written;
        written.queue.is_none_or(|wanted| wanted == queue)
            && written.role.as_ref().is_none_or(|role| attribute(labels, "role") == Some(role))
            && written.rack().is_none_or(|rack| attribute(labels, "rack") == Some(&rack))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }

    /// Returns the program that the hook needs on the leader's host.
    pub fn program(&self) -> Option<&String> {
        match &self.action {
            HookAction::Command(argv) => argv.first(),
            HookAction::Post { .. } => None,
        }
    }

    /// Returns the action for people. Secrets are masked.
    pub fn target(&self) -> String {
        match &self.action {
            HookAction::Command(argv) => super::secret::argv(argv).chars().take(MAX_TARGET).collect(),
            HookAction::Post { url, .. } => {
                let scheme = url.split("//").next().unwrap_or_default();
                let rest = url.get(scheme.len() + 2..).unwrap_or_default();
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let hidden = if host.len() == rest.len() { "" } else { "/…" };
                format!("POST {scheme}//{host}{hidden}")
            }
        }
    }
}

/// The hooks, in the order in which those of one moment run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Hook>", into = "Vec<Hook>")]
pub struct Hooks(Vec<Hook>);

impl Hooks {
    /// Reads a document that a user wrote: a list in YAML or JSON, or `none`.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let value = cluster::parse(text).map_err(|e| format!("hooks: {e}"))?;
        let Value::Array(all) = value else {
            return Err(
                "hooks: expected a list, such as [{name: silence, at: before_drain, url: https://…}]".to_owned()
            );
        };
        let read = |(place, value): (usize, Value)| -> Result<Hook, String> {
            let hook: Hook = serde_json::from_value(value).map_err(|why| format!("hooks[{place}]: {why}"))?;
            match hook.written.unknown.keys().next() {
                Some(field) => Err(format!("hooks[{place}]: {}: unknown field {field}", hook.name)),
                None => Ok(hook),
            }
        };
        let hooks = all.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        Self::try_from(hooks).map_err(|why| format!("hooks: {why}"))
    }

    /// Reports whether there is no hook.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all hooks.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }

    /// Returns the fields of a newer cketerm, by hook.
    pub fn unknown_fields(&self) -> Vec<String> {
        let of = |hook: &Hook| -> Vec<String> {
            hook.written.unknown.keys().map(|field| format!("{}.{field}", hook.name)).collect()
        };
        self.0.iter().flat_map(of).collect()
    }
}

impl TryFrom<Vec<Hook>> for Hooks {
    type Error = String;

    fn try_from(hooks: Vec<Hook>) -> Result<Self, String> {
        if hooks.len() > MAX_HOOKS {
            return Err(format!("{} hooks; at most {MAX_HOOKS}", hooks.len()));
        }
        let mut names = BTreeSet::new();
        match hooks.iter().find(|hook| !names.insert(&hook.name)) {
            Some(twice) => Err(format!("two hooks have the name {}", twice.name)),
            None => Ok(Self(hooks)),
        }
    }
}

impl From<Hooks> for Vec<Hook> {
    fn from(hooks: Hooks) -> Self {
        hooks.0
    }
}

/// Document that a hook gets: the body of the POST, or the standard input of the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookRequest<'a> {
    /// Name of the hook.
    pub hook: &'a str,
    /// Moment: `before_drain`, `after_drain`, `before_uncordon` or `after_uncordon`.
    pub at: &'static str,
    /// Number of the try, from 1.
    #[serde(rename = "try")]
    pub tries: u32,
    /// The entry: `reboots/5`.
    pub entry: String,
    /// Name of the cluster in its definition.
    pub cluster: &'a str,
    /// Name of the Node.
    pub node: &'a str,
    /// Address of the machine.
    pub address: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn hooks_are_read_and_written_in_the_same_form() {
        let text = "- {name: silence, at: before_drain, url: 'https://alerts.example/api/SECRET', retries: 2}\n\
                    - name: ceph\n  at: before_uncordon\n  role: ss\n  rack: 3\n  queue: reboot\n  \
                    command: [/opt/site/ceph-ok, --token, abc]\n  timeout_seconds: 120\n";
        let hooks = Hooks::read(text).unwrap();
        let [silence, ceph] = hooks.0.as_slice() else { panic!() };
        assert_eq!((silence.timeout_seconds, silence.retries, silence.retry_interval_seconds), (30, 2, 10));
        assert_eq!(silence.target(), "POST https://alerts.example/…");
        assert_eq!(ceph.target(), "/opt/site/ceph-ok --token ***");
        let json = serde_json::to_string(&hooks).unwrap();
        assert_eq!(serde_json::from_str::<Hooks>(&json).unwrap(), hooks);
        assert_eq!(Hooks::read(&json).unwrap(), hooks);
        assert!(Hooks::read("none").unwrap().is_empty());
        let newer: Hooks = serde_json::from_str(&json.replace("\"retries\":2", "\"moon\":2")).unwrap();
        assert_eq!(newer.unknown_fields(), ["silence.moon"]);
    }

    #[test]
    fn a_hook_is_for_the_machines_that_all_its_conditions_pick() {
        let hooks = Hooks::read(
            "[{name: a, at: after_drain, command: [/a], role: ss, rack: 3, queue: reboot, selector: 'ceph in (yes)'}]",
        )
        .unwrap();
        let hook = &hooks.0[0];
        let machine = [("cke.cybozu.com/role", "ss"), ("cke.cybozu.com/rack", "3"), ("ceph", "yes")];
        assert!(hook.is_for(QueueKind::Reboot, &labels(&machine)));
        assert!(!hook.is_for(QueueKind::Repair, &labels(&machine)));
        for missing in 0..machine.len() {
            let others: Vec<_> = (0..machine.len()).filter(|i| *i != missing).map(|i| machine[i]).collect();
            assert!(!hook.is_for(QueueKind::Reboot, &labels(&others)), "{others:?}");
        }
    }

    #[test]
    fn a_wrong_hook_is_refused_with_its_place_and_the_remedy() {
        let hook = |fields: &str| format!("[{{name: a, at: before_drain, {fields}}}]");
        for (text, expected) in [
            ("a: b".to_owned(), "hooks: expected a list"),
            ("[{name: 'A b', at: before_drain, command: [/a]}]".to_owned(), "is no name"),
            ("[{name: a, at: noon, command: [/a]}]".to_owned(), "unknown variant `noon`"),
            (hook("command: [/a], url: 'https://x/'"), "a: give either command or url"),
            (hook("retries: 1"), "a: give either command or url"),
            (hook("command: []"), "a: command is empty"),
            (hook("command: [a]"), "is not an absolute path"),
            (hook("command: [/a], header_file: /x"), "header_file is for a url"),
            (hook("url: 'ftp://x'"), "is not a URL"),
            (hook("url: 'https://anna:pw@x/'"), "is not a URL"),
            (hook("command: [/a], timeout_seconds: 0"), "timeout_seconds must be"),
            (hook("url: 'https://x/', timeout_seconds: 61"), "at most 60"),
            (hook("command: [/a], retries: 101"), "retries must be"),
            (hook("command: [/a], retry_interval_seconds: 9999"), "retry_interval_seconds must be"),
            (hook("command: [/a], selector: 'in in'"), "selector:"),
            (hook("command: [/a], holds_slot: true"), "holds_slot is for after_uncordon"),
            (hook("command: [/a], moon: full"), "hooks[0]: a: unknown field moon"),
            (
                "[{name: a, at: before_drain, command: [/a]}, {name: a, at: after_drain, command: [/a]}]".to_owned(),
                "two hooks have the name a",
            ),
        ] {
            let why = Hooks::read(&text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
