//! Answers made of stored rows: conversations, messages, changes of messages, separators,
//! checkpoints, erasures and jobs as protobuf. `economics.rs`: the cost of a conversation's calls.

mod economics;

pub(crate) use economics::economics;

use std::collections::HashMap;

use anneal_core::{
    caller::{Caller, ConversationId, Verb},
    chat_options::ChatOptions,
};
use anneal_proto::{
    convert::{context, time},
    v1 as pb,
};
use anneal_store::{
    Alternative, Checkpoint, Conversation, ConversationStatus, Erasure, ErasureKind, ErasureState,
    IdRange, Job, JobState, MessageChange, MessageVersion, Micros, Separator, StoredMessage,
    StoredSummary, SummaryKind,
};
use prost_types::Timestamp;

pub(crate) const fn timestamp(time: Micros) -> Timestamp {
    time::timestamp(time.0)
}

pub(crate) const fn summary_kind(kind: SummaryKind) -> pb::SummaryKind {
    match kind {
        SummaryKind::Llm => pb::SummaryKind::Llm,
        SummaryKind::Extractive => pb::SummaryKind::Extractive,
        SummaryKind::Imported => pb::SummaryKind::Imported,
    }
}

fn summary(summary: StoredSummary) -> pb::MessageSummary {
    let answer = pb::MessageSummary {
        text: summary.text,
        tokens: summary.tokens.get(),
        kind: summary_kind(summary.kind).into(),
        model: summary.model,
        created_time: Some(timestamp(summary.created)),
        ..pb::MessageSummary::default()
    };
    let Some(origin) = summary.origin else {
        return answer;
    };
    pb::MessageSummary {
        prompt_version: origin.prompt_version,
        input_tokens: origin.input.get(),
        output_tokens: origin.output.get(),
        duration_ms: origin.duration_ms,
        source_digest: origin.source_digest,
        ..answer
    }
}

pub(crate) fn message(message: StoredMessage) -> pb::Message {
    pb::Message {
        message_id: message.id.0,
        role: pb::Role::from(message.role).into(),
        parts: message.parts.into_iter().map(pb::Part::from).collect(),
        metadata: message.metadata.into_iter().collect(),
        turn: message.turn,
        tokens: Some(pb::TokenCount {
            tokens: message.tokens.get(),
            estimated: message.estimated,
        }),
        text_bytes: message.text_bytes,
        summary: message.summary.map(summary),
        created_time: Some(timestamp(message.created)),
        version: message.version,
        edited_time: message.edited.map(timestamp),
        withdrawn_time: message.withdrawn.map(timestamp),
        erased: message.erased,
        stopped: message.stopped,
    }
}

pub(crate) fn message_version(version: MessageVersion) -> pb::MessageVersion {
    pb::MessageVersion {
        version: version.version,
        tokens: Some(pb::TokenCount {
            tokens: version.tokens.get(),
            estimated: version.estimated,
        }),
        text_bytes: version.text_bytes,
        created_time: Some(timestamp(version.created)),
        replaced_time: version.replaced.map(timestamp),
    }
}

pub(crate) fn separator(id: ConversationId, separator: Separator) -> pb::Separator {
    pb::Separator {
        conversation_id: id.to_string(),
        after_message_id: separator.after.0,
        created_time: separator.created.map(timestamp),
    }
}

/// The answer to a change of messages. It contains no content, so that a caller without the verb
/// read may see it.
pub(crate) fn message_change(id: ConversationId, change: MessageChange) -> pb::MessageChange {
    pb::MessageChange {
        conversation_id: id.to_string(),
        change_id: change.id,
        changed: change.changed.into_iter().map(id_range).collect(),
        void_checkpoints: change.void_checkpoints.into_iter().map(id_range).collect(),
        boundary_message_id: change.boundary.after().0,
        boundary_kind: context::boundary_kind(change.boundary).into(),
        token_total: Some(pb::TokenTotal {
            tokens: change.token_total.get(),
            estimated_messages: change.uncounted,
        }),
        withdrawn_messages: change.withdrawn,
        etag: change.revision.to_string(),
        replayed: change.replayed,
        version: change.version.unwrap_or(0),
        erasure_id: change
            .erasure
            .map(|erasure| erasure.to_string())
            .unwrap_or_default(),
    }
}

pub(crate) fn alternative(alternative: Alternative) -> pb::Alternative {
    pb::Alternative {
        number: alternative.number,
        question_message_id: alternative.question.0,
        question_version: alternative.question_version,
        messages: alternative.messages.into_iter().map(id_range).collect(),
        current: alternative.current,
        stopped: alternative.stopped,
        model: alternative.model,
        created_time: alternative.created.map(timestamp),
        text: alternative.text,
    }
}

pub(crate) const fn id_range(range: IdRange) -> pb::IdRange {
    pb::IdRange {
        first_message_id: range.first.0,
        last_message_id: range.last.0,
    }
}

