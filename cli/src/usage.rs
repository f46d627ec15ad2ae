//! `anneal usage`: how full the context is, and what contexts have cost.

use std::{fmt::Write as _, process::ExitCode};

use anneal_proto::v1 as pb;
use pb::Segment;

use crate::{
    client::{Client, refusal},
    command::UsageArguments,
    context, output,
    paint::{Bar, Paint, harmless},
    words::counted,
};

/// Prints the figures of a conversation.
pub(crate) async fn run(arguments: UsageArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let about = context::about(&client, &arguments.conversation).await?;
    let ask = pb::GetContextUsageRequest {
        conversation_id: arguments.conversation,
        policy: arguments.policy.policy(),
        economics: arguments.economics,
        ..Default::default()
    };
    let usage = client.contexts().get_context_usage(ask).await.map_err(|status| refusal(&status))?.into_inner();
    let paint = Paint::of_output();
    output::page(&(head(&about, paint) + &full(&usage, paint)));
    if let Some(economics) = &usage.economics {
        output::page(&cost(economics, paint));
    }
    Ok(ExitCode::SUCCESS)
}

fn head(about: &pb::Conversation, paint: Paint) -> String {
    let title = if about.title.is_empty() { "(no title)".into() } else { harmless(&about.title) };
    format!("\n{}  {}\n", paint.bold(&title), about.conversation_id)
}

/// Segments, window, thresholds, and what summaries save.
fn full(usage: &pb::GetContextUsageResponse, paint: Paint) -> String {
    let mut page = String::new();
    let estimated = if usage.estimated { ", some estimated" } else { "" };
    let window = match usage.model_window_tokens {
        0 => "the token threshold, for no window is known",
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
    page.push_str(&paint.bars(&bars));
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
        let swapped = counted(usage.swapped_messages as usize, "message");
        let verb = if usage.swapped_messages == 1 { "is" } else { "are" };
        let _ = writeln!(page, "  {swapped} of the tail {verb} sent in short: {} tokens saved", usage.saved_tokens);
    }
    if usage.pending_saved_tokens > 0 {
        let _ = writeln!(page, "  the next step of stepped cooling saves {} tokens more", usage.pending_saved_tokens);
    }
    page.push('\n');
    page
}

fn bar(segment: &pb::SegmentUsage) -> Bar<'_> {
    let (name, colour) = match segment.segment() {
        Segment::SystemPrompt => ("system prompt", "35"),
        Segment::CheckpointSummary => ("checkpoint", "34"),
        Segment::Tail => ("tail", "31"),
        Segment::CurrentInput | Segment::Unspecified => ("other", "33"),
    };
    let note = match segment.segment() {
        Segment::Tail => format!(" ({})", counted(segment.messages as usize, "message")),
        _ => String::new(),
    };
    Bar { name, tokens: segment.tokens, colour, note }
}

/// What the conversation's model calls have cost under each way of cooling.
fn cost(economics: &pb::Economics, paint: Paint) -> String {
    let mut page = String::new();
    let title = format!("what {} cost", counted(economics.calls as usize, "model call"));
    let _ = writeln!(page, "{:<26}{:>14}{:>14}{:>14}", paint.bold(&title), "none", "strict", "stepped");
    let bills = [&economics.none, &economics.strict, &economics.stepped].map(|bill| bill.unwrap_or_default());
    row(&mut page, "tokens sent", bills.map(|bill| bill.sent_tokens.to_string()));
    row(&mut page, "from the cache", bills.map(|bill| share(bill.cached_tokens, bill.sent_tokens)));
    row(&mut page, "billed, in plain tokens", bills.map(|bill| format!("{:.0}", bill.billed_units)));
    row(&mut page, "breaks of the cache", bills.map(|bill| bill.cache_breaks.to_string()));
    page.push('\n');
    let reported = economics.reported.unwrap_or_default();
    if reported.calls == 0 {
        page.push_str("  no usage was reported\n");
    } else {
        let _ = writeln!(
            page,
            "  reported: {}, {} tokens in ({} cached, {} written), {} out; cold: {}",
            counted(reported.calls as usize, "call"),
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
        counted(spent.summaries as usize, "large message"),
        counted(spent.checkpoints as usize, "checkpoint"),
        spent.model_read_tokens,
        spent.model_written_tokens
    );
    page
}

fn row(page: &mut String, name: &str, cells: [String; 3]) {
    let [none, strict, stepped] = cells;
    let _ = writeln!(page, "  {name:<24}{none:>14}{strict:>14}{stepped:>14}");
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}
