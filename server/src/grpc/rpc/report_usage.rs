//! ReportUsage.

use anneal_core::{caller::Caller, digest, tokens::Tokens, usage::Usage};
use anneal_proto::{
    convert::{
        parse,
        usage::{cache_state, parse_break_reason},
    },
    v1 as pb,
};
use anneal_store::{ReportedCall, UsageReport};
use prost::Message as _;

use crate::{failure::Failure, state::ServerState, usecases::usage_report};

/// Records the usage that the provider reported for one model call. A bound caller's report does not
/// calibrate the model, which would change the contexts of the whole tenant.
pub(crate) async fn report_usage(
    state: &ServerState,
    caller: Caller,
    ask: pb::ReportUsageRequest,
) -> Result<pb::ReportUsageResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let model = parse::model("model", &ask.model)?
        .ok_or_else(|| Failure::invalid("model", "must not be empty"))?;
    let report = UsageReport {
        request_id: request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        digest: digest::of_fields([ask.encode_to_vec().as_slice()]),
        model,
        usage: usage(&ask)?,
        stop_reason: None,
        call: if caller.bound().is_some() {
            ReportedCall::AnswerToBound
        } else {
            ReportedCall::Answer
        },
    };
    let calibration = usage_report::store_and_count(&state.store, caller, id, &report).await?;
    Ok(pb::ReportUsageResponse {
        cache_state: cache_state(report.usage.cache_state()).into(),
        tokens_ratio: calibration.ratio,
        reports: calibration.reports,
    })
}

fn usage(ask: &pb::ReportUsageRequest) -> Result<Usage, Failure> {
    let figures = [
        ("input_tokens", ask.input_tokens),
        ("cached_tokens", ask.cached_tokens),
        ("written_tokens", ask.written_tokens),
        ("output_tokens", ask.output_tokens),
        ("context_tokens", ask.context_tokens),
        ("expected_cached_tokens", ask.expected_cached_tokens),
        ("long_written_tokens", ask.long_written_tokens),
    ];
    if let Some((field, _)) = figures.iter().find(|(_, tokens)| *tokens > MAX_TOKENS) {
        return Err(Failure::limit(*field, MAX_TOKENS as usize, "tokens"));
    }
    if ask.input_tokens == 0 {
        return Err(Failure::invalid("input_tokens", "must be at least 1"));
    }
    if ask.cached_tokens + ask.written_tokens > ask.input_tokens {
        return Err(Failure::invalid(
            "input_tokens",
            "must include the cached and the written tokens",
        ));
    }
    if ask.long_written_tokens > ask.written_tokens {
        return Err(Failure::invalid(
            "long_written_tokens",
            "must be at most written_tokens, which include them",
        ));
    }
    Ok(Usage {
        input: Tokens::new(ask.input_tokens),
        cached: Tokens::new(ask.cached_tokens),
        written: Tokens::new(ask.written_tokens),
        long_written: Tokens::new(ask.long_written_tokens),
        output: Tokens::new(ask.output_tokens),
        context: Tokens::new(ask.context_tokens),
        expected_cached: Tokens::new(ask.expected_cached_tokens),
        break_reason: parse_break_reason(ask.break_reason)?,
    })
}

/// Most tokens in one field. This is far above every model's window, and sums of it do not
/// overflow.
const MAX_TOKENS: u64 = 1_000_000_000;
