//! Whose call it is: one step for both doors.

use anneal_core::caller::{Caller, TenantId};
use tonic::{Request, Status};

/// The same call with its [`Caller`]. Until there is authentication everyone on loopback is the default tenant.
#[expect(clippy::unnecessary_wraps, reason = "the shape of an interceptor")]
pub(crate) fn credential(mut request: Request<()>) -> Result<Request<()>, Status> {
    request.extensions_mut().insert(Caller::of(TenantId::DEFAULT));
    Ok(request)
}
