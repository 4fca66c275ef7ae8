//! Faults that the preflight finds: while there is one, this engine only observes (docs/spec/safety.md, SAF-4).

use std::fmt;

use cketerm_model::boot_time::Seconds;
use serde::{Deserialize, Serialize};

/// Fault for which this engine only observes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "PascalCase")]
pub enum PreflightFault {
    /// etcd has not been read completely.
    EtcdUnread {
        /// The last error, if there was one.
        error: Option<String>,
    },
    /// `cketerm/schema` is of a newer version.
    SchemaTooNew {
        /// The number in etcd.
        found: u32,
        /// The number of this version.
        known: u32,
    },
    /// `cketerm/schema` cannot be read.
    SchemaUnreadable {
        /// The error of the parser.
        error: String,
    },
    /// `cketerm/policy` cannot be read.
    PolicyUnreadable {
        /// The error of the parser.
        error: String,
    },
    /// `cketerm/policy` has fields that this version does not know.
    PolicyTooNew {
        /// The fields.
        fields: Vec<String>,
    },
    /// The configuration names no cluster.
    KubernetesNotConfigured,
    /// `cketerm/identity` cannot be read.
    IdentityUnreadable {
        /// The error of the parser.
        error: String,
    },
    /// Kubernetes has not told the cluster's UID yet.
    IdentityUnknown,
    /// No engine has proposed an identity yet.
    IdentityNotProposed,
    /// etcd belongs to another cluster than the one that is configured.
    IdentityMismatch {
        /// The UID in etcd.
        recorded: String,
        /// The UID of the cluster that answers.
        found: String,
    },
    /// No operator has confirmed the identity.
    IdentityUnconfirmed {
        /// The cluster's UID.
        uid: String,
    },
    /// This host's clock differs from the API server's.
    ClockDiffers {
        /// By so many seconds; positive where the API server is ahead.
        seconds: Seconds,
    },
    /// This host's clock was set since it was compared with the API server's.
    ClockWasSet {
        /// By so many seconds.
        seconds: Seconds,
    },
    /// Kubernetes does not grant all rights.
    RightsMissing {
        /// `verb resource` of each.
        rights: Vec<String>,
    },
    /// Kubernetes has not told the rights yet.
    RightsUnknown,
}

impl PreflightFault {
    /// Reports whether a leader finishes what it has begun and resigns. The other faults stop new starts while they
    /// last.
    pub fn ends_leadership(&self) -> bool {
        match self {
            Self::SchemaTooNew { .. } | Self::PolicyTooNew { .. } | Self::IdentityMismatch { .. } => true,
            Self::EtcdUnread { .. }
            | Self::SchemaUnreadable { .. }
            | Self::PolicyUnreadable { .. }
            | Self::KubernetesNotConfigured
            | Self::IdentityUnreadable { .. }
            | Self::IdentityUnknown
            | Self::IdentityNotProposed
            | Self::IdentityUnconfirmed { .. }
            | Self::ClockDiffers { .. }
            | Self::ClockWasSet { .. }
            | Self::RightsMissing { .. }
            | Self::RightsUnknown => false,
        }
    }

    /// All of them as one line.
    pub fn joined(faults: &[Self]) -> String {
        faults.iter().map(Self::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for PreflightFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EtcdUnread { error: Some(error) } => write!(f, "etcd: {error}"),
            Self::EtcdUnread { error: None } => f.write_str("etcd has not been read yet"),
            Self::SchemaTooNew { found, known } => {
                write!(f, "cketerm/schema is {found}, newer than {known}: upgrade this cketerm")
            }
            Self::SchemaUnreadable { error } => write!(f, "cketerm/schema cannot be read: {error}"),
            Self::PolicyUnreadable { error } => write!(f, "cketerm/policy cannot be read: {error}"),
            Self::PolicyTooNew { fields } => {
                write!(f, "cketerm/policy has fields of a newer cketerm: {}", fields.join(", "))
            }
            Self::KubernetesNotConfigured => f.write_str(
                "Kubernetes is not configured (`kubernetes.kubeconfig` in the configuration, or --kubeconfig)",
            ),
            Self::IdentityUnreadable { error } => write!(f, "identity: cketerm/identity cannot be read: {error}"),
            Self::IdentityUnknown => f.write_str("identity: Kubernetes does not answer yet"),
            Self::IdentityNotProposed => f.write_str("identity: not recorded yet"),
            Self::IdentityMismatch { recorded, found } => write!(
                f,
                "identity: MISMATCH, this etcd belongs to cluster {recorded} and Kubernetes is {found}: correct the \
                 configuration, or `cluster identify --confirm --replace {recorded}` after the cluster was rebuilt"
            ),
            Self::IdentityUnconfirmed { uid } => {
                write!(f, "identity: cluster {uid} is not confirmed: run `cketerm cluster identify --confirm` once")
            }
            Self::ClockDiffers { seconds } => {
                write!(f, "this host's clock differs from the API server's by {seconds:.0}: correct it (NTP)")
            }
            Self::ClockWasSet { seconds } => {
                write!(f, "this host's clock jumped by {seconds:.0}; it is being compared with the API server's again")
            }
            Self::RightsMissing { rights } => {
                write!(f, "missing rights in Kubernetes (docs/rbac.yaml): {}", rights.join(", "))
            }
            Self::RightsUnknown => f.write_str("rights in Kubernetes are not checked yet"),
        }
    }
}
