//! Tests of the rules in `docs/spec/`, mostly as tables.

mod api_servers;
mod assumptions;
mod auto_repair;
mod batches;
mod boot;
mod bounds;
mod cordons;
mod drain;
mod etcd_quorum;
mod evictions;
mod fuzz;
mod groups;
mod membership;
mod other_drainers;
mod recheck;
mod registry;
mod repair_health;
mod repair_scene;
mod repair_scheduler;
mod repair_steps;
mod results;
mod scene;
mod scheduler;
mod weeks;
mod windows;
