//! What every RPC may use.

use std::sync::Arc;

use anneal_store::{Doorbell, Store};
use tokio::sync::Semaphore;

use crate::settings::ServerSettings;

/// The store, the workers' doorbell, and room for calls. Cheap to clone.
#[derive(Clone)]
pub struct House {
    /// The way to the data.
    pub store: Store,
    /// Tells workers that there is work.
    pub bell: Doorbell,
    pub(crate) calls: Arc<Semaphore>,
    pub(crate) large_appends: Arc<Semaphore>,
}

impl House {
    /// A house on a store.
    pub fn new(store: Store, settings: &ServerSettings) -> Self {
        Self {
            store,
            bell: Doorbell::default(),
            calls: Arc::new(Semaphore::new(settings.concurrent_calls as usize)),
            large_appends: Arc::new(Semaphore::new(settings.concurrent_large_appends as usize)),
        }
    }
}
