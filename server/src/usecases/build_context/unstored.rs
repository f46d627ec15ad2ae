//! Builds the context of messages that are not stored. There is no conversation, so there is no
//! checkpoint, no summary of a message, and nothing is known of the provider's cache.

use std::sync::Arc;

use anneal_core::{
    caller::Caller,
    context::{Body, Material, Pressure, TailMessage},
    message::{Message, MessageId, Role},
    policy::Policy,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens, count_message},
    turn,
};
use anneal_store::{LearntModel, ROW_BYTES};

use super::{BuiltContext, ContextRequest, assemble, has_message, in_requested_tokens};
use crate::{
    failure::Failure,
    limits::{content_budget::ContentBudget, cpu_pool},
    state::ServerState,
    usecases::append,
};

/// Messages that are not stored, counted. They have the ids 1, 2, and so on.
pub(crate) struct UnstoredMessages {
    messages: Arc<[Message]>,
    /// Tokens of each message.
    tokens: Vec<Tokens>,
    encoding: Encoding,
    /// Bytes of their content.
    bytes: usize,
    /// Number of their parts.
    parts: usize,
}

impl UnstoredMessages {
    /// Counts messages, on the CPU pool if that takes long. Fails if one has more text than the
    /// settings allow.
    pub(crate) async fn count(
        state: &ServerState,
        caller: Caller,
        messages: Arc<[Message]>,
        encoding: Encoding,
    ) -> Result<Arc<Self>, Failure> {
        append::check_sizes(state, &messages)?;
        let (bytes, parts) = append::size(&messages);
        let is_long = cpu_pool::is_long_count(encoding, bytes, parts);
        let count = move || Arc::new(Self::new(messages, encoding, (bytes, parts)));
        state.cpu.run_if(is_long, caller.tenant(), count).await
    }

    fn new(messages: Arc<[Message]>, encoding: Encoding, (bytes, parts): (usize, usize)) -> Self {
        let tokens = messages
            .iter()
            .map(|message| count_message(encoding, message));
        Self {
            tokens: tokens.collect(),
            messages,
            encoding,
            bytes,
            parts,
        }
    }

    /// The encoding that they are counted in.
    pub(crate) const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Tokens of all of them, with their framing.
    pub(crate) fn tokens(&self) -> Tokens {
        let framing = FRAMING_PER_MESSAGE.get() * self.tokens.len() as u64;
        self.tokens.iter().copied().sum::<Tokens>() + Tokens::new(framing)
    }

    /// The ids of the tool messages at the end, newest first. None if they end with another message.
    pub(crate) fn last_results(&self) -> impl Iterator<Item = MessageId> {
        let ids = (1..).map(MessageId).take(self.messages.len());
        let newest_first = ids.collect::<Vec<_>>().into_iter().rev();
        newest_first
            .zip(self.messages.iter().rev())
            .take_while(|(_, message)| message.role == Role::Tool)
            .map(|(id, _)| id)
    }

    /// Bytes of their content and of an entry for each.
    fn reserved_bytes(&self) -> u64 {
        self.bytes as u64 + (1 + self.messages.len()) as u64 * ROW_BYTES
    }

    /// The material of a context of these messages alone.
    fn material(&self, policy: Policy, learnt: LearntModel) -> Material {
        let mut tail = Vec::with_capacity(self.messages.len());
        let (mut turn, mut last_role, mut id) = (0, None, MessageId::NONE);
        for (message, tokens) in self.messages.iter().zip(&self.tokens) {
            turn = turn::after(turn, last_role, [message.role]);
            last_role = Some(message.role);
            id = id.next();
            tail.push(TailMessage {
                id,
                role: message.role,
                turn,
                tokens: *tokens,
                estimated: false,
                body: Body::Original(message.parts.clone()),
                ready_summary: None,
            });
        }
        Material {
            last_message_id: id,
            last_role,
            turn,
            encoding: self.encoding,
            policy,
            system_prompt: String::new(),
            system_prompt_tokens: Tokens::ZERO,
            separator: None,
            checkpoint: None,
            tail,
            omitted: Vec::new(),
            withdrawn: Vec::new(),
            prefix: None,
            idle_seconds: None,
            tokens_ratio: learnt.ratio,
            learnt_window: learnt.window,
            change_id: 0,
        }
    }
}

