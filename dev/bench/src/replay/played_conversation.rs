//! Plays one conversation through a running service: builds a context before every answer of the
//! model and meters it.

use std::collections::BTreeMap;

use anneal_testkit::{TestApp, TestConversation};
use anneal_transcripts::{Chat, pb};
use anyhow::Context as _;

use super::{
    answer_checks::{self, AnswerChecks},
    context_pieces::PieceSplitter,
    cooling_variant::CoolingVariant,
    counted_conversation::{CountedConversation, RawShares},
    meter::{CacheUsage, Meter, Piece},
    table::ReplayResult,
};

/// The results of one played conversation.
pub(super) struct PlayedConversation {
    pub(super) result: ReplayResult,
    /// The number of swapped messages at each call.
    pub(super) schedule: Vec<usize>,
    /// Tokens of stored summaries, by message id.
    pub(super) summaries: BTreeMap<i64, u64>,
    /// The usage that the service computes from its own rows.
    pub(super) service_usage: CacheUsage,
    /// Sum of the tokens that the service expected to be in the cache, and of the tokens of the
    /// system prompt that it does not know.
    pub(super) expected_cached_tokens: u64,
}

/// Plays the chat. The worker runs all its jobs after every append.
pub(super) async fn play_conversation(
    app: &TestApp,
    chat: &Chat,
    counted: &CountedConversation,
    variant: CoolingVariant,
) -> anyhow::Result<PlayedConversation> {
    let ask = pb::CreateConversationRequest {
        system_prompt: chat.system_prompt.clone(),
        policy: Some(variant.policy()),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    // The conversation's own system prompt is part of every context that the service builds. Any
    // other system prompt is sent before that context.
    let system = if chat.system_prompt.is_empty() {
        counted.system
    } else {
        0
    };
    let (mut meter, mut splitter, mut checks) = (
        Meter::default(),
        PieceSplitter::default(),
        AnswerChecks::default(),
    );
    let (mut raw_shares, mut schedule) = (Vec::new(), Vec::new());
    let mut pending: Vec<pb::NewMessage> = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        if message.role() == pb::Role::Assistant {
            append(&conversation, &mut pending).await;
            let built = conversation
                .build(pb::BuildContextRequest::default())
                .await?
                .0;
            if answer_checks::is_requested_twice(schedule.len(), &built) {
                answer_checks::ensure_same(&built, &conversation.context().await.0)?;
            }
            schedule.push(count_swapped(&built));
            raw_shares.extend((index > 0).then(|| raw_shares_of(&built, counted)));
            let mut context = Vec::from_iter((system > 0).then_some(Piece {
                identity: 0,
                tokens: system,
            }));
            context.extend(splitter.pieces(&built.messages));
            let breaks = meter.usage().breaks;
            meter.record_call(context);
            checks
                .check(&built, meter.usage().breaks > breaks)
                .with_context(|| format!("{}, {variant:?}", chat.name))?;
        }
        pending.push(message.clone());
    }
    append(&conversation, &mut pending).await;
    let usage = meter.usage();
    let (service_usage, summaries) = (
        read_service_usage(&conversation, variant, system).await?,
        read_summaries(&conversation).await,
    );
    // The service does not know this system prompt. Every call but the first finds it in the cache.
    let expected_cached_tokens =
        checks.expected_cached_tokens + system * usage.calls.saturating_sub(1);
    Ok(PlayedConversation {
        result: ReplayResult { usage, raw_shares },
        schedule,
        summaries,
        service_usage,
        expected_cached_tokens,
    })
}

/// Appends the pending messages: first the model's answer to the previous call, then the messages
/// after it. Lets the worker finish its jobs after each append.
async fn append(conversation: &TestConversation<'_>, pending: &mut Vec<pb::NewMessage>) {
    let answers = pending
        .iter()
        .take_while(|message| message.role() == pb::Role::Assistant)
        .count();
    let rest = pending.split_off(answers);
    for messages in [std::mem::take(pending), rest] {
        for batch in messages.chunks(100) {
            conversation.append_all(batch.to_vec()).await;
            conversation.app.run_jobs_until_idle().await;
        }
    }
}

/// Number of messages that the context contains as summaries.
fn count_swapped(built: &pb::BuildContextResponse) -> usize {
    let summaries = built
        .manifest
        .iter()
        .filter(|entry| entry.representation() == pb::Representation::Summary);
    summaries
        .map(|entry| (entry.last_message_id - entry.first_message_id + 1) as usize)
        .sum()
}

/// The shares of the tokens and of the messages that the context contains in their original form.
fn raw_shares_of(built: &pb::BuildContextResponse, counted: &CountedConversation) -> RawShares {
    let (mut all_tokens, mut all_messages) = (0_u64, 0_usize);
    let (mut raw_tokens, mut raw_messages) = (0_u64, 0_usize);
    for entry in &built.manifest {
        let messages =
            &counted.messages[entry.first_message_id as usize - 1..entry.last_message_id as usize];
        let tokens: u64 = messages.iter().map(|message| message.tokens).sum();
        all_tokens += tokens;
        all_messages += messages.len();
        let is_replaced = matches!(
            entry.representation(),
            pb::Representation::Summary | pb::Representation::Checkpoint
        );
        if !is_replaced {
            raw_tokens += tokens;
            raw_messages += messages.len();
        }
    }
    RawShares {
        tokens: raw_tokens as f64 / all_tokens.max(1) as f64,
        messages: raw_messages as f64 / all_messages.max(1) as f64,
    }
}

/// The usage that the service computes for this variant. The tokens of a system prompt that is sent
/// beside the service's context (`system`) are added to each call. Every call but the first finds
/// them in the cache.
async fn read_service_usage(
    conversation: &TestConversation<'_>,
    variant: CoolingVariant,
    system: u64,
) -> anyhow::Result<CacheUsage> {
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let usage = conversation
        .app
        .contexts()
        .get_context_usage(ask)
        .await?
        .into_inner();
    let economics = usage.economics.context("the answer has no economics")?;
    let computed = match variant {
        CoolingVariant::None => economics.none,
        // Under `Threshold` no message is large, so strict cooling swaps none.
        CoolingVariant::Strict | CoolingVariant::Threshold => economics.strict,
        CoolingVariant::Stepped(_) => economics.stepped,
    };
    let computed = computed.context("the usage is computed for every variant")?;
    let calls = economics.calls as u64;
    Ok(CacheUsage {
        calls,
        sent: computed.sent_tokens + system * calls,
        cached: computed.cached_tokens + system * calls.saturating_sub(1),
        plain: 0,
        breaks: computed.cache_breaks as u64,
    })
}

async fn read_summaries(conversation: &TestConversation<'_>) -> BTreeMap<i64, u64> {
    let stored = conversation.messages().await.into_iter();
    stored
        .filter_map(|stored| Some((stored.message_id, stored.summary?.tokens)))
        .collect()
}
