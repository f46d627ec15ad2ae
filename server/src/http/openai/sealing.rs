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

/// Opens the compaction with this `encrypted_content`. `param` is the item.
pub(super) async fn open_compaction(
    caller: &HttpCaller,
    encrypted: &str,
    param: &str,
) -> Result<Compaction, ApiError> {
    let key = read_key(caller).await?;
    Compaction::open(encrypted, &key, &format!("{param}.encrypted_content"))
}

/// The message that contexts have in place of this compaction.
pub(super) async fn open_as_message(
    caller: &HttpCaller,
    encrypted: &str,
    param: &str,
) -> Result<pb::NewMessage, ApiError> {
    let compaction = open_compaction(caller, encrypted, param).await?;
    Ok(compaction.message())
}
