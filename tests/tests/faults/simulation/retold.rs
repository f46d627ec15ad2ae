//! Compares contexts with those of a conversation that was only ever told what is left.

use anneal_core::{
    digest::Digest, limits::MESSAGES_PER_APPEND, message::MessageId, policy::PolicyOverrides,
};
use anneal_store::NewConversation;
use anneal_testkit::{Built, TestConversation, pb};
use pb::Format;
use tonic::Status;

use crate::simulation::{
    conversation::{CALLER, SimulatedConversation, Violation},
    invariants::FORMATS,
    policies_and_messages::policy,
    stored_rows::StoredRows,
};

impl<'a> SimulatedConversation<'a> {
    /// Tells another conversation the messages after the last separator that stand, and compares
    /// contexts in the neutral format and in one provider's. A conversation with a checkpoint is
    /// forked, and the fork's checkpoints are made void: the other conversation has none.
    pub(crate) async fn compare_with_retold(&mut self, rows: &StoredRows) -> Result<(), Violation> {
        let separator = self.separators.last().copied().unwrap_or(MessageId::NONE);
        let told: Vec<(i64, pb::NewMessage)> = self
            .standing()
            .filter(|(id, _)| *id > separator.0)
            .map(|(id, version)| (id, version.message.clone()))
            .collect();
        let Some((first, _)) = told.first() else {
            return Ok(());
        };
        let source = self.app.conversation_by_id(&self.id.to_string());
        let fork = if rows.boundary > separator.0 {
            let fork = fork_without_checkpoints(&source, *first).await;
            Some(fork.map_err(|status| format!("no fork without checkpoints: {status}"))?)
        } else {
            None
        };
        let retold = self.retell(&told).await?;
        let left = fork.as_ref().unwrap_or(&source);
        for format in [
            Format::Unspecified,
            FORMATS[rows.newest as usize % FORMATS.len()],
        ] {
            let left = build_without_large_messages(left, format).await?;
            let retold = build_without_large_messages(&retold, format).await?;
            compare(&left, &retold, format)?;
        }
        self.record_event("conversations retold");
        for conversation in fork.into_iter().chain([retold]) {
            self.delete_conversation(conversation.id).await?;
        }
        Ok(())
    }

    /// Creates a conversation with these messages and the same policy, except that it keeps tool
    /// messages: those that are there were appended before the policy was changed.
    async fn retell(
        &self,
        told: &[(i64, pb::NewMessage)],
    ) -> Result<TestConversation<'a>, Violation> {
        let new = NewConversation {
            policy: PolicyOverrides {
                store_tool_messages: Some(true),
                ..policy(self.policy)
            },
            ..NewConversation::default()
        }
        .counted();
        let store = &self.app.store;
        let made = store
            .create_conversation(CALLER, None, Digest::default(), &new)
            .await
            .map_err(|error| format!("no conversation to tell: {error}"))?;
        let retold = self.app.conversation_by_id(&made.id.to_string());
        for messages in told.chunks(MESSAGES_PER_APPEND) {
            let messages = messages.iter().map(|(_, message)| message.clone());
            let appended = retold.append_all(messages.collect()).send().await;
            appended.map_err(|status| format!("not told: {status}"))?;
        }
        Ok(retold)
    }
}

/// Forks the conversation. Withdraws and restores a message in the fork, which makes all
/// checkpoints void whose range holds it.
async fn fork_without_checkpoints<'a>(
    source: &TestConversation<'a>,
    message: i64,
) -> Result<TestConversation<'a>, Status> {
    let forked = source
        .try_fork(pb::ForkConversationRequest::default())
        .await?;
    let fork = source.app.conversation_by_id(&forked.conversation_id);
    for change in [fork.withdraw(&[message]), fork.restore(&[message])] {
        change.keep_tool_pairs_apart().send().await?;
    }
    Ok(fork)
}

/// Builds a context in which no message is large, so that none is replaced by its summary.
async fn build_without_large_messages(
    conversation: &TestConversation<'_>,
    format: Format,
) -> Result<Built, Violation> {
    let policy = pb::Policy {
        large_message_threshold: Some(1_000_000),
        ..Default::default()
    };
    let built = conversation
        .build(pb::BuildContextRequest {
            format: format.into(),
            policy: Some(policy),
            dry_run: true,
            ..Default::default()
        })
        .await;
    built.map_err(|status| format!("no context in {format:?}: {status}"))
}

/// Checks that two contexts have the same messages and the same repairs, whatever the ids of their
/// messages are.
fn compare(left: &Built, retold: &Built, format: Format) -> Result<(), Violation> {
    let without_ids = |built: &Built| {
        let messages = built.0.messages.iter();
        let messages: Vec<_> = messages
            .map(|message| (message.segment(), message.role(), message.parts.clone()))
            .collect();
        let repairs: Vec<_> = built.0.repairs.iter().map(pb::Repair::kind).collect();
        (messages, repairs, built.0.rendered.clone())
    };
    let (left, retold) = (without_ids(left), without_ids(retold));
    if left == retold {
        return Ok(());
    }
    Err(format!(
        "the context in {format:?} is {left:?}; told only what is left, it is {retold:?}"
    ))
}
