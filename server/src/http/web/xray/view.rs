//! Figures of RPCs as the X-ray shows them.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use anneal_web::{
    costs::{Bill, Era, Reported, UsageTable},
    format::number,
    xray::{BarSegment, Job, Mark, Provenance, Threshold, WindowBar},
};

use super::words;
use crate::http::web::conversations::view::time;

/// Widest value of the bar's axis.
const AXIS: f64 = 1_000.0;

/// The window as a bar. `budget`: a budget that the context had to fit; None: none. `built`: its
/// tokens, if the bar shows it before the budget.
pub(super) fn window(
    usage: &pb::GetContextUsageResponse,
    budget: Option<u64>,
    built: Option<u64>,
) -> WindowBar {
    let before_tail: u64 = usage
        .segments
        .iter()
        .filter(|it| it.segment() != pb::Segment::Tail)
        .map(|it| it.tokens)
        .sum();
    let threshold = number(usage.token_threshold);
    let mut marks = vec![(
        format!("checkpoint (tail ≥ {threshold})"),
        before_tail.saturating_add(usage.token_threshold),
    )];
    if let Some(budget) = budget {
        marks.push(("budget".to_owned(), budget));
    }
    if usage.model_window_tokens > 0 {
        marks.push(("model's window".to_owned(), usage.model_window_tokens));
    }
    // A mark far beyond the window would leave no room for the context.
    let most = match usage.model_window_tokens {
        0 => marks.iter().map(|(_, at)| *at).max().unwrap_or(0),
        window => window.max(budget.unwrap_or(0)),
    };
    // The context may be longer than the window. A twentieth is left free behind the end.
    let axis = most.max(usage.total_tokens).max(1) as f64 * 1.05;
    let place = |tokens: u64| (tokens as f64 * AXIS / axis) as f32;
    let mut x = 0.0;
    let segments = usage.segments.iter().map(|it| {
        let width = place(it.tokens);
        let (name, class) = segment(it.segment());
        let drawn = BarSegment {
            name: name.to_owned(),
            class,
            tokens: it.tokens,
            messages: it.messages,
            x,
            width,
        };
        x += width;
        drawn
    });
    WindowBar {
        segments: segments.collect(),
        total: usage.total_tokens,
        built,
        window: usage.model_window_tokens,
        thresholds: marks
            .into_iter()
            .map(|(name, at)| Threshold {
                name,
                at,
                x: place(at),
            })
            .collect(),
        tail_messages: usage.tail_messages,
        max_messages: usage.max_message_count,
        estimated: usage.estimated,
        saved: usage.saved_tokens,
        pending_saved: usage.pending_saved_tokens,
    }
}

const fn segment(segment: pb::Segment) -> (&'static str, &'static str) {
    match segment {
        pb::Segment::Unspecified => ("Other", "other"),
        pb::Segment::SystemPrompt => ("System prompt", "system"),
        pb::Segment::CheckpointSummary => ("Checkpoint summary", "checkpoint"),
        pb::Segment::Tail => ("Messages", "tail"),
        pb::Segment::CurrentInput => ("Input", "input"),
    }
}

/// What the conversation's calls would have cost, and what providers have billed.
pub(super) fn usage_table(usage: &pb::GetContextUsageResponse) -> UsageTable {
    let economics = usage.economics.unwrap_or_default();
    let bill = |name, bill: Option<pb::Bill>| {
        bill.map(|bill| Bill {
            name,
            sent: bill.sent_tokens,
            cached: bill.cached_tokens,
            units: bill.billed_units,
            breaks: bill.cache_breaks,
        })
    };
    let bills = [
        bill("Whole history", economics.none),
        bill("Strict cooling", economics.strict),
        bill("Stepped cooling", economics.stepped),
    ];
    let spend = economics.summarizer.unwrap_or_default();
    UsageTable {
        bills: bills.into_iter().flatten().collect(),
        reported: economics.reported.map(|it| Reported {
            calls: it.calls,
            input: it.input_tokens,
            cached: it.cached_tokens,
            written: it.written_tokens,
            output: it.output_tokens,
            cold: it.cold_calls,
            cold_by_us: it.cold_by_us_calls,
        }),
        summaries: spend.summaries,
        checkpoints: spend.checkpoints,
        summary_read: spend.model_read_tokens,
        summary_written: spend.model_written_tokens,
        health: health(usage.summaries.as_ref()),
    }
}

/// Whether summaries can be made, as a sentence.
fn health(health: Option<&pb::SummaryHealth>) -> String {
    let Some(health) = health else {
        return "It is not known whether summaries can be made.".to_owned();
    };
    let mut text = match health.state() {
        pb::SummaryState::Unspecified => "It is not known whether summaries can be made.",
        pb::SummaryState::Ok => "Summaries can be made.",
        pb::SummaryState::Stalled => "The last checkpoint made no progress.",
        pb::SummaryState::BreakerOpen => "The summarizer's model fails; its breaker is open.",
        pb::SummaryState::Dead => "A job was given up.",
    }
    .to_owned();
    if health.until_message_id > 0 {
        write!(
            text,
            " Triggers wait for a message after {}.",
            health.until_message_id
        )
        .expect("a string can be written to");
    }
    if !health.last_failure.is_empty() {
        write!(text, " Last failure: {}", health.last_failure).expect("a string can be written to");
    }
    text
}

