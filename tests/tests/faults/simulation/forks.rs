//! The operation that forks the conversation, and checks and deletes the fork.

use anneal_core::caller::ConversationId;
use anneal_testkit::{TestConversation, pb, status_details};
use uuid::Uuid;

use crate::simulation::{
    conversation::{SimulatedConversation, Violation},
    invariants,
};

impl SimulatedConversation<'_> {
    /// Performs `Operation::Fork`.
    pub(crate) async fn fork_and_check(&mut self, at: u8) -> Result<(), Violation> {
        let last = self.last_message_id().0;
        // 0 stands for the newest message.
        let at = i64::from(at) % (last + 1);
        let newest = if at == 0 { last } else { at };
        let source = self.app.conversation_by_id(&self.id.to_string());
        let ask = pb::ForkConversationRequest {
            request_id: Uuid::now_v7().to_string(),
            message_id: at,
            ..Default::default()
        };
        let forked = source.try_fork(ask.clone()).await;
        let forked = forked.map_err(|status| format!("not forked: {status}"))?;
        self.check_repeated_fork(&source, &ask, &forked).await?;
        let withdrawn = self.messages[..newest as usize]
            .iter()
            .filter(|message| !message.stands())
            .count() as i64;
        let figures = (forked.forked_message_id, forked.withdrawn_messages);
        if forked.forked_from_conversation_id != source.id || figures != (newest, withdrawn) {
            return Err(format!(
                "the fork at {newest} with {withdrawn} withdrawn messages is {forked:?}"
            ));
        }
        self.check_marks("a forked conversation", &forked)?;
        let fork = self.app.conversation_by_id(&forked.conversation_id);
        self.check_forked_messages(&fork, newest).await?;
        invariants::verify(self.app, ConversationId(fork.uuid())).await?;
        self.record_event("forks");
        self.delete_conversation(forked.conversation_id).await
    }

    /// Checks that a repetition of the call finds the fork, that the request id is refused with
    /// another message, and that the fork is listed.
    async fn check_repeated_fork(
        &self,
        source: &TestConversation<'_>,
        ask: &pb::ForkConversationRequest,
        forked: &pb::Conversation,
    ) -> Result<(), Violation> {
        let repeated = source.try_fork(ask.clone()).await;
        let repeated = repeated.map_err(|status| format!("not forked again: {status}"))?;
        let listed = self.app.forks_of(&source.id).await;
        if repeated.conversation_id != forked.conversation_id
            || listed != [forked.conversation_id.clone()]
        {
            return Err(format!(
                "the fork {} was repeated as {}, and {listed:?} are listed",
                forked.conversation_id, repeated.conversation_id
            ));
        }
        // An explicit id is another request than none, also if both name the newest message.
        let other = pb::ForkConversationRequest {
            message_id: if ask.message_id == 0 {
                self.last_message_id().0
            } else {
                0
            },
            ..ask.clone()
        };
        match source.try_fork(other).await {
            Err(status) if status_details(&status).reason == "REQUEST_ID_REUSED" => Ok(()),
            other => Err(format!(
                "another fork with the same request id is answered with {other:?}"
            )),
        }
    }

    /// Checks that the fork has the messages that stand, up to this one, and nothing of others:
    /// these cannot be restored there.
    async fn check_forked_messages(
        &self,
        fork: &TestConversation<'_>,
        newest: i64,
    ) -> Result<(), Violation> {
        let listed = fork.messages().await;
        self.check_marks("a fork", &listed)?;
        let found: Vec<(i64, pb::NewMessage)> = listed
            .into_iter()
            .map(|message| (message.message_id, message.into()))
            .collect();
        let expected: Vec<(i64, pb::NewMessage)> = self
            .standing()
            .filter(|(id, _)| *id <= newest)
            .map(|(id, version)| (id, version.message.clone()))
            .collect();
        if found != expected {
            return Err(format!("a fork has {found:?}, expected {expected:?}"));
        }
        let context = fork.context().await;
        self.check_marks("the context of a fork", &context.0)?;
        let up_to_newest = (1..).zip(&self.messages[..newest as usize]);
        let mut gone = up_to_newest.filter(|(_, message)| !message.stands());
        let Some((id, _)) = gone.next() else {
            return Ok(());
        };
        match fork.restore(&[id]).send().await {
            Err(status) if status_details(&status).reason == "MESSAGE_ERASED" => Ok(()),
            other => Err(format!(
                "the restoration of message {id} in a fork is answered with {other:?}"
            )),
        }
    }
}
