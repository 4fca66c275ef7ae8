//! The engine as a process, on real servers and on the sandbox with the same assertions. The tests read events from the
//! commands' own log, etcd's revisions and the API server's audit log, not from cketerm's records.

mod behind_proxy;
mod blocked;
mod bounds;
mod breaker;
mod cancel_and_disable;
mod cke_actor;
mod cke_cost;
mod commands;
mod concurrent_writer;
mod containers;
mod etcd_members;
mod events;
mod evictions;
mod failover;
mod faults;
mod hooks;
mod live_output;
mod lost_cancels;
mod maintenance;
mod maintenance_requests;
mod membership;
mod migration;
mod node_signs;
mod own_node;
mod preflight;
mod reboot_needed;
mod repairs;
mod results;
mod round;
mod start_gates;
mod stuck;
mod uncordon_gates;
mod watches;
mod webhooks;
mod windows;
