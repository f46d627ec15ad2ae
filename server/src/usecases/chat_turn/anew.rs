//! Turns that answer a question anew: the newest one, or one that is edited first. What stands
//! after the question is withdrawn under the turn's lease, before the turn reads anything.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    limits::CHANGE_MESSAGES,
    message::{self, Message, MessageId},
};
use anneal_gateway::CallLease;
use anneal_store::{
    Anew, AnewAsk, AnewQuestion, ChangeConditions, Entity, Labels, MessageEdit, NewContent,
    StoreError, ToolPairs,
};

use super::{TurnPrompt, TurnRun};
use crate::{
    failure::Failure, limits::cpu_pool, state::ServerState,
    usecases::change_messages::announce_jobs,
};

impl TurnRun {
    /// The question that an earlier call with this request id has begun to answer anew. None: there
    /// was no such call. Fails if that call has asked for something else.
    pub(super) async fn find_anew(&self) -> Result<Option<Anew>, Failure> {
        let (caller, id) = (self.caller, self.turn.id);
        let digest = self.anew_digest().await?;
        let found = self
            .state
            .store
            .find_anew(caller, id, &self.turn.request_id, digest);
        Ok(found.await?)
    }

    /// Withdraws what stands after the question, as an alternative, and edits the question if the
    /// turn does so; once per request id. Must come before anything of the conversation is read.
    /// Fails if the turn no longer holds its lease.
    pub(super) async fn begin_anew(&self, lease: CallLease<'_>) -> Result<Anew, Failure> {
        let (caller, id) = (self.caller, self.turn.id);
        let ask = AnewAsk {
            question: self.anew_question().await?,
            request_id: self.turn.request_id.clone(),
            digest: self.anew_digest().await?,
            conditions: ChangeConditions {
                expected_last: self.turn.expected,
                revision: None,
            },
        };
        let stored = match &ask.question {
            AnewQuestion::Newest => 0,
            AnewQuestion::Edited(edit) => edit.new.content_bytes() as u64,
        };
        if stored > 0 {
            let find_earlier = async {
                let found = self
                    .state
                    .store
                    .find_anew(caller, id, &ask.request_id, ask.digest);
                found.await.map(|earlier| earlier.is_some())
            };
            self.state
                .storage_quota
                .admit_bytes(&self.state.store, caller, (0, stored), find_earlier)
                .await?;
        }
        let begun = self
            .state
            .store
            .begin_answer_anew(caller, id, &ask, lease.model_lease())
            .await;
        let anew = begun
            .map_err(|error| anew_failure(error, &ask.question))?
            .ok_or(Failure::TurnLost)?;
        if !anew.replayed {
            if stored > 0 {
                self.state
                    .storage_quota
                    .record_bytes(caller, (0, stored))
                    .await;
            }
            announce_jobs(&self.state, caller, id, &anew.caused);
        }
        Ok(anew)
    }

    /// Digest of what the turn answers.
    async fn anew_digest(&self) -> Result<Digest, Failure> {
        let edited = match &self.turn.prompt {
            TurnPrompt::Edit { id, message } => Some((*id, message.clone())),
            TurnPrompt::Messages(_) | TurnPrompt::Regenerate | TurnPrompt::Unstored(_) => None,
        };
        digest(&self.state, self.caller, edited).await
    }

    /// The question, with its new content counted exactly, on the CPU pool if it is long.
    async fn anew_question(&self) -> Result<AnewQuestion, Failure> {
        let TurnPrompt::Edit { id, message } = &self.turn.prompt else {
            return Ok(AnewQuestion::Newest);
        };
        let (id, message): (MessageId, Message) = (*id, message.clone());
        let store = &self.state.store;
        let conversation = store.get_conversation(self.caller, self.turn.id).await?;
        let encoding = conversation.attributes.encoding;
        let bytes = message.parts.iter().map(message::part_bytes).sum();
        let is_long = cpu_pool::is_long_count(encoding, bytes, message.parts.len());
        // A message without labels says nothing of them.
        let labels = if message.metadata.is_empty() {
            Labels::Keep
        } else {
            Labels::Replace
        };
        let prepare = move || NewContent::new(&message, labels, encoding);
        let tenant = self.caller.tenant();
        let edit = MessageEdit {
            message: id,
            new: self.state.cpu.run_if(is_long, tenant, prepare).await?,
            pairs: ToolPairs::Together,
            expected_version: None,
            conditions: ChangeConditions::default(),
            request_id: None,
        };
        Ok(AnewQuestion::Edited(Box::new(edit)))
    }
}

/// Fails if the turn with this request id has begun to answer another question anew than this one:
/// the message with this id after an edit, or the newest question.
pub(crate) async fn check_question(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
    edited: Option<(MessageId, Message)>,
) -> Result<(), Failure> {
    let digest = digest(state, caller, edited).await?;
    state
        .store
        .find_anew(caller, id, request_id, digest)
        .await?;
    Ok(())
}

/// Digest of a question that is answered anew, computed on the CPU pool if it is long.
async fn digest(
    state: &ServerState,
    caller: Caller,
    edited: Option<(MessageId, Message)>,
) -> Result<Digest, Failure> {
    let Some((id, message)) = edited else {
        return Ok(AnewAsk::digest(None));
    };
    let bytes = message.parts.iter().map(message::part_bytes).sum();
    let is_long = cpu_pool::is_long(bytes, message.parts.len());
    let digest = move || AnewAsk::digest(Some((id, &message)));
    state.cpu.run_if(is_long, caller.tenant(), digest).await
}

/// The failure for an error of the store. It names the field of the request that is at fault.
fn anew_failure(error: StoreError, question: &AnewQuestion) -> Failure {
    let field = match question {
        AnewQuestion::Newest => "regenerate",
        AnewQuestion::Edited(_) => "edit_message_id",
    };
    match error {
        StoreError::NotFound(Entity::Message)
        | StoreError::UnknownMessage(_)
        | StoreError::MessageWithdrawn(_) => Failure::NamedMessage {
            field: field.to_owned(),
            error,
        },
        StoreError::OtherRole => Failure::invalid(field, "must be a message of the user"),
        StoreError::BeforeSeparator(_) => {
            Failure::invalid(field, "must not stand before a separator")
        }
        StoreError::OtherToolCalls => Failure::invalid("messages", "must have no tool results"),
        StoreError::TooManyMessages => Failure::limit(field, CHANGE_MESSAGES, "messages"),
        error => error.into(),
    }
}
