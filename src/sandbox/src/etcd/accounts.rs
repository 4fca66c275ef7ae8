//! The service of users, roles and tokens (`etcdserverpb.Auth`), with hand-written messages (see `protobuf`).

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
    Etcd, RpcError,
    auth::Access,
    key_range::KeyRange,
    protobuf::{self, Raw},
};
use crate::protobuf::{Fields, Message};

/// The service.
#[derive(Clone)]
pub(super) struct AuthService(pub Etcd);

impl NamedService for AuthService {
    const NAME: &'static str = "etcdserverpb.Auth";
}

impl Service<http::Request<tonic::body::Body>> for AuthService {
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
        let fields = Fields::read(message).ok_or_else(|| Status::internal("failed to decode Protobuf message"))?;
        if self.method == "Authenticate" {
            let mut state = self.etcd.state();
            let token = state.auth.authenticate(&fields.text(1), &fields.text(2))?;
            return Ok(protobuf::answer(state.revisions.revision()).bytes(2, token.as_bytes()).into_bytes());
        }
        match self.read(&metadata, &fields) {
            Some(answer) => Ok(answer?),
            None => match self.change(&metadata, &fields) {
                Some(changed) => {
                    changed?;
                    Ok(protobuf::answer(self.etcd.revision()).into_bytes())
                }
                None => Err(Status::unimplemented(format!("unknown method {}", self.method))),
            },
        }
    }

    /// Handles a method that reads. Returns `None` if the method does not read.
    fn read(&self, metadata: &MetadataMap, fields: &Fields) -> Option<Result<Bytes, RpcError>> {
        let mut state = self.etcd.state();
        let revision = state.revisions.revision();
        let answer = || protobuf::answer(revision);
        let names =
            |names: Vec<String>| names.iter().fold(answer(), |all, name| all.bytes(2, name.as_bytes())).into_bytes();
        let auth = &mut state.auth;
        let principal = match auth.principal(metadata) {
            Ok(principal) => principal,
            Err(rpc_error) => return Some(Err(rpc_error)),
        };
        Some(match self.method.as_str() {
            "AuthStatus" => auth.check_root(&principal).map(|()| {
                let (enabled, revision) = auth.status();
                answer().number(2, u64::from(enabled)).number(3, revision).into_bytes()
            }),
            "UserGet" => auth.user_roles(&principal, &fields.text(1)).map(names),
            "UserList" => auth.check_root(&principal).map(|()| names(auth.users())),
            "RoleList" => auth.check_root(&principal).map(|()| names(auth.roles())),
            "RoleGet" => auth.role(&principal, &fields.text(1)).map(|permissions| {
                permissions
                    .iter()
                    .fold(answer(), |all, (key_range, allowed)| all.message(2, &permission(key_range, *allowed)))
                    .into_bytes()
            }),
            _ => return None,
        })
    }

    /// Handles a method that changes something. Returns `None` if the method is none of these. Only root may change
    /// anything.
    fn change(&self, metadata: &MetadataMap, fields: &Fields) -> Option<Result<(), RpcError>> {
        let mut state = self.etcd.state();
        let auth = &mut state.auth;
        if let Err(rpc_error) = auth.principal(metadata).and_then(|principal| auth.check_root(&principal)) {
            return Some(Err(rpc_error));
        }
        let (first, second) = (fields.text(1), fields.text(2));
        Some(match self.method.as_str() {
            "AuthEnable" => auth.enable(),
            "AuthDisable" => {
                auth.disable();
                Ok(())
            }
            "UserAdd" => {
                let options = fields.message(3).and_then(Fields::read).unwrap_or_default();
                auth.add_user(&first, (options.number(1) == 0).then_some(second))
            }
            "UserDelete" => auth.delete_user(&first),
            "UserChangePassword" => auth.change_password(&first, second),
            "UserGrantRole" => auth.grant_role(&first, &second),
            "UserRevokeRole" => auth.revoke_role(&first, &second),
            "RoleAdd" => auth.add_role(&first),
            "RoleDelete" => auth.delete_role(&first),
            "RoleGrantPermission" => match fields.message(2).and_then(Fields::read) {
                None => Err(RpcError::PermissionNotGiven),
                // Permission types: read, write, both.
                Some(permissions) => {
                    let kind = permissions.number(1);
                    let allowed = Access { read: kind != 1, write: kind != 0 };
                    auth.grant_permission(&first, KeyRange::new(&permissions.bytes(2), &permissions.bytes(3)), allowed)
                }
            },
            "RoleRevokePermission" => {
                auth.revoke_permission(&first, &KeyRange::new(&fields.bytes(2), &fields.bytes(3)))
            }
            _ => return None,
        })
    }
}

fn permission(key_range: &KeyRange, allowed: Access) -> Message {
    let kind = match (allowed.read, allowed.write) {
        (true, true) => 2,
        (false, _) => 1,
        (true, false) => 0,
    };
    let message = Message::default().number(1, kind).bytes(2, key_range.start());
    match key_range {
        KeyRange::One(_) => message,
        KeyRange::Until(_, to) => message.bytes(3, to),
        KeyRange::From(_) => message.bytes(3, &[0]),
    }
}
