//! A listener on loopback that answers every request with 200 and counts connections.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

struct Listener {
    port: u16,
    connections: Arc<AtomicUsize>,
}

/// Starts a listener that sends a body of this many bytes to every client.
fn listen(body: usize) -> Listener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, connections) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            if stream.read(&mut request).unwrap_or(0) == 0 {
                continue;
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {body}\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&vec![b'x'; body]);
        }
    });
    Listener { port, connections }
}

fn only(ip: &str) -> Allow {
    let only: IpAddr = ip.parse().unwrap();
    Arc::new(move |ip| ip == only)
}

/// The client connects to allowed addresses only, whether the host is an address or a name. A name is resolved for each
/// connection, and its addresses are checked then.
#[tokio::test]
async fn i50_no_connection_is_made_outside_the_allowed_networks() {
    let second = Duration::from_secs(5);
    for trust in [Trust::Host, Trust::Anybody] {
        let listener = listen(2);
        let near = Http::for_bmc(second, &trust, &only("127.0.0.1")).unwrap();
        let far = Http::for_bmc(second, &trust, &only("10.9.9.9")).unwrap();
        for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
            let why = far.get(&format!("http://{host}:{}/", listener.port)).await.unwrap_err().0;
            assert!(why.contains("outside the allowed BMC networks"), "{host}: {why}");
        }
        assert_eq!(listener.connections.load(Ordering::SeqCst), 0, "no connection was opened");
        for host in ["127.0.0.1", "localhost"] {
            near.get(&format!("http://{host}:{}/", listener.port)).await.unwrap();
        }
        assert_eq!(listener.connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn the_read_size_of_a_webhook_answer_is_limited() {
    let listener = listen(1 << 20);
    let answer = Http::for_webhooks(Duration::from_secs(5), 64 << 10);
    let answer = answer.get(&format!("http://127.0.0.1:{}/", listener.port)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.body().len()), (200, 64 << 10), "the delivery succeeds");
    let capped = Http::verified(Duration::from_secs(5), 64 << 10);
    let why = capped.get(&format!("http://127.0.0.1:{}/", listener.port)).await.unwrap_err().0;
    assert!(why.contains("larger than 65536 bytes"), "{why}");
}

#[tokio::test]
async fn an_answer_to_a_query_that_is_too_large_is_an_error() {
    let (small, large) = (listen(1 << 10), listen(10 << 20));
    let http = Http::for_queries(Duration::from_secs(5), 1 << 20, &Trust::Host).unwrap();
    let answer = http.get(&format!("http://127.0.0.1:{}/", small.port)).await.unwrap();
    assert_eq!(answer.body().len(), 1 << 10);
    let why = http.get(&format!("http://127.0.0.1:{}/", large.port)).await.unwrap_err().0;
    assert!(why.contains("larger than 1048576 bytes"), "{why}");
}
