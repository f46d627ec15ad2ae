//! VerifyConversation.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, status::Failure};

/// Checks the promises on one conversation's rows.
pub(crate) async fn verify_conversation(
    house: &House,
    caller: Caller,
    ask: pb::VerifyConversationRequest,
) -> Result<pb::VerifyConversationResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let verified = house.store.verify(caller, id).await?;
    let violations = verified.violations.into_iter().map(|violation| pb::Violation {
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
