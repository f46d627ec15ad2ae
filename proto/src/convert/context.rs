//! Parses the format and the pressure of a context. Makes the answer with a built context: messages
//! or the rendered request, the manifest, repairs, and the prefix's cache figures. Also converts
//! the kind of a boundary.

use anneal_core::{
    boundary::Boundary,
    cache::CachePointKind,
    context::{self, Context, Pressure},
    message::MessageId,
    render::{Format, Rendered, RenderedMessage},
};

use super::FieldError;
use crate::v1 as pb;

/// Parses the field `format`; UNSPECIFIED means the neutral format.
pub fn parse_format(number: i32) -> Result<Format, FieldError> {
    match pb::Format::try_from(number) {
        Ok(pb::Format::Unspecified) => Ok(Format::Neutral),
        Ok(pb::Format::OpenaiChat) => Ok(Format::OpenAiChat),
        Ok(pb::Format::AnthropicMessages) => Ok(Format::AnthropicMessages),
        Ok(pb::Format::GeminiContents) => Ok(Format::GeminiContents),
        Err(_) => Err(FieldError::invalid(
            "format",
            format!("{number} is not a format"),
        )),
    }
}

/// Parses the field `pressure`; UNSPECIFIED means none.
pub fn parse_pressure(number: i32) -> Result<Pressure, FieldError> {
    match pb::Pressure::try_from(number) {
        Ok(pb::Pressure::Unspecified) => Ok(Pressure::None),
        Ok(pb::Pressure::TruncateToolResults) => Ok(Pressure::TruncateToolResults),
        Ok(pb::Pressure::Compact) => Ok(Pressure::Compact),
        Err(_) => Err(FieldError::invalid(
            "pressure",
            format!("{number} is not a pressure"),
        )),
    }
}

impl From<Pressure> for pb::Pressure {
    fn from(pressure: Pressure) -> Self {
        match pressure {
            Pressure::None => Self::Unspecified,
            Pressure::TruncateToolResults => Self::TruncateToolResults,
            Pressure::Compact => Self::Compact,
        }
    }
}

const fn point_kind(kind: CachePointKind) -> pb::CachePointKind {
    match kind {
        CachePointKind::System => pb::CachePointKind::System,
        CachePointKind::Summary => pb::CachePointKind::Summary,
        CachePointKind::Stable => pb::CachePointKind::Stable,
        CachePointKind::LastEnd => pb::CachePointKind::LastEnd,
        CachePointKind::End => pb::CachePointKind::End,
    }
}

const fn segment(segment: context::Segment) -> pb::Segment {
    match segment {
        context::Segment::SystemPrompt => pb::Segment::SystemPrompt,
        context::Segment::CheckpointSummary => pb::Segment::CheckpointSummary,
        context::Segment::Tail => pb::Segment::Tail,
        context::Segment::CurrentInput => pb::Segment::CurrentInput,
    }
}

const fn representation(representation: context::Representation) -> pb::Representation {
    match representation {
        context::Representation::Original => pb::Representation::Original,
        context::Representation::Summary => pb::Representation::Summary,
        context::Representation::Checkpoint => pb::Representation::Checkpoint,
        context::Representation::BeforeSeparator => pb::Representation::BeforeSeparator,
        context::Representation::Clipped => pb::Representation::Clipped,
        context::Representation::Dropped => pb::Representation::Dropped,
        context::Representation::Repaired => pb::Representation::Repaired,
        context::Representation::Withdrawn => pb::Representation::Withdrawn,
    }
}

const fn reason(reason: context::Reason) -> pb::Reason {
    match reason {
        context::Reason::Small => pb::Reason::Small,
        context::Reason::Hot => pb::Reason::Hot,
        context::Reason::SummaryPending => pb::Reason::SummaryPending,
        context::Reason::Cool => pb::Reason::Cool,
        context::Reason::StepPending => pb::Reason::StepPending,
        context::Reason::Checkpointed => pb::Reason::Checkpointed,
        context::Reason::Separated => pb::Reason::Separated,
        context::Reason::Budget => pb::Reason::Budget,
        context::Reason::ResultWithoutCall => pb::Reason::ResultWithoutCall,
        context::Reason::Empty => pb::Reason::Empty,
        context::Reason::Pressure => pb::Reason::Pressure,
        context::Reason::Repeated => pb::Reason::Repeated,
        context::Reason::ContentLimit => pb::Reason::ContentLimit,
        context::Reason::Withdrawn => pb::Reason::Withdrawn,
    }
}

/// The kind of a boundary. UNSPECIFIED: the context starts at the first message.
pub const fn boundary_kind(boundary: Boundary) -> pb::BoundaryKind {
    match boundary {
        Boundary::Start => pb::BoundaryKind::Unspecified,
        Boundary::Separator(_) => pb::BoundaryKind::Separator,
        Boundary::Checkpoint(_) => pb::BoundaryKind::Checkpoint,
    }
}

