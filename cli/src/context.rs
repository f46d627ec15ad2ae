//! `anneal context`: what would be sent to the model next, for people.

use std::{collections::HashMap, fmt::Write as _, io::IsTerminal as _, process::ExitCode};

use anneal_proto::v1 as pb;
use pb::{BoundaryKind, Reason, Representation, Role, Segment, part::Part};

use crate::{
    client::{Client, refusal},
    command::ContextArguments,
};

/// Characters of the longest bar.
const BAR: usize = 40;
/// Characters of a text's first line.
const LINE: usize = 72;

/// Shows the context of a conversation.
pub(crate) async fn run(arguments: ContextArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    if arguments.json {
        let context = build(&client, &arguments.conversation, arguments.budget, arguments.input).await?;
        for message in context.messages {
            println!("{}", json(&message)?);
        }
    } else {
        show(&client, &arguments.conversation, arguments.budget, arguments.input, arguments.full).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints segments with bars, then every message with its state.
pub(crate) async fn show(
    client: &Client,
    conversation: &str,
    budget: Option<u64>,
    input: Option<String>,
    full: bool,
) -> anyhow::Result<()> {
    let ask = pb::GetConversationRequest { conversation_id: conversation.to_owned() };
    let about = client.conversations().get_conversation(ask).await.map_err(|status| refusal(&status))?.into_inner();
    let context = build(client, conversation, budget, input).await?;
    print!("{}", Page { about: &about, context: &context, full, paint: std::io::stdout().is_terminal() }.text());
    Ok(())
}

async fn build(
    client: &Client,
    conversation: &str,
    budget: Option<u64>,
    input: Option<String>,
) -> anyhow::Result<pb::BuildContextResponse> {
    let current_input = input.map(|text| pb::NewMessage {
        role: Role::User.into(),
        parts: vec![pb::Part { part: Some(Part::Text(pb::TextPart { text })) }],
        metadata: HashMap::new(),
    });
    let ask = pb::BuildContextRequest {
        conversation_id: conversation.to_owned(),
        current_input: current_input.into_iter().collect(),
        system_prompt: None,
        budget_tokens: budget,
    };
    Ok(client.contexts().build_context(ask).await.map_err(|status| refusal(&status))?.into_inner())
}

struct Page<'a> {
    about: &'a pb::Conversation,
    context: &'a pb::BuildContextResponse,
    full: bool,
    paint: bool,
}

impl Page<'_> {
    fn text(&self) -> String {
        let mut page = String::new();
        self.head(&mut page);
        self.segments(&mut page);
        self.manifest(&mut page);
        self.messages(&mut page);
        page
    }

    fn head(&self, page: &mut String) {
        let title = if self.about.title.is_empty() { "(no title)" } else { &self.about.title };
        let _ = writeln!(page, "\n{}  {}", self.bold(title), self.about.conversation_id);
        let stored = self.about.token_total.unwrap_or_default().tokens;
        let estimated = if self.context.estimated { ", some estimated" } else { "" };
        let _ = writeln!(
            page,
            "{} messages, {stored} tokens stored; {} tokens to send{estimated}; turn {}",
            self.about.message_count, self.context.total_tokens, self.context.current_turn
        );
        let boundary = match self.context.boundary_kind() {
            BoundaryKind::Unspecified => "starts at the first message".to_owned(),
            BoundaryKind::Separator => format!("starts after the separator at {}", self.context.boundary_message_id),
            BoundaryKind::Checkpoint => format!("starts after the checkpoint at {}", self.context.boundary_message_id),
        };
        let _ = writeln!(page, "the context {boundary}\n");
    }

    /// A bar per segment, the tail split into what is hot, cool and summarised.
    fn segments(&self, page: &mut String) {
        let mut rows: Vec<(&str, u64, &str)> = Vec::new();
        let of = |segment: Segment| {
            self.context.messages.iter().filter(move |m| m.segment() == segment).map(|m| m.tokens).sum::<u64>()
        };
        rows.push(("system prompt", of(Segment::SystemPrompt), "35"));
        rows.push(("checkpoint", of(Segment::CheckpointSummary), "34"));
        let tail = |wanted: fn(&pb::ManifestEntry) -> bool| {
            let entries = self.context.manifest.iter().filter(|entry| in_tail(entry) && wanted(entry));
            entries.map(|entry| entry.tokens).sum::<u64>()
        };
        rows.push(("tail, hot", tail(|entry| !entry.cool), "31"));
        rows.push(("tail, cool", tail(|entry| entry.cool && entry.representation() != Representation::Summary), "36"));
        rows.push(("tail, summaries", tail(|entry| entry.representation() == Representation::Summary), "32"));
        rows.push(("current input", of(Segment::CurrentInput), "33"));
        let most = rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
        for (name, tokens, colour) in rows.into_iter().filter(|row| row.1 > 0) {
            let length = (tokens as usize * BAR).div_ceil(most as usize);
            let _ = writeln!(
                page,
                "  {name:<16} {} {tokens}",
                self.colour(colour, &format!("{:<BAR$}", "█".repeat(length)))
            );
        }
        page.push('\n');
    }

    /// What is not shown as it was said; neighbours with one fate on one line.
    fn manifest(&self, page: &mut String) {
        let mut runs: Vec<(i64, i64, String)> = Vec::new();
        for entry in self.context.manifest.iter().filter(|entry| !as_said(entry)) {
            let fate = fate(entry);
            match runs.last_mut() {
                Some((_, last, before)) if *before == fate && *last + 1 == entry.first_message_id => {
                    *last = entry.last_message_id;
                }
                _ => runs.push((entry.first_message_id, entry.last_message_id, fate)),
            }
        }
        for (first, last, fate) in runs {
            let ids = if first == last { format!("message {first}") } else { format!("messages {first} to {last}") };
            let _ = writeln!(page, "  {ids} {fate}");
        }
        if !self.context.repairs.is_empty() {
            let _ = writeln!(page, "  {} repairs for the provider's sake", self.context.repairs.len());
        }
        page.push('\n');
    }

    fn messages(&self, page: &mut String) {
        let entries: HashMap<i64, &pb::ManifestEntry> =
            self.context.manifest.iter().map(|entry| (entry.first_message_id, entry)).collect();
        for message in &self.context.messages {
            let ids: Vec<String> = message.message_ids.iter().map(ToString::to_string).collect();
            let entry = message.message_ids.first().and_then(|id| entries.get(id));
            let state = match (message.segment(), entry) {
                (Segment::SystemPrompt, _) => "system prompt",
                (Segment::CheckpointSummary, _) => "checkpoint",
                (_, Some(entry)) if entry.representation() == Representation::Summary => "summary",
                (_, Some(entry)) if entry.representation() == Representation::Clipped => "clipped",
                (_, Some(entry)) if entry.cool => "cool",
                (Segment::CurrentInput, _) => "input",
                (_, Some(_)) => "hot",
                _ => "added",
            };
            let ids = if ids.is_empty() { "-".to_owned() } else { ids.join("+") };
            let said = said(message);
            if self.full {
                let _ = writeln!(
                    page,
                    "{}",
                    self.bold(&format!("── {ids} {} {state} {}", role(message.role()), message.tokens))
                );
                let _ = writeln!(page, "{}\n", said.join("\n\n"));
            } else {
                let line = first_line(&said.join(" "));
                let _ =
                    writeln!(page, "  {ids:>6} {:<9} {state:<13} {:>7}  {line}", role(message.role()), message.tokens);
            }
        }
    }

    fn bold(&self, text: &str) -> String {
        self.colour("1", text)
    }

    fn colour(&self, code: &str, text: &str) -> String {
        if self.paint { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// What became of a message that is not sent as it was said.
fn fate(entry: &pb::ManifestEntry) -> String {
    let (tokens, original) = (entry.tokens, entry.original_tokens);
    match entry.representation() {
        Representation::Summary => format!("as its summary: {tokens} instead of {original} tokens"),
        Representation::Checkpoint => format!("in the checkpoint: {tokens} tokens"),
        Representation::BeforeSeparator => "before the separator: not sent".into(),
        Representation::Clipped => format!("clipped to {tokens} of {original} tokens"),
        Representation::Dropped => "dropped to fit the budget".into(),
        Representation::Repaired => "left out: a provider would refuse it".into(),
        Representation::Original | Representation::Unspecified => match entry.reason() {
            Reason::Hot => format!("large ({original} tokens) but hot: as it was said"),
            _ => format!("large ({original} tokens) and cool, its summary is not ready"),
        },
    }
}

fn in_tail(entry: &pb::ManifestEntry) -> bool {
    !matches!(entry.representation(), Representation::Checkpoint | Representation::BeforeSeparator)
}

fn as_said(entry: &pb::ManifestEntry) -> bool {
    entry.representation() == Representation::Original && entry.reason() == Reason::Small
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::System => "system",
        Role::Unspecified => "?",
    }
}

/// The parts of a message as text. Control characters of a stored text must not reach the terminal.
fn said(message: &pb::ContextMessage) -> Vec<String> {
    let parts = message.parts.iter().filter_map(|part| part.part.as_ref());
    parts
        .map(|part| match part {
            Part::Text(part) => part.text.clone(),
            Part::ToolUse(part) => format!("→ {} {}", part.name, part.input),
            Part::ToolResult(part) => format!("← {}", part.text),
            Part::Media(part) => format!("[{} {}]", part.media_type, part.uri),
            Part::Reasoning(part) => format!("({})", part.text),
        })
        .map(|text| text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}"))
        .collect()
}

fn first_line(text: &str) -> String {
    let folded: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if folded.chars().count() <= LINE { folded } else { folded.chars().take(LINE - 1).chain(['…']).collect() }
}

/// One message as a JSON line: role, parts and ids.
fn json(message: &pb::ContextMessage) -> anyhow::Result<String> {
    let parts = message.parts.iter().filter_map(|part| part.part.as_ref()).map(|part| match part {
        Part::Text(part) => serde_json::json!({"type": "text", "text": part.text}),
        Part::ToolUse(part) => {
            serde_json::json!({"type": "tool_use", "id": part.id, "name": part.name, "input": part.input})
        }
        Part::ToolResult(part) => serde_json::json!({
            "type": "tool_result", "tool_use_id": part.tool_use_id, "text": part.text, "is_error": part.is_error
        }),
        Part::Media(part) => serde_json::json!({"type": "media", "uri": part.uri, "media_type": part.media_type}),
        Part::Reasoning(part) => serde_json::json!({"type": "reasoning", "text": part.text}),
    });
    let line = serde_json::json!({
        "role": role(message.role()),
        "parts": parts.collect::<Vec<_>>(),
        "message_ids": message.message_ids,
        "tokens": message.tokens,
    });
    Ok(serde_json::to_string(&line)?)
}
