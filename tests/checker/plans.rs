//! The small worlds.

use crate::world::{Budget, Plan};

const NONE: Budget = Budget {
    kills: 0,
    stalls: 0,
    failures: 0,
    cancels: 0,
    blind_cancels: 0,
    holds: 0,
    dones: 0,
    retries: 0,
    switches: 0,
    cordons: 0,
    losses: 0,
};

/// Every world. The order is that of the report.
pub static PLANS: &[Plan] = &[
    Plan {
        name: "handover",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 0, 2],
        repairs: &[],
        at_once: 1,
        budget: Budget { kills: 1, stalls: 1, ..NONE },
    },
    Plan {
        name: "cancel",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 2],
        repairs: &[],
        at_once: 2,
        budget: Budget { kills: 1, cancels: 1, blind_cancels: 1, ..NONE },
    },
    Plan {
        name: "api-servers",
        api_servers: 3,
        workers: 0,
        reboots: &[0, 1, 2],
        repairs: &[],
        at_once: 1,
        budget: Budget { kills: 1, cancels: 1, failures: 1, ..NONE },
    },
    Plan {
        name: "orders",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 2],
        repairs: &[],
        at_once: 1,
        budget: Budget { holds: 1, dones: 1, retries: 1, failures: 1, switches: 1, ..NONE },
    },
    Plan {
        name: "kubectl",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 2, 1],
        repairs: &[],
        at_once: 2,
        budget: Budget { stalls: 1, cordons: 2, cancels: 1, ..NONE },
    },
    Plan {
        name: "both-queues",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 2],
        repairs: &[1],
        at_once: 2,
        budget: Budget { kills: 1, cancels: 1, ..NONE },
    },
    Plan {
        name: "lost-answers",
        api_servers: 1,
        workers: 2,
        reboots: &[1, 0],
        repairs: &[2],
        at_once: 1,
        budget: Budget { losses: 1, kills: 1, cancels: 1, ..NONE },
    },
];
