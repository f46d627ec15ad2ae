//! `anneal usage`: how full the context is, and the cost of contexts.

use std::{fmt::Write as _, process::ExitCode};

use anneal_proto::v1 as pb;
use pb::Segment;

use crate::{
    client::{Client, failed_call},
    command::UsageArguments,
    context, conversation_ids, output,
    sanitize::sanitize,
    terminal_style::{Bar, TerminalStyle},
    text_format::pluralize,
};

/// Runs the command.
pub(crate) async fn run(arguments: UsageArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let conversation_id = conversation_ids::resolve(&client, &arguments.conversation).await?;
    let conversation = context::fetch_conversation(&client, &conversation_id).await?;
    let ask = pb::GetContextUsageRequest {
        conversation_id,
        policy: arguments.policy.policy(),
        economics: arguments.economics,
        ..Default::default()
    };
    let usage = client
        .contexts()
        .get_context_usage(ask)
        .await
        .map_err(|status| failed_call(&status))?
        .into_inner();
    if arguments.json {
        output::print_json(&json(&conversation, &usage).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let style = TerminalStyle::of_output();
    output::print_page(&(head(&conversation, style) + &segments_page(&usage, style)));
    if let Some(economics) = &usage.economics {
        output::print_page(&cost_page(economics, style));
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures as JSON, with the fields of the API.
fn json(conversation: &pb::Conversation, usage: &pb::GetContextUsageResponse) -> serde_json::Value {
    let segments: Vec<serde_json::Value> = usage
        .segments
        .iter()
        .map(|segment| {
            serde_json::json!({
                "segment": segment_name(segment.segment()),
                "tokens": segment.tokens,
                "messages": segment.messages,
            })
        })
        .collect();
    serde_json::json!({
        "conversation_id": conversation.conversation_id,
        "title": conversation.title,
        "segments": segments,
        "total_tokens": usage.total_tokens,
        "window_tokens": usage.window_tokens,
        "used_share": usage.used_share,
        "model_window_tokens": usage.model_window_tokens,
        "estimated": usage.estimated,
        "tail_tokens": usage.tail_tokens,
        "token_threshold": usage.token_threshold,
        "tail_messages": usage.tail_messages,
        "max_message_count": usage.max_message_count,
        "swapped_messages": usage.swapped_messages,
        "saved_tokens": usage.saved_tokens,
        "pending_saved_tokens": usage.pending_saved_tokens,
        "summaries": usage.summaries.as_ref().map(|health| {
            serde_json::json!({
                "state": summary_state_name(health.state()),
                "until_message_id": health.until_message_id,
                "retry_after_seconds": health.retry_after.map(|left| left.seconds),
                "last_failure": health.last_failure,
            })
        }),
        "economics": usage.economics.as_ref().map(economics_json),
    })
}

const fn summary_state_name(state: pb::SummaryState) -> &'static str {
    match state {
        pb::SummaryState::Ok => "ok",
        pb::SummaryState::Stalled => "stalled",
        pb::SummaryState::BreakerOpen => "breaker_open",
        pb::SummaryState::Dead => "dead",
        pb::SummaryState::Unspecified => "unspecified",
    }
}

/// A line that says why no summary can be made. None: summaries can be made.
fn summaries_line(health: &pb::SummaryHealth) -> Option<String> {
    let cause = if health.last_failure.is_empty() {
        String::new()
    } else {
        format!(" ({})", health.last_failure)
    };
    let until = health.until_message_id;
    match health.state() {
        pb::SummaryState::Ok | pb::SummaryState::Unspecified => None,
        pb::SummaryState::Stalled => Some(format!(
            "no checkpoint before a message after {until}: the last one made no progress{cause}"
        )),
        pb::SummaryState::BreakerOpen => Some(format!(
            "no summary for {} s: the breaker of its model is open{cause}",
            health.retry_after.map_or(0, |left| left.seconds + 1)
        )),
        pb::SummaryState::Dead => Some(format!("a summary was given up{cause}; see anneal jobs")),
    }
}

const fn segment_name(segment: Segment) -> &'static str {
    match segment {
        Segment::SystemPrompt => "system_prompt",
        Segment::CheckpointSummary => "checkpoint_summary",
        Segment::Tail => "tail",
        Segment::CurrentInput => "current_input",
        Segment::Unspecified => "unspecified",
    }
}

fn economics_json(economics: &pb::Economics) -> serde_json::Value {
    let bill = |bill: Option<pb::Bill>| {
        let bill = bill.unwrap_or_default();
        serde_json::json!({
            "sent_tokens": bill.sent_tokens,
            "cached_tokens": bill.cached_tokens,
            "billed_units": bill.billed_units,
            "cache_breaks": bill.cache_breaks,
        })
    };
    let reported = economics.reported.unwrap_or_default();
    let spent = economics.summarizer.unwrap_or_default();
    serde_json::json!({
        "calls": economics.calls,
        "none": bill(economics.none),
        "strict": bill(economics.strict),
        "stepped": bill(economics.stepped),
        "reported": {
            "calls": reported.calls,
            "input_tokens": reported.input_tokens,
            "cached_tokens": reported.cached_tokens,
            "written_tokens": reported.written_tokens,
            "output_tokens": reported.output_tokens,
            "cold_calls": reported.cold_calls,
            "cold_by_us_calls": reported.cold_by_us_calls,
        },
        "summarizer": {
            "summaries": spent.summaries,
            "checkpoints": spent.checkpoints,
            "model_read_tokens": spent.model_read_tokens,
            "model_written_tokens": spent.model_written_tokens,
        },
    })
}

/// The title and the id of the conversation.
fn head(conversation: &pb::Conversation, style: TerminalStyle) -> String {
    let title = if conversation.title.is_empty() {
        "(no title)".into()
    } else {
        sanitize(&conversation.title)
    };
    format!(
        "\n{}  {}\n",
        style.bold(&title),
        conversation.conversation_id
    )
}

/// Segments, window, thresholds and savings.
fn segments_page(usage: &pb::GetContextUsageResponse, style: TerminalStyle) -> String {
    let mut page = String::new();
    let estimated = if usage.estimated {
        ", some estimated"
    } else {
        ""
    };
    let window = match usage.model_window_tokens {
        0 => "the token threshold, because no window is known",
        _ => "the model's window",
    };
    let _ = writeln!(
        page,
        "{} tokens to send{estimated}: {:.1} % of {} ({window})\n",
        usage.total_tokens,
        100.0 * usage.used_share,
        usage.window_tokens
    );
    let bars: Vec<Bar<'_>> = usage.segments.iter().map(bar).collect();
    page.push_str(&style.bars(&bars));
    let messages = match usage.max_message_count {
        0 => format!("{} messages (no threshold)", usage.tail_messages),
        most => format!("{} of {most} messages", usage.tail_messages),
    };
    let _ = writeln!(
        page,
        "\n  until a checkpoint is due: {} of {} tokens, {messages}",
        usage.tail_tokens, usage.token_threshold
    );
    if usage.swapped_messages > 0 {
        let swapped = pluralize(usage.swapped_messages as usize, "message");
        let verb = if usage.swapped_messages == 1 {
            "is"
        } else {
            "are"
        };
        let _ = writeln!(
            page,
            "  {swapped} of the tail {verb} sent as summaries: {} tokens saved",
            usage.saved_tokens
        );
    }
    if usage.pending_saved_tokens > 0 {
        let _ = writeln!(
            page,
            "  the next step of stepped cooling saves {} tokens more",
            usage.pending_saved_tokens
        );
    }
    if let Some(line) = usage.summaries.as_ref().and_then(summaries_line) {
        let _ = writeln!(page, "  {line}");
    }
    page.push('\n');
    page
}

fn bar(segment: &pb::SegmentUsage) -> Bar<'_> {
    let (name, color) = match segment.segment() {
        Segment::SystemPrompt => ("system prompt", "35"),
        Segment::CheckpointSummary => ("checkpoint", "34"),
        Segment::Tail => ("tail", "31"),
        Segment::CurrentInput | Segment::Unspecified => ("other", "33"),
    };
    let note = match segment.segment() {
        Segment::Tail => format!(" ({})", pluralize(segment.messages as usize, "message")),
        _ => String::new(),
    };
    Bar {
        name,
        tokens: segment.tokens,
        color,
        note,
    }
}

/// The cost of the conversation's model calls, as a table with a column for each cooling variant;
/// then the reported usage, and the cost of summaries.
fn cost_page(economics: &pb::Economics, style: TerminalStyle) -> String {
    let mut page = String::new();
    let title = format!(
        "what {} cost",
        pluralize(economics.calls as usize, "model call")
    );
    let _ = writeln!(
        page,
        "{:<26}{:>14}{:>14}{:>14}",
        style.bold(&title),
        "none",
        "strict",
        "stepped"
    );
    let costs = [&economics.none, &economics.strict, &economics.stepped]
        .map(|cost| cost.unwrap_or_default());
    row(
        &mut page,
        "tokens sent",
        costs.map(|cost| cost.sent_tokens.to_string()),
    );
    row(
        &mut page,
        "from the cache",
        costs.map(|cost| share(cost.cached_tokens, cost.sent_tokens)),
    );
    row(
        &mut page,
        "billed, in plain tokens",
        costs.map(|cost| format!("{:.0}", cost.billed_units)),
    );
    row(
        &mut page,
        "cache breaks",
        costs.map(|cost| cost.cache_breaks.to_string()),
    );
    page.push('\n');
    let reported = economics.reported.unwrap_or_default();
    if reported.calls == 0 {
        page.push_str("  no usage was reported\n");
    } else {
        let _ = writeln!(
            page,
            "  reported: {}, {} tokens in ({} cached, {} written), {} out; calls with a cold cache: {}",
            pluralize(reported.calls as usize, "call"),
            reported.input_tokens,
            share(reported.cached_tokens, reported.input_tokens),
            reported.written_tokens,
            reported.output_tokens,
            reported.cold_calls
        );
    }
    let spent = economics.summarizer.unwrap_or_default();
    let _ = writeln!(
        page,
        "  summaries: {}, {}; models read {} tokens for them and wrote {}\n",
        pluralize(spent.summaries as usize, "large message"),
        pluralize(spent.checkpoints as usize, "checkpoint"),
        spent.model_read_tokens,
        spent.model_written_tokens
    );
    page
}

/// Adds a line of the table: a name, and a figure for each cooling variant.
fn row(page: &mut String, name: &str, figures: [String; 3]) {
    let [none, strict, stepped] = figures;
    let _ = writeln!(page, "  {name:<24}{none:>14}{strict:>14}{stepped:>14}");
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}
