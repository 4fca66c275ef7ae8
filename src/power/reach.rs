//! How BMCs are spoken to – over the network, or inside the sandbox – and which one a BareMetalHost has.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use super::{
    book::{Book, BookError, Found},
    redfish::Login,
};
use crate::{
    model::host::HostRow,
    net::{Http, Trust},
};

/// How long one request to a BMC may take.
const REQUEST: Duration = Duration::from_secs(15);

type Make = dyn Fn(&Trust) -> Result<Http, String> + Send + Sync;

/// The way to the BMCs, and the file that knows them. Cheap to clone.
#[derive(Clone)]
pub struct Reach {
    file: Option<PathBuf>,
    make: Arc<Make>,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Reach {
    /// Over the network, with the file that `power.bmcs` names.
    pub fn network(file: Option<PathBuf>) -> Self {
        let make = |trust: &Trust| Http::for_bmc(REQUEST, trust).map_err(|e| e.to_string());
        Self { file, make: Arc::new(make) }
    }

    /// By whatever answers: the sandbox.
    pub fn by(http: Http) -> Self {
        Self { file: None, make: Arc::new(move |_| Ok(http.clone())) }
    }

    /// A client that trusts whom it is told to. Fails for authorities that are no PEM.
    pub(super) fn http(&self, trust: &Trust) -> Result<Http, String> {
        (self.make)(trust)
    }

    /// The file as it is now; one that names nothing where none is configured.
    pub fn book(&self) -> Result<Book, BookError> {
        self.file.as_deref().map_or_else(|| Ok(Book::default()), Book::read)
    }

    /// The BMC of a BareMetalHost: `spec.bmc.address` with this login; the file's defaults say the rest – authorities,
    /// deadlines, a login where the host names no Secret.
    pub fn of_host(&self, host: &HostRow, login: Option<Login>) -> Result<Found, BookError> {
        let name = host.full_name();
        if host.bmc_address.is_empty() {
            return Err(BookError(format!("{name}: it has no spec.bmc.address")));
        }
        self.book()?.other(&name, &host.bmc_address, login, host.any_certificate, self)
    }
}
