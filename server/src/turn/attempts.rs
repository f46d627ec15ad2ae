//! The attempts of a turn: a context, a call, and what follows when the context is too long for the model.

use anneal_core::{
    context::{Ask, Context, Pressure},
    message::{Media, Part},
    policy::PolicyOverrides,
    tokens::{MEDIA_TOKENS, Tokens},
};
use anneal_llm::provider::{Call, CallFailure, Model};
use anneal_proto::v1 as pb;
use pb::{
    AttemptReason,
    chat_response::{Attempt, Event},
};
use tracing::warn;

use super::{Ended, Run, answer::Answer, call::Bill, guard::Guard};
use crate::{
    context::{self, Built, Wanted},
    learning,
    status::{Failure, Overflow},
};

/// How many times what is counted an estimate may be.
const MOST_OVERCOUNT: f64 = 1.3;

/// An answer, and the figures of the context that it answers.
pub(super) struct Answered {
    pub(super) answer: Answer,
    /// What was sent, counted here; zero: the provider has counted nothing to compare it with.
    pub(super) own: Tokens,
    /// What the provider's cache should have held of it.
    pub(super) expected_cached: Tokens,
}

impl Run {
    /// The model's answer to the stored conversation, within its window.
    pub(super) async fn answer(&self, model: &Model, bill: &mut Bill) -> Result<Answered, Ended> {
        let mut guard = Guard::new(model.window(), model.output(), self.turn.output, self.turn.tools_tokens);
        let mut sent = Tokens::ZERO;
        loop {
            let built =
                match context::built(&self.house, &self.house.turn_content, self.caller, &self.wanted(model, &guard))
                    .await
                {
                    Err(Failure::Budget(_)) => return Err(overflow(model, &guard, sent, bill).into()),
                    built => built?,
                };
            // The model may take minutes.
            built.reservation.let_next_large_in();
            if guard.pressure() == Pressure::Compact {
                self.compact_for_good(&built).await;
            }
            let policys = built.policy.window_known.then_some(built.policy.window);
            guard.knows(policys, built.learnt_window, built.ratio);
            sent = guard.sent(built.context.total);
            let own = guard.own(built.context.total);
            let reason = if guard.is_doomed(sent) {
                AttemptReason::OverLearntWindow
            } else {
                match self.asked_model(model, &built, &guard, bill).await {
                    Ok(answer) => {
                        let own = if answer.is_counted { own } else { Tokens::ZERO };
                        return Ok(Answered { answer, own, expected_cached: built.context.prefix.cached });
                    }
                    Err(Ended::Failed(Failure::Model {
                        failure: CallFailure::Overflow { window, prompt, .. },
                        ..
                    })) => {
                        self.learn(model, &mut guard, own, window, prompt).await;
                        AttemptReason::Overflow
                    }
                    Err(ended) => return Err(ended),
                }
            };
            if !guard.next(built.context.total) {
                return Err(overflow(model, &guard, sent, bill).into());
            }
            self.outlet.send(Event::Attempt(attempt(&guard, reason))).await?;
        }
    }

    /// Makes a compaction last. One that does not is done again by the next turn that needs it.
    async fn compact_for_good(&self, built: &Built) {
        let last = built.context.last_message_id;
        if let Err(error) = context::compact_for_good(&self.house, self.caller, self.turn.id, last).await {
            warn!("could not queue the checkpoint of a compaction: {error}");
        }
    }

    fn wanted(&self, model: &Model, guard: &Guard) -> Wanted {
        Wanted {
            id: self.turn.id,
            ask: Ask {
                current_input: Vec::new(),
                system_prompt: self.turn.system_prompt.clone(),
                budget: guard.budget(),
                format: model.format(),
                media: model.media().clone(),
                pressure: guard.pressure(),
            },
            overrides: PolicyOverrides { model: Some(model.name().to_owned()), ..PolicyOverrides::default() },
            dry_run: false,
            ratio: guard.measured(),
        }
    }

    async fn asked_model(&self, model: &Model, built: &Built, guard: &Guard, bill: &mut Bill) -> Result<Answer, Ended> {
        let sent = guard.sent(built.context.total);
        let call = Call {
            context: built.rendered.as_deref().unwrap_or_default(),
            tools: &self.turn.tools,
            output: guard.room_beside(sent),
            temperature: self.turn.temperature,
            input: sent,
            sent_tokens: Some(surely_sent(built)),
        };
        self.called(model, &call, bill).await
    }

    /// Takes in what an overflow error says, for this turn and for later ones.
    async fn learn(
        &self,
        model: &Model,
        guard: &mut Guard,
        own: Tokens,
        window: Option<Tokens>,
        prompt: Option<Tokens>,
    ) {
        if let Some(window) = window {
            learning::window(&self.house, self.caller, model.name(), window).await;
        }
        let ratio = match prompt {
            Some(counted) => learning::ratio(&self.house, self.caller, model.name(), counted, own).await,
            None => None,
        };
        guard.is_told(window, ratio);
    }
}

fn attempt(guard: &Guard, reason: AttemptReason) -> Attempt {
    let reason = if guard.is_extra() { AttemptReason::RetrySmaller } else { reason };
    let pressure = match guard.pressure() {
        Pressure::None => pb::Pressure::Unspecified,
        Pressure::TruncateToolResults => pb::Pressure::TruncateToolResults,
        Pressure::Compact => pb::Pressure::Compact,
    };
    Attempt { number: guard.attempt(), pressure: pressure.into(), reason: reason.into() }
}

fn overflow(model: &Model, guard: &Guard, sent: Tokens, bill: &Bill) -> Overflow {
    Overflow {
        model: model.name().to_owned(),
        window: guard.window(),
        context: sent,
        output: guard.room(),
        attempts: bill.calls,
    }
}

/// Tokens that the provider must have read, by the least that ours may be in its counting: without media, for which what
/// is counted is a guess; without what an estimate may be above a count; and by a ratio that only lowers them, for what is
/// known of its counting may be wrong, and would stay so if it called every answer cut short.
fn surely_sent(built: &Built) -> Tokens {
    let text = built.context.total.less(media(&built.context)).get() as f64;
    Tokens::new((text * built.ratio.unwrap_or(1.0).min(1.0) / MOST_OVERCOUNT) as u64)
}

fn media(context: &Context) -> Tokens {
    let count = |media: &Media| if media.tokens == 0 { MEDIA_TOKENS } else { Tokens::new(media.tokens) };
    let parts = context.messages.iter().flat_map(|message| &message.parts);
    let of_part = |part: &Part| match part {
        Part::Media(media) => count(media),
        Part::ToolResult { media, .. } => media.iter().map(count).sum(),
        Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => Tokens::ZERO,
    };
    parts.map(of_part).sum()
}
