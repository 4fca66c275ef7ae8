//! Users, roles and tokens.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use tonic::metadata::MetadataMap;

use super::{RpcError, key_range::KeyRange};

/// Name of the user, and of the role, that may do everything.
const ROOT: &str = "root";
/// A token expires after this time without use.
const TOKEN_TTL: Duration = Duration::from_mins(5);

/// Operations that a permission allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read and watch.
    pub read: bool,
    /// Put and delete.
    pub write: bool,
}

/// Sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Authentication is disabled.
    Unchecked,
    /// A sender without a token.
    Anonymous,
    /// The holder of a token.
    User(String),
}

#[derive(Clone, Debug, Default)]
struct User {
    /// `None` for a user who cannot log in with a password.
    password: Option<String>,
    roles: BTreeSet<String>,
}

type Role = BTreeMap<KeyRange, Access>;

/// Users, roles and their permissions.
#[derive(Debug)]
pub struct Auth {
    enabled: bool,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    /// User and expiry of each token.
    tokens: BTreeMap<String, (String, Instant)>,
    tokens_issued: u64,
    /// Number of changes.
    revision: u64,
}

impl Default for Auth {
    fn default() -> Self {
        let (users, roles, tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { enabled: false, users, roles, tokens, tokens_issued: 0, revision: 1 }
    }
}

impl Auth {
    /// Reports whether authentication is enabled, and how often users and roles were changed.
    pub fn status(&self) -> (bool, u64) {
        (self.enabled, self.revision)
    }

    /// Enables authentication. A root user with the root role must exist.
    pub fn enable(&mut self) -> Result<(), RpcError> {
        if self.enabled {
            return Ok(());
        }
        let root = self.users.get(ROOT).ok_or(RpcError::RootUserNotFound)?;
        if !root.roles.contains(ROOT) {
            return Err(RpcError::RootRoleNotGranted);
        }
        self.enabled = true;
        Ok(())
    }

    /// Disables authentication and drops all tokens.
    pub fn disable(&mut self) {
        self.revision += u64::from(self.enabled);
        self.enabled = false;
        self.tokens.clear();
    }

    /// Exchanges a password for a token.
    pub fn authenticate(&mut self, name: &str, password: &str) -> Result<String, RpcError> {
        if !self.enabled {
            return Err(RpcError::AuthNotEnabled);
        }
        let user = self.users.get(name).ok_or(RpcError::AuthFailed)?;
        if *user.password.as_ref().ok_or(RpcError::NoPassword)? != password {
            return Err(RpcError::AuthFailed);
        }
        let now = Instant::now();
        self.tokens.retain(|_, (_, end)| *end > now);
        self.tokens_issued += 1;
        // Same form as etcd's tokens: letters, a dot, a number.
        let mut letters = self.tokens_issued.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut token = String::new();
        for _ in 0..16 {
            token.push(char::from(b'A' + u8::try_from(letters % 26).unwrap_or_default()));
            letters = letters / 26 + 977;
        }
        let token = format!("{token}.{}", self.tokens_issued);
        self.tokens.insert(token.clone(), (name.to_owned(), now + TOKEN_TTL));
        Ok(token)
    }

    /// Returns the sender of a request. An unknown token is refused.
    pub fn principal(&mut self, metadata: &MetadataMap) -> Result<Principal, RpcError> {
        if !self.enabled {
            return Ok(Principal::Unchecked);
        }
        let Some(token) = metadata.get("token").or_else(|| metadata.get("authorization")) else {
            return Ok(Principal::Anonymous);
        };
        let now = Instant::now();
        match token.to_str().ok().and_then(|token| self.tokens.get_mut(token)) {
            Some((name, end)) if *end > now => {
                *end = now + TOKEN_TTL;
                Ok(Principal::User(name.clone()))
            }
            _ => Err(RpcError::InvalidToken),
        }
    }

    /// Checks that the sender is known. It does not check permissions.
    pub fn check_authenticated(&self, principal: &Principal) -> Result<(), RpcError> {
        self.user(principal).map(|_| ())
    }

    fn user(&self, principal: &Principal) -> Result<Option<&User>, RpcError> {
        match principal {
            Principal::Unchecked => Ok(None),
            Principal::Anonymous => Err(RpcError::UserEmpty),
            Principal::User(name) => self.users.get(name).map(Some).ok_or(RpcError::PermissionDenied),
        }
    }

