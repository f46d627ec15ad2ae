//! GetContextUsage.

use anneal_core::{
    boundary::Boundary,
    caller::Caller,
    context,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};
use anneal_proto::v1 as pb;

use crate::{house::House, parse, status::Failure};

/// How full the context is, by segment.
pub(crate) async fn get_context_usage(
    house: &House,
    caller: Caller,
    ask: pb::GetContextUsageRequest,
) -> Result<pb::GetContextUsageResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let usage = house.store.usage(caller, id).await?;
    let framing = FRAMING_PER_MESSAGE.get();
    let tail = usage.state.size;
    let one = |segment: pb::Segment, tokens: Tokens| pb::SegmentUsage {
        segment: segment.into(),
        tokens: if tokens == Tokens::ZERO { 0 } else { tokens.get() + framing },
        messages: i64::from(tokens > Tokens::ZERO),
    };
    let summary = match usage.boundary {
        Boundary::Checkpoint(last) => usage.summary + context::checkpoint_tokens_around(last, usage.encoding),
        Boundary::Separator(_) | Boundary::Start => Tokens::ZERO,
    };
    let around: Tokens = usage.swapped.iter().map(|swapped| swapped.tokens_around(usage.encoding)).sum();
    let segments = vec![
        one(pb::Segment::SystemPrompt, usage.system_prompt),
        one(pb::Segment::CheckpointSummary, summary),
        pb::SegmentUsage {
            segment: pb::Segment::Tail.into(),
            tokens: (tail.tokens + around).get() + tail.messages * framing,
            messages: tail.messages as i64,
        },
    ];
    let total_tokens = segments.iter().map(|segment| segment.tokens).sum();
    let policy = usage.state.policy;
    let window_tokens = if ask.window_tokens == 0 { policy.token_threshold.get() } else { ask.window_tokens };
    Ok(pb::GetContextUsageResponse {
        segments,
        total_tokens,
        window_tokens,
        used_share: total_tokens as f64 / window_tokens as f64,
        swapped_messages: usage.swapped.len() as i64,
        saved_tokens: usage.saved.get(),
        estimated: usage.estimated > 0,
        tail_tokens: tail.tokens.get(),
        token_threshold: policy.token_threshold.get(),
        tail_messages: tail.messages as i64,
        max_message_count: policy.max_message_count,
    })
}
