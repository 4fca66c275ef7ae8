use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::net::UnixListener;

use super::*;

/// Answer of the bus to a call.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    Text(&'static str),
    /// Name and text.
    Error(&'static str, &'static str),
}

/// Writes an answer to a call with this serial.
fn answer(serial: u32, says: Says) -> Vec<u8> {
    let (mut fields, mut body) = (Vec::new(), Vec::new());
    fields.extend([REPLY_SERIAL, 1, b'u', 0]);
    fields.extend(serial.to_le_bytes());
    let (error, text) = match says {
        Says::Nothing => (None, None),
        Says::Text(text) => (None, Some(text)),
        Says::Error(name, text) => (Some(name), Some(text)),
    };
    if let Some(name) = error {
        align(&mut fields);
        fields.extend([ERROR_NAME, 1, b's', 0]);
        fields.extend(length(name.len()));
        fields.extend(name.as_bytes());
        fields.push(0);
    }
    if let Some(text) = text {
        align(&mut fields);
        fields.extend([SIGNATURE, 1, b'g', 0, 1, b's', 0]);
        body.extend(length(text.len()));
        body.extend(text.as_bytes());
        body.push(0);
    }
    let mut message = vec![b'l', if error.is_some() { ERROR } else { METHOD_RETURN }, 1, 1];
    message.extend(length(body.len()));
    message.extend(9_u32.to_le_bytes());
    message.extend(length(fields.len()));
    message.extend(fields);
    align(&mut message);
    message.extend(body);
    message
}

/// Plays the bus once; returns the messages that it got.
async fn serve(listener: UnixListener, says: Says) -> Vec<Vec<u8>> {
    let (mut bus, _) = listener.accept().await.unwrap();
    let mut buffer = vec![0; 4096];
    assert!(bus.read(&mut buffer).await.unwrap() > 0);
    bus.write_all(b"OK 1234\r\n").await.unwrap();
    let mut got = Vec::new();
    bus.read_exact(&mut buffer[..7]).await.unwrap();
    for serial in [1, 2] {
        let count = bus.read(&mut buffer).await.unwrap();
        got.push(buffer[..count].to_vec());
        // A signal comes first, as on a real bus.
        bus.write_all(&answer(77, Says::Nothing)).await.unwrap();
        bus.write_all(&answer(serial, if serial == 2 { says } else { Says::Nothing })).await.unwrap();
    }
    got
}

#[tokio::test]
async fn a_reboot_is_one_call_and_a_refusal_is_an_error() {
    for error in [None, Some(("org.freedesktop.DBus.Error.AccessDenied", "Permission denied"))] {
        let says = error.map_or(Says::Nothing, |(name, text)| Says::Error(name, text));
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let listener = UnixListener::bind(&socket).unwrap();
        let (done, got) = tokio::join!(reboot(&socket), serve(listener, says));
        match error {
            None => assert_eq!(done, Ok(())),
            Some((name, text)) => assert!(done.unwrap_err().ends_with(&format!("{name}: {text}"))),
        }
        assert_eq!(
            got[1],
            call(
                2,
                "org.freedesktop.login1",
                "/org/freedesktop/login1",
                "org.freedesktop.login1.Manager",
                "Reboot",
                Some(false)
            )
        );
    }
    let missing = reboot(Path::new("/nope")).await.unwrap_err();
    assert!(missing.contains("/nope"), "{missing}");
}

#[tokio::test]
async fn only_the_answer_yes_allows_a_reboot() {
    let denied = Says::Error("org.freedesktop.DBus.Error.AccessDenied", "Permission denied");
    let access = "AccessDenied";
    for (says, wanted) in [
        (Says::Text("yes"), None),
        (Says::Text("inhibitor-blocked"), Some("systemd-inhibit --list")),
        (Says::Text("challenge"), Some("`challenge`")),
        (Says::Text("na"), Some("`na`")),
        (Says::Nothing, Some("``")),
        (denied, Some(access)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let listener = UnixListener::bind(&socket).unwrap();
        let (said, got) = tokio::join!(can_reboot(&socket), serve(listener, says));
        match wanted {
            None => assert_eq!(said, Ok(())),
            Some(text) => assert!(said.as_ref().unwrap_err().contains(text), "{said:?}"),
        }
        let login1 = "org.freedesktop.login1";
        let asked = call(2, login1, "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "CanReboot", None);
        assert_eq!(got[1], asked);
    }
}

#[test]
fn odd_messages_are_errors_and_no_panic() {
    let whole = answer(2, Says::Error("a.b", "text"));
    for end in 16..whole.len() {
        let _ = parse(ERROR, false, &whole[16..end], &[]);
        let _ = parse(ERROR, true, &whole[16..end], &[1, 2, 3]);
    }
    assert_eq!(parse(ERROR, false, &[ERROR_NAME, 1, b'v', 0], &[]), None);
}

/// A real bus daemon, which ends with this.
struct Bus(Child);

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_real_bus_understands_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let socket: PathBuf = dir.path().join("bus");
    let started = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", &format!("--address=unix:path={}", socket.display())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        eprintln!("no dbus-daemon: not tried on a real bus");
        return;
    };
    let _bus = Bus(child);
    for _ in 0..100 {
        if socket.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // There is no logind on this bus: the bus itself says so, after it has read the call.
    let why = reboot(&socket).await.unwrap_err();
    assert!(why.contains("org.freedesktop.DBus.Error.ServiceUnknown") && why.contains("login1"), "{why}");
}