    /// Checks that the sender has the root role.
    pub fn check_root(&self, principal: &Principal) -> Result<(), RpcError> {
        match self.user(principal)? {
            Some(user) if !user.roles.contains(ROOT) => Err(RpcError::PermissionDenied),
            _ => Ok(()),
        }
    }

    /// Checks that the sender may read this range.
    pub fn check_read_access(&self, principal: &Principal, key_range: &KeyRange) -> Result<(), RpcError> {
        self.check_access(principal, key_range, |allowed| allowed.read)
    }

    /// Checks that the sender may write this range.
    pub fn check_write_access(&self, principal: &Principal, key_range: &KeyRange) -> Result<(), RpcError> {
        self.check_access(principal, key_range, |allowed| allowed.write)
    }

    fn check_access(
        &self,
        principal: &Principal,
        key_range: &KeyRange,
        what: fn(&Access) -> bool,
    ) -> Result<(), RpcError> {
        let Some(user) = self.user(principal)? else { return Ok(()) };
        if user.roles.contains(ROOT) {
            return Ok(());
        }
        let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
        let spans: BTreeSet<&KeyRange> =
            roles.flatten().filter(|(_, allowed)| what(allowed)).map(|(key_range, _)| key_range).collect();
        if is_covered(key_range, &spans) { Ok(()) } else { Err(RpcError::PermissionDenied) }
    }

