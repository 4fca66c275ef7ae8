//! The store on a real etcd. Written values are asserted with etcdctl, not with cketerm's own reads.

mod bounds;
pub mod connection;
mod enqueue;
pub mod etcd;
mod leading;
mod live;
mod past;
mod queue;
mod settings;

use cketerm_model::{
    cketerm_records::{EngineRegistration, Request, Who},
    fence::Person,
    names::Address,
};

fn who() -> Who {
    Who { user: "ann".to_owned(), host: "desk".to_owned(), ssh_client: Some("192.0.2.7".to_owned()) }
}

fn person() -> Person {
    Person::asks(&who())
}

fn request() -> Request {
    Request {
        who: who(),
        at: jiff::Timestamp::now(),
        reason: Some("firmware 7".to_owned()),
        node_uid: None,
        batch: None,
    }
}

fn registration() -> EngineRegistration {
    EngineRegistration {
        host: "desk".to_owned(),
        pid: 1,
        version: "0".to_owned(),
        mode: cketerm_model::cketerm_records::EngineMode::Daemon,
        node: None,
        http: None,
        missing_programs: Vec::new(),
        missing_settings: Vec::new(),
        unable: None,
        standing_back: None,
        migrating: None,
        probes_seen: true,
        etcd_members_seen: true,
    }
}

fn addresses(n: usize) -> Vec<Address> {
    (0..n).map(|i| Address::new(format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256))).collect()
}
