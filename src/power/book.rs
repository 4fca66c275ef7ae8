//! Which BMC a node's address has: the file that `power.bmcs` names (docs/power.md).
//!
//! Passwords stand in it or in files of their own; neither may be readable by everyone.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use super::{
    reach::Reach,
    redfish::{Address, Bmc, Login, Patience, SignIn},
};
use crate::net::Trust;

/// Why the file cannot be used: file, entry, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BookError(pub String);

/// What is said of one BMC, or of all of them. No `Debug`: it can hold a password.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Said {
    url: Option<String>,
    system: Option<String>,
    username: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    insecure: Option<bool>,
    sign_in: Option<HowSaid>,
    soft_seconds: Option<u64>,
    off_seconds: Option<u64>,
    on_seconds: Option<u64>,
    poll_seconds: Option<u64>,
    /// In `defaults` alone: where the BMCs that a registry names listen, which has no place for it.
    registry_port: Option<u16>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HowSaid {
    Auto,
    Basic,
    Session,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: Said,
    #[serde(default)]
    bmcs: BTreeMap<String, Said>,
}

/// The file, read; the default is none, which names nothing.
#[derive(Default)]
pub struct Book {
    path: PathBuf,
    defaults: Said,
    bmcs: BTreeMap<String, Said>,
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("path", &self.path).field("bmcs", &self.bmcs.keys()).finish_non_exhaustive()
    }
}

/// A BMC to speak to, and how patiently.
#[derive(Debug)]
pub struct Found {
    /// The BMC.
    pub bmc: Bmc,
    /// Deadlines.
    pub patience: Patience,
    /// What a person should know: a password over plain HTTP.
    pub warning: Option<String>,
}

impl Book {
    /// Reads the file; one with a password that everyone can read is refused.
    pub fn read(path: &Path) -> Result<Self, BookError> {
        let wrong = |why: String| BookError(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        // An error of the parser can show the value that it stumbled on: only where it is is told.
        let file: File = serde_yaml::from_str(&text).map_err(|e| wrong(fault(&e)))?;
        let secret = file.bmcs.values().chain([&file.defaults]).any(|said| said.password.is_some());
        if secret && readable_by_all(path) {
            return Err(wrong(format!("it holds a password and everyone can read it; chmod 600 {}", path.display())));
        }
        Ok(Self { path: path.to_owned(), defaults: file.defaults, bmcs: file.bmcs })
    }

    /// The addresses that it knows, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.bmcs.keys().map(String::as_str)
    }

    /// The BMC of a node's address; none = the file does not name it.
    pub fn find(&self, address: &str, reach: &Reach) -> Result<Option<Found>, BookError> {
        let Some(own) = self.bmcs.get(address) else { return Ok(None) };
        if own.registry_port.is_some() {
            return Err(self.wrong(address, "registry-port belongs into defaults: here the url says it"));
        }
        let url = own.url.as_ref().ok_or_else(|| self.wrong(address, "it has no url"))?;
        self.speak(address, own, url, None, reach).map(Some)
    }

    /// A BMC that something else names: a BareMetalHost, a registry. What that does not say is taken from the defaults.
    /// `any_certificate` wins over their authorities.
    pub fn other(
        &self,
        name: &str,
        url: &str,
        login: Option<Login>,
        any_certificate: bool,
        reach: &Reach,
    ) -> Result<Found, BookError> {
        let own = Said { insecure: any_certificate.then_some(true), ..Said::default() };
        self.speak(name, &own, url, login, reach)
    }

    /// Where the BMCs that a registry names listen; none = at the port of https.
    pub fn registry_port(&self) -> Option<u16> {
        self.defaults.registry_port
    }

    fn wrong(&self, name: &str, why: impl fmt::Display) -> BookError {
        if self.path.as_os_str().is_empty() {
            return BookError(format!("{name}: {why}"));
        }
        BookError(format!("{}: {name}: {why}", self.path.display()))
    }