const fn repair_kind(kind: context::RepairKind) -> pb::RepairKind {
    match kind {
        context::RepairKind::Merged => pb::RepairKind::Merged,
        context::RepairKind::ResultAdded => pb::RepairKind::ResultAdded,
        context::RepairKind::ResultDropped => pb::RepairKind::ResultDropped,
        context::RepairKind::EmptyDropped => pb::RepairKind::EmptyDropped,
        context::RepairKind::ResultMoved => pb::RepairKind::ResultMoved,
        context::RepairKind::RepeatFolded => pb::RepairKind::RepeatFolded,
        context::RepairKind::UserAdded => pb::RepairKind::UserAdded,
        context::RepairKind::RoleChanged => pb::RepairKind::RoleChanged,
        context::RepairKind::IdChanged => pb::RepairKind::IdChanged,
        context::RepairKind::InputWrapped => pb::RepairKind::InputWrapped,
        context::RepairKind::ReasoningDropped => pb::RepairKind::ReasoningDropped,
        context::RepairKind::MediaDescribed => pb::RepairKind::MediaDescribed,
        context::RepairKind::NameChanged => pb::RepairKind::NameChanged,
        context::RepairKind::TextAdded => pb::RepairKind::TextAdded,
    }
}

/// Why the provider's cache is useless from a place on.
pub const fn break_reason(reason: context::BreakReason) -> pb::BreakReason {
    match reason {
        // A first context has no `CacheBreak`.
        context::BreakReason::First => pb::BreakReason::Unspecified,
        context::BreakReason::Checkpoint => pb::BreakReason::Checkpoint,
        context::BreakReason::Separator => pb::BreakReason::Separator,
        context::BreakReason::SystemPrompt => pb::BreakReason::SystemPrompt,
        context::BreakReason::Swap => pb::BreakReason::Swap,
        context::BreakReason::Budget => pb::BreakReason::Budget,
        context::BreakReason::Repair => pb::BreakReason::Repair,
        context::BreakReason::Idle => pb::BreakReason::Idle,
        context::BreakReason::Edit => pb::BreakReason::Edit,
        context::BreakReason::Withdrawal => pb::BreakReason::Withdrawal,
        context::BreakReason::Erasure => pb::BreakReason::Erasure,
        context::BreakReason::Model => pb::BreakReason::Model,
        context::BreakReason::Tools => pb::BreakReason::Tools,
        context::BreakReason::Options => pb::BreakReason::Options,
    }
}

fn cache_break(broken: context::CacheBreak) -> pb::CacheBreak {
    pb::CacheBreak {
        reason: break_reason(broken.reason).into(),
        at_message_id: broken.at.0,
        rewritten_tokens: broken.rewritten.get(),
        saved_tokens_per_call: broken.saved.get(),
        pays_back_after_calls: broken.pays_back_after.unwrap_or(0),
    }
}

fn manifest_entry(entry: context::ManifestEntry) -> pb::ManifestEntry {
    let clipped = entry.clipped.into_iter().map(|range| pb::ClippedRange {
        offset: range.start as i64,
        length: range.len() as i64,
    });
    pb::ManifestEntry {
        first_message_id: entry.first.0,
        last_message_id: entry.last.0,
        representation: representation(entry.representation).into(),
        reason: reason(entry.reason).into(),
        tokens: entry.tokens.get(),
        original_tokens: entry.original_tokens.get(),
        cool: entry.cool,
        clipped: clipped.collect(),
    }
}

fn rendered_message(message: RenderedMessage) -> pb::RenderedMessage {
    pb::RenderedMessage {
        index: message.index,
        message_ids: message.message_ids.into_iter().map(|id| id.0).collect(),
        tokens: message.tokens.get(),
        segment: segment(message.segment).into(),
    }
}

/// The answer of `BuildContext` with this context. If `rendered` is given, it replaces the messages.
/// Fields of the answer that a [`Context`] does not have keep their defaults.
pub fn answer(context: Context, rendered: Option<Rendered>) -> pb::BuildContextResponse {
    let (json, rendered_messages, mark_indexes) = match rendered {
        Some(rendered) => (
            Some(rendered.json),
            rendered.messages,
            rendered.mark_indexes,
        ),
        None => (None, Vec::new(), Vec::new()),
    };
    let marks = context.marks.iter().zip(mark_indexes);
    let cache_marks = marks.map(|(mark, index)| pb::CacheMark {
        kind: point_kind(mark.point.kind).into(),
        index,
        tokens: mark.point.tokens.get(),
        ttl_seconds: mark.ttl.seconds(),
    });
    let cache_marks = cache_marks.collect();
    let messages = if json.is_some() {
        Vec::new()
    } else {
        context.messages
    };
    let messages = messages.into_iter().map(|message| pb::ContextMessage {
        segment: segment(message.segment).into(),
        role: pb::Role::from(message.role).into(),
        parts: message.parts.into_iter().map(pb::Part::from).collect(),
        message_ids: message.message_ids.into_iter().map(|id| id.0).collect(),
        tokens: message.tokens.get(),
    });
    let repairs = context.repairs.into_iter().map(|repair| pb::Repair {
        kind: repair_kind(repair.kind).into(),
        message_id: repair.message.unwrap_or(MessageId::NONE).0,
        tool_use_id: repair.call,
    });
    pb::BuildContextResponse {
        messages: messages.collect(),
        rendered: json,
        rendered_messages: rendered_messages
            .into_iter()
            .map(rendered_message)
            .collect(),
        cache_marks,
        repairs: repairs.collect(),
        manifest: context.manifest.into_iter().map(manifest_entry).collect(),
        total_tokens: context.total.get(),
        estimated: context.estimated,
        last_message_id: context.last_message_id.0,
        boundary_message_id: context.boundary.after().0,
        boundary_kind: boundary_kind(context.boundary).into(),
        current_turn: context.current_turn,
        prefix_hash: context.prefix.hash.to_vec(),
        prefix_stable_until: context.prefix.stable_until.0,
        cache_break: context.prefix.cache_break.map(cache_break),
        expected_cached_tokens: context.prefix.cached.get(),
        ..Default::default()
    }
}
