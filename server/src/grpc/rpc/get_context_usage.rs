//! GetContextUsage.

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    context::{Ask, Context, Representation, Segment, checkpoint_overhead_tokens},
    media_access::MediaAccess,
    policy::PolicyOverrides,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};
use anneal_proto::{
    convert::{parse, policy},
    v1 as pb,
};
use anneal_store::{ContextUsage, SummaryHealth};

use crate::{
    failure::Failure,
    reply,
    state::ServerState,
    usecases::build_context::{self, ContextRequest},
};

/// Most bytes of a tail of which the context is built, to report its figures. Those of a larger one
/// are computed from the figures of its messages.
const BUILT_TAIL_BYTES: u64 = 8 * 1024 * 1024;

/// Returns the tokens of the context by segment, the limits that they are compared with, and
/// whether summaries can be made.
pub(crate) async fn get_context_usage(
    state: &ServerState,
    caller: Caller,
    ask: pb::GetContextUsageRequest,
) -> Result<pb::GetContextUsageResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let overrides = policy::parse(ask.policy, &state.store.session(), Tokens::ZERO)?;
    let usage = state
        .store
        .read_context_usage(caller, id, &overrides)
        .await?;
    let economics = if ask.economics {
        let calls = state
            .store
            .read_call_history(caller, id, usage.system_prompt)
            .await?;
        let policy = usage.state.policy;
        Some(
            state
                .cpu
                .run(caller.tenant(), move || reply::economics(&calls, &policy))
                .await?,
        )
    } else {
        None
    };
    let settings = state.settings.get();
    let health = state
        .store
        .read_summary_health(caller, id, &settings.summary_model)
        .await?;
    let figures = usage.state.figures;
    let built = match build_if_small(state, caller, id, overrides, &usage).await {
        Err(failure) if passes(&failure) => None,
        built => built?,
    };
    let sent = built.unwrap_or_else(|| SentContext::of_figures(&usage));
    let total_tokens = sent.segments.iter().map(|segment| segment.tokens).sum();
    let policy = usage.state.policy;
    let threshold = policy.threshold(&figures).get();
    let model_window = if policy.window_known {
        Some(policy.window)
    } else {
        // Turns of a conversation whose policy names no model call this one.
        let default_model = settings.chat.model.first();
        let default_model = default_model.and_then(|name| settings.models.models.find(name));
        default_model.map(|model| model.window())
    };
    let model_window_tokens = model_window.map_or(0, Tokens::get);
    // 0: the caller names no window. The threshold stands in for a window that is not known.
    let window_tokens = match ask.window_tokens {
        0 if model_window_tokens > 0 => model_window_tokens,
        0 => threshold,
        window => window,
    };
    Ok(pb::GetContextUsageResponse {
        segments: sent.segments,
        total_tokens,
        window_tokens,
        used_share: total_tokens as f64 / window_tokens as f64,
        swapped_messages: sent.swapped_messages,
        saved_tokens: sent.saved.get(),
        estimated: sent.estimated || usage.uncounted_messages > 0,
        tail_tokens: figures.tail.get(),
        token_threshold: threshold,
        tail_messages: figures.messages as i64,
        max_message_count: policy.max_message_count,
        pending_saved_tokens: sent.pending_saved.get(),
        model_window_tokens,
        economics,
        summaries: Some(summary_health(health)),
    })
}

/// Whether a failure to build the context passes by itself, so that figures are answered for now:
/// too many other calls hold content, or the database is busy.
const fn passes(failure: &Failure) -> bool {
    match failure {
        Failure::Overloaded => true,
        Failure::Store(error) => error.is_transient(),
        _ => false,
    }
}

/// The figures of the context that the next call would get, built as a dry run. None: the tail is
/// too large.
async fn build_if_small(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    overrides: PolicyOverrides,
    usage: &ContextUsage,
) -> Result<Option<SentContext>, Failure> {
    let after = usage.boundary.after();
    let bytes = state
        .store
        .measure_tail(caller, id, after, BUILT_TAIL_BYTES)
        .await?;
    if bytes > BUILT_TAIL_BYTES {
        return Ok(None);
    }
    let request = ContextRequest {
        id,
        ask: Ask {
            media: MediaAccess::Any,
            ..Ask::default()
        },
        overrides,
        dry_run: true,
        ratio: None,
    };
    let built = build_context::build(state, &state.content_budget, caller, &request).await?;
    Ok(Some(SentContext::of_built(&built.context, usage)))
}

/// What a context sends.
struct SentContext {
    segments: Vec<pb::SegmentUsage>,
    /// Messages that are sent as their summaries.
    swapped_messages: i64,
    /// Tokens that these summaries save.
    saved: Tokens,
    /// Tokens that the next step of stepped cooling would save in addition.
    pending_saved: Tokens,
    estimated: bool,
}

