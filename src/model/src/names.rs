//! The two texts that identify a machine: the name of its Kubernetes Node, and its address in the cluster definition and
//! in both queues. They are different types, so that no function takes one for the other. Nothing converts between them:
//! [`crate::cluster::Members`] and [`crate::kube::KubeView`] know which belong together.

use std::{borrow::Borrow, fmt, ops::Deref};

use serde::{Deserialize, Serialize};

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Marks a text that enters the program. It must not be used to turn a name into an address, or back.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }
    };
}

text! {
    /// Name of a Kubernetes Node: its `metadata.name`.
    NodeName
}

text! {
    /// Address of a machine as the cluster definition, the reboot queue and the repair queue contain it. The text is
    /// compared, not the IP address: the repair queue may hold any text.
    Address
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn names_and_addresses_are_stored_and_shown_as_plain_text() {
        let (name, address) = (NodeName::new("w12"), Address::new("10.0.0.12"));
        assert_eq!(serde_json::to_string(&(&name, &address)).unwrap(), r#"["w12","10.0.0.12"]"#);
        assert_eq!(serde_json::from_str::<NodeName>("\"w12\"").unwrap(), name);
        assert_eq!(format!("{name:>5}|{address}|{name:?}"), "  w12|10.0.0.12|\"w12\"");
    }

    #[test]
    fn maps_are_asked_by_text() {
        let name = NodeName::new("w12");
        assert_eq!(BTreeMap::from([(name.clone(), 1)]).get("w12"), Some(&1));
        assert_eq!(HashMap::from([(name, 1)]).get("w12"), Some(&1));
    }
}