    fn speak(
        &self,
        name: &str,
        own: &Said,
        url: &str,
        login: Option<Login>,
        reach: &Reach,
    ) -> Result<Found, BookError> {
        let wrong = |why: String| self.wrong(name, why);
        let all = &self.defaults;
        let mut place = Address::parse(url).map_err(|e| wrong(e.to_string()))?;
        if own.system.is_some() {
            place.system.clone_from(&own.system);
        }
        place.system = place.system.or_else(|| all.system.clone());
        let login = match login {
            Some(login) => Some(login),
            None => self.login(own).map_err(wrong)?,
        };
        let plain = place.origin.starts_with("http://") && login.is_some();
        let warning = plain.then(|| format!("the password for {} goes over plain HTTP", place.origin));
        let trust = self.trust(own).map_err(wrong)?;
        let how = match own.sign_in.or(all.sign_in) {
            None | Some(HowSaid::Auto) => SignIn::Auto,
            Some(HowSaid::Basic) => SignIn::Basic,
            Some(HowSaid::Session) => SignIn::Session,
        };
        let http = reach.http(&trust).map_err(|e| wrong(format!("ca-file: {e}")))?;
        let usual = Patience::default();
        let seconds = |own: Option<u64>, all: Option<u64>, usual| own.or(all).map_or(usual, Duration::from_secs);
        let patience = Patience {
            soft: seconds(own.soft_seconds, all.soft_seconds, usual.soft),
            off: seconds(own.off_seconds, all.off_seconds, usual.off),
            on: seconds(own.on_seconds, all.on_seconds, usual.on),
            poll: seconds(own.poll_seconds, all.poll_seconds, usual.poll).max(Duration::from_millis(500)),
        };
        Ok(Found { bmc: Bmc::new(http, place, login, how), patience, warning })
    }

    fn login(&self, own: &Said) -> Result<Option<Login>, String> {
        let username = own.username.clone().or_else(|| self.defaults.username.clone());
        let password = match self.password(own)? {
            Some(own) => Some(own),
            None => self.password(&self.defaults)?,
        };
        match (username, password) {
            (Some(username), Some(password)) => Ok(Some(Login { username, password })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("a username without a password or password-file".to_owned()),
            (None, Some(_)) => Err("a password without a username".to_owned()),
        }
    }

    fn trust(&self, own: &Said) -> Result<Trust, String> {
        let all = &self.defaults;
        let file = own.ca_file.as_ref().or(all.ca_file.as_ref().filter(|_| own.insecure != Some(true)));
        match (own.insecure.or(all.insecure).unwrap_or(false), file) {
            (true, None) => Ok(Trust::Anybody),
            (true, Some(_)) => Err("insecure and a ca-file; give one of them".to_owned()),
            (false, Some(file)) => {
                let file = self.beside(file);
                let pem = std::fs::read(&file).map_err(|e| format!("ca-file {}: {e}", file.display()))?;
                Ok(Trust::Only(pem))
            }
            (false, None) => Ok(Trust::Host),
        }
    }

    fn password(&self, said: &Said) -> Result<Option<String>, String> {
        match (&said.password, &said.password_file) {
            (Some(_), Some(_)) => Err("password and password-file; give one of them".to_owned()),
            (Some(password), None) => Ok(Some(password.clone())),
            (None, Some(file)) => {
                let file = self.beside(file);
                let shown = file.display();
                if readable_by_all(&file) {
                    return Err(format!("password-file {shown} can be read by everyone; chmod 600 {shown}"));
                }
                let text = std::fs::read_to_string(&file).map_err(|e| format!("password-file {shown}: {e}"))?;
                let password = text.trim_end_matches(['\n', '\r']);
                if password.is_empty() {
                    return Err(format!("password-file {shown} is empty"));
                }
                Ok(Some(password.to_owned()))
            }
            (None, None) => Ok(None),
        }
    }

    /// A path as the file means it: relative to its own folder.
    fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }
}

