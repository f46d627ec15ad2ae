//! The cost of a conversation's calls, as protobuf.

use anneal_core::{
    economics::{CoolingVariant, ReplayCost, replay},
    policy::Policy,
};
use anneal_proto::v1 as pb;
use anneal_store::CallHistory;

/// Replays the history of calls with each variant of cooling (how contexts replace large older
/// messages by their summaries), to compare the costs. Takes seconds for the longest histories, so
/// it must not run on an async thread.
pub(crate) fn economics(calls: &CallHistory, policy: &Policy) -> pb::Economics {
    let without_cooling = replay(&calls.history, policy, CoolingVariant::None);
    let CallHistory {
        reported, spend, ..
    } = calls;
    pb::Economics {
        calls: without_cooling.calls as i64,
        strict: Some(cost_reply(replay(
            &calls.history,
            policy,
            CoolingVariant::Strict,
        ))),
        stepped: Some(cost_reply(replay(
            &calls.history,
            policy,
            CoolingVariant::Stepped,
        ))),
        none: Some(cost_reply(without_cooling)),
        reported: Some(pb::ReportedUsage {
            calls: reported.calls,
            input_tokens: reported.input.get(),
            cached_tokens: reported.cached.get(),
            written_tokens: reported.written.get(),
            output_tokens: reported.output.get(),
            cold_calls: reported.cold,
            cold_by_us_calls: reported.cold_by_us,
        }),
        summarizer: Some(pb::SummarizerSpend {
            summaries: spend.summaries,
            checkpoints: spend.checkpoints,
            model_read_tokens: spend.read.get(),
            model_written_tokens: spend.written.get(),
        }),
    }
}

const fn cost_reply(cost: ReplayCost) -> pb::Bill {
    pb::Bill {
        sent_tokens: cost.sent.get(),
        cached_tokens: cost.cached.get(),
        billed_units: cost.units,
        cache_breaks: cost.breaks as i64,
    }
}
