//! Contexts of a simulated conversation.

use anneal_testkit::{pb, status_details};

use crate::simulation::conversation::{SimulatedConversation, Violation};

impl SimulatedConversation<'_> {
    /// Builds a context over the API. If no message would be in it, because none stands behind the
    /// boundary but results without a call, the answer is that of a dry run.
    pub(crate) async fn build_context(
        &self,
        ask: pb::BuildContextRequest,
    ) -> Result<pb::BuildContextResponse, Violation> {
        let ask = pb::BuildContextRequest {
            conversation_id: self.id.to_string(),
            ..ask
        };
        let mut contexts = self.app.contexts();
        let refused = match contexts.build_context(ask.clone()).await {
            Ok(built) => return Ok(built.into_inner()),
            Err(status) if status_details(&status).reason == "CONTEXT_EMPTY" => status,
            Err(status) => return Err(format!("no context: {status}")),
        };
        let dry_run = pb::BuildContextRequest {
            dry_run: true,
            ..ask
        };
        let built = contexts.build_context(dry_run).await;
        let built = built
            .map_err(|status| format!("no preview of a context: {status}"))?
            .into_inner();
        let is_stored = |message: &&pb::ContextMessage| {
            message.segment() == pb::Segment::Tail && !message.message_ids.is_empty()
        };
        match built.messages.iter().find(is_stored) {
            None => Ok(built),
            Some(message) => Err(format!("no context with {message:?}: {refused}")),
        }
    }
}
