//! The engine as a process, on real servers and on the sandbox with the same assertions. The tests read events from the
//! commands' own log, etcd's revisions and the API server's audit log, not from cketerm's records.

mod behind_proxy;
mod beside;
mod blocked;
mod bounds;
mod commands;
mod containers;
mod etcd_members;
mod events;
mod evictions;
mod failover;
mod faults;
mod migration;
mod repairs;
mod results;
mod round;
mod standing_back;
mod stuck;
mod watches;
mod ways_out;
mod webhooks;
mod windows;
