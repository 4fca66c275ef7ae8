//! One receiver: a program of this host or a webhook, with the kinds of notices that it gets.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use cketerm_model::notice::Kind;

use super::template::Template;

/// A receiver, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its name: lower-case letters, digits, `-`. Part of a key in etcd.
    pub name: String,
    /// The kinds of notices that it gets.
    pub kinds: BTreeSet<Kind>,
    /// Delivery method.
    pub channel: Channel,
    /// Template of its body.
    pub template: Template,
    /// Timeout and rate limit.
    pub limits: Limits,
}

/// Timeout and rate limit of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Timeout of one delivery.
    pub timeout: Duration,
    /// Deliveries per minute. Further notices are combined into one.
    pub per_minute: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), per_minute: 6 }
    }
}

/// Delivery method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A program and its arguments. It reads the notice from standard input.
    Program(Vec<String>),
    /// A POST.
    Webhook {
        /// The URL.
        url: UrlSource,
        /// A file with headers, one per line.
        headers: Option<PathBuf>,
    },
}

/// Source of a URL, which often is a secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// The configuration.
    Inline(SecretUrl),
    /// A file that holds it, read for every delivery.
    File(PathBuf),
}

/// A URL of which only scheme and host are ever printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Parses an `http` or `https` URL without user and password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let uri: http::Uri = text.trim().parse().map_err(|_| "is not a URL such as https://host/path".to_owned())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err("is not a URL such as https://host/path".to_owned());
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err("holds a user or password; give an Authorization line in header_file".to_owned());
        }
        Ok(Self(text.trim().to_owned()))
    }

    /// Returns true if it has a path or a query. They often are a secret, which cannot be told from their form.
    pub fn has_secret_path(&self) -> bool {
        let uri: http::Uri = self.0.parse().unwrap_or_default();
        uri.path_and_query().is_some_and(|p| p.as_str() != "/")
    }

    /// Returns the whole URL, for requests only.
    pub fn whole(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri: http::Uri = self.0.parse().unwrap_or_default();
        write!(f, "{}://{}", uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()))?;
        if self.has_secret_path() { f.write_str("/…") } else { Ok(()) }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(argv) => write!(f, "program {}", argv.first().map_or("", String::as_str)),
            Self::Webhook { url: UrlSource::Inline(url), .. } => write!(f, "webhook {url}"),
            Self::Webhook { url: UrlSource::File(file), .. } => write!(f, "webhook of {}", file.display()),
        }
    }
}

impl Receiver {
    /// Returns the files that hold its secrets.
    fn secrets(&self) -> Vec<(&'static str, &Path)> {
        let Channel::Webhook { url, headers } = &self.channel else { return Vec::new() };
        let url = match url {
            UrlSource::File(file) => Some(("url_file", file.as_path())),
            UrlSource::Inline(_) => None,
        };
        url.into_iter().chain(headers.as_deref().map(|h| ("header_file", h))).collect()
    }

    /// Returns the faults that would prevent a delivery from this host, without contacting the receiver.
    pub fn faults(&self, has_program: impl Fn(&str) -> bool) -> Vec<String> {
        let mut faults: Vec<String> = self
            .secrets()
            .into_iter()
            .filter_map(|(name, file)| Some(format!("{name}: {}", secret(file).err()?)))
            .collect();
        match &self.channel {
            Channel::Program(argv) => {
                let program = argv.first().map_or("", String::as_str);
                if !has_program(program) {
                    faults.push(format!("program {program} is not on this host, or not executable"));
                }
            }
            Channel::Webhook { .. } if faults.is_empty() => faults.extend(self.request("").err()),
            Channel::Webhook { .. } => {}
        }
        faults
    }

    /// Builds the POST of a delivery. Returns none for a program.
    pub fn request(&self, body: &str) -> Result<Option<http::Request<bytes::Bytes>>, String> {
        post_request(&self.channel, body)
    }
}

/// Builds the POST to a webhook. Returns none for a program. Secrets are read each time, so they can be changed under a
/// running engine. The error contains no secret.
fn post_request(channel: &Channel, body: &str) -> Result<Option<http::Request<bytes::Bytes>>, String> {
    let Channel::Webhook { url, headers } = channel else { return Ok(None) };
    let url = match url {
        UrlSource::Inline(url) => url.clone(),
        UrlSource::File(file) => {
            let text = secret(file).map_err(|why| format!("url_file: {why}"))?;
            SecretUrl::parse(&text).map_err(|why| format!("url_file: the content of {} {why}", file.display()))?
        }
    };
    let mut request = http::Request::post(url.whole())
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::USER_AGENT, concat!("cketerm/", env!("CARGO_PKG_VERSION")));
    if let Some(file) = headers {
        for (name, value) in headers_of(file)? {
            request = request.header(name, value);
        }
    }
    let body = bytes::Bytes::copy_from_slice(body.as_bytes());
    request.body(body).map(Some).map_err(|_| "cannot build the request".to_owned())
}

