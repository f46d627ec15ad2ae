//! EraseTenant.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ErasureAsk, ErasureSubject};

use crate::{failure::Failure, reply, state::ServerState};

/// Begins the erasure of the tenant's conversations, or only counts them.
pub(crate) async fn erase_tenant(
    state: &ServerState,
    (caller, name): (Caller, &str),
    ask: pb::EraseTenantRequest,
) -> Result<pb::Erasure, Failure> {
    let erasure_ask = ErasureAsk {
        subject: ErasureSubject::Tenant,
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        requested_by: name.to_owned(),
    };
    if state.store.tenant_name(caller).await? != ask.confirm_tenant {
        return Err(Failure::invalid(
            "confirm_tenant",
            "must be the name of the caller's tenant",
        ));
    }
    let erasure = if ask.dry_run {
        state.store.plan_erasure(caller, &erasure_ask).await?
    } else {
        state.store.begin_erasure(caller, &erasure_ask).await?
    };
    Ok(reply::erasure(erasure))
}
