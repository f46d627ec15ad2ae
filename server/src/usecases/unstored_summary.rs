//! A summary of messages that are not stored, by the model that the caller names. The rules are
//! those of a conversation's checkpoints: the same instructions and checks of the model's text, and
//! the built-in summarizer for a model that would fail again (`worker/src/summarize.rs`). Only the
//! lease of a call is a row, until the call has ended.

use std::sync::{Arc, Mutex, PoisonError};

use anneal_core::{
    admission::CallPurpose,
    caller::Caller,
    digest::Digest,
    limits::UNSTORED_MESSAGES,
    message::{Message, MessageId, Role, plain_text},
    tokens::{Encoding, Tokens, count_parts},
};
use anneal_gateway::{CallsOfSummary, ModelGateway, SummarySubject};
use anneal_llm::{
    BoxFuture, Extractive, ModelSummarizer, Purpose, Source, SourceBody, Summarizer as _,
    SummaryAsk, SummaryCalls, SummaryFailure,
    provider::{Answer, Call, CallUsage, Model},
};
use anneal_proto::{convert::message, v1 as pb};
use anneal_store::ModelSpend;
use prost::Message as _;
use tokio::{runtime::Handle, sync::Semaphore};
use tracing::{Instrument as _, Span, info};

use crate::{
    failure::Failure, limits::cpu_pool, settings::ReloadableSettings, state::ServerState,
    usecases::chat_turn::DB_DEADLINE,
};

/// Most tokens of a summary: as many as a checkpoint's has by default.
const MAX_TOKENS: Tokens = Tokens::new(2_000);
/// What stands for messages that say nothing.
const NOTHING: &str = "Nothing was said but what the messages of the user hold.";

/// What to summarize, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct SummaryRequest {
    /// The name of the model.
    pub(crate) model: String,
    /// The summary that the new one continues.
    pub(crate) previous: Option<String>,
    /// The messages after it.
    pub(crate) messages: Vec<pb::NewMessage>,
    /// What the summary pays attention to; empty: nothing special.
    pub(crate) focus: String,
}

/// A summary, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnstoredSummary {
    pub(crate) text: String,
    /// The model, or the built-in summarizer. None: the text is no summary, but what was said.
    pub(crate) summarizer: Option<String>,
    pub(crate) cost: SummaryCost,
}

/// The tokens of a summary's calls, those that failed included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SummaryCost {
    pub(crate) input: Tokens,
    /// The part of the input that was read from the provider's cache.
    pub(crate) cached: Tokens,
    /// The part of the input that was written to it.
    pub(crate) written: Tokens,
    pub(crate) output: Tokens,
}

/// What a summarizer reads.
struct Material {
    previous: Option<String>,
    sources: Vec<Source>,
    focus: String,
    encoding: Encoding,
    target: Tokens,
}

/// Summarizes messages. The caller keeps those of the user and of the application, so they alone need
/// no summary.
pub(crate) async fn summarize(
    state: &ServerState,
    caller: Caller,
    request: SummaryRequest,
) -> Result<UnstoredSummary, Failure> {
    let settings = state.settings.get();
    let model = settings.models.models.find(&request.model).cloned();
    let model = model.ok_or_else(|| Failure::model_not_configured(&*request.model))?;
    let bytes = request
        .messages
        .iter()
        .map(pb::NewMessage::encoded_len)
        .sum();
    let _reservation = state
        .turn_content_budget
        .reserve(caller.tenant(), bytes as u64)
        .await?;
    let encoding = Encoding::of_model(model.name()).unwrap_or_default();
    let is_long = cpu_pool::is_long_count(encoding, bytes, request.messages.len());
    let prepare = move || Material::new(request, encoding);
    let material = state.cpu.run_if(is_long, caller.tenant(), prepare).await?;
    let material = Arc::new(material?);
    if !material.has_words_of_others() {
        return Ok(material.words(SummaryCost::default()));
    }
    let (written, cost) = write_with_model(state, caller, (&settings, &model), &material).await?;
    let failure = match written {
        Ok(text) => {
            return Ok(UnstoredSummary {
                text,
                summarizer: Some(model.name().to_owned()),
                cost,
            });
        }
        Err(failure) => failure,
    };
    if matches!(
        failure,
        SummaryFailure::NotShorter | SummaryFailure::EmptySource
    ) {
        return Ok(material.words(cost));
    }
    if !failure.is_lasting() {
        return Err(failure_of(failure, &model));
    }
    info!("the built-in summarizer compacts messages, because the model failed: {failure}");
    let extract = move || extract(&material, cost);
    state.cpu.run(caller.tenant(), extract).await?
}

