//! Errors of etcd with its own messages and codes (`api/v3rpc/rpctypes/error.go`). Clients compare both.

use tonic::{Code, Status};

macro_rules! rpc_errors {
    ($($name:ident $code:ident $text:literal;)*) => {
        /// Reason why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RpcError {
            $(#[doc = concat!("`", $text, "`.")] $name,)*
        }

        impl RpcError {
            /// Returns etcd's message.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the gRPC code.
            pub fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)* }
            }
        }
    };
}

rpc_errors! {
    EmptyKey InvalidArgument "etcdserver: key is not provided";
    KeyNotFound InvalidArgument "etcdserver: key not found";
    ValueProvided InvalidArgument "etcdserver: value is provided";
    LeaseProvided InvalidArgument "etcdserver: lease is provided";
    TooManyOps InvalidArgument "etcdserver: too many operations in txn request";
    DuplicateKey InvalidArgument "etcdserver: duplicate key given in txn request";
    InvalidSort InvalidArgument "etcdserver: invalid sort option";
    TooLarge InvalidArgument "etcdserver: request is too large";
    Compacted OutOfRange "etcdserver: mvcc: required revision has been compacted";
    Future OutOfRange "etcdserver: mvcc: required revision is a future revision";
    LeaseNotFound NotFound "etcdserver: requested lease not found";
    LeaseExists FailedPrecondition "etcdserver: lease already exists";
    LeaseTooLong OutOfRange "etcdserver: too large lease TTL";
    NoSpace ResourceExhausted "etcdserver: mvcc: database space exceeded";
    NoLeader Unavailable "etcdserver: no leader";
    RootUserNotFound FailedPrecondition "etcdserver: root user does not exist";
    RootRoleNotGranted FailedPrecondition "etcdserver: root user does not have root role";
    UserExists FailedPrecondition "etcdserver: user name already exists";
    UserEmpty InvalidArgument "etcdserver: user name is empty";
    UserNotFound FailedPrecondition "etcdserver: user name not found";
    RoleExists FailedPrecondition "etcdserver: role name already exists";
    RoleNotFound FailedPrecondition "etcdserver: role name not found";
    RoleEmpty InvalidArgument "etcdserver: role name is empty";
    AuthFailed InvalidArgument "etcdserver: authentication failed, invalid user ID or password";
    NoPassword Unknown "auth: authentication failed, password was given for no password user";
    PermissionNotGiven InvalidArgument "etcdserver: permission not given";
    PermissionDenied PermissionDenied "etcdserver: permission denied";
    RoleNotGranted FailedPrecondition "etcdserver: role is not granted to the user";
    PermissionNotGranted FailedPrecondition "etcdserver: permission is not granted to the role";
    AuthNotEnabled FailedPrecondition "etcdserver: authentication is not enabled";
    InvalidToken Unauthenticated "etcdserver: invalid auth token";
    InvalidAuthManagement InvalidArgument "etcdserver: invalid auth management";
}

impl From<RpcError> for Status {
    fn from(rpc_error: RpcError) -> Self {
        Self::new(rpc_error.code(), rpc_error.text())
    }
}
