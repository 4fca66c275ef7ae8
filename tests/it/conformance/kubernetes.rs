//! Questions to an API server that no controller helps: budgets' status is written by hand.

mod ask;
mod budgets;
mod controllers;
mod creates;
mod deletes;
mod evictions;
mod expired;
mod kubectl;
mod lists;
mod patches;
mod server;
mod watches;

use super::Case;

/// All of them; each has a namespace of its own, several are asked at a time.
pub fn cases() -> Vec<Case> {
    let all = [
        evictions::cases(),
        deletes::cases(),
        creates::cases(),
        patches::cases(),
        lists::cases(),
        watches::cases(),
        server::cases(),
        kubectl::cases(),
    ];
    all.concat()
}

/// Those that make the server forget its history: one at a time, after all others.
pub fn cases_alone() -> Vec<Case> {
    expired::cases()
}

/// What happens by itself where controllers and kubelets are.
pub fn cases_with_controllers() -> Vec<Case> {
    [controllers::cases(), budgets::cases()].concat()
}
