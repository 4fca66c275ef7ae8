//! The table: every step that an engine may take.

#![allow(clippy::wildcard_imports, clippy::enum_glob_use)] // the table reads as the documents do

use crate::{
    conditions::*,
    state::{
        Attempted::{self, Command, Nothing, Success},
        Kind::{self, Node, Reboot, Repair},
        Place::{self, *},
        State, Step,
    },
};

/// Name of a row: its rule, and what it does.
pub type RowName = &'static str;

/// One row: a step from one of these places to one of those.
#[derive(Debug)]
pub struct Row {
    /// Name of the row.
    pub name: RowName,
    /// Kind of object.
    pub kind: Kind,
    /// Places before.
    pub from: &'static [Place],
    /// Places after; empty = the same place as before.
    pub to: &'static [Place],
    /// Attempt that belongs to it.
    pub with: Attempted,
    /// Conditions, in groups.
    pub when: &'static [&'static [Condition]],
}

impl Row {
    /// Reports whether it leads from the place before this step to the one after it.
    pub fn leads(&self, step: &Step) -> bool {
        let (from, to) = (step.change.0.place, step.change.1.place);
        let leads = self.from.contains(&from) && if self.to.is_empty() { from == to } else { self.to.contains(&to) };
        leads && self.kind == step.kind && self.with == step.attempted()
    }
}

/// A step that must come while an engine leads: an object may not stay so for longer.
#[derive(Debug)]
pub struct Duty {
    /// The rule.
    pub rule: &'static str,
    /// The step that must come.
    pub says: &'static str,
    /// Kind of object.
    pub kind: Kind,
    /// Places in which it is due.
    pub places: &'static [Place],
    /// Seconds within which it must come.
    pub seconds: f64,
    /// Whether it is due: all these conditions definitely hold.
    pub when: &'static [Condition],
}

impl Duty {
    /// Reports whether it is overdue for an object that stays as it is: a step without a change.
    pub fn overdue(&self, state: &State, stays: &Step) -> bool {
        let here = self.kind == stays.kind && self.places.contains(&stays.change.0.place);
        here && state.lasted > self.seconds && self.when.iter().all(|c| (c.holds)(state, stays) == Some(true))
    }
}

const START: &[Condition] =
    &[FIRST, BREAKER, GATES, CLASSES_APART, ONE_API_SERVER, AFTER_WORKERS, IN_TURN, SLOT, REACHABLE, HEALTHY, QUORUM];
const MOVES: &[Condition] = &[TIMED, FIELDS, SAME_STEP];
const KEEPS: &[Condition] = &[SAME_BACKOFF];
const RUN: &[Condition] = &[ENABLED, OPEN, ARGUMENTS, RIGHT_NODE, MACHINE_FREE, NO_COMMAND];
const REBOOT: &[Condition] = &[MEMBER, COMMANDS, CORDONED, REACHABLE_IF_ALL, HEALTHY, QUORUM];
const REPAIR: &[Condition] =
    &[ENABLED, KNOWN, NOT_HELD, NOT_PAUSED, RESTED, MACHINE_FREE, NO_COMMAND, ONE_API_SERVER, SLOT, QUORUM];
const END: &[Condition] = &[FIELDS, SAME_STEP, SAME_BACKOFF];

macro_rules! rows {
    ($($name:literal $kind:ident [$($from:ident)*] -> [$($to:ident)*] $with:ident
        { $($group:ident)* } $($one:ident)*;)*) => {
        /// Every step of an engine, in the order of the documents. Between two places, any row may allow it.
        pub static TABLE: &[Row] = &[$(Row {
            name: $name, kind: $kind, from: &[$($from),*], to: &[$($to),*], with: $with,
            when: &[$($group,)* &[$($one),*]],
        }),*];
    };
}

