//! Cases for an API server without controllers: the cases write budgets' status themselves.

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
mod session;
mod watches;

use super::Case;

/// All cases. Each has a namespace of its own, and several run at a time.
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

/// Cases that make the server forget its history: one at a time, after all others.
pub fn cases_alone() -> Vec<Case> {
    expired::cases()
}

/// Cases that need controllers and kubelets.
pub fn cases_with_controllers() -> Vec<Case> {
    [controllers::cases(), budgets::cases()].concat()
}
