//! Acceptance of operators' commands under each leader. cketerm accepts only what the leader will honour (SAF-40, I52).
//!
//! CKE reads only its own keys. It ignores an order or a policy field below `cketerm/`, so storing one with exit status
//! 0 would mislead the operator. One table decides for the command line, the console and the documents.

use std::fmt::Write as _;

use super::verb::Verb;

/// Program that processes the queues now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderKind {
    /// A cketerm engine that stays leader.
    Cketerm,
    /// A cketerm engine that finishes its work and then resigns, because a CKE candidate is there or the policy
    /// requires it.
    Yielding,
    /// CKE; also no leader at all, while the policy lets no cketerm engine campaign.
    Cke,
    /// No leader; a cketerm engine may campaign.
    Nobody,
    /// Unknown: the leading key has the form of neither program, or the policy that would decide cannot be read.
    Unknown,
}

impl LeaderKind {
    /// All values, in the order of the table.
    pub const ALL: [Self; 5] = [Self::Cketerm, Self::Yielding, Self::Cke, Self::Nobody, Self::Unknown];

    /// Returns the title of the table's column.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cketerm => "cketerm",
            Self::Yielding => "cketerm, CKE waits",
            Self::Cke => "CKE",
            Self::Nobody => "nobody",
            Self::Unknown => "unknown",
        }
    }
}

/// A command that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // `command` below spells each of them out
pub enum OperatorCommand {
    Add,
    Cancel,
    ResetBackoff,
    Enable,
    Disable,
    Settings,
    Manual,
    Stop,
    Resume,
    Engine,
    Unhold,
    ResumeBatch,
    EndMaintenance,
    Unfreeze,
    ApplyAgain,
    GiveCordonBack,
    Retry,
    Done,
    Force,
    Release,
    Hold,
    PauseBatch,
    Maintain,
    KeepCordoned,
    Approve,
    HoldApplying,
    Freeze,
    Windows,
    Groups,
    Policy,
}

/// Kind of effect that a command relies on. It decides which program honours the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptanceClass {
    /// CKE's own keys, which both programs obey, or an effect that needs no leader.
    Always,
    /// An order that the leader carries out for work that has begun.
    Order,
    /// An order that keeps work from starting.
    Hold,
    /// A rule that only a cketerm engine knows.
    Rule,
}

/// Decision about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// Accepted: the leader honours it.
    Accepted,
    /// Accepted for an entry in progress, which the leader finishes; otherwise refused.
    InWork,
    /// Accepted with a message that the next leader honours it if that is cketerm.
    NextLeader,
    /// Stored with `--for-handover` and shown as not in force; otherwise refused.
    ForHandover,
    /// Refused.
    Refused,
}

impl Acceptance {
    /// Returns the text of the table's cell.
    fn table_cell(self) -> &'static str {
        match self {
            Self::Accepted => "yes",
            Self::InWork => "entries in work",
            Self::NextLeader => "yes, for the next leader",
            Self::ForHandover => "only `--for-handover`",
            Self::Refused => "refused",
        }
    }
}

impl OperatorCommand {
    /// All values, in the order of the table.
    pub const ALL: [Self; 30] = [
        Self::Add,
        Self::Cancel,
        Self::ResetBackoff,
        Self::Enable,
        Self::Disable,
        Self::Settings,
        Self::Manual,
        Self::Stop,
        Self::Resume,
        Self::Engine,
        Self::Unhold,
        Self::ResumeBatch,
        Self::EndMaintenance,
        Self::Unfreeze,
        Self::ApplyAgain,
        Self::GiveCordonBack,
        Self::Retry,
        Self::Done,
        Self::Force,
        Self::Release,
        Self::Hold,
        Self::PauseBatch,
        Self::Maintain,
        Self::KeepCordoned,
        Self::Approve,
        Self::HoldApplying,
        Self::Freeze,
        Self::Windows,
        Self::Groups,
        Self::Policy,
    ];