    /// Adds a user. Without a password, the user cannot log in with one.
    pub fn add_user(&mut self, name: &str, password: Option<String>) -> Result<(), RpcError> {
        if name.is_empty() {
            return Err(RpcError::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(RpcError::UserExists);
        }
        self.users.insert(name.to_owned(), User { password, roles: BTreeSet::new() });
        self.revision += 1;
        Ok(())
    }

    /// Deletes a user and the user's tokens. The root user cannot be deleted while authentication is enabled.
    pub fn delete_user(&mut self, name: &str) -> Result<(), RpcError> {
        if self.enabled && name == ROOT {
            return Err(RpcError::InvalidAuthManagement);
        }
        self.users.remove(name).ok_or(RpcError::UserNotFound)?;
        self.drop_tokens(name);
        Ok(())
    }

    /// Changes a user's password and drops the user's tokens.
    pub fn change_password(&mut self, name: &str, password: String) -> Result<(), RpcError> {
        self.users.get_mut(name).ok_or(RpcError::UserNotFound)?.password = Some(password);
        self.drop_tokens(name);
        Ok(())
    }

    fn drop_tokens(&mut self, name: &str) {
        self.tokens.retain(|_, (user, _)| user != name);
        self.revision += 1;
    }

    /// Returns the roles of a user. Users may list their own roles; others need the root role.
    pub fn user_roles(&self, principal: &Principal, name: &str) -> Result<Vec<String>, RpcError> {
        if *principal != Principal::User(name.to_owned()) {
            self.check_root(principal)?;
        }
        let user = self.users.get(name).ok_or(RpcError::UserNotFound)?;
        Ok(user.roles.iter().cloned().collect())
    }

    /// Returns the names of all users.
    pub fn users(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }

    /// Grants a role to a user. The root role exists without being added.
    pub fn grant_role(&mut self, name: &str, role: &str) -> Result<(), RpcError> {
        let user = self.users.get_mut(name).ok_or(RpcError::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(RpcError::RoleNotFound);
        }
        self.revision += u64::from(user.roles.insert(role.to_owned()));
        Ok(())
    }

    /// Revokes a role from a user. The root user keeps the root role while authentication is enabled.
    pub fn revoke_role(&mut self, name: &str, role: &str) -> Result<(), RpcError> {
        if self.enabled && name == ROOT && role == ROOT {
            return Err(RpcError::InvalidAuthManagement);
        }
        let user = self.users.get_mut(name).ok_or(RpcError::UserNotFound)?;
        if !user.roles.remove(role) {
            return Err(RpcError::RoleNotGranted);
        }
        self.revision += 1;
        Ok(())
    }

    /// Adds a role.
    pub fn add_role(&mut self, role: &str) -> Result<(), RpcError> {
        if role.is_empty() {
            return Err(RpcError::RoleEmpty);
        }
        if self.roles.contains_key(role) {
            return Err(RpcError::RoleExists);
        }
        self.roles.insert(role.to_owned(), Role::new());
        self.revision += 1;
        Ok(())
    }

    /// Deletes a role, also from its users. The root role cannot be deleted while authentication is enabled.
    pub fn delete_role(&mut self, role: &str) -> Result<(), RpcError> {
        if self.enabled && role == ROOT {
            return Err(RpcError::InvalidAuthManagement);
        }
        self.roles.remove(role).ok_or(RpcError::RoleNotFound)?;
        for user in self.users.values_mut() {
            user.roles.remove(role);
        }
        self.revision += 1;
        Ok(())
    }

    /// Returns the permissions of a role, sorted by key. Holders of the role may see them; others need the root role.
    pub fn role(&self, principal: &Principal, role: &str) -> Result<Vec<(KeyRange, Access)>, RpcError> {
        if !self.user(principal)?.is_none_or(|user| user.roles.contains(role)) {
            self.check_root(principal)?;
        }
        let found = self.roles.get(role).ok_or(RpcError::RoleNotFound)?;
        if role == ROOT {
            return Ok(vec![(KeyRange::From(Vec::new()), Access { read: true, write: true })]);
        }
        let mut found: Vec<_> = found.iter().map(|(key_range, allowed)| (key_range.clone(), *allowed)).collect();
        found.sort_by(|(a, _), (b, _)| a.start().cmp(b.start()).then(a.stop().cmp(&b.stop())));
        Ok(found)
    }

    /// Returns the names of all roles.
    pub fn roles(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    /// Grants a role a permission on a range, or changes it.
    pub fn grant_permission(&mut self, role: &str, key_range: KeyRange, allowed: Access) -> Result<(), RpcError> {
        if key_range.is_empty() || key_range.start().is_empty() {
            return Err(RpcError::InvalidAuthManagement);
        }
        self.roles.get_mut(role).ok_or(RpcError::RoleNotFound)?.insert(key_range, allowed);
        self.revision += 1;
        Ok(())
    }

    /// Revokes a permission on a range. It must have been granted for exactly that range.
    pub fn revoke_permission(&mut self, role: &str, key_range: &KeyRange) -> Result<(), RpcError> {
        let found = self.roles.get_mut(role).ok_or(RpcError::RoleNotFound)?.remove(key_range);
        found.ok_or(RpcError::PermissionNotGranted)?;
        self.revision += 1;
        Ok(())
    }
}

/// Reports whether the union of the ranges contains this range.
fn is_covered(key_range: &KeyRange, ranges_granted: &BTreeSet<&KeyRange>) -> bool {
    if key_range.is_empty() {
        return true;
    }
    let mut ranges: Vec<(&[u8], Option<Vec<u8>>)> = ranges_granted.iter().map(|s| (s.start(), s.stop())).collect();
    ranges.sort_unstable();
    let (mut reached, end) = (key_range.start().to_vec(), key_range.stop());
    for (from, to) in ranges {
        if from > reached.as_slice() {
            return false;
        }
        match to {
            None => return true,
            Some(to) if to > reached => reached = to,
            Some(_) => {}
        }
        if end.as_ref().is_some_and(|end| reached >= *end) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_joined_and_a_gap_is_not_covered() {
        let held = [
            KeyRange::new(b"a", b"c"),
            KeyRange::new(b"c", b"e"),
            KeyRange::new(b"f", b"\0"),
            KeyRange::new(b"/x", b""),
        ];
        let held: BTreeSet<&KeyRange> = held.iter().collect();
        for (key_range, yes) in [
            (KeyRange::new(b"a", b""), true),
            (KeyRange::new(b"b", b"d"), true),
            (KeyRange::new(b"b", b"e"), true),
            (KeyRange::new(b"b", b"f"), false),
            (KeyRange::new(b"e", b""), false),
            (KeyRange::new(b"g", b"\0"), true),
            (KeyRange::new(b"a", b"\0"), false),
            (KeyRange::new(b"/x", b""), true),
            (KeyRange::new(b"/x", b"/y"), false),
        ] {
            assert_eq!(is_covered(&key_range, &held), yes, "{key_range:?}");
        }
    }
}
