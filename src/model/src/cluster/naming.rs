//! Look-up of a member by what an operator types: its address, the name of its Node, or the first part of that name.
//!
//! A name must mean exactly one member. Nothing is guessed: a text that resembles a name is an error that proposes it.

use std::fmt;

use foldhash::{HashMap, HashMapExt};

use super::{Cluster, Member, Members};
use crate::{names::Address, text::nearest};

/// Most candidates that a message lists.
const MAX_CANDIDATES: usize = 5;

/// Reason why a text names no single member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamingError {
    /// No member has this address or name.
    Unknown {
        /// The text.
        text: String,
        /// Name or address that was probably meant.
        near: Option<String>,
    },
    /// Several members have it.
    Ambiguous {
        /// The text.
        text: String,
        /// The members, as `NAME (ADDRESS)`.
        candidates: Vec<String>,
    },
}

impl fmt::Display for NamingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { text, .. } if text.trim().is_empty() => write!(f, "{text:?} names no machine"),
            Self::Unknown { text, near: Some(near) } => write!(f, "{text} (did you mean {near}?)"),
            Self::Unknown { text, near: None } => f.write_str(text),
            Self::Ambiguous { text, candidates } => {
                let shown = candidates.iter().take(MAX_CANDIDATES).map(String::as_str).collect::<Vec<_>>().join(", ");
                write!(f, "{text} is the name of {} machines: {shown}", candidates.len())?;
                if candidates.len() > MAX_CANDIDATES { f.write_str(", ...") } else { Ok(()) }
            }
        }
    }
}

/// Names of all members, ready for many look-ups.
#[derive(Clone, Debug)]
pub struct MemberNames<'a> {
    cluster: &'a Cluster,
    members: &'a Members,
    /// Positions of the members by their name in lower case, and by its first part.
    by_word: HashMap<String, Vec<usize>>,
}

impl<'a> MemberNames<'a> {
    /// Collects the names of a definition's members.
    pub fn of(cluster: &'a Cluster, members: &'a Members) -> Self {
        let mut by_word: HashMap<String, Vec<usize>> = HashMap::new();
        for position in 0..cluster.nodes.len() {
            let Some(member) = members.at(cluster, position) else { continue };
            let name = member.node_name().to_lowercase();
            // the parts of an address are no names
            if name.parse::<std::net::IpAddr>().is_err()
                && let Some((first, _)) = name.split_once('.')
            {
                by_word.entry(first.to_owned()).or_default().push(position);
            }
            by_word.entry(name).or_default().push(position);
        }
        Self { cluster, members, by_word }
    }

    /// Returns the member that a text names. An exact address or Node name goes first; then the letter case is ignored,
    /// and the part of a name before its first dot is enough if one member has it.
    pub fn resolve(&self, text: &str) -> Result<Member<'a>, NamingError> {
        let exact =
            (self.members.by_address(self.cluster, &Address::new(text)), self.members.by_name(self.cluster, text));
        let found: Vec<Member<'a>> = match exact {
            (Some(one), Some(other)) if one.address() != other.address() => vec![one, other],
            (Some(one), _) | (None, Some(one)) => vec![one],
            (None, None) => {
                let positions = self.by_word.get(&text.to_lowercase()).map(Vec::as_slice).unwrap_or_default();
                positions.iter().filter_map(|position| self.members.at(self.cluster, *position)).collect()
            }
        };
        match found.as_slice() {
            [one] => Ok(*one),
            [] => {
                let names =
                    self.cluster.nodes.iter().map(|node| node.hostname.as_str()).filter(|name| !name.is_empty());
                let known = names.chain(self.cluster.nodes.iter().map(|node| node.address.as_str()));
                Err(NamingError::Unknown { text: text.to_owned(), near: nearest(text, known).map(str::to_owned) })
            }
            several => {
                let candidates = several.iter().map(|m| format!("{} ({})", m.node_name(), m.address())).collect();
                Err(NamingError::Ambiguous { text: text.to_owned(), candidates })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::Node, names::NodeName};

    fn cluster() -> Cluster {
        let node = |address: &str, hostname: &str| Node {
            address: Address::new(address),
            hostname: NodeName::new(hostname),
            ..Node::default()
        };
        let nodes = vec![
            node("10.0.0.1", "w01.tokyo.example"),
            node("10.0.0.2", "w02.tokyo.example"),
            node("10.0.0.3", "w02.osaka.example"),
            node("10.0.0.4", "w03"),
            node("10.0.0.5", ""),
        ];
        Cluster { nodes, ..Cluster::default() }
    }

    #[test]
    fn a_member_is_found_by_its_address_its_name_and_the_first_part_of_its_name() {
        let cluster = cluster();
        let members = Members::of(&cluster);
        let names = MemberNames::of(&cluster, &members);
        for (text, address) in [
            ("10.0.0.1", "10.0.0.1"),
            ("w01.tokyo.example", "10.0.0.1"),
            ("W01.Tokyo.Example", "10.0.0.1"),
            ("w01", "10.0.0.1"),
            ("w03", "10.0.0.4"),
            ("10.0.0.5", "10.0.0.5"),
        ] {
            assert_eq!(names.resolve(text).map(|m| m.address().to_string()), Ok(address.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_name_of_several_members_is_an_error_that_lists_them() {
        let cluster = cluster();
        let members = Members::of(&cluster);
        let why = MemberNames::of(&cluster, &members).resolve("w02").unwrap_err();
        let expected = "w02 is the name of 2 machines: w02.tokyo.example (10.0.0.2), w02.osaka.example (10.0.0.3)";
        assert_eq!(why.to_string(), expected);
    }

    #[test]
    fn a_text_that_only_resembles_a_name_is_an_error() {
        let cluster = cluster();
        let members = Members::of(&cluster);
        let names = MemberNames::of(&cluster, &members);
        assert_eq!(names.resolve("w04").unwrap_err().to_string(), "w04 (did you mean w03?)");
        for text in ["", "w", "w0", "10", "10.0.0", "w01.tokyo", "tokyo"] {
            assert!(matches!(names.resolve(text), Err(NamingError::Unknown { .. })), "{text:?}");
        }
    }

    #[test]
    fn an_address_that_is_the_name_of_another_member_is_ambiguous() {
        let mut cluster = cluster();
        cluster.nodes[3].hostname = NodeName::new("10.0.0.1");
        let members = Members::of(&cluster);
        let why = MemberNames::of(&cluster, &members).resolve("10.0.0.1").unwrap_err();
        assert!(matches!(&why, NamingError::Ambiguous { candidates, .. } if candidates.len() == 2), "{why}");
    }
}