    /// Returns the commands as users type them, for the table.
    fn commands(self) -> &'static str {
        match self {
            Self::Add => "`rq add`, `repair-queue add`",
            Self::Cancel => {
                "`rq cancel`, `rq cancel-all`, `repair-queue delete`, `delete-finished`, `delete-unfinished`; `--batch`"
            }
            Self::ResetBackoff => "`rq reset-backoff`, `repair-queue reset-backoff`, `rq reset-breaker`",
            Self::Enable => "`enable` of queue, integration or automatic repair",
            Self::Disable => "`disable` of queue, integration or automatic repair",
            Self::Settings => {
                "`constraints set`, `cluster set`, `cluster identify`, `sabakan set-…`, `auto-repair set-variables`"
            }
            Self::Manual => "`nodes cordon`, `uncordon`, `drain`; `hosts …`; `power …`: your own rights, no leader",
            Self::Stop => "`stop`",
            Self::Resume => "`resume`",
            Self::Engine => "`policy set engine`",
            Self::Unhold => "`rq unhold`, `repair-queue unhold`",
            Self::ResumeBatch => "`rq resume`, `repair-queue resume`",
            Self::EndMaintenance => "`maintenance release`, `maintenance extend`",
            Self::Unfreeze => "`unfreeze`; `policy set` of `freeze`, `windows` or `groups` to `none`",
            Self::ApplyAgain => "`sabakan unhold`, `membership unhold`",
            Self::GiveCordonBack => "`nodes keep-cordoned --give-back`",
            Self::Retry => "`rq retry`, `repair-queue retry`",
            Self::Done => "`rq done`, `repair-queue done`",
            Self::Force => "`rq force`, `repair-queue force`",
            Self::Release => "release of a cordon that a cancelled entry left",
            Self::Hold => "`rq hold`, `repair-queue hold`",
            Self::PauseBatch => "`rq pause`, `repair-queue pause`",
            Self::Maintain => "`maintenance add`",
            Self::KeepCordoned => "`nodes keep-cordoned`",
            Self::Approve => "`sabakan approve`, `membership approve`",
            Self::HoldApplying => "`sabakan hold`, `membership hold`",
            Self::Freeze => "`freeze`, `policy set freeze`",
            Self::Windows => "`policy set windows`",
            Self::Groups => "`policy set groups`",
            Self::Policy => "`policy set` of any other field",
        }
    }

    /// Returns the first version, major and minor, whose engines honour this command; `None` if all do.
    pub fn since(self) -> Option<(u32, u32)> {
        matches!(self, Self::PauseBatch | Self::Maintain).then_some((0, 2))
    }

    /// Returns the name of the command for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Cancel => "cancel",
            Self::ResetBackoff => "reset-backoff",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Settings => "these settings",
            Self::Manual => "work by hand",
            Self::Stop => "stop",
            Self::Resume => "resume",
            Self::Engine => "policy engine",
            Self::Unhold => "unhold",
            Self::ResumeBatch => "resume of a batch",
            Self::EndMaintenance => "maintenance release",
            Self::Unfreeze => "unfreeze",
            Self::ApplyAgain => "sabakan unhold",
            Self::GiveCordonBack => "nodes keep-cordoned --give-back",
            Self::Retry => "retry",
            Self::Done => "done",
            Self::Force => "force",
            Self::Release => "release",
            Self::Hold => "hold",
            Self::PauseBatch => "pause",
            Self::Maintain => "maintenance add",
            Self::KeepCordoned => "nodes keep-cordoned",
            Self::Approve => "sabakan approve",
            Self::HoldApplying => "sabakan hold",
            Self::Freeze => "freeze",
            Self::Windows => "policy windows",
            Self::Groups => "policy groups",
            Self::Policy => "policy set",
        }
    }

    /// Returns the alternative under a leader that does not honour the command. Empty for commands that are never
    /// refused.
    pub fn instead(self) -> &'static str {
        match self {
            Self::Hold => {
                "cancel the entry (`cketerm rq cancel`, `cketerm repair-queue delete`), disable its queue (`cketerm rq disable`, \
                 `cketerm repair-queue disable`), or stop both queues with `cketerm stop`"
            }
            Self::PauseBatch => {
                "cancel the batch (`cketerm rq cancel --batch BATCH`), disable its queue (`cketerm rq disable`, `cketerm \
                 repair-queue disable`), or stop both queues with `cketerm stop`"
            }
            Self::Maintain => "`cketerm nodes cordon NODE` and `cketerm nodes drain NODE`, with your own rights",
            Self::Retry => {
                "cancel the entry and add it again, or run the power command yourself with `cketerm power cycle ADDRESS`"
            }
            Self::Done => {
                "cancel the entry (`cketerm rq cancel`, `cketerm repair-queue delete`), then `cketerm nodes uncordon NODE`"
            }
            Self::Force => {
                "delete the remaining pods with kubectl, or cancel the entry (`cketerm rq cancel`, `cketerm \
                 repair-queue delete`)"
            }
            Self::Release => "`cketerm nodes uncordon NODE`",
            Self::KeepCordoned => "cancel the entry, then `cketerm nodes cordon NODE`",
            Self::Approve | Self::HoldApplying => {
                "stop the source of the definition: `cketerm sabakan disable`, or `cketerm policy set membership manual \
                 --for-handover`"
            }
            Self::Freeze | Self::Windows => {
                "`cketerm stop` disables both queues under every leader; with --for-handover it is stored and takes \
                 effect under the next cketerm leader"
            }
            Self::Groups | Self::Policy => {
                "with --for-handover it is stored and takes effect under the next cketerm leader"
            }
            Self::Add
            | Self::Cancel
            | Self::ResetBackoff
            | Self::Enable
            | Self::Disable
            | Self::Settings
            | Self::Manual
            | Self::Stop
            | Self::Resume
            | Self::Engine
            | Self::Unhold
            | Self::ResumeBatch
            | Self::EndMaintenance
            | Self::Unfreeze
            | Self::ApplyAgain
            | Self::GiveCordonBack => "",
        }
    }

    fn acceptance_class(self) -> AcceptanceClass {
        match self {
            Self::Add
            | Self::Cancel
            | Self::ResetBackoff
            | Self::Enable
            | Self::Disable
            | Self::Settings
            | Self::Manual
            | Self::Stop
            | Self::Resume
            | Self::Engine
            | Self::Unhold
            | Self::ResumeBatch
            | Self::EndMaintenance
            | Self::Unfreeze
            | Self::ApplyAgain
            | Self::GiveCordonBack => AcceptanceClass::Always,
            Self::Retry | Self::Done | Self::Force | Self::Release => AcceptanceClass::Order,
            Self::Hold
            | Self::PauseBatch
            | Self::Maintain
            | Self::KeepCordoned
            | Self::Approve
            | Self::HoldApplying => AcceptanceClass::Hold,
            Self::Freeze | Self::Windows | Self::Groups | Self::Policy => AcceptanceClass::Rule,
        }
    }

    /// Returns true if the command is accepted under every leader.
    pub fn always(self) -> bool {
        self.acceptance_class() == AcceptanceClass::Always
    }

    /// Returns the command that sets this policy field to this value. Removing `windows`, `freeze` or `groups` is always
    /// accepted.
    pub fn of_policy(field: &str, value: &str) -> Self {
        let none = value.trim() == "none";
        match field {
            "engine" => Self::Engine,
            "freeze" | "windows" | "groups" if none => Self::Unfreeze,
            "freeze" => Self::Freeze,
            "windows" => Self::Windows,
            "groups" => Self::Groups,
            _ => Self::Policy,
        }
    }
}

