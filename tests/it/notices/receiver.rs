//! A webhook for tests, with configurable behaviour.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

/// Behaviour for one request.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// Answers with this status.
    Status(u16),
    /// Closes the connection after it has read everything.
    Close,
    /// Answers with 200 after that time.
    Slow(Duration),
}

/// A webhook that keeps the notices that it got.
#[derive(Clone)]
pub struct Receiver {
    /// URL on which it listens.
    pub url: String,
    received: Arc<Mutex<Vec<Value>>>,
}

type Behave = dyn Fn(usize, &Value) -> Behaviour + Send + Sync;

impl Receiver {
    /// Starts a webhook. `behave` gets the number of the request, counted from 0, and its notice.
    pub fn start(behave: impl Fn(usize, &Value) -> Behaviour + Send + Sync + 'static) -> Self {
        Self::on(&TcpListener::bind("127.0.0.1:0").expect("loopback"), behave)
    }

    /// Same as [`Self::start`], on a port that was known before.
    pub fn on(listener: &TcpListener, behave: impl Fn(usize, &Value) -> Behaviour + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("an address");
        let receiver = Self { url: format!("http://{address}/hook"), received: Arc::default() };
        let (listener, behave, kept) = (listener.try_clone().expect("a socket"), Arc::new(behave), receiver.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (receiver, behave) = (kept.clone(), Arc::clone(&behave));
                std::thread::spawn(move || receiver.serve(&stream, &*behave));
            }
        });
        receiver
    }

    /// All notices that arrived so far, whatever the answer was.
    pub fn received(&self) -> Vec<Value> {
        self.received.lock().expect("the lock is not poisoned").clone()
    }

    /// Notices of one kind.
    pub fn of(&self, kind: &str) -> Vec<Value> {
        self.received().into_iter().filter(|n| n["kind"] == kind).collect()
    }

    fn serve(&self, stream: &TcpStream, behave: &Behave) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut length = 0;
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            assert!(line.starts_with("POST /hook "), "{line}");
            loop {
                line.clear();
                reader.read_line(&mut line).expect("a header");
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let notice: Value = serde_json::from_slice(&body).expect("JSON");
            let number = {
                let mut received = self.received.lock().expect("the lock is not poisoned");
                received.push(notice.clone());
                received.len() - 1
            };
            let status = match behave(number, &notice) {
                Behaviour::Status(status) => status,
                Behaviour::Close => return,
                Behaviour::Slow(time) => {
                    std::thread::sleep(time);
                    200
                }
            };
            let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 2\r\n\r\nok");
            if (&*stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
