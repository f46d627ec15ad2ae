//! Values of the API in words of the page.

use anneal_proto::v1 as pb;

/// Why the beginning of contexts changed.
pub(super) const fn break_reason(reason: pb::BreakReason) -> &'static str {
    match reason {
        pb::BreakReason::Unspecified => "first context",
        pb::BreakReason::Checkpoint => "checkpoint",
        pb::BreakReason::Separator => "separator",
        pb::BreakReason::SystemPrompt => "other system prompt",
        pb::BreakReason::Swap => "large messages became summaries",
        pb::BreakReason::Budget => "budget",
        pb::BreakReason::Repair => "a late tool result",
        pb::BreakReason::Idle => "the provider forgot it",
        pb::BreakReason::Edit => "a message was edited",
        pb::BreakReason::Withdrawal => "messages were withdrawn or restored",
        pb::BreakReason::Erasure => "messages were erased",
        pb::BreakReason::Model => "other model",
        pb::BreakReason::Tools => "other tools",
        pb::BreakReason::Options => "other options",
    }
}

/// How messages are in the context; also the style class.
pub(super) const fn state(representation: pb::Representation) -> &'static str {
    match representation {
        pb::Representation::Unspecified | pb::Representation::Original => "original",
        pb::Representation::Summary => "summary",
        pb::Representation::Checkpoint => "checkpoint",
        pb::Representation::BeforeSeparator => "separated",
        pb::Representation::Clipped => "clipped",
        pb::Representation::Dropped => "dropped",
        pb::Representation::Repaired => "repaired",
        pb::Representation::Withdrawn => "withdrawn",
    }
}

/// Why messages are in the context in this way.
pub(super) const fn reason(reason: pb::Reason) -> &'static str {
    match reason {
        pb::Reason::Unspecified => "",
        pb::Reason::Small => "not large",
        pb::Reason::Hot => "large, and too new for its summary",
        pb::Reason::SummaryPending => "large and cool; its summary is not made yet",
        pb::Reason::Cool => "large and cool: its summary stands for it",
        pb::Reason::Checkpointed => "in the checkpoint's summary",
        pb::Reason::Separated => "before the last separator",
        pb::Reason::Budget => "the budget required it",
        pb::Reason::ResultWithoutCall => "a tool result without its call",
        pb::Reason::Empty => "nothing was left after repairs",
        pb::Reason::Pressure => "a model refused the context as too long",
        pb::Reason::Repeated => "repeated directly after it",
        pb::Reason::StepPending => "summarized; the next step of cooling swaps it",
        pb::Reason::ContentLimit => "one context may not read more content",
        pb::Reason::Withdrawn => "withdrawn",
    }
}

/// A change that providers need.
pub(super) const fn repair(kind: pb::RepairKind) -> &'static str {
    match kind {
        pb::RepairKind::Unspecified => "changed",
        pb::RepairKind::Merged => "merged into the message before it",
        pb::RepairKind::ResultAdded => "a missing tool result was added",
        pb::RepairKind::ResultDropped => "a tool result without a call was left out",
        pb::RepairKind::EmptyDropped => "an empty message was left out",
        pb::RepairKind::ResultMoved => "a tool result was moved to its call",
        pb::RepairKind::RepeatFolded => "a repeated message is sent once",
        pb::RepairKind::UserAdded => "a user message was added",
        pb::RepairKind::RoleChanged => "a system message got the role user",
        pb::RepairKind::IdChanged => "a tool call got another id",
        pb::RepairKind::InputWrapped => "a call's input was wrapped in an object",
        pb::RepairKind::ReasoningDropped => "reasoning was left out",
        pb::RepairKind::MediaDescribed => "media are described in words",
        pb::RepairKind::NameChanged => "a tool got another name",
        pb::RepairKind::TextAdded => "an empty failed result got a text",
    }
}

/// How a summary was made.
pub(super) const fn summary_kind(kind: pb::SummaryKind) -> &'static str {
    match kind {
        pb::SummaryKind::Unspecified => "unknown",
        pb::SummaryKind::Llm => "written by a model",
        pb::SummaryKind::Extractive => "extracted",
        pb::SummaryKind::Imported => "imported",
    }
}

/// Why a checkpoint was made.
pub(super) const fn trigger(trigger: pb::CheckpointTrigger) -> &'static str {
    match trigger {
        pb::CheckpointTrigger::Unspecified => "unknown",
        pb::CheckpointTrigger::Tokens => "tokens",
        pb::CheckpointTrigger::Messages => "number of messages",
        pb::CheckpointTrigger::Manual => "asked for",
        pb::CheckpointTrigger::Imported => "imported",
        pb::CheckpointTrigger::Idle => "the provider's cache was cold",
    }
}

/// A kind of job, as forms send it.
pub(super) const fn job_kind(kind: pb::JobKind) -> &'static str {
    match kind {
        pb::JobKind::Unspecified => "unknown",
        pb::JobKind::CountTokens => "count_tokens",
        pb::JobKind::Checkpoint => "checkpoint",
        pb::JobKind::SummarizeMessages => "summarize_messages",
    }
}

/// The kind of job with this name. Unspecified: there is none.
pub(super) fn parse_job_kind(name: &str) -> pb::JobKind {
    let kinds = [
        pb::JobKind::CountTokens,
        pb::JobKind::Checkpoint,
        pb::JobKind::SummarizeMessages,
    ];
    let kind = kinds.into_iter().find(|kind| job_kind(*kind) == name);
    kind.unwrap_or(pb::JobKind::Unspecified)
}

/// The state of a job.
pub(super) const fn job_state(state: pb::JobState) -> &'static str {
    match state {
        pb::JobState::Unspecified => "unknown",
        pb::JobState::Waiting => "waiting",
        pb::JobState::Running => "running",
        pb::JobState::Dead => "dead",
    }
}
