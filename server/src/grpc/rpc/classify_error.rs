//! ClassifyError.

use std::collections::HashMap;

use anneal_core::{
    caller::{Caller, Verb},
    limits::{ID_BYTES, PROVIDER_BODY_BYTES, PROVIDER_HEADERS, PROVIDER_HEADERS_BYTES},
    tokens::Tokens,
};
use anneal_llm::provider_error::{
    Classification, Confidence, Delivery, OverflowKind, ProviderAnswer, classify,
};
use anneal_proto::{convert::parse, v1 as pb};

use crate::{
    failure::Failure,
    state::ServerState,
    usecases::{likely_overflows, model_calibration},
};

/// Classifies a provider's answer: whether it is a context overflow, and of which kind. If the
/// answer names a window, the request names the model, and the caller may append, stores the
/// window.
pub(crate) async fn classify_error(
    state: &ServerState,
    caller: Caller,
    ask: pb::ClassifyErrorRequest,
) -> Result<pb::ClassifyErrorResponse, Failure> {
    parse::bounded_text("model", &ask.model, ID_BYTES)?;
    if ask.body.len() > PROVIDER_BODY_BYTES {
        return Err(Failure::limit("body", PROVIDER_BODY_BYTES, "bytes"));
    }
    if ask.sent_tokens == Some(0) {
        return Err(Failure::invalid(
            "sent_tokens",
            "must be at least 1; leave it out where it is not known",
        ));
    }
    let headers = headers(ask.headers)?;
    let mut answer = ProviderAnswer {
        status: status(ask.status)?,
        headers: &headers,
        body: &ask.body,
        delivery: if ask.streamed {
            Delivery::Streamed
        } else {
            Delivery::Whole
        },
        sent_tokens: ask.sent_tokens,
        window_tokens: None,
    };
    let mut verdict = classify(&answer);
    // The window changes only a likely verdict, so only then it is read.
    let is_likely = verdict.confidence == Confidence::Likely;
    if is_likely && ask.sent_tokens.is_some() && !ask.model.is_empty() {
        let window = model_calibration::find_window(state, caller, &ask.model).await;
        answer.window_tokens = window.map(Tokens::get);
        verdict = classify(&answer);
    }
    if let Some(wording) = verdict.wording {
        likely_overflows::record(&ask.model, verdict.rule, Some(answer.status), wording);
    }
    // A caller with the verb read alone, or one that is bound, must not store the window, because a
    // stored window bounds the contexts of the whole tenant.
    let may_store_window =
        !ask.model.is_empty() && caller.may(Verb::Append) && caller.bound().is_none();
    if let Some(window) = verdict.limit_tokens.filter(|_| may_store_window) {
        model_calibration::store_window(state, caller, &ask.model, Tokens::new(window)).await;
    }
    Ok(reply(&verdict))
}

fn status(number: u32) -> Result<u16, Failure> {
    let status = u16::try_from(number)
        .ok()
        .filter(|status| (100..=599).contains(status));
    status.ok_or_else(|| Failure::invalid("status", "must be 100 to 599"))
}

fn headers(map: HashMap<String, String>) -> Result<Vec<(String, String)>, Failure> {
    if map.len() > PROVIDER_HEADERS {
        return Err(Failure::limit("headers", PROVIDER_HEADERS, "headers"));
    }
    let bytes: usize = map
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > PROVIDER_HEADERS_BYTES {
        return Err(Failure::limit(
            "headers",
            PROVIDER_HEADERS_BYTES,
            "bytes in all",
        ));
    }
    Ok(map.into_iter().collect())
}

fn reply(verdict: &Classification) -> pb::ClassifyErrorResponse {
    let kind = match verdict.kind {
        OverflowKind::NotOverflow => pb::OverflowKind::NotOverflow,
        OverflowKind::Input => pb::OverflowKind::Input,
        OverflowKind::InputPlusOutput => pb::OverflowKind::InputPlusOutput,
        OverflowKind::Bytes => pb::OverflowKind::Bytes,
        OverflowKind::MessageTooLong => pb::OverflowKind::MessageTooLong,
        OverflowKind::QuotaTooSmall => pb::OverflowKind::QuotaTooSmall,
        OverflowKind::Silent => pb::OverflowKind::Silent,
        OverflowKind::OutputTruncated => pb::OverflowKind::OutputTruncated,
    };
    let confidence = match verdict.confidence {
        Confidence::Certain => pb::Confidence::Certain,
        Confidence::Likely => pb::Confidence::Likely,
    };
    pb::ClassifyErrorResponse {
        kind: kind.into(),
        is_overflow: verdict.is_overflow(),
        limit_tokens: verdict.limit_tokens,
        prompt_tokens: verdict.prompt_tokens,
        rule: verdict.rule.to_owned(),
        confidence: confidence.into(),
    }
}