/// An era.
pub(super) fn era(era: &pb::CacheEra) -> Era {
    let pays_after = Some(era.pays_back_after_calls).filter(|calls| *calls > 0);
    Era {
        number: era.number,
        cause: words::break_reason(era.reason()).to_owned(),
        at: era.at_message_id,
        broken_at: era.broken_message_id,
        boundary: era.boundary_message_id,
        rewritten: era.rewritten_tokens,
        saved_per_call: era.saved_tokens_per_call,
        pays_after,
        paid: pays_after.map(|calls| era.calls.unsigned_abs() >= calls),
        calls: era.calls,
        input: era.input_tokens,
        cached: era.cached_tokens,
        written: era.written_tokens,
        expected: era.expected_tokens,
        output: era.output_tokens,
        cold: era.cold_calls,
        model: era.model.clone(),
        time: time(era.created_time),
    }
}

/// The era that a context of these settings would begin.
pub(super) fn next_era(built: &pb::BuildContextResponse) -> Option<Era> {
    let broken = built.cache_break.as_ref()?;
    let begun = pb::CacheEra {
        reason: broken.reason,
        at_message_id: built.last_message_id,
        broken_message_id: broken.at_message_id,
        boundary_message_id: built.boundary_message_id,
        rewritten_tokens: broken.rewritten_tokens,
        saved_tokens_per_call: broken.saved_tokens_per_call,
        pays_back_after_calls: broken.pays_back_after_calls,
        expected_tokens: built.expected_cached_tokens,
        ..pb::CacheEra::default()
    };
    Some(era(&begun))
}

/// Where a checkpoint comes from.
pub(super) fn checkpoint(checkpoint: pb::Checkpoint) -> Provenance {
    Provenance {
        kind: words::summary_kind(checkpoint.kind()).to_owned(),
        prompt_version: checkpoint.prompt_version,
        digest: hex(&checkpoint.source_digest),
        tokens: checkpoint.token_usage,
        source_tokens: checkpoint.tokens_before.saturating_sub(
            checkpoint
                .tokens_after
                .saturating_sub(checkpoint.token_usage),
        ),
        input_tokens: checkpoint.input_tokens,
        output_tokens: checkpoint.output_tokens,
        calls: checkpoint.model_calls,
        duration_ms: checkpoint.duration_ms,
        time: time(checkpoint.created_time),
        range: (checkpoint.first_message_id, checkpoint.last_message_id),
        generation: checkpoint.generation,
        trigger: words::trigger(checkpoint.trigger()).to_owned(),
        model: checkpoint.model,
        focus: checkpoint.focus,
        text: checkpoint.summary,
    }
}

/// Where the summary of a message comes from. None: it has none.
pub(super) fn message_summary(message: &pb::Message) -> Option<Provenance> {
    let summary = message.summary.as_ref()?;
    Some(Provenance {
        kind: words::summary_kind(summary.kind()).to_owned(),
        model: summary.model.clone(),
        prompt_version: summary.prompt_version,
        digest: hex(&summary.source_digest),
        tokens: summary.tokens,
        source_tokens: message.tokens.unwrap_or_default().tokens,
        input_tokens: summary.input_tokens,
        output_tokens: summary.output_tokens,
        calls: 0,
        duration_ms: summary.duration_ms,
        time: time(summary.created_time),
        range: (message.message_id, message.message_id),
        generation: 0,
        trigger: String::new(),
        focus: String::new(),
        text: summary.text.clone(),
    })
}

/// A checkpoint on the timeline. `base`: the path of the X-ray.
pub(super) fn mark(checkpoint: &pb::Checkpoint, base: &str) -> Mark {
    Mark {
        last: checkpoint.last_message_id,
        kind: words::summary_kind(checkpoint.kind()).to_owned(),
        valid: checkpoint.valid,
        void: checkpoint.void_time.is_some(),
        time: time(checkpoint.created_time),
        url: format!("{base}/checkpoints/{}", checkpoint.last_message_id),
    }
}

/// A repair as a sentence.
pub(super) fn repair(repair: &pb::Repair) -> String {
    match repair.message_id {
        0 => format!("Input: {}", words::repair(repair.kind())),
        id => format!("Message {id}: {}", words::repair(repair.kind())),
    }
}

/// A job.
pub(super) fn job(job: pb::Job) -> Job {
    Job {
        kind: words::job_kind(job.kind()).to_owned(),
        state: words::job_state(job.state()).to_owned(),
        attempts: job.attempts,
        due: time(job.due_time),
        error: job.last_error,
        worker: job.worker,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string can be written to");
        text
    })
}