/// Reads the headers in a file, one `NAME: VALUE` per line. The error contains no secret.
pub fn headers_of(file: &Path) -> Result<Vec<(http::HeaderName, http::HeaderValue)>, String> {
    let text = secret(file).map_err(|why| format!("header_file: {why}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header = |(number, line): (usize, &str)| {
        let wrong = || format!("header_file: {}, line {}: not a header like NAME: VALUE", file.display(), number + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: http::HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: http::HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    lines.map(header).collect()
}

/// Builds a POST to this URL, with the headers of a file. Its answer is not followed to another place.
pub fn post_to(url: &str, headers: Option<&str>, body: &str) -> Result<http::Request<bytes::Bytes>, String> {
    let url = UrlSource::Inline(SecretUrl::parse(url).map_err(|why| format!("the URL {why}"))?);
    let channel = Channel::Webhook { url, headers: headers.map(PathBuf::from) };
    post_request(&channel, body)?.ok_or_else(|| "not a webhook".to_owned())
}

/// Reads a secret from its file, which must not be readable by everyone.
pub fn secret(file: &Path) -> Result<String, String> {
    use std::{io::Read, os::unix::fs::PermissionsExt};
    let path_text = file.display();
    let read_error = |e: std::io::Error| format!("{path_text} cannot be read: {e}");
    let mut opened = std::fs::File::open(file).map_err(read_error)?;
    if opened.metadata().map_err(read_error)?.permissions().mode() & 0o004 != 0 {
        return Err(format!("{path_text} can be read by everyone; chmod o-r {path_text}"));
    }
    let mut text = String::new();
    opened.read_to_string(&mut text).map_err(read_error)?;
    if text.trim().is_empty() { Err(format!("{path_text} is empty")) } else { Ok(text.trim().to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn webhook(url: UrlSource, headers: Option<PathBuf>) -> Receiver {
        Receiver {
            name: "chat".to_owned(),
            kinds: Kind::CHOICE.into(),
            channel: Channel::Webhook { url, headers },
            template: Template::default(),
            limits: Limits::default(),
        }
    }

    #[test]
    fn the_path_of_a_secret_url_is_never_shown() {
        let url = SecretUrl::parse("https://hooks.example.com/services/T0/SECRET?key=SECRET").unwrap();
        let receiver = webhook(UrlSource::Inline(url), None);
        assert!(!format!("{receiver:?} {}", receiver.channel).contains("SECRET"));
        assert_eq!(receiver.channel.to_string(), "webhook https://hooks.example.com/…");
        for wrong in ["hooks.example.com", "ftp://x/", "https://anna:pw@x/", "", "https://"] {
            assert!(SecretUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_are_read_only_from_files_that_are_not_world_readable() {
        let dir = tempfile::tempdir().unwrap();
        let url = file(dir.path(), "url", "https://hooks.example.com/T0\n", 0o600);
        let headers = file(dir.path(), "headers", "Authorization: Bearer abc\nX-Site: one\n", 0o640);
        let request = webhook(UrlSource::File(url.clone()), Some(headers)).request("{}").unwrap().unwrap();
        assert_eq!(request.uri(), "https://hooks.example.com/T0");
        assert_eq!(request.headers()["authorization"], "Bearer abc");
        assert!(request.headers()["authorization"].is_sensitive());
        assert_eq!(request.headers()["content-type"], "application/json");
        let open = file(dir.path(), "open", "Authorization: Bearer abc", 0o644);
        let why = webhook(UrlSource::File(url.clone()), Some(open)).request("{}").unwrap_err();
        assert!(why.starts_with("header_file: ") && why.contains("chmod o-r") && !why.contains("abc"), "{why}");
        let odd = file(dir.path(), "odd", "\nBearer abc", 0o600);
        let why = webhook(UrlSource::File(url), Some(odd)).request("{}").unwrap_err();
        assert!(why.contains("not a header like NAME: VALUE") && !why.contains("abc"), "{why}");
    }

    #[test]
    fn receiver_faults_are_found_before_a_notice_is_sent() {
        let missing = webhook(UrlSource::File("/no/such/file".into()), None);
        assert!(missing.faults(|_| true)[0].starts_with("url_file: /no/such/file cannot be read"));
        let program = Receiver { channel: Channel::Program(vec!["/no/such".to_owned()]), ..missing };
        assert_eq!(program.faults(|_| false), ["program /no/such is not on this host, or not executable"]);
        assert!(program.faults(|_| true).is_empty());
    }
}
