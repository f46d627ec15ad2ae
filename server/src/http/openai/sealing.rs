//! The key of the codes in compactions, and the compactions of requests.

use anneal_proto::v1 as pb;

use super::{
    errors::ApiError,
    items::{Compaction, SealKey},
};
use crate::{failure::Failure, http::caller::HttpCaller};

/// Reads the key of the caller's tenant.
pub(super) async fn read_key(caller: &HttpCaller) -> Result<SealKey, ApiError> {
    let store = &caller.services.state.store;
    let key = store.read_seal_key(caller.caller).await;
    Ok(SealKey(key.map_err(Failure::from)?))
}

/// Opens the compactions of one request. The key is read for the first one.
pub(super) struct CompactionOpener<'c> {
    caller: &'c HttpCaller,
    key: Option<SealKey>,
}

impl<'c> CompactionOpener<'c> {
    pub(super) const fn new(caller: &'c HttpCaller) -> Self {
        Self { caller, key: None }
    }

    /// The message that contexts have in place of the compaction with this `encrypted_content`.
    /// `param` is the item.
    pub(super) async fn open_as_message(
        &mut self,
        encrypted: &str,
        param: &str,
    ) -> Result<pb::NewMessage, ApiError> {
        let key = match self.key.take() {
            Some(key) => key,
            None => read_key(self.caller).await?,
        };
        let key = self.key.insert(key);
        let compaction = Compaction::open(encrypted, key, &format!("{param}.encrypted_content"))?;
        Ok(compaction.message())
    }
}
