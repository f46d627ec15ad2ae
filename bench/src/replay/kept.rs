//! One conversation played through a running service: a context before every answer, metered.

use std::collections::BTreeMap;

use anneal_tests::{House, Talk};
use anneal_transcripts::{Chat, pb};
use anyhow::Context as _;

use super::{
    answers::Answers,
    meter::{Bill, Meter, Piece},
    promises::{self, Promises},
    script::Script,
    table::Played,
    ways::Way,
};

/// One conversation, as the service kept it.
pub(super) struct Kept {
    pub(super) played: Played,
    /// For each call, how many messages were swapped.
    pub(super) schedule: Vec<usize>,
    /// Tokens of stored summaries, by message id.
    pub(super) summaries: BTreeMap<i64, u64>,
    /// What the service itself works out from its rows.
    pub(super) worked_out: Bill,
    /// Tokens that the answers expected the cache to hold.
    pub(super) expected: u64,
}

/// Plays the chat: the worker is stepped after every append.
pub(super) async fn keep(house: &House, chat: &Chat, script: &Script, way: Way) -> anyhow::Result<Kept> {
    let ask = pb::CreateConversationRequest {
        system_prompt: chat.system_prompt.clone(),
        policy: Some(way.policy()),
        ..Default::default()
    };
    let talk = house.conversation_with(ask).await;
    // The conversation's own prompt comes with every answer; another one is sent before it.
    let system = if chat.system_prompt.is_empty() { script.system } else { 0 };
    let (mut meter, mut answers, mut promises) = (Meter::default(), Answers::default(), Promises::default());
    let (mut raw, mut schedule) = (Vec::new(), Vec::new());
    let mut said: Vec<pb::NewMessage> = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        if message.role() == pb::Role::Assistant {
            append(&talk, &mut said).await;
            let built = talk.build(pb::BuildContextRequest::default()).await?.0;
            if promises::samples(schedule.len(), &built) {
                promises::same(&built, &talk.context().await.0)?;
            }
            schedule.push(swapped(&built));
            raw.extend((index > 0).then(|| raw_shares(&built, script)));
            let mut context = Vec::from_iter((system > 0).then_some(Piece { identity: 0, tokens: system }));
            context.extend(answers.pieces(&built.messages));
            let breaks = meter.bill().breaks;
            meter.call(context);
            promises.see(&built, meter.bill().breaks > breaks).with_context(|| format!("{}, {way:?}", chat.name))?;
        }
        said.push(message.clone());
    }
    append(&talk, &mut said).await;
    let bill = meter.bill();
    let (worked_out, summaries) = (worked_out(&talk, way, system).await?, summaries(&talk).await);
    let expected = promises.expected + system * bill.calls.saturating_sub(1);
    Ok(Kept { played: Played { bill, raw }, schedule, summaries, worked_out, expected })
}

/// Appends what was said since the last call, the model's answer by itself, and lets the worker finish.
async fn append(talk: &Talk<'_>, said: &mut Vec<pb::NewMessage>) {
    let answers = said.iter().take_while(|message| message.role() == pb::Role::Assistant).count();
    let rest = said.split_off(answers);
    for some in [std::mem::take(said), rest] {
        for some in some.chunks(100) {
            talk.append_all(some.to_vec()).await;
            talk.house.run_jobs_until_idle().await;
        }
    }
}

/// Messages that the context sends as their summaries.
fn swapped(built: &pb::BuildContextResponse) -> usize {
    let summaries = built.manifest.iter().filter(|entry| entry.representation() == pb::Representation::Summary);
    summaries.map(|entry| (entry.last_message_id - entry.first_message_id + 1) as usize).sum()
}

/// The shares of tokens and of messages that the context sends as they were said.
fn raw_shares(built: &pb::BuildContextResponse, script: &Script) -> (f64, f64) {
    let (mut all, mut raw) = ((0, 0), (0, 0));
    for entry in &built.manifest {
        let said = &script.said[entry.first_message_id as usize - 1..entry.last_message_id as usize];
        let sums = (said.iter().map(|said| said.tokens).sum::<u64>(), said.len());
        let gone = matches!(entry.representation(), pb::Representation::Summary | pb::Representation::Checkpoint);
        all = (all.0 + sums.0, all.1 + sums.1);
        raw = if gone { raw } else { (raw.0 + sums.0, raw.1 + sums.1) };
    }
    (raw.0 as f64 / all.0.max(1) as f64, raw.1 as f64 / all.1.max(1) as f64)
}

/// The bill that the service works out for this way, with what it does not know of before each call.
async fn worked_out(talk: &Talk<'_>, way: Way, system: u64) -> anyhow::Result<Bill> {
    let ask = pb::GetContextUsageRequest { conversation_id: talk.id.clone(), economics: true, ..Default::default() };
    let usage = talk.house.contexts().get_context_usage(ask).await?.into_inner();
    let economics = usage.economics.context("it was asked for")?;
    let bill = match way {
        Way::None => economics.none,
        Way::Strict | Way::Threshold => economics.strict,
        Way::Stepped(_) => economics.stepped,
    };
    let bill = bill.context("every way is worked out")?;
    let calls = economics.calls as u64;
    Ok(Bill {
        calls,
        sent: bill.sent_tokens + system * calls,
        cached: bill.cached_tokens + system * calls.saturating_sub(1),
        breaks: bill.cache_breaks as u64,
    })
}

async fn summaries(talk: &Talk<'_>) -> BTreeMap<i64, u64> {
    let stored = talk.messages().await.into_iter();
    stored.filter_map(|stored| Some((stored.message_id, stored.summary?.tokens))).collect()
}
