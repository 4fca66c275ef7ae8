//! Access to BMCs that this host's file gives to the commands of the definition (SAF-38, SAF-39).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::names::Address;
use serde::{Deserialize, Serialize};

/// BMCs that the commands of the definition may log in to, by this host's file (SAF-38, SAF-39).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BmcAccess {
    /// The BMCs in the file's networks and all that the file names; or the commands log in to no BMC themselves.
    #[default]
    Open,
    /// By the address of the machine.
    ByMachine {
        /// Machines whose BMC the file names, if the file allows no network; none = the file allows networks.
        only: Option<BTreeSet<Address>>,
        /// Machines whose BMC the file names and refuses, with the reason.
        refused: BTreeMap<Address, String>,
        /// Whether some machine of the definition gets no login.
        lacking: bool,
    },
    /// The file cannot be read. Holds the reason.
    Unreadable(String),
}

impl BmcAccess {
    /// Reports whether a command logs in to BMCs itself: `cketerm power …` with the engine's own configuration.
    pub fn concerns(argv: &[String]) -> bool {
        let Some((program, words)) = argv.split_first() else { return false };
        let is_cketerm = program.rsplit('/').next() == Some("cketerm");
        let own_file = words.iter().any(|word| word == "--config" || word.starts_with("--config="));
        is_cketerm && !own_file && words.iter().any(|word| word == "power")
    }

    /// Access that the file gives to the machines of a definition.
    pub fn by_machine<'a>(
        machines: impl IntoIterator<Item = &'a Address>,
        only: Option<BTreeSet<Address>>,
        refused: BTreeMap<Address, String>,
    ) -> Self {
        if only.is_none() && refused.is_empty() {
            return Self::Open;
        }
        let mut access = Self::ByMachine { only, refused, lacking: false };
        let lacks = machines.into_iter().any(|address| access.refusal(address).is_some());
        if let Self::ByMachine { lacking, .. } = &mut access {
            *lacking = lacks;
        }
        access
    }

    /// Reason why the BMC of the machine with this address gets no login.
    pub fn refusal(&self, address: &Address) -> Option<BmcRefusal<'_>> {
        match self {
            Self::Open => None,
            Self::ByMachine { only, refused, .. } => match refused.get(address) {
                Some(why) => Some(BmcRefusal::Fault(why)),
                None => only.as_ref().filter(|only| !only.contains(address)).map(|_| BmcRefusal::NotNamed),
            },
            Self::Unreadable(why) => Some(BmcRefusal::Fault(why)),
        }
    }

    /// Reports whether a machine of the definition needs more than the file gives.
    pub fn lacks_networks(&self) -> bool {
        match self {
            Self::Open => false,
            Self::ByMachine { lacking, .. } => *lacking,
            Self::Unreadable(_) => true,
        }
    }
}

/// Reason why a BMC gets no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcRefusal<'a> {
    /// The file allows no network and does not name the BMC.
    NotNamed,
    /// The file cannot be read, or its entry for the BMC cannot be used. Holds the reason.
    Fault(&'a str),
}