/// The parser's words without values of the file; the unknown field's name is one of ours or a slip, shown where it cannot
/// be a value that a forgotten colon has made a name.
fn fault(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let place = error.location().map(|l| format!("line {}", l.line())).unwrap_or_default();
    let named = text.split("unknown field `").nth(1).and_then(|t| t.split('`').next());
    let like_ours = |name: &str| name.len() < 20 && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c));
    match named {
        Some(name) if like_ours(name) => format!("no BMC file: {text}"),
        _ if place.is_empty() => "no BMC file: see docs/power.md".to_owned(),
        _ => format!("no BMC file: it cannot be understood at {place}; see docs/power.md"),
    }
}

fn readable_by_all(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Desk(tempfile::TempDir);

    impl Desk {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, mode: u32, text: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn find(&self, mode: u32, text: &str) -> Result<Option<Found>, BookError> {
            Book::read(&self.file("bmcs.yaml", mode, text))?.find("10.0.0.1", &Reach::network(None))
        }
    }

    #[test]
    fn an_entry_takes_what_it_does_not_say_from_the_defaults() {
        let desk = Desk::new();
        desk.file("pw", 0o600, "hunter2\n");
        let text = "defaults: {username: root, password-file: pw, soft-seconds: 300}\n\
                    bmcs:\n  10.0.0.1: {url: 'redfish://bmc-1', system: '1', on-seconds: 9}\n";
        let found = desk.find(0o644, text).unwrap().unwrap();
        assert_eq!(found.bmc.origin(), "https://bmc-1");
        assert_eq!((found.patience.soft.as_secs(), found.patience.on.as_secs()), (300, 9));
        assert!(found.warning.is_none());
        let book = Book::read(&desk.0.path().join("bmcs.yaml")).unwrap();
        assert!(book.find("10.0.0.2", &Reach::network(None)).unwrap().is_none());
        assert!(!format!("{book:?} {found:?}").contains("hunter2"));
    }

    #[test]
    fn a_secret_that_everyone_can_read_is_refused() {
        let desk = Desk::new();
        let inline = "bmcs: {10.0.0.1: {url: bmc, username: root, password: hunter2}}";
        let e = desk.find(0o644, inline).unwrap_err().0;
        assert!(e.contains("everyone can read it; chmod 600") && !e.contains("hunter2"), "{e}");
        assert!(desk.find(0o600, inline).unwrap().is_some());
        desk.file("pw", 0o604, "hunter2");
        let e = desk.find(0o644, "bmcs: {10.0.0.1: {url: bmc, username: root, password-file: pw}}").unwrap_err().0;
        assert!(e.contains("pw can be read by everyone"), "{e}");
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_is_shown() {
        let desk = Desk::new();
        for (text, said) in [
            ("bmcs: {10.0.0.1: {username: root}}", "10.0.0.1: it has no url"),
            ("bmcs: {10.0.0.1: {url: 'ipmi://bmc'}}", "only Redfish is spoken"),
            ("bmcs: {10.0.0.1: {url: bmc, username: root}}", "a username without a password"),
            ("bmcs: {10.0.0.1: {url: bmc, pasword: hunter2}}", "unknown field `pasword`"),
            ("bmcs: {10.0.0.1: hunter2}", "cannot be understood at line 1"),
            ("bmcs: {10.0.0.1: {url: bmc, insecure: true, ca-file: x}}", "give one of them"),
            ("bmcs: {10.0.0.1: {url: bmc, ca-file: nope}}", "nope"),
            ("bmcs: {10.0.0.1: {url: 'https://root:hunter2@bmc'}}", "does not belong"),
        ] {
            let e = desk.find(0o600, text).unwrap_err().0;
            assert!(e.contains(said) && e.contains("bmcs.yaml") && !e.contains("hunter2"), "{text}: {e}");
        }
    }

    #[test]
    fn a_password_over_plain_http_is_said() {
        let desk = Desk::new();
        let text = "bmcs: {10.0.0.1: {url: 'http://bmc', username: u, password: p}}";
        assert!(desk.find(0o600, text).unwrap().unwrap().warning.unwrap().contains("plain HTTP"));
    }
}
