//! A model that can be called.

use std::{fmt, sync::Arc, time::Duration};

use anneal_core::{cache::CacheRules, media_access::MediaAccess, render::Format, tokens::Tokens};

use super::{
    AnswerStream, Api, BilledAnswerStream, Call, CallCost, CallFailure, anthropic::Anthropic,
    gemini::Gemini, http::Provider, openai::OpenAi, partial_answer::ProtocolReader,
    request::request,
};

/// A model that can be called. Its Debug form holds neither key nor URL.
pub struct Model {
    pub(super) name: String,
    pub(super) served_as: String,
    pub(super) window: Tokens,
    pub(super) output: Tokens,
    pub(super) concurrent_calls: Option<u32>,
    pub(super) provider: Arc<Provider>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Model");
        shown
            .field("name", &self.name)
            .field("format", &self.format());
        shown
            .field("window", &self.window)
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Its name in the configuration, in policies and in stored data.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format of its contexts.
    pub fn format(&self) -> Format {
        match self.provider.api {
            Api::OpenAi => Format::OpenAiChat,
            Api::Anthropic => Format::AnthropicMessages,
            Api::Gemini => Format::GeminiContents,
        }
    }

    /// Its context window: the configured one, or else the built-in one.
    pub const fn window(&self) -> Tokens {
        self.window
    }

    /// Most output tokens of a call.
    pub const fn output(&self) -> Tokens {
        self.output
    }

    /// Most concurrent calls of all processes together; None: no limit.
    pub const fn concurrent_calls(&self) -> Option<u32> {
        self.concurrent_calls
    }

    /// The media whose addresses its provider may receive.
    pub fn media(&self) -> &MediaAccess {
        &self.provider.media
    }

    /// If a caller gives up after this time and the provider has sent nothing until then, the call
    /// counts as failed. A quarter of the time after which the call ends by itself.
    pub fn hang_after(&self) -> Duration {
        self.provider.limits.silence / 4
    }

    /// Its name at the provider.
    pub fn served_as(&self) -> &str {
        &self.served_as
    }

    /// Whether its requests ask for its provider's cache. If not, they have no marks.
    pub fn asks_for_cache(&self) -> bool {
        self.provider.asks_for_cache
    }

    /// The rules of its provider's cache. If requests do not ask for it, an ideal cache is assumed:
    /// servers such as vLLM and llama.cpp reuse every prefix. Anthropic's protocol caches only what
    /// is marked.
    pub fn cache_rules(&self) -> CacheRules {
        if self.asks_for_cache() || self.provider.api == Api::Anthropic {
            CacheRules::of(self.format(), &self.served_as)
        } else {
            CacheRules::IDEAL
        }
    }

    /// Calls the model and returns the answer as a stream. The output limit is that of the call,
    /// but at most the model's. Dropping the future or the stream ends the call.
    pub async fn stream(&self, call: &Call<'_>) -> Result<AnswerStream, CallFailure> {
        let call = Call {
            output: call.output.min(self.output),
            ..*call
        };
        let (path, body) = request(&self.provider, &self.served_as, &call);
        let size = call.size(self.window);
        let body = self.provider.post(&path, body, size).await?;
        let least_sent_tokens = call.least_sent_tokens;
        Ok(AnswerStream::new(
            body,
            self.protocol(),
            least_sent_tokens,
            size,
        ))
    }

    /// Like [`Self::stream`], and records the cost of the call in `cost`, even if the call fails or
    /// is abandoned.
    pub async fn stream_and_record_cost<'a>(
        &self,
        call: &Call<'_>,
        cost: &'a mut CallCost,
    ) -> Result<BilledAnswerStream<'a>, CallFailure> {
        cost.record_request(call.input);
        match self.stream(call).await {
            Ok(pieces) => Ok(BilledAnswerStream::new(pieces, cost)),
            Err(failure) => {
                cost.record_early_failure(&failure);
                Err(failure)
            }
        }
    }

    fn protocol(&self) -> Box<dyn ProtocolReader> {
        match self.provider.api {
            Api::OpenAi => Box::new(OpenAi::default()),
            Api::Anthropic => Box::new(Anthropic::default()),
            Api::Gemini => Box::new(Gemini::default()),
        }
    }
}