impl Material {
    fn new(request: SummaryRequest, encoding: Encoding) -> Result<Self, Failure> {
        let messages = message::parse_up_to("messages", request.messages, UNSTORED_MESSAGES)?;
        let counter = encoding.counter();
        let previous = request.previous.as_deref();
        let previous_tokens = previous.map_or(Tokens::ZERO, |text| counter.count(text));
        let tokens: Tokens = messages
            .iter()
            .map(|message| count_parts(encoding, &message.parts))
            .sum();
        Ok(Self {
            target: Purpose::Range.target(tokens + previous_tokens, MAX_TOKENS),
            previous: request.previous,
            sources: sources(messages),
            focus: request.focus,
            encoding,
        })
    }

    /// Whether a model or a tool has said something after the earlier summary.
    fn has_words_of_others(&self) -> bool {
        !self.sources.iter().all(is_of_user)
    }

    /// Calls `write` with the material as a summarizer needs it.
    fn ask<T>(&self, write: impl FnOnce(&SummaryAsk<'_>) -> T) -> T {
        let counter = self.encoding.counter();
        let measure = move |text: &str| counter.count(text);
        write(&SummaryAsk {
            purpose: Purpose::Range,
            previous: self.previous.as_deref(),
            quoted: None,
            sources: &self.sources,
            focus: (!self.focus.is_empty()).then_some(self.focus.as_str()),
            target: self.target,
            measure: &measure,
        })
    }

    /// What was said, without the words of the user, which the caller keeps. It stands in for a
    /// summary where that would not be shorter.
    fn words(&self, cost: SummaryCost) -> UnstoredSummary {
        let said = self.sources.iter().filter(|source| !is_of_user(source));
        let said = said.filter_map(|source| {
            let SourceBody::Original(parts) = &source.body else {
                return None;
            };
            let text = plain_text(parts);
            (!text.trim().is_empty()).then(|| format!("[{}] {text}", source.role.name()))
        });
        let texts: Vec<String> = self.previous.iter().cloned().chain(said).collect();
        UnstoredSummary {
            text: if texts.is_empty() {
                NOTHING.to_owned()
            } else {
                texts.join("\n")
            },
            summarizer: None,
            cost,
        }
    }
}

/// Messages as a summarizer reads them, with the ids 1, 2 and so on.
fn sources(messages: Vec<Message>) -> Vec<Source> {
    let ids = (1..).map(MessageId);
    let sources = ids.zip(messages).map(|(message_id, message)| Source {
        message_id,
        role: message.role,
        body: SourceBody::Original(message.parts),
    });
    sources.collect()
}

/// Whether the caller keeps this message beside the summary.
fn is_of_user(source: &Source) -> bool {
    matches!(source.role, Role::User | Role::System)
}

/// Has the model write the summary. Returns its text, or why there is none, and the cost of the
/// calls. If the returned future is dropped, the calls end.
async fn write_with_model(
    state: &ServerState,
    caller: Caller,
    (settings, model): (&Arc<ReloadableSettings>, &Arc<Model>),
    material: &Arc<Material>,
) -> Result<(Result<String, SummaryFailure>, SummaryCost), Failure> {
    let cancelled = state.cancel_turns.child_token();
    let _cancel_on_drop = cancelled.clone().drop_guard();
    let (store, settings) = (state.store.clone(), Arc::clone(settings));
    let (model, material) = (Arc::clone(model), Arc::clone(material));
    let (runtime, span) = (Handle::current(), Span::current());
    let writing = tokio::task::spawn_blocking(move || {
        let gateway = ModelGateway::new(&store, &settings.models, CallPurpose::Turn, DB_DEADLINE);
        let permits = Semaphore::new(Semaphore::MAX_PERMITS);
        let subject = (caller, SummarySubject::Unstored);
        let calls = UnstoredCalls {
            calls: CallsOfSummary::new(gateway, &model, subject, &permits, &cancelled),
            cache: Mutex::default(),
        };
        let summarizer = ModelSummarizer::new(&model, &calls);
        // Between its calls the summarizer cuts and checks texts of any length. So its future is
        // polled on this blocking thread.
        let result =
            material.ask(|ask| runtime.block_on(summarizer.summarize(ask).instrument(span)));
        (result.map(|summary| summary.text), calls.cost())
    });
    writing.await.map_err(|_| Failure::Panicked)
}

/// The summary of the built-in summarizer. What is too short for a summary stays as it is.
fn extract(material: &Material, cost: SummaryCost) -> Result<UnstoredSummary, Failure> {
    match material.ask(|ask| Extractive.summarize(ask)) {
        Ok(summary) => Ok(UnstoredSummary {
            text: summary.text,
            summarizer: Some(Extractive.name().to_owned()),
            cost,
        }),
        Err(
            SummaryFailure::NotShorter
            | SummaryFailure::EmptySource
            | SummaryFailure::EmptyAnswer
            | SummaryFailure::TargetTooSmall(_),
        ) => Ok(material.words(cost)),
        Err(_) => Err(Failure::Panicked),
    }
}

/// The failure of a call that may succeed later.
fn failure_of(failure: SummaryFailure, model: &Model) -> Failure {
    let model = model.name().to_owned();
    match failure {
        SummaryFailure::Call(failure) => Failure::Model { model, failure },
        SummaryFailure::NotAdmitted(refusal) => Failure::NotAdmitted { model, refusal },
        _ => Failure::TurnLost,
    }
}

/// The calls of one summary. No part of it is kept for another one.
struct UnstoredCalls<'a> {
    calls: CallsOfSummary<'a>,
    /// What the answers have used of the provider's cache.
    cache: Mutex<CallUsage>,
}

