//! Parts of a bundle from this host: the last lines of the log, and the metrics of its daemon.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    cluster::program_of_text,
    safe::{Mask, Text},
};

/// Largest number of lines of the log.
const MAX_LINES: usize = 5000;
/// Number of bytes that are read from the end of one file.
const MAX_BYTES: u64 = 4 << 20;
/// Beginning of the names of log files.
const LOG_FILE: &str = "cketerm.log";
/// Longest wait for the daemon.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Largest page of metrics, in bytes.
const MAX_PAGE: u64 = 8 << 20;
/// Beginning of the names of cketerm's metrics.
const METRIC: &str = "cketerm_";

/// Returns the last lines of the log files in a directory, oldest first. Lines without a time of their own are left
/// out: they are parts of another one, and what marks a secret may be in that.
pub(super) fn log_lines(directory: &Path, since: Timestamp, mask: &Mask) -> io::Result<Vec<Text>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // a link could lead to any file
        if entry.file_name().to_string_lossy().starts_with(LOG_FILE) && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    // their names end with the day
    files.sort();
    let mut lines: Vec<Text> = Vec::new();
    for file in files.iter().rev() {
        let text = end_of(file)?;
        let recent = text.lines().rev().filter(|line| time_of(line).is_some_and(|at| at >= since));
        lines.extend(recent.take(MAX_LINES - lines.len()).map(|line| mask.text(&without_arguments(line))));
    }
    lines.reverse();
    Ok(lines)
}

/// Reads the end of a file, from a complete line on.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(MAX_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let from = if skipped == 0 { 0 } else { text.find('\n').map_or(text.len(), |at| at + 1) };
    Ok(text[from..].to_owned())
}

/// Field of the log with the command line of an attempt. It is the last one of its line.
const ARGV: &str = "argv";

/// Returns a line of the log in which a command line is reduced to its program.
fn without_arguments(line: &str) -> String {
    if line.starts_with('{')
        && let Ok(mut value) = serde_json::from_str::<serde_json::Value>(line)
    {
        if let Some(argv) = value.get_mut("fields").and_then(|fields| fields.get_mut(ARGV)) {
            *argv = argv.as_str().map(program_of_text).unwrap_or_default().into();
        }
        return value.to_string();
    }
    match line.split_once(&format!(" {ARGV}=")) {
        Some((before, argv)) => format!("{before} {ARGV}={} …", program_of_text(argv.trim_start_matches('"'))),
        None => line.to_owned(),
    }
}

/// Returns the time of a line of the log, as text or as JSON.
fn time_of(line: &str) -> Option<Timestamp> {
    if line.starts_with('{') {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        return value.get("timestamp")?.as_str()?.parse().ok();
    }
    line.split_whitespace().next()?.parse().ok()
}

/// Returns cketerm's metrics from the page of a daemon on this host.
pub(super) async fn metrics(address: SocketAddr, mask: &Mask) -> Result<Vec<Text>, String> {
    let page = timeout(TIMEOUT, page(local(address))).await;
    let page = page.map_err(|_| format!("no answer within {} s", TIMEOUT.as_secs()))?.map_err(|e| e.to_string())?;
    let (head, body) = page.split_once("\r\n\r\n").ok_or("the answer is not HTTP")?;
    match head.split(' ').nth(1) {
        Some("200") => {}
        status => return Err(format!("HTTP status {}", mask.text(status.unwrap_or("?")).as_str())),
    }
    Ok(own_metrics(body, mask))
}

/// Returns the lines of a page that are cketerm's own. Something else may listen at the address.
fn own_metrics(page: &str, mask: &Mask) -> Vec<Text> {
    let name = |line: &str| {
        let comment = ["# HELP ", "# TYPE ", "# UNIT "].iter().find_map(|sign| line.strip_prefix(sign));
        comment.unwrap_or(line).starts_with(METRIC)
    };
    page.lines().filter(|line| name(line)).map(|line| mask.text(line)).collect()
}

