//! Users, roles and tokens.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use tonic::metadata::MetadataMap;

use super::{Refusal, span::Span};

/// Name of the user, and of the role, that may do everything.
const ROOT: &str = "root";
/// A token expires after this time without use.
const TOKEN_LIFE: Duration = Duration::from_mins(5);

/// Operations that a permission allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Read and watch.
    pub read: bool,
    /// Put and delete.
    pub write: bool,
}

/// Sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Authentication is disabled.
    Anyone,
    /// A sender without a token.
    Nobody,
    /// The holder of a token.
    User(String),
}

#[derive(Clone, Debug, Default)]
struct User {
    /// `None` for a user who cannot log in with a password.
    password: Option<String>,
    roles: BTreeSet<String>,
}

type Role = BTreeMap<Span, Allowed>;

/// Users, roles and their permissions.
#[derive(Debug)]
pub struct Auth {
    enabled: bool,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    /// User and expiry of each token.
    tokens: BTreeMap<String, (String, Instant)>,
    given: u64,
    /// Number of changes.
    revision: u64,
}

impl Default for Auth {
    fn default() -> Self {
        let (users, roles, tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { enabled: false, users, roles, tokens, given: 0, revision: 1 }
    }
}

impl Auth {
    /// Reports whether authentication is enabled, and how often users and roles were changed.
    pub fn status(&self) -> (bool, u64) {
        (self.enabled, self.revision)
    }

    /// Enables authentication. A root user with the root role must exist.
    pub fn enable(&mut self) -> Result<(), Refusal> {
        if self.enabled {
            return Ok(());
        }
        let root = self.users.get(ROOT).ok_or(Refusal::RootUserNotFound)?;
        if !root.roles.contains(ROOT) {
            return Err(Refusal::RootRoleNotGranted);
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
    pub fn authenticate(&mut self, name: &str, password: &str) -> Result<String, Refusal> {
        if !self.enabled {
            return Err(Refusal::AuthNotEnabled);
        }
        let user = self.users.get(name).ok_or(Refusal::AuthFailed)?;
        if *user.password.as_ref().ok_or(Refusal::NoPassword)? != password {
            return Err(Refusal::AuthFailed);
        }
        let now = Instant::now();
        self.tokens.retain(|_, (_, end)| *end > now);
        self.given += 1;
        // Same form as etcd's tokens: letters, a dot, a number.
        let mut letters = self.given.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut token = String::new();
        for _ in 0..16 {
            token.push(char::from(b'A' + u8::try_from(letters % 26).unwrap_or_default()));
            letters = letters / 26 + 977;
        }
        let token = format!("{token}.{}", self.given);
        self.tokens.insert(token.clone(), (name.to_owned(), now + TOKEN_LIFE));
        Ok(token)
    }

    /// Returns the sender of a request. An unknown token is refused.
    pub fn who(&mut self, metadata: &MetadataMap) -> Result<Who, Refusal> {
        if !self.enabled {
            return Ok(Who::Anyone);
        }
        let Some(token) = metadata.get("token").or_else(|| metadata.get("authorization")) else {
            return Ok(Who::Nobody);
        };
        let now = Instant::now();
        match token.to_str().ok().and_then(|token| self.tokens.get_mut(token)) {
            Some((name, end)) if *end > now => {
                *end = now + TOKEN_LIFE;
                Ok(Who::User(name.clone()))
            }
            _ => Err(Refusal::InvalidToken),
        }
    }

    /// Checks that the sender is known. It does not check permissions.
    pub fn must_be_known(&self, who: &Who) -> Result<(), Refusal> {
        self.user(who).map(|_| ())
    }

    fn user(&self, who: &Who) -> Result<Option<&User>, Refusal> {
        match who {
            Who::Anyone => Ok(None),
            Who::Nobody => Err(Refusal::UserEmpty),
            Who::User(name) => self.users.get(name).map(Some).ok_or(Refusal::PermissionDenied),
        }
    }

    /// Checks that the sender has the root role.
    pub fn must_be_root(&self, who: &Who) -> Result<(), Refusal> {
        match self.user(who)? {
            Some(user) if !user.roles.contains(ROOT) => Err(Refusal::PermissionDenied),
            _ => Ok(()),
        }
    }

    /// Checks that the sender may read this range.
    pub fn may_read(&self, who: &Who, span: &Span) -> Result<(), Refusal> {
        self.may(who, span, |allowed| allowed.read)
    }

    /// Checks that the sender may write this range.
    pub fn may_write(&self, who: &Who, span: &Span) -> Result<(), Refusal> {
        self.may(who, span, |allowed| allowed.write)
    }

    fn may(&self, who: &Who, span: &Span, what: fn(&Allowed) -> bool) -> Result<(), Refusal> {
        let Some(user) = self.user(who)? else { return Ok(()) };
        if user.roles.contains(ROOT) {
            return Ok(());
        }
        let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
        let spans: BTreeSet<&Span> =
            roles.flatten().filter(|(_, allowed)| what(allowed)).map(|(span, _)| span).collect();
        if covered(span, &spans) { Ok(()) } else { Err(Refusal::PermissionDenied) }
    }

    /// Adds a user. Without a password, the user cannot log in with one.
    pub fn add_user(&mut self, name: &str, password: Option<String>) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(Refusal::UserExists);
        }
        self.users.insert(name.to_owned(), User { password, roles: BTreeSet::new() });
        self.revision += 1;
        Ok(())
    }