impl UnstoredCalls<'_> {
    fn cost(&self) -> SummaryCost {
        let ModelSpend { input, output, .. } = self.calls.spent();
        let cache = *self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        SummaryCost {
            input,
            cached: cache.cached,
            written: cache.written,
            output,
        }
    }
}

impl SummaryCalls for UnstoredCalls<'_> {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let answer = self.calls.call(call).await?;
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.cached += answer.end.usage.cached;
            cache.written += answer.end.usage.written;
            Ok(answer)
        })
    }

    fn load_part<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    fn store_part<'a>(&'a self, _: &'a Digest, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;

    use super::*;

    fn material(messages: &[(pb::Role, &str)], previous: Option<&str>) -> Material {
        let messages = messages
            .iter()
            .map(|(role, text)| text_message(*role, *text));
        let request = SummaryRequest {
            messages: messages.collect(),
            previous: previous.map(str::to_owned),
            ..SummaryRequest::default()
        };
        Material::new(request, Encoding::default()).expect("are valid")
    }

    #[test]
    fn only_the_words_of_others_than_the_user_need_a_summary() {
        use pb::Role::{Assistant, System, User};
        assert!(!material(&[(System, "a"), (User, "b")], None).has_words_of_others());
        assert!(!material(&[(User, "b")], Some("c")).has_words_of_others());
        assert!(material(&[(User, "a"), (Assistant, "b")], None).has_words_of_others());
    }

    #[test]
    fn what_is_too_short_for_a_summary_stays_as_it_is() {
        use pb::Role::{Assistant, User};
        let words = |messages: &[(pb::Role, &str)], previous| {
            let words = material(messages, previous).words(SummaryCost::default());
            assert_eq!(words.summarizer, None);
            words.text
        };
        assert_eq!(
            words(&[(User, "a"), (Assistant, "b")], None),
            "[assistant] b"
        );
        assert_eq!(words(&[(Assistant, " ")], Some("c")), "c");
        assert_eq!(words(&[(User, "a")], None), NOTHING);
    }

    #[test]
    fn a_long_text_is_extracted_within_its_target() {
        let long = "The launch is on Tuesday, and support is told before. ".repeat(400);
        let long = material(&[(pb::Role::User, "a"), (pb::Role::Assistant, &long)], None);
        let summary = extract(&long, SummaryCost::default()).expect("is long enough");
        assert_eq!(summary.summarizer.as_deref(), Some("extractive"));
        let tokens = Encoding::default().counter().count(&summary.text);
        assert!(tokens <= MAX_TOKENS, "{tokens}");
        assert!(summary.text.contains("Tuesday"), "{}", summary.text);
    }
}
