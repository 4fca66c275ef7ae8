//! Users, roles and tokens.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};
use tonic::metadata::MetadataMap;

use super::{Refusal, span::Span};

/// The user and the role that may do everything.
const ROOT: &str = "root";
/// A token that is not used for so long is forgotten.
const TOKEN_LIFE: Duration = Duration::from_mins(5);

/// What a permission allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Reading and watching.
    pub read: bool,
    /// Putting and deleting.
    pub write: bool,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody is asked who he is.
    Anyone,
    /// Somebody without a token.
    Nobody,
    /// The holder of a token.
    User(String),
}

#[derive(Clone, Debug, Default)]
struct User {
    /// Nothing for a user who cannot log in with one.
    password: Option<String>,
    roles: BTreeSet<String>,
}

type Role = BTreeMap<Span, Allowed>;

/// Who may do what.
#[derive(Debug)]
pub struct Auth {
    enabled: bool,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
    /// User and end of each token.
    tokens: BTreeMap<String, (String, Instant)>,
    given: u64,
    /// Counts the changes.
    revision: u64,
}

impl Default for Auth {
    fn default() -> Self {
        let (users, roles, tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { enabled: false, users, roles, tokens, given: 0, revision: 1 }
    }
}

impl Auth {
    /// Whether it is on, and how often it was changed.
    pub fn status(&self) -> (bool, u64) {
        (self.enabled, self.revision)
    }

    /// Turns it on; a root user with the root role must be there.
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

    /// Turns it off; all tokens are forgotten.
    pub fn disable(&mut self) {
        self.revision += u64::from(self.enabled);
        self.enabled = false;
        self.tokens.clear();
    }

    /// Takes a password for a token.
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
        // of the form of etcd's own: letters, a dot, a number
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

    /// Who sent a request. A token of no account is refused wherever one is looked at.
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

    /// Whether he who asks is known; what he may is another question.
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

    /// Only who has the root role.
    pub fn must_be_root(&self, who: &Who) -> Result<(), Refusal> {
        match self.user(who)? {
            Some(user) if !user.roles.contains(ROOT) => Err(Refusal::PermissionDenied),
            _ => Ok(()),
        }
    }

    /// Whether this range may be read.
    pub fn may_read(&self, who: &Who, span: &Span) -> Result<(), Refusal> {
        self.may(who, span, |allowed| allowed.read)
    }

    /// Whether this range may be written.
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

    /// Adds a user; one without a password cannot log in with one.
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

    /// Takes a user away with his tokens; not root while it is on.
    pub fn delete_user(&mut self, name: &str) -> Result<(), Refusal> {
        if self.enabled && name == ROOT {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.users.remove(name).ok_or(Refusal::UserNotFound)?;
        self.forget(name);
        Ok(())
    }

    /// Gives a user another password; his tokens are forgotten.
    pub fn change_password(&mut self, name: &str, password: String) -> Result<(), Refusal> {
        self.users.get_mut(name).ok_or(Refusal::UserNotFound)?.password = Some(password);
        self.forget(name);
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        self.tokens.retain(|_, (user, _)| user != name);
        self.revision += 1;
    }

    /// The roles of a user, whom he himself may see.
    pub fn user_roles(&self, who: &Who, name: &str) -> Result<Vec<String>, Refusal> {
        if *who != Who::User(name.to_owned()) {
            self.must_be_root(who)?;
        }
        let user = self.users.get(name).ok_or(Refusal::UserNotFound)?;
        Ok(user.roles.iter().cloned().collect())
    }

    /// The names of all users.
    pub fn users(&self) -> Vec<String> {
        self.users.keys().cloned().collect()
    }

    /// Gives a user a role; the root role is there without being made.
    pub fn grant_role(&mut self, name: &str, role: &str) -> Result<(), Refusal> {
        let user = self.users.get_mut(name).ok_or(Refusal::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(Refusal::RoleNotFound);
        }
        self.revision += u64::from(user.roles.insert(role.to_owned()));
        Ok(())
    }

    /// Takes a role from a user; not root's own while it is on.
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

    /// Takes a role away, from its users too; not root while it is on.
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

    /// What a role allows, which its holders may see, by key.
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

    /// The names of all roles.
    pub fn roles(&self) -> Vec<String> {
        self.roles.keys().cloned().collect()
    }

    /// Allows a role a range, or changes what it allows there.
    pub fn grant_permission(&mut self, role: &str, span: Span, allowed: Allowed) -> Result<(), Refusal> {
        if span.is_empty() || span.start().is_empty() {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.roles.get_mut(role).ok_or(Refusal::RoleNotFound)?.insert(span, allowed);
        self.revision += 1;
        Ok(())
    }

    /// Takes a range from a role; it must have been given as that range.
    pub fn revoke_permission(&mut self, role: &str, span: &Span) -> Result<(), Refusal> {
        let found = self.roles.get_mut(role).ok_or(Refusal::RoleNotFound)?.remove(span);
        found.ok_or(Refusal::PermissionNotGranted)?;
        self.revision += 1;
        Ok(())
    }
}

/// Whether the ranges, taken together, hold all of this one.
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