impl From<Verb> for OperatorCommand {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Hold => Self::Hold,
            Verb::Unhold => Self::Unhold,
            Verb::Retry => Self::Retry,
            Verb::Done => Self::Done,
            Verb::Force => Self::Force,
            Verb::Uncordon => Self::Release,
        }
    }
}

/// Returns the table's decision.
pub fn acceptance(command: OperatorCommand, lead: LeaderKind) -> Acceptance {
    match (command.acceptance_class(), lead) {
        (
            AcceptanceClass::Always,
            LeaderKind::Cketerm | LeaderKind::Yielding | LeaderKind::Cke | LeaderKind::Nobody | LeaderKind::Unknown,
        )
        | (AcceptanceClass::Order | AcceptanceClass::Hold | AcceptanceClass::Rule, LeaderKind::Cketerm) => {
            Acceptance::Accepted
        }
        (AcceptanceClass::Order, LeaderKind::Yielding) => Acceptance::InWork,
        (AcceptanceClass::Order | AcceptanceClass::Hold | AcceptanceClass::Rule, LeaderKind::Nobody) => {
            Acceptance::NextLeader
        }
        (AcceptanceClass::Rule, LeaderKind::Yielding | LeaderKind::Cke | LeaderKind::Unknown) => {
            Acceptance::ForHandover
        }
        (AcceptanceClass::Order, LeaderKind::Cke | LeaderKind::Unknown)
        | (AcceptanceClass::Hold, LeaderKind::Yielding | LeaderKind::Cke | LeaderKind::Unknown) => Acceptance::Refused,
    }
}

