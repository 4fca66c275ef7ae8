//! Clients of the servers that cketerm talks to: etcd, Kubernetes, BMCs, sabakan, Prometheus and the receivers of notices.
//!
//! Nothing here decides. Every write needs a permit of the fence or the proof that an operator requested it
//! ([`cketerm_model::fence`]).

pub mod kubernetes;
pub mod net;
pub mod notices;
pub mod power;
pub mod prometheus;
pub mod sabakan;
pub mod store;