impl SentContext {
    /// The figures of a built context: `usage`, with its repairs and the step that it makes.
    fn of_built(context: &Context, usage: &ContextUsage) -> Self {
        let segments = [
            Segment::SystemPrompt,
            Segment::CheckpointSummary,
            Segment::Tail,
        ];
        let entries = context.manifest.iter();
        let swapped = entries
            .filter(|entry| entry.representation == Representation::Summary)
            .count();
        let pending = pending_saved(usage);
        // A step swaps all messages that wait for one.
        let (saved, pending_saved) = if swapped > usage.swapped.len() {
            (usage.saved_tokens + pending, Tokens::ZERO)
        } else {
            (usage.saved_tokens, pending)
        };
        Self {
            segments: segments
                .into_iter()
                .map(|segment| segment_usage(context, segment))
                .collect(),
            swapped_messages: swapped as i64,
            saved,
            pending_saved,
            estimated: context.estimated,
        }
    }

    /// The figures of a context that is not built: without its repairs, and without a step of
    /// stepped cooling that it would make.
    fn of_figures(usage: &ContextUsage) -> Self {
        let framing = FRAMING_PER_MESSAGE.get();
        let figures = usage.state.figures;
        let single_message = |segment: pb::Segment, tokens: Tokens| pb::SegmentUsage {
            segment: segment.into(),
            tokens: if tokens == Tokens::ZERO {
                0
            } else {
                tokens.get() + framing
            },
            messages: i64::from(tokens > Tokens::ZERO),
        };
        let summary = match usage.boundary {
            Boundary::Checkpoint(last) => {
                usage.summary + checkpoint_overhead_tokens(last, usage.encoding)
            }
            Boundary::Separator(_) | Boundary::Start => Tokens::ZERO,
        };
        // Beside its summary, a swapped message is sent with a mark, and with what stands for its
        // tool calls and results.
        let swap_overhead: Tokens = usage
            .swapped
            .iter()
            .map(|swapped| swapped.overhead_tokens(usage.encoding))
            .sum();
        Self {
            segments: vec![
                single_message(pb::Segment::SystemPrompt, usage.system_prompt),
                single_message(pb::Segment::CheckpointSummary, summary),
                pb::SegmentUsage {
                    segment: pb::Segment::Tail.into(),
                    tokens: (usage.sent_tail + swap_overhead).get() + figures.messages * framing,
                    messages: figures.messages as i64,
                },
            ],
            swapped_messages: usage.swapped.len() as i64,
            saved: usage.saved_tokens,
            pending_saved: pending_saved(usage),
            estimated: true,
        }
    }
}

/// Tokens that a step of stepped cooling would save: `figures.tail` counts every cool message that
/// has a summary as its summary, `sent_tail` only those that contexts replace already.
fn pending_saved(usage: &ContextUsage) -> Tokens {
    usage.sent_tail.less(usage.state.figures.tail)
}

/// The figures of one segment of a built context. Messages of the tail that were merged count each.
fn segment_usage(context: &Context, segment: Segment) -> pb::SegmentUsage {
    let messages = || {
        let messages = context.messages.iter();
        messages.filter(move |message| message.segment == segment)
    };
    let (name, count) = match segment {
        Segment::SystemPrompt => (pb::Segment::SystemPrompt, messages().count()),
        Segment::CheckpointSummary => (pb::Segment::CheckpointSummary, messages().count()),
        Segment::Tail | Segment::CurrentInput => (
            pb::Segment::Tail,
            messages().map(|message| message.message_ids.len()).sum(),
        ),
    };
    let tokens: Tokens = messages().map(|message| message.tokens).sum();
    pb::SegmentUsage {
        segment: name.into(),
        tokens: tokens.get(),
        messages: count as i64,
    }
}

fn summary_health(health: SummaryHealth) -> pb::SummaryHealth {
    let state = if health.retry_after.is_some() {
        pb::SummaryState::BreakerOpen
    } else if health.is_dead {
        pb::SummaryState::Dead
    } else if health.until.is_some() {
        pb::SummaryState::Stalled
    } else {
        pb::SummaryState::Ok
    };
    pb::SummaryHealth {
        state: state.into(),
        until_message_id: health.until.map_or(0, |until| until.0),
        retry_after: health.retry_after.map(|left| prost_types::Duration {
            seconds: left.as_secs() as i64,
            nanos: left.subsec_nanos() as i32,
        }),
        last_failure: health.last_failure,
    }
}

#[cfg(test)]
mod tests {
    use anneal_store::{Entity, StoreError};

    use super::*;

    #[test]
    fn figures_are_answered_only_while_a_failure_passes() {
        for failure in [
            Failure::Overloaded,
            StoreError::Busy.into(),
            StoreError::Unresponsive.into(),
        ] {
            assert!(passes(&failure), "{failure}");
        }
        for failure in [
            Failure::Panicked,
            Failure::ContextEmpty,
            StoreError::NotFound(Entity::Conversation).into(),
        ] {
            assert!(!passes(&failure), "{failure}");
        }
    }
}