/// Returns the address by which this host reaches a listener.
fn local(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        SocketAddr::V4(_) | SocketAddr::V6(_) => address,
    }
}

async fn page(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // the server closes the connection behind the answer, and sends it in one piece
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.take(MAX_PAGE).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[Text]) -> Vec<&str> {
        texts.iter().map(Text::as_str).collect()
    }

    #[test]
    fn the_log_has_recent_lines_of_log_files_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("cketerm.log.2026-11-20", "2026-11-20T10:00:00.1Z  INFO old\n2026-11-20T23:00:00Z  INFO yesterday\n");
        write(
            "cketerm.log.2026-11-21",
            "2026-11-21T10:00:00.1Z  INFO ran: ipmitool -P zzz power cycle\n\
             -----BEGIN PRIVATE KEY-----\nzzz\n-----END PRIVATE KEY-----\n\
             {\"timestamp\":\"2026-11-21T11:00:00Z\",\"fields\":{\"url\":\"https://a:zzz@b/zzz\",\"password\":\"zzz\"}}\n\
             2026-11-21T11:30:00Z  INFO command started entry=reboots/0 argv=\"reset zzz 10.0.0.12\"\n\
             {\"timestamp\":\"2026-11-21T11:40:00Z\",\"fields\":{\"argv\":\"reset zzz\"}}\n\
             2026-11-21T12:00:00Z  WARN GET https://chat.example/zzz?token=zzz failed\n",
        );
        write("other.log", "2026-11-21T10:00:00Z zzz\n");
        std::os::unix::fs::symlink(folder.path().join("other.log"), folder.path().join("cketerm.log.9999")).unwrap();
        let since = "2026-11-20T12:00:00Z".parse().unwrap();
        let found = log_lines(folder.path(), since, &Mask::default()).unwrap();
        let found = lines(&found);
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found[3].ends_with("argv=reset …") && found[4].contains("\"argv\":\"reset\""), "{found:?}");
        assert!(found[0].ends_with("yesterday") && found[1].contains("-P *** power cycle"), "{found:?}");
        assert!(!found.concat().contains("zzz"), "{found:?}");
        assert!(log_lines(&folder.path().join("none"), since, &Mask::default()).is_err());
    }

    #[test]
    fn only_the_end_of_a_large_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("2026-11-21T10:00:00Z  INFO {}\n", "x".repeat(100));
        let many = usize::try_from(MAX_BYTES).unwrap() / line.len() + 10;
        std::fs::write(folder.path().join(LOG_FILE), line.repeat(many)).unwrap();
        let found = log_lines(folder.path(), Timestamp::MIN, &Mask::default()).unwrap();
        assert_eq!(found.len(), MAX_LINES);
        assert!(found.iter().all(|text| text.as_str() == line.trim_end()));
    }

    #[test]
    fn only_cketerms_metrics_are_taken() {
        let page = "# HELP cketerm_up Up\n# TYPE other_total counter\nother_total{a=\"zzz\"} 1\n\
                    cketerm_up{url=\"http://u:zzz@h/zzz\"} 1\nzzz\n";
        let found = own_metrics(page, &Mask::default());
        assert_eq!(lines(&found), ["# HELP cketerm_up Up", "cketerm_up{url=\"http://h/…\"} 1"]);
        assert_eq!(local("0.0.0.0:1".parse().unwrap()), "127.0.0.1:1".parse().unwrap());
        assert_eq!(local("[::]:1".parse().unwrap()), "[::1]:1".parse().unwrap());
        assert_eq!(local("10.0.0.1:1".parse().unwrap()), "10.0.0.1:1".parse().unwrap());
    }

    #[tokio::test]
    async fn a_daemon_that_does_not_answer_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 512];
            let _ = stream.read(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\ncketerm_up 1\n").await.unwrap();
        });
        assert_eq!(lines(&metrics(address, &Mask::default()).await.unwrap()), ["cketerm_up 1"]);
        served.await.unwrap();
        assert!(metrics(address, &Mask::default()).await.is_err());
    }
}
