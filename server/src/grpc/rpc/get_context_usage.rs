//! GetContextUsage.

use anneal_core::{
    boundary::Boundary,
    caller::Caller,
    context,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};
use anneal_proto::{
    convert::{parse, policy},
    v1 as pb,
};

use crate::{failure::Failure, reply, state::ServerState};

/// Returns the tokens of the context by segment, and the limits that they are compared with.
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
            usage.summary + context::checkpoint_overhead_tokens(last, usage.encoding)
        }
        Boundary::Separator(_) | Boundary::Start => Tokens::ZERO,
    };
    // Beside its summary, a swapped message is sent with a mark, and with what stands for its tool
    // calls and results.
    let swap_overhead: Tokens = usage
        .swapped
        .iter()
        .map(|swapped| swapped.overhead_tokens(usage.encoding))
        .sum();
    let segments = vec![
        single_message(pb::Segment::SystemPrompt, usage.system_prompt),
        single_message(pb::Segment::CheckpointSummary, summary),
        pb::SegmentUsage {
            segment: pb::Segment::Tail.into(),
            tokens: (usage.sent_tail + swap_overhead).get() + figures.messages * framing,
            messages: figures.messages as i64,
        },
    ];
    let total_tokens = segments.iter().map(|segment| segment.tokens).sum();
    let policy = usage.state.policy;
    let threshold = policy.threshold(&figures).get();
    let model_window = if policy.window_known {
        Some(policy.window)
    } else {
        // Turns of a conversation whose policy names no model call this one.
        let settings = state.settings.get();
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
        segments,
        total_tokens,
        window_tokens,
        used_share: total_tokens as f64 / window_tokens as f64,
        swapped_messages: usage.swapped.len() as i64,
        saved_tokens: usage.saved_tokens.get(),
        estimated: usage.uncounted_messages > 0,
        tail_tokens: figures.tail.get(),
        token_threshold: threshold,
        tail_messages: figures.messages as i64,
        max_message_count: policy.max_message_count,
        // `figures.tail` counts every cool message that has a summary as its summary,
        // `sent_tail` only those that contexts replace already.
        pending_saved_tokens: usage.sent_tail.less(figures.tail).get(),
        model_window_tokens,
        economics,
        summaries: None,
    })
}
