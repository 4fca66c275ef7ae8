//! How BMCs are spoken to – over the network, or inside the sandbox – and which one a BareMetalHost has.

use std::{fmt, net::IpAddr, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc, time::Duration};

use super::{
    bmc_inventory::{BmcInventory, BookError, Found},
    redfish::Login,
};
use crate::{
    model::host::HostRow,
    net::{Allow, Http, Trust},
};

/// How long one request to a BMC may take.
const REQUEST: Duration = Duration::from_secs(15);

type Make = dyn Fn(&Trust, &Allow) -> Result<Http, String> + Send + Sync;

/// Version of the file: it differs whenever the file was written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// Where the file is.
#[derive(Clone)]
enum Source {
    /// On this host, read at each use; none where none is configured.
    File(Option<PathBuf>),
    /// In this program: the sandbox's.
    Given(Arc<BmcInventory>),
}

/// The way to the BMCs, and the file that knows them. Cheap to clone.
#[derive(Clone)]
pub struct BmcClients {
    source: Source,
    make: Arc<Make>,
}

impl fmt::Debug for BmcClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").finish_non_exhaustive()
    }
}

impl BmcClients {
    /// Over the network, with the file that `power.bmcs` names.
    pub fn network(file: Option<PathBuf>) -> Self {
        let make = |trust: &Trust, allow: &Allow| Http::for_bmc(REQUEST, trust, allow).map_err(|e| e.to_string());
        Self { source: Source::File(file), make: Arc::new(make) }
    }

    /// By whatever answers, with a file of this text, and names that have these addresses: the sandbox. A text that is no
    /// such file allows nothing.
    pub fn inside(http: Http, text: &str, resolve: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        let resolve = Arc::new(resolve);
        let make = move |_: &Trust, allow: &Allow| {
            let resolve = Arc::clone(&resolve);
            Ok(http.clone().within(Arc::clone(allow), move |name| resolve(name)))
        };
        Self { source: Source::Given(Arc::new(BmcInventory::parse(text).unwrap_or_default())), make: Arc::new(make) }
    }

    /// A client that trusts whom it is told to and connects to allowed addresses. Fails for authorities that are no PEM.
    pub(super) fn http(&self, trust: &Trust, allow: &Allow) -> Result<Http, String> {
        (self.make)(trust, allow)
    }

    /// The file as it is now; one that names and allows nothing where none is configured.
    pub fn book(&self) -> Result<Arc<BmcInventory>, BookError> {
        match &self.source {
            Source::File(None) => Ok(Arc::default()),
            Source::File(Some(path)) => BmcInventory::read(path).map(Arc::new),
            Source::Given(book) => Ok(Arc::clone(book)),
        }
    }

    /// Changes whenever the file does: whoever keeps a BMC asks for it anew then, for its network may not be allowed any more.
    pub fn version(&self) -> Option<Version> {
        let Source::File(Some(path)) = &self.source else { return None };
        let file = std::fs::metadata(path).ok()?;
        Some(Version { inode: file.ino(), seconds: file.mtime(), nanoseconds: file.mtime_nsec() })
    }

    /// The BMC of a BareMetalHost: `spec.bmc.address` with this login; the file's defaults say the rest – authorities,
    /// deadlines, a login where the host names no Secret.
    pub fn of_host(&self, host: &HostRow, login: Option<Login>) -> Result<Found, BookError> {
        let name = host.full_name();
        if host.bmc_address.is_empty() {
            return Err(BookError::Wrong(format!("{name}: it has no spec.bmc.address")));
        }
        self.book()?.other(&name, &host.bmc_address, login, host.any_certificate, self)
    }
}
