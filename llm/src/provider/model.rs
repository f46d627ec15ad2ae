//! A model that can be called.

use std::{fmt, sync::Arc};

use anneal_core::{media_access::MediaAccess, render::Format, tokens::Tokens};

use super::{
    Answer, Api, BilledPieces, Call, CallCost, CallFailure, Piece, Pieces, answer::Dialect, anthropic::Anthropic,
    gemini::Gemini, http::Provider, openai::OpenAi, request::request,
};

/// A model that can be called. Its Debug form holds neither key nor address.
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
        shown.field("name", &self.name).field("format", &self.format());
        shown.field("window", &self.window).field("output", &self.output).finish_non_exhaustive()
    }
}

impl Model {
    /// Its name in the configuration, in policies and in what is stored.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format that its contexts are rendered in.
    pub fn format(&self) -> Format {
        match self.provider.api {
            Api::OpenAi => Format::OpenAiChat,
            Api::Anthropic => Format::AnthropicMessages,
            Api::Gemini => Format::GeminiContents,
        }
    }

    /// Its context window, as configured or shipped.
    pub const fn window(&self) -> Tokens {
        self.window
    }

    /// Most tokens that it may be asked to write.
    pub const fn output(&self) -> Tokens {
        self.output
    }

    /// Calls that all processes together may have under way; None: as many as they like.
    pub const fn concurrent_calls(&self) -> Option<u32> {
        self.concurrent_calls
    }

    /// Which media its provider is told the addresses of.
    pub fn media(&self) -> &MediaAccess {
        &self.provider.media
    }

    /// What its provider calls it.
    pub fn served_as(&self) -> &str {
        &self.served_as
    }

    /// Calls the model. The answer streams; the call ends when it is dropped, whether here or as [`Pieces`].
    pub async fn stream(&self, call: &Call<'_>) -> Result<Pieces, CallFailure> {
        let (path, body) = request(self, call);
        let body = self.provider.post(&path, body).await?;
        Ok(Pieces::new(body, self.dialect(), call.sent_tokens))
    }

    /// The same, and what the call costs is kept in `cost`, whatever becomes of it.
    pub async fn stream_billed<'a>(
        &self,
        call: &Call<'_>,
        cost: &'a mut CallCost,
    ) -> Result<BilledPieces<'a>, CallFailure> {
        cost.send(call.input);
        match self.stream(call).await {
            Ok(pieces) => Ok(BilledPieces::new(pieces, cost)),
            Err(failure) => {
                cost.refuse(&failure);
                Err(failure)
            }
        }
    }

    /// Calls the model and waits for its whole answer; tool calls and thoughts are left out.
    pub async fn answer(&self, call: &Call<'_>, cost: &mut CallCost) -> Result<Answer, CallFailure> {
        let mut pieces = self.stream_billed(call, cost).await?;
        let mut text = String::new();
        while let Some(piece) = pieces.next().await {
            match piece? {
                Piece::Text(more) => text.push_str(&more),
                Piece::End(end) => return Ok(Answer { text, end }),
                Piece::Thought(_) | Piece::Reasoning(_) | Piece::ToolUse { .. } => {}
            }
        }
        Err(CallFailure::Broken("it ended without its end"))
    }

    fn dialect(&self) -> Box<dyn Dialect> {
        match self.provider.api {
            Api::OpenAi => Box::new(OpenAi::default()),
            Api::Anthropic => Box::new(Anthropic::default()),
            Api::Gemini => Box::new(Gemini::default()),
        }
    }
}
