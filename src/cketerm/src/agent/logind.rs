//! Two calls over D-Bus, of `org.freedesktop.login1.Manager`: `CanReboot()` and `Reboot(false)`. logind announces the shutdown to those who hold
//! a delay lock, such as a kubelet with graceful shutdown, and waits for them. No other program is needed, so an agent in
//! an empty image can do it.

use std::path::Path;

use cketerm_model::text::visible;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;
/// Longest message that is read. The bus sends short ones only.
const MAX_BYTES: usize = 64 << 10;

/// Asks logind whether it would reboot now. From systemd 257 on, another program's block lock stops root too. Errors: it
/// would not, or does not answer.
pub(super) async fn can_reboot(socket: &Path) -> Result<(), String> {
    let answer = ask(socket, "CanReboot", None).await?;
    match answer.text.as_str() {
        "yes" => Ok(()),
        "inhibited" | "inhibitor-blocked" | "challenge-inhibitor-blocked" => Err(format!(
            "logind's answer is `{}`: `systemd-inhibit --list` names the program",
            visible(&answer.text, false)
        )),
        other => Err(format!("logind's answer is `{}`", visible(other, false))),
    }
}

/// Requests the reboot. Errors: the bus or logind refuses it, or does not answer.
pub(super) async fn reboot(socket: &Path) -> Result<(), String> {
    // `false`: polkit must not ask a person.
    ask(socket, "Reboot", Some(false)).await.map(drop)
}

/// Calls one method of logind.
async fn ask(socket: &Path, method: &str, argument: Option<bool>) -> Result<Message, String> {
    let shown = socket.display();
    let mut bus = UnixStream::connect(socket).await.map_err(|e| format!("D-Bus socket {shown}: {e}"))?;
    call_logind(&mut bus, method, argument).await.map_err(|why| format!("D-Bus socket {shown}: {why}"))
}

async fn call_logind(bus: &mut UnixStream, method: &str, argument: Option<bool>) -> Result<Message, String> {
    sign_in(bus).await?;
    let hello = call(1, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", None);
    exchange(bus, 1, &hello).await?;
    let manager = "org.freedesktop.login1.Manager";
    let order = call(2, "org.freedesktop.login1", "/org/freedesktop/login1", manager, method, argument);
    exchange(bus, 2, &order).await
}

/// Signs in as this process's user.
async fn sign_in(bus: &mut UnixStream) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    let user = rustix::process::getuid().as_raw().to_string().bytes().fold(String::new(), |user, digit| {
        // The digits of the user's id in hexadecimal.
        user + &format!("{digit:02x}")
    });
    bus.write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes()).await.map_err(failed)?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(bus.read_u8().await.map_err(failed)?);
        if line.len() > 1024 {
            return Err("the answer to the sign-in is too long".to_owned());
        }
    }
    if !line.starts_with(b"OK ") {
        return Err(format!("the sign-in was refused: {}", String::from_utf8_lossy(&line).trim()));
    }
    bus.write_all(b"BEGIN\r\n").await.map_err(failed)
}

/// Sends a call and waits for its answer. Other messages, such as signals, are skipped.
async fn exchange(bus: &mut UnixStream, serial: u32, message: &[u8]) -> Result<Message, String> {
    bus.write_all(message).await.map_err(|e| e.to_string())?;
    loop {
        let answer = read_message(bus).await?;
        if answer.reply_serial == Some(serial) {
            return match answer.kind {
                METHOD_RETURN => Ok(answer),
                ERROR => Err(format!("{}: {}", answer.error_name, answer.text)),
                other => Err(format!("unexpected answer of type {other}")),
            };
        }
    }
}

/// Parts of a message that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    kind: u8,
    reply_serial: Option<u32>,
    error_name: String,
    /// First string of the body. Empty: the body does not begin with one.
    text: String,
}

async fn read_message(bus: &mut UnixStream) -> Result<Message, String> {
    let mut head = [0; 16];
    bus.read_exact(&mut head).await.map_err(|e| format!("no answer: {e}"))?;
    let number = |at: usize| -> usize {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let value = if head[0] == b'B' { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        usize::try_from(value).unwrap_or(usize::MAX)
    };
    let (body, fields) = (number(4), number(12));
    if body > MAX_BYTES || fields > MAX_BYTES {
        return Err("the answer is too long".to_owned());
    }
    let padded = fields.next_multiple_of(8);
    let mut rest = vec![0; padded + body];
    bus.read_exact(&mut rest).await.map_err(|e| format!("the answer ended early: {e}"))?;
    let (fields, body) = (rest.get(..fields).unwrap_or_default(), rest.get(padded..).unwrap_or_default());
    parse(head[1], head[0] == b'B', fields, body).ok_or_else(|| "the answer cannot be read".to_owned())
}

/// Parses the header fields and the body. `None`: they are no D-Bus message.
fn parse(kind: u8, big_endian: bool, fields: &[u8], body: &[u8]) -> Option<Message> {
    let mut message = Message { kind, ..Message::default() };
    let (mut from, mut has_text) = (Reader { bytes: fields, at: 0, big_endian }, false);
    while from.at < fields.len() {
        from.align(8);
        let code = from.byte()?;
        let signature = from.signature()?;
        match (code, signature.as_str()) {
            (REPLY_SERIAL, "u") => message.reply_serial = Some(from.number()?),
            (ERROR_NAME, "s") => message.error_name = from.string()?,
            (SIGNATURE, "g") => has_text = from.signature()?.starts_with('s'),
            (_, "u") => drop(from.number()?),
            (_, "s" | "o") => drop(from.string()?),
            (_, "g") => drop(from.signature()?),
            _ => return None,
        }
    }
    if has_text {
        message.text = Reader { bytes: body, at: 0, big_endian }.string()?;
    }
    Some(message)
}

/// Reader of marshalled values.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4);
        let big_endian = self.big_endian;
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        self.text(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        self.text(length)
    }

    /// Reads a text and the NUL after it.
    fn text(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.byte()?;
        Some(text)
    }
}

/// Writes a method call, in little-endian form.
fn call(serial: u32, to: &str, path: &str, interface: &str, member: &str, argument: Option<bool>) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, kind, value) in
        [(PATH, b'o', path), (INTERFACE, b's', interface), (MEMBER, b's', member), (DESTINATION, b's', to)]
    {
        align(&mut fields);
        fields.extend([code, 1, kind, 0]);
        fields.extend(length(value.len()));
        fields.extend(value.as_bytes());
        fields.push(0);
    }
    let mut body = Vec::new();
    if let Some(flag) = argument {
        align(&mut fields);
        fields.extend([SIGNATURE, 1, b'g', 0, 1, b'b', 0]);
        body.extend(u32::from(flag).to_le_bytes());
    }
    // Little-endian, method call, no flags, version 1.
    let mut message = vec![b'l', 1, 0, 1];
    message.extend(length(body.len()));
    message.extend(serial.to_le_bytes());
    message.extend(length(fields.len()));
    message.extend(fields);
    align(&mut message);
    message.extend(body);
    message
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

fn length(count: usize) -> [u8; 4] {
    u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests;
