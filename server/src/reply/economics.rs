//! What a conversation's calls cost, on the wire.

use anneal_core::{
    economics::{Bill, Way, replay},
    policy::Policy,
};
use anneal_proto::v1 as pb;
use anneal_store::CallHistory;

/// Replays a history in three ways. Takes seconds for the worst of them: not for a thread that others wait for.
pub(crate) fn economics(calls: &CallHistory, policy: &Policy) -> pb::Economics {
    let none = replay(&calls.history, policy, Way::None);
    let CallHistory { reported, spend, .. } = calls;
    pb::Economics {
        calls: none.calls as i64,
        strict: Some(bill(replay(&calls.history, policy, Way::Strict))),
        stepped: Some(bill(replay(&calls.history, policy, Way::Stepped))),
        none: Some(bill(none)),
        reported: Some(pb::ReportedUsage {
            calls: reported.calls,
            input_tokens: reported.input.get(),
            cached_tokens: reported.cached.get(),
            written_tokens: reported.written.get(),
            output_tokens: reported.output.get(),
            cold_calls: reported.cold,
        }),
        summarizer: Some(pb::SummarizerSpend {
            summaries: spend.summaries,
            checkpoints: spend.checkpoints,
            model_read_tokens: spend.read.get(),
            model_written_tokens: spend.written.get(),
        }),
    }
}

const fn bill(bill: Bill) -> pb::Bill {
    pb::Bill {
        sent_tokens: bill.sent.get(),
        cached_tokens: bill.cached.get(),
        billed_units: bill.units,
        cache_breaks: bill.breaks as i64,
    }
}
