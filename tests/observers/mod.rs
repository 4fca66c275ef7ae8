//! Observers: each watches one invariant of `docs/spec/invariants.md` over a [`Record`] of what happened.
//!
//! They know nothing of the engine's code except the form of values in etcd and on Nodes. Every scenario test, the
//! simulation and the runs on real servers use them. Each observer has a test that breaks its rule on purpose, and the
//! observer must report it.
//!
//! Engines act on live copies that are a little old. Requests come late, twice or without an answer. People and other
//! programs write whatever they want. So each observer states which form of its rule it judges:
//!
//! - where an engine's transaction compared the values that it was decided from: the state in that very revision;
//! - otherwise only a state that held without a break for longer than a copy or a request may lag ([`View::late`],
//!   [`View::max_kube_delay`], [`View::lag`]).
//!
//! The order of events at the same instant in different places is unknown. The engine gets the benefit of the doubt.
#![allow(dead_code)] // each test binary uses its part
#![allow(clippy::cast_possible_truncation, clippy::needless_pass_by_value)] // tests on 64 bits
#![allow(clippy::nonminimal_bool, clippy::struct_excessive_bools)] // rules as written, and fields of Kubernetes

pub mod record;

mod accepted;
mod acknowledged_commands;
mod agents;
mod audit;
mod batches;
mod bounds;
mod budgets;
mod commands;
mod cordon;
mod drain;
mod early_backoff;
mod gates;
mod hooks;
mod hosts;
mod identity;
mod leadership;
mod logins;
mod maintenance;
mod maintenance_requests;
mod membership;
mod node_signs;
mod notices;
mod oracle;
mod other_drainers;
mod outcomes;
mod pacing;
mod power_log;
mod preview;
mod queue;
mod quorum;
mod reboot_needed;
mod repair;
mod repair_steps;
mod results;
mod start_gates;
mod view;
mod visibility;
mod waits;
mod windows;

#[cfg(test)]
#[allow(unused_imports)] // a binary without the test harness drops the tests and keeps the rest
mod tests;

pub use record::Record;
#[allow(unused_imports)] // for the simulation
pub use view::EntryChange;
pub use view::View;
#[allow(unused_imports)] // for the simulation
pub use view::{is_engine, status as status_of};

use record::Breach;

/// Observer of one invariant; returns every breach of it.
pub type Observer = fn(&View<'_>) -> Vec<Breach>;

/// All observers, by the code of their invariant.
pub static ALL: &[(&str, Observer)] = &[
    ("I1", queue::i1),
    ("I1", repair::i1),
    ("I2", queue::i2),
    ("I3", queue::i3),
    ("I3", repair::i3),
    ("I4", queue::i4),
    ("I5", queue::i5),
    ("I6", gates::i6),
    ("I7", gates::i7),
    ("I8", windows::i8),
    ("I9", cordon::i9),
    ("I10", cordon::i10),
    ("I11", cordon::i11),
    ("I12", cordon::i12),
    ("I13", cordon::i13),
    ("I13", repair::i13),
    ("I14", cordon::i14),
    ("I15", drain::i15),
    ("I15", preview::i15),
    ("I15", early_backoff::i15),
    ("I16", drain::i16),
    ("I17", drain::i17),
    ("I18", drain::i18),
    ("I19", drain::i19),
    ("I20", audit::i20),
    ("I20", early_backoff::i20),
    ("I21", drain::i21),
    ("I22", drain::i22),
    ("I22", early_backoff::i22),
    ("I23", leadership::i23),
    ("I24", leadership::i24),
    ("I25", commands::i25),
    ("I25", repair_steps::commands),
    ("I26", commands::i26),
    ("I27", acknowledged_commands::i27),
    ("I28", acknowledged_commands::i28),
    ("I29", acknowledged_commands::i29),
    ("I30", queue::i30),
    ("I31", queue::i31),
    ("I32", visibility::i32),
    ("I32", repair::i32),
    ("I33", visibility::i33),
    ("I33", repair::i33),
    ("I34", visibility::i34),
    ("I35", visibility::i35),
    ("I36", visibility::i36),
    ("I37", visibility::i37),
    ("I38", leadership::i38),
    ("I38", audit::i38),
    ("I38", repair::i38),
    ("I39", visibility::i39),
    ("I40", repair_steps::i40),
    ("I41", repair_steps::i41),
    ("I42", repair::i42),
    ("I43", repair::i43),
    ("I44", hosts::i44),
    ("I44", hosts::i44_at_the_end),
    ("I45", drain::i45),
    ("I50", logins::i50),
    ("I46", quorum::i46),
    ("I51", waits::i51),
    ("I47", results::i47),
    ("I48", bounds::i48),
    ("I49", bounds::i49),
    ("I52", accepted::i52),
    ("I53", batches::i53),
    ("I54", batches::i54),
    ("I55", membership::i55),
    ("I56", membership::i56),
    ("I57", reboot_needed::i57),
    ("I58", reboot_needed::i58),
    ("I59", other_drainers::i59),
    ("I60", agents::i60),
    ("I61", agents::i61),
    ("I62", agents::i62),
    ("I63", agents::i63),
    ("I64", hooks::i64),
    ("I65", hooks::i65),
    ("I66", hooks::i66),
    ("I67", node_signs::i67),
    ("I68", node_signs::i68),
    ("I69", outcomes::i69),
    ("I70", outcomes::i70),
    ("I71", outcomes::i71),
    ("I72", start_gates::i72),
    ("I73", maintenance::i73),
    ("I74", maintenance_requests::i74),
    ("I75", pacing::i75),
    ("I76", identity::i76),
    ("notices", notices::delivered),
    ("heartbeat", leadership::heartbeat),
    (oracle::CODE, oracle::steps),
    (oracle::CODE, oracle::duties),
];

/// Returns every breach of every invariant, ordered by time.
pub fn observe(record: &Record) -> Vec<Breach> {
    judge(&View::of(record))
}

/// Same as [`observe`], for a record that was replayed already.
pub fn judge(view: &View<'_>) -> Vec<Breach> {
    let mut all: Vec<Breach> = ALL.iter().flat_map(|(_, observer)| observer(view)).collect();
    all.sort_by_key(|b| b.at);
    all
}