    /// Deletes a user and the user's tokens. The root user cannot be deleted while authentication is enabled.
    pub fn delete_user(&mut self, name: &str) -> Result<(), Refusal> {
        if self.enabled && name == ROOT {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.users.remove(name).ok_or(Refusal::UserNotFound)?;
        self.forget(name);
        Ok(())
    }

    /// Changes a user's password and drops the user's tokens.
    pub fn change_password(&mut self, name: &str, password: String) -> Result<(), Refusal> {
        self.users.get_mut(name).ok_or(Refusal::UserNotFound)?.password = Some(password);
        self.forget(name);
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        self.tokens.retain(|_, (user, _)| user != name);
        self.revision += 1;
    }

    /// Returns the roles of a user. Users may list their own roles; others need the root role.
    pub fn user_roles(&self, who: &Who, name: &str) -> Result<Vec<String>, Refusal> {
        if *who != Who::User(name.to_owned()) {
            self.must_be_root(who)?;
        }
        let user = self.users.get(name).ok_or(Refusal::UserNotFound)?;
        Ok(user.roles.iter().cloned().collect())
    }

    /// Returns the names of all users.
    pub fn users(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }

    /// Grants a role to a user. The root role exists without being added.
    pub fn grant_role(&mut self, name: &str, role: &str) -> Result<(), Refusal> {
        let user = self.users.get_mut(name).ok_or(Refusal::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(Refusal::RoleNotFound);
        }
        self.revision += u64::from(user.roles.insert(role.to_owned()));
        Ok(())
    }

    /// Revokes a role from a user. The root user keeps the root role while authentication is enabled.
    pub fn revoke_role(&mut self, name: &str, role: &str) -> Result<(), Refusal> {
        if self.enabled && name == ROOT && role == ROOT {
            return Err(Refusal::InvalidAuthManagement);
        }
        let user = self.users.get_mut(name).ok_or(Refusal::UserNotFound)?;
        if !user.roles.remove(role) {
            return Err(Refusal::RoleNotGranted);
        }
        self.revision += 1;
        Ok(())
    }

    /// Adds a role.
    pub fn add_role(&mut self, role: &str) -> Result<(), Refusal> {
        if role.is_empty() {
            return Err(Refusal::RoleEmpty);
        }
        if self.roles.contains_key(role) {
            return Err(Refusal::RoleExists);
        }
        self.roles.insert(role.to_owned(), Role::new());
        self.revision += 1;
        Ok(())
    }

    /// Deletes a role, also from its users. The root role cannot be deleted while authentication is enabled.
    pub fn delete_role(&mut self, role: &str) -> Result<(), Refusal> {
        if self.enabled && role == ROOT {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.roles.remove(role).ok_or(Refusal::RoleNotFound)?;
        for user in self.users.values_mut() {
            user.roles.remove(role);
        }
        self.revision += 1;
        Ok(())
    }

    /// Returns the permissions of a role, sorted by key. Holders of the role may see them; others need the root role.
    pub fn role(&self, who: &Who, role: &str) -> Result<Vec<(Span, Allowed)>, Refusal> {
        if !self.user(who)?.is_none_or(|user| user.roles.contains(role)) {
            self.must_be_root(who)?;
        }
        let found = self.roles.get(role).ok_or(Refusal::RoleNotFound)?;
        if role == ROOT {
            return Ok(vec![(Span::From(Vec::new()), Allowed { read: true, write: true })]);
        }
        let mut found: Vec<_> = found.iter().map(|(span, allowed)| (span.clone(), *allowed)).collect();
        found.sort_by(|(a, _), (b, _)| a.start().cmp(b.start()).then(a.stop().cmp(&b.stop())));
        Ok(found)
    }

    /// Returns the names of all roles.
    pub fn roles(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    /// Grants a role a permission on a range, or changes it.
    pub fn grant_permission(&mut self, role: &str, span: Span, allowed: Allowed) -> Result<(), Refusal> {
        if span.is_empty() || span.start().is_empty() {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.roles.get_mut(role).ok_or(Refusal::RoleNotFound)?.insert(span, allowed);
        self.revision += 1;
        Ok(())
    }

    /// Revokes a permission on a range. It must have been granted for exactly that range.
    pub fn revoke_permission(&mut self, role: &str, span: &Span) -> Result<(), Refusal> {
        let found = self.roles.get_mut(role).ok_or(Refusal::RoleNotFound)?.remove(span);
        found.ok_or(Refusal::PermissionNotGranted)?;
        self.revision += 1;
        Ok(())
    }
}

/// Reports whether the union of the ranges contains this range.
fn covered(span: &Span, by: &BTreeSet<&Span>) -> bool {
    if span.is_empty() {
        return true;
    }
    let mut ranges: Vec<(&[u8], Option<Vec<u8>>)> = by.iter().map(|s| (s.start(), s.stop())).collect();
    ranges.sort_unstable();
    let (mut reached, end) = (span.start().to_vec(), span.stop());
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
    fn ranges_add_up_and_a_gap_is_one() {
        let held = [Span::new(b"a", b"c"), Span::new(b"c", b"e"), Span::new(b"f", b"\0"), Span::new(b"/x", b"")];
        let held: BTreeSet<&Span> = held.iter().collect();
        for (span, yes) in [
            (Span::new(b"a", b""), true),
            (Span::new(b"b", b"d"), true),
            (Span::new(b"b", b"e"), true),
            (Span::new(b"b", b"f"), false),
            (Span::new(b"e", b""), false),
            (Span::new(b"g", b"\0"), true),
            (Span::new(b"a", b"\0"), false),
            (Span::new(b"/x", b""), true),
            (Span::new(b"/x", b"/y"), false),
        ] {
            assert_eq!(covered(&span, &held), yes, "{span:?}");
        }
    }
}