rows! {
    // the reboot queue: REB-2
    "REB-1 add" Reboot [Absent] -> [Queued] Nothing {} FRESH MEMBER;
    "REB-20 start" Reboot [Queued] -> [Draining] Nothing { STARTABLE START MOVES KEEPS };
    "REB-46 back off" Reboot [Draining] -> [Queued] Nothing { MOVES } BACKED_OFF;
    "REB-47 unwind" Reboot [Draining] -> [Queued] Nothing { MOVES KEEPS } UNWINDS;
    "REB-35 reboot" Reboot [Draining] -> [Rebooting] Command { RUN REBOOT MOVES KEEPS } NOT_HELD DRAINED;
    "REB-37 further try" Reboot [Rebooting] -> [Rebooting] Command { RUN REBOOT MOVES KEEPS } TRY_FAILED TRIES_LEFT;
    "REB-41 withheld" Reboot [Rebooting] -> [Queued] Nothing { MOVES KEEPS } NEVER_BEGAN;
    "REB-39 booted" Reboot [Rebooting] -> [Absent] Nothing {} MEMBER BACK;
    "REB-42 replaced" Reboot [Rebooting] -> [Absent] Nothing {} MEMBER REPLACED;
    "REB-49 done" Reboot [Rebooting] -> [Absent] Nothing {} MEMBER DONE READY;
    "REB-6 cancelled" Reboot [Cancelled] -> [Absent] Nothing {};
    "REB-8 not a member" Reboot [Queued Draining Rebooting] -> [Absent] Nothing {} STRANGER;
    "STO-68 cancel" Reboot [Queued Draining Rebooting] -> [Cancelled] Nothing {} WITHDRAWN;
    // the repair queue: REP-6
    "REP-53 add" Repair [Absent] -> [Queued] Nothing {} FRESH ROOM ONLY_ONE;
    "REP-22 drain" Repair [Queued Waiting] -> [Draining] Nothing
        { REPAIR MOVES KEEPS } OPEN_FOR_DRAIN RIGHT_NODE DRAINS;
    "REP-24 command" Repair [Queued Waiting] -> [Watching] Command { REPAIR RUN MOVES KEEPS } DRAINS_NOT;
    "REP-24 command after the drain" Repair [Draining] -> [Watching] Command
        { RUN MOVES KEEPS } NOT_HELD KNOWN CORDONED DRAINED QUORUM;
    "REP-41 back off" Repair [Draining] -> [Waiting] Nothing { MOVES } BACKED_OFF;
    "REP-42 unwind" Repair [Draining] -> [Waiting] Nothing { MOVES KEEPS } UNWINDS;
    "REP-25 further try" Repair [Watching] -> [Watching] Command { RUN MOVES KEEPS } KNOWN TRY_FAILED TRIES_LEFT;
    "REP-28 next step drains" Repair [Watching] -> [Draining] Nothing
        { KEEPS } ENABLED TIMED FIELDS NEXT_STEP KNOWN DRAINS WATCHED OPEN_FOR_DRAIN QUORUM;
    "REP-28 next step" Repair [Watching] -> [Watching] Command
        { RUN KEEPS } TIMED FIELDS NEXT_STEP KNOWN DRAINS_NOT WATCHED QUORUM;
    "REP-42 withheld" Repair [Watching] -> [Waiting] Nothing { MOVES KEEPS } NEVER_BEGAN;
    "REP-28 no step left" Repair [Watching] -> [Failed] Nothing { END } TIMED WATCHED LAST_STEP;
    "REP-25 command failed" Repair [Watching] -> [Failed] Nothing { END } TIMED ALL_TRIES_FAILED;
    "REP-36 success command" Repair [Queued Waiting Draining Watching] -> [] Success
        { END } ARGUMENTS NO_COMMAND SUCCESS_ONCE;
    "REP-36 success command of a waiting entry" Repair [Queued] -> [Waiting] Success
        { MOVES KEEPS } ARGUMENTS NO_COMMAND SUCCESS_ONCE;
    "REP-36 success command failed" Repair [Queued Waiting Draining Watching] -> [Failed] Nothing
        { END } TIMED SUCCESS_FAILED;
    "REP-35 healthy" Repair [Queued Waiting Draining Watching] -> [Succeeded] Nothing
        { END } TIMED SUCCESS_RAN API_READY;
    "REP-10 deleted" Repair [Deleted] -> [Absent] Nothing {};
    "STO-68 delete" Repair [Queued Waiting Draining Watching Succeeded Failed] -> [Deleted] Nothing {} WITHDRAWN;
    "REP-6 node name" Repair [Queued Waiting Draining Watching] -> [] Nothing { END } SAME_TIME;
    // cordons
    "SAF-33 cordon" Node [Free Foreign Marked] -> [Owned] Nothing {} CLAIMED TRUE_RECORD ALONE;
    "REB-23 cordon again" Node [Uncordoned] -> [Owned] Nothing {} CLAIMED ALONE ONCE_MORE;
    "SAF-34 take over" Node [Owned] -> [Owned] Nothing {} TRUE_RECORD SAME_OR_BACK;
    "REB-44 uncordon" Node [Owned] -> [Free] Nothing {} UNCLAIMED NOT_KEPT WAS_SCHEDULABLE CAME_BACK ALONE;
    "REB-44 keep the cordon" Node [Owned] -> [Foreign] Nothing {} UNCLAIMED STAYS;
    "REB-44 CKE's cordon" Node [Marked] -> [Free] Nothing {} UNCLAIMED NOT_KEPT ALONE;
    "REB-44 forget" Node [Uncordoned] -> [Free] Nothing {} UNCLAIMED;
    "another patch" Node [Free Foreign Marked Uncordoned] -> [] Nothing {};
}

/// Steps that a leading engine may not leave undone.
pub static DUTIES: &[Duty] = &[
    Duty { rule: "REB-6", says: "is removed at once", kind: Reboot, places: &[Cancelled], seconds: 60.0, when: &[] },
    Duty {
        rule: "REB-8",
        says: "is removed",
        kind: Reboot,
        places: &[Queued, Draining, Rebooting],
        seconds: 60.0,
        when: &[STRANGER],
    },
    Duty { rule: "REP-10", says: "is removed first", kind: Repair, places: &[Deleted], seconds: 60.0, when: &[] },
    Duty {
        rule: "REB-44",
        says: "is uncordoned",
        kind: Node,
        places: &[Owned, Marked],
        seconds: 60.0,
        when: &[UNCLAIMED, CAME_BACK],
    },
];
