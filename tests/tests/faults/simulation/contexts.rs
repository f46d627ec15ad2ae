//! Contexts of a simulated conversation.

use anneal_testkit::{pb, status_details};

use crate::simulation::conversation::{SimulatedConversation, Violation};

/// Whether a context has a stored message. Results without a call are left out, whatever is stored.
pub(crate) fn has_stored_message(built: &pb::BuildContextResponse) -> bool {
    let mut messages = built.messages.iter();
    messages
        .any(|message| message.segment() == pb::Segment::Tail && !message.message_ids.is_empty())
}

impl SimulatedConversation<'_> {
    /// Builds a context over the API. None: it is refused because no message would be in it.
    pub(crate) async fn try_build_context(
        &self,
        ask: pb::BuildContextRequest,
    ) -> Result<Option<pb::BuildContextResponse>, Violation> {
        let ask = pb::BuildContextRequest {
            conversation_id: self.id.to_string(),
            ..ask
        };
        match self.app.contexts().build_context(ask).await {
            Ok(built) => Ok(Some(built.into_inner())),
            Err(status) if status_details(&status).reason == "CONTEXT_EMPTY" => Ok(None),
            Err(status) => Err(format!("no context: {status}")),
        }
    }

    /// Builds a context over the API, which must have a message, unless it is a dry run.
    pub(crate) async fn build_context(
        &self,
        ask: pb::BuildContextRequest,
    ) -> Result<pb::BuildContextResponse, Violation> {
        let built = self.try_build_context(ask).await?;
        built.ok_or_else(|| "a context is refused as empty".to_owned())
    }
}