pub(crate) fn conversation(stored: Conversation) -> pb::Conversation {
    let attributes = stored.attributes;
    let status = match stored.status {
        ConversationStatus::Active => pb::ConversationStatus::Active,
        ConversationStatus::Archived => pb::ConversationStatus::Archived,
    };
    pb::Conversation {
        conversation_id: stored.id.to_string(),
        agent_id: attributes.agent_id,
        user_id: attributes.user_id,
        title: attributes.title,
        status: status.into(),
        pinned: attributes.pinned,
        metadata: attributes.metadata.into_iter().collect(),
        system_prompt: attributes.system_prompt,
        policy: Some(attributes.policy.into()),
        encoding: attributes.encoding.name().into(),
        etag: stored.revision.to_string(),
        message_count: stored.last_message_id.0,
        token_total: Some(pb::TokenTotal {
            tokens: stored.token_total.get(),
            estimated_messages: stored.last_message_id.0 - stored.counted.0,
        }),
        turn: stored.turn,
        created_time: Some(timestamp(stored.created)),
        last_activity_time: Some(timestamp(stored.last_activity)),
        session_key: stored.session_key,
        withdrawn_messages: stored.withdrawn,
        forked_from_conversation_id: stored
            .forked_from
            .map(|origin| origin.conversation.to_string())
            .unwrap_or_default(),
        forked_message_id: stored.forked_from.map_or(0, |origin| origin.message.0),
        chat_options: (attributes.chat_options != ChatOptions::default())
            .then(|| attributes.chat_options.into()),
    }
}

/// A conversation as its caller may see it. A caller without the verb read sees title, system
/// prompt and metadata only where they equal what it sent in the same call, and no options of
/// turns.
pub(crate) fn conversation_for(
    caller: Caller,
    stored: Conversation,
    given: &GivenFields<'_>,
) -> pb::Conversation {
    let mut reply = conversation(stored);
    if !caller.may(Verb::Read) {
        reply.chat_options = None;
        if given.title != Some(reply.title.as_str()) {
            reply.title.clear();
        }
        if given.system_prompt != Some(reply.system_prompt.as_str()) {
            reply.system_prompt.clear();
        }
        if given.metadata.is_none_or(|given| *given != reply.metadata) {
            reply.metadata.clear();
        }
    }
    reply
}

/// The fields that a caller sent in the same call. None: the caller did not send the field.
#[derive(Default)]
pub(crate) struct GivenFields<'a> {
    pub(crate) title: Option<&'a str>,
    pub(crate) system_prompt: Option<&'a str>,
    pub(crate) metadata: Option<&'a HashMap<String, String>>,
}

pub(crate) fn checkpoint(id: ConversationId, checkpoint: Checkpoint) -> pb::Checkpoint {
    pb::Checkpoint {
        conversation_id: id.to_string(),
        first_message_id: checkpoint.first.0,
        last_message_id: checkpoint.last.0,
        summary: checkpoint.summary,
        token_usage: checkpoint.token_usage.get(),
        kind: summary_kind(checkpoint.kind).into(),
        model: checkpoint.model,
        prompt_version: checkpoint.prompt_version,
        source_first_message_id: checkpoint.source_first.0,
        source_digest: checkpoint.source_digest,
        tokens_before: checkpoint.tokens_before.get(),
        tokens_after: checkpoint.tokens_after.get(),
        generation: checkpoint.generation,
        trigger: checkpoint
            .trigger
            .map_or(pb::CheckpointTrigger::Imported, Into::into)
            .into(),
        focus: checkpoint.focus,
        created_time: Some(timestamp(checkpoint.created)),
        valid: checkpoint.valid,
        model_calls: checkpoint.spent.calls,
        input_tokens: checkpoint.spent.input.get(),
        output_tokens: checkpoint.spent.output.get(),
        duration_ms: checkpoint.duration_ms,
        void_time: checkpoint.void.map(|since| timestamp(since.time)),
    }
}

pub(crate) fn erasure(erasure: Erasure) -> pb::Erasure {
    let kind = match erasure.kind {
        ErasureKind::Messages => pb::ErasureKind::Messages,
        ErasureKind::Conversation => pb::ErasureKind::Conversation,
        ErasureKind::User => pb::ErasureKind::User,
        ErasureKind::Tenant => pb::ErasureKind::Tenant,
    };
    let state = match erasure.state {
        ErasureState::Running => pb::ErasureState::Running,
        ErasureState::Done => pb::ErasureState::Done,
    };
    pb::Erasure {
        erasure_id: erasure.id.map(|id| id.to_string()).unwrap_or_default(),
        kind: kind.into(),
        state: state.into(),
        conversation_id: erasure
            .conversation
            .map(|id| id.to_string())
            .unwrap_or_default(),
        subject_digest: erasure.subject_digest.unwrap_or_default(),
        requested_by: erasure.requested_by,
        requested_time: erasure.requested.map(timestamp),
        ended_time: erasure.ended.map(timestamp),
        expected_conversations: erasure.expected_conversations,
        expected_messages: erasure.expected_messages,
        erased_conversations: erasure.conversations,
        erased_messages: erasure.messages,
        rows: erasure.rows.into_iter().collect(),
        ids_digest: erasure.ids_digest.0.to_vec(),
    }
}

pub(crate) fn job(job: Job) -> pb::Job {
    let state = match job.state {
        JobState::Waiting => pb::JobState::Waiting,
        JobState::Running => pb::JobState::Running,
        JobState::Dead => pb::JobState::Dead,
    };
    pb::Job {
        kind: pb::JobKind::from(job.kind).into(),
        conversation_id: job.conversation.to_string(),
        state: state.into(),
        attempts: i32::from(job.attempts),
        due_time: Some(timestamp(job.due)),
        dirty_time: Some(timestamp(job.dirty)),
        last_error: job.last_error,
        worker: job.worker,
    }
}