/// Returns the table in the form of `docs/beside-cke.md`.
pub fn markdown() -> String {
    let mut out = String::from("| command |");
    for lead in LeaderKind::ALL {
        let _ = write!(out, " {} |", lead.title());
    }
    out.push_str("\n| --- |");
    out.push_str(&" --- |".repeat(LeaderKind::ALL.len()));
    out.push('\n');
    for command in OperatorCommand::ALL {
        let _ = write!(out, "| {} |", command.commands());
        for lead in LeaderKind::ALL {
            let _ = write!(out, " {} |", acceptance(command, lead).table_cell());
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requirements of I52, stated independently of the table.
    #[test]
    fn i52_only_commands_that_the_leader_honours_are_accepted() {
        use OperatorCommand::{
            Cancel, Disable, Done, Enable, Engine, Force, Freeze, Groups, Hold, PauseBatch, Policy, Resume,
            ResumeBatch, Retry, Stop, Windows,
        };
        for lead in LeaderKind::ALL {
            for always in [
                Cancel,
                Enable,
                Disable,
                Engine,
                Stop,
                Resume,
                ResumeBatch,
                OperatorCommand::Unhold,
                OperatorCommand::Unfreeze,
            ] {
                assert_eq!(acceptance(always, lead), Acceptance::Accepted, "{always:?} under {lead:?}");
            }
        }
        for refused in [Hold, PauseBatch, Force, Retry, Done] {
            for lead in [LeaderKind::Cke, LeaderKind::Unknown] {
                assert_eq!(acceptance(refused, lead), Acceptance::Refused, "{refused:?} under {lead:?}");
            }
            assert_eq!(acceptance(refused, LeaderKind::Cketerm), Acceptance::Accepted);
            assert_ne!(acceptance(refused, LeaderKind::Yielding), Acceptance::Accepted);
        }
        for rule in [Freeze, Windows, Groups, Policy] {
            for lead in [LeaderKind::Cke, LeaderKind::Yielding, LeaderKind::Unknown] {
                assert_eq!(acceptance(rule, lead), Acceptance::ForHandover, "{rule:?} under {lead:?}");
            }
        }
    }

    #[test]
    fn every_refusal_names_an_alternative() {
        for command in OperatorCommand::ALL {
            let ever = LeaderKind::ALL.iter().any(|lead| acceptance(command, *lead) != Acceptance::Accepted);
            assert_eq!(ever, !command.instead().is_empty(), "{command:?}");
        }
        for lead in LeaderKind::ALL {
            let distinct =
                OperatorCommand::ALL.iter().filter(|a| acceptance(**a, lead) == Acceptance::Accepted).count();
            assert!(distinct >= 14, "{lead:?}");
        }
    }

    #[test]
    fn policy_fields_map_to_their_commands() {
        for (field, command) in [
            ("engine", OperatorCommand::Engine),
            ("freeze", OperatorCommand::Freeze),
            ("windows", OperatorCommand::Windows),
            ("groups", OperatorCommand::Groups),
            ("stuck_seconds", OperatorCommand::Policy),
        ] {
            assert_eq!(OperatorCommand::of_policy(field, "x"), command);
        }
    }

    #[test]
    fn docs_beside_cke_md_contains_the_table() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/beside-cke.md");
        let text = std::fs::read_to_string(file).expect("docs/beside-cke.md");
        let (before, rest) = text.split_once("<!-- table: begin -->\n").expect("the document has a begin mark");
        let (written, after) = rest.split_once("<!-- table: end -->").expect("the document has an end mark");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let new = format!("{before}<!-- table: begin -->\n{}<!-- table: end -->{after}", markdown());
            std::fs::write(file, new).expect("docs/beside-cke.md is written");
            return;
        }
        assert!(written == markdown(), "docs/beside-cke.md is out of date: run `make docs`");
    }
}