/// Builds a context of messages that are not stored. Records nothing. The request must name its
/// model; its conversation is not used. `budget` limits the content that calls hold in memory.
pub(crate) async fn build_from_messages(
    state: &ServerState,
    budget: &ContentBudget,
    caller: Caller,
    messages: &Arc<UnstoredMessages>,
    request: &ContextRequest,
) -> Result<BuiltContext, Failure> {
    let model = request.overrides.model.as_deref().unwrap_or_default();
    let learnt = state.store.find_learnt(caller, model).await?;
    let policy = state
        .store
        .session()
        .policy(&request.overrides, learnt.window);
    let learnt = LearntModel {
        ratio: request.ratio.or(learnt.ratio),
        ..learnt
    };
    let reservation = budget
        .reserve(caller.tenant(), messages.reserved_bytes())
        .await?;
    let ask = request.ask.clone();
    let prompt_bytes = ask.system_prompt.as_ref().map_or(0, String::len);
    // `Pressure::Compact` writes an extract, which takes long.
    let is_long = ask.pressure == Pressure::Compact
        || cpu_pool::is_long_count(
            messages.encoding,
            messages.bytes + prompt_bytes,
            messages.parts,
        );
    let messages = Arc::clone(messages);
    let work = move || {
        let material = messages.material(policy, learnt);
        assemble::build_here(material, ask, None, None, reservation)
    };
    let built = state
        .cpu
        .run_if(is_long, caller.tenant(), work)
        .await?
        .map_err(|failure| in_requested_tokens(failure, request))?;
    if has_message(&built.context) {
        Ok(built)
    } else {
        Err(Failure::ContextEmpty)
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::{
        context::{self, Ask},
        message::Part,
        policy::{PolicyOverrides, SessionSettings},
        render::Format,
    };

    use super::*;

    fn text(role: Role, text: &str) -> Message {
        let parts = vec![Part::Text { text: text.into() }];
        message(role, parts)
    }

    fn message(role: Role, parts: Vec<Part>) -> Message {
        Message {
            role,
            parts,
            metadata: std::collections::BTreeMap::new(),
        }
    }

    fn call() -> Message {
        let part = Part::ToolUse {
            id: "c".into(),
            name: "look".into(),
            input: "{}".into(),
        };
        message(Role::Assistant, vec![part])
    }

    fn result(text: &str) -> Message {
        let part = Part::ToolResult {
            id: "c".into(),
            text: text.into(),
            is_error: false,
            media: Vec::new(),
        };
        message(Role::Tool, vec![part])
    }

    fn unstored(messages: Vec<Message>) -> UnstoredMessages {
        let messages: Arc<[Message]> = messages.into();
        let size = append::size(&messages);
        UnstoredMessages::new(messages, Encoding::default(), size)
    }

    fn material(messages: &UnstoredMessages) -> Material {
        let policy = SessionSettings::default().policy(&PolicyOverrides::default(), None);
        messages.material(policy, LearntModel::default())
    }

    #[test]
    fn a_context_has_every_message_in_order_and_no_estimate() {
        let messages = unstored(vec![
            text(Role::User, "one"),
            call(),
            result("two"),
            text(Role::Assistant, "three"),
            text(Role::User, "four"),
        ]);
        let ask = Ask {
            format: Format::Neutral,
            ..Ask::default()
        };
        let context = context::build(material(&messages), ask).expect("there is no budget");
        let ids: Vec<i64> = context
            .messages
            .iter()
            .flat_map(|message| message.message_ids.iter().map(|id| id.0))
            .collect();
        assert_eq!(ids, [1, 2, 3, 4, 5]);
        assert_eq!(context.current_turn, 2);
        assert!(!context.estimated);
        assert_eq!(context.total, messages.tokens());
    }

    #[test]
    fn the_last_results_are_the_tool_messages_at_the_end() {
        let ids = |messages: &UnstoredMessages| -> Vec<i64> {
            messages.last_results().map(|id| id.0).collect()
        };
        let question = || text(Role::User, "one");
        let with_results = vec![question(), call(), result("two"), result("three")];
        assert_eq!(ids(&unstored(with_results)), [4, 3]);
        let answered = vec![question(), call(), result("two"), question()];
        assert!(ids(&unstored(answered)).is_empty());
    }

    #[test]
    fn content_and_entries_are_reserved() {
        let messages = unstored(vec![text(Role::User, "four")]);
        assert_eq!(messages.reserved_bytes(), 4 + 2 * ROW_BYTES);
    }
}
