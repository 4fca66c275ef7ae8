//! The service of users, roles and tokens (`etcdserverpb.Auth`), with hand-written messages (see `plain`).

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use tonic::{
    Request, Response, Status,
    metadata::MetadataMap,
    server::{Grpc, NamedService, UnaryService},
};
use tower::Service;

use super::{
    Etcd, Refusal,
    auth::Allowed,
    plain::{self, Raw},
    span::Span,
};
use crate::sandbox::plain::{Fields, Message};

/// The service.
#[derive(Clone)]
pub(super) struct Accounts(pub Etcd);

impl NamedService for Accounts {
    const NAME: &'static str = "etcdserverpb.Auth";
}

impl Service<http::Request<tonic::body::Body>> for Accounts {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let call = Call { etcd: self.0.clone(), method };
        Box::pin(async move { Ok(Grpc::new(Raw).unary(call, request).await) })
    }
}

/// One call of one method.
struct Call {
    etcd: Etcd,
    method: String,
}

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(self.answer(request).map(Response::new))
    }
}

impl Call {
    fn answer(&self, request: Request<Bytes>) -> Result<Bytes, Status> {
        let (metadata, _, message) = request.into_parts();
        let r = Fields::read(message).ok_or_else(|| Status::internal("failed to decode Protobuf message"))?;
        if self.method == "Authenticate" {
            let mut state = self.etcd.state();
            let token = state.auth.authenticate(&r.text(1), &r.text(2))?;
            return Ok(plain::answer(state.revisions.revision()).bytes(2, token.as_bytes()).done());
        }
        match self.read(&metadata, &r) {
            Some(answer) => Ok(answer?),
            None => match self.change(&metadata, &r) {
                Some(changed) => {
                    changed?;
                    Ok(plain::answer(self.etcd.revision()).done())
                }
                None => Err(Status::unimplemented(format!("unknown method {}", self.method))),
            },
        }
    }

    /// Handles a method that reads. Returns `None` if the method does not read.
    fn read(&self, metadata: &MetadataMap, r: &Fields) -> Option<Result<Bytes, Refusal>> {
        let mut state = self.etcd.state();
        let revision = state.revisions.revision();
        let answer = || plain::answer(revision);
        let names = |names: Vec<String>| names.iter().fold(answer(), |all, name| all.bytes(2, name.as_bytes())).done();
        let auth = &mut state.auth;
        let who = match auth.who(metadata) {
            Ok(who) => who,
            Err(refusal) => return Some(Err(refusal)),
        };
        Some(match self.method.as_str() {
            "AuthStatus" => auth.must_be_root(&who).map(|()| {
                let (enabled, revision) = auth.status();
                answer().number(2, u64::from(enabled)).number(3, revision).done()
            }),
            "UserGet" => auth.user_roles(&who, &r.text(1)).map(names),
            "UserList" => auth.must_be_root(&who).map(|()| names(auth.users())),
            "RoleList" => auth.must_be_root(&who).map(|()| names(auth.roles())),
            "RoleGet" => auth.role(&who, &r.text(1)).map(|held| {
                held.iter().fold(answer(), |all, (span, allowed)| all.message(2, &permission(span, *allowed))).done()
            }),
            _ => return None,
        })
    }

    /// Handles a method that changes something. Returns `None` if the method is none of these. Only root may change
    /// anything.
    fn change(&self, metadata: &MetadataMap, r: &Fields) -> Option<Result<(), Refusal>> {
        let mut state = self.etcd.state();
        let auth = &mut state.auth;
        if let Err(refusal) = auth.who(metadata).and_then(|who| auth.must_be_root(&who)) {
            return Some(Err(refusal));
        }
        let (first, second) = (r.text(1), r.text(2));
        Some(match self.method.as_str() {
            "AuthEnable" => auth.enable(),
            "AuthDisable" => {
                auth.disable();
                Ok(())
            }
            "UserAdd" => {
                let options = r.message(3).and_then(Fields::read).unwrap_or_default();
                auth.add_user(&first, (options.number(1) == 0).then_some(second))
            }
            "UserDelete" => auth.delete_user(&first),
            "UserChangePassword" => auth.change_password(&first, second),
            "UserGrantRole" => auth.grant_role(&first, &second),
            "UserRevokeRole" => auth.revoke_role(&first, &second),
            "RoleAdd" => auth.add_role(&first),
            "RoleDelete" => auth.delete_role(&first),
            "RoleGrantPermission" => match r.message(2).and_then(Fields::read) {
                None => Err(Refusal::PermissionNotGiven),
                // Permission types: read, write, both.
                Some(held) => {
                    let kind = held.number(1);
                    let allowed = Allowed { read: kind != 1, write: kind != 0 };
                    auth.grant_permission(&first, Span::new(&held.bytes(2), &held.bytes(3)), allowed)
                }
            },
            "RoleRevokePermission" => auth.revoke_permission(&first, &Span::new(&r.bytes(2), &r.bytes(3))),
            _ => return None,
        })
    }
}

fn permission(span: &Span, allowed: Allowed) -> Message {
    let kind = match (allowed.read, allowed.write) {
        (true, true) => 2,
        (false, _) => 1,
        (true, false) => 0,
    };
    let message = Message::default().number(1, kind).bytes(2, span.start());
    match span {
        Span::One(_) => message,
        Span::Until(_, to) => message.bytes(3, to),
        Span::From(_) => message.bytes(3, &[0]),
    }
}
