//! VerifyConversation.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState};

/// Checks the stored rows of one conversation against the promises of docs/reliability.md.
pub(crate) async fn verify_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::VerifyConversationRequest,
) -> Result<pb::VerifyConversationResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let verified = state.store.verify(caller, id).await?;
    let violations = verified
        .violations
        .into_iter()
        .map(|violation| pb::Violation {
            promise: violation.promise,
            description: violation.description,
            message_id: violation.message.0,
        });
    Ok(pb::VerifyConversationResponse {
        violations: violations.collect(),
        messages_checked: verified.messages,
        checkpoints_checked: verified.checkpoints,
    })
}
