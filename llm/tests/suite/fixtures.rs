//! Fixtures of the tests: sources, a token counter, a `SummaryAsk` with defaults, and extractive
//! summaries that are checked.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use anneal_core::{
    message::{MessageId, Part, Role},
    tokens::Tokens,
};
use anneal_llm::{
    Extractive, Purpose, Source, SourceBody, Summarizer as _, Summary, SummaryAsk, SummaryFailure,
};

/// Counts tokens as GPT-4o does.
pub(crate) fn measure(text: &str) -> Tokens {
    Tokens::new(bpe_openai::o200k_base().count(text) as u64)
}

pub(crate) fn text(text: impl Into<String>) -> Part {
    Part::Text { text: text.into() }
}

pub(crate) fn call(id: &str, name: &str, input: &str) -> Part {
    Part::ToolUse {
        id: id.into(),
        name: name.into(),
        input: input.into(),
    }
}

pub(crate) fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: false,
        media: vec![],
    }
}

pub(crate) fn source(id: i64, role: Role, parts: Vec<Part>) -> Source {
    Source {
        message_id: MessageId(id),
        role,
        body: SourceBody::Original(parts),
    }
}

/// Messages with these texts, of user and assistant in turn.
pub(crate) fn dialogue(lines: &[&str]) -> Vec<Source> {
    let role = |i: usize| {
        if i.is_multiple_of(2) {
            Role::User
        } else {
            Role::Assistant
        }
    };
    lines
        .iter()
        .enumerate()
        .map(|(i, line)| source(i as i64 + 1, role(i), vec![text(*line)]))
        .collect()
}

/// This many messages of user and assistant in turn. All differ, and each has about 30 tokens.
pub(crate) fn talk(messages: i64) -> Vec<Source> {
    let role = |id: i64| {
        if id % 2 == 1 {
            Role::User
        } else {
            Role::Assistant
        }
    };
    let said = |id: i64| {
        format!(
            "M{id}: the {} of lot {} was moved from bay {} to bay {}, and nobody objected to that.",
            id * 7,
            id * 31,
            id * 3,
            id * 5
        )
    };
    (1..=messages)
        .map(|id| source(id, role(id), vec![text(said(id))]))
        .collect()
}

/// An ask without a previous summary, a quote or a focus.
pub(crate) fn ask(purpose: Purpose, sources: &[Source], target: u64) -> SummaryAsk<'_> {
    SummaryAsk {
        purpose,
        previous: None,
        quoted: None,
        sources,
        focus: None,
        target: Tokens::new(target),
        measure: &measure,
    }
}

/// The extractive summary. Asserts that it keeps every rule for summaries.
pub(crate) fn checked_summary(ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
    let summary = Extractive.summarize(ask)?;
    assert!(!summary.text.trim().is_empty(), "the summary is blank");
    assert!(
        summary.tokens <= ask.target,
        "the summary has {} tokens, its target is {}",
        summary.tokens,
        ask.target
    );
    assert_eq!(summary.tokens, (ask.measure)(&summary.text));
    assert!(
        summary.tokens < ask.source_tokens(Tokens::new(u64::MAX)),
        "the summary is not shorter than its source"
    );
    assert!(
        !summary
            .text
            .contains(|c: char| c.is_control() && c != '\n' && c != '\t'),
        "the summary holds a control character"
    );
    assert_eq!(
        Extractive.summarize(ask).unwrap(),
        summary,
        "the same ask gives another summary"
    );
    Ok(summary)
}

/// The extractive summary of a run of messages.
pub(crate) fn range(sources: &[Source], target: u64) -> String {
    checked_summary(&ask(Purpose::Range, sources, target))
        .unwrap()
        .text
}

/// The extractive summary of one large message with this text.
pub(crate) fn digest(content: impl Into<String>, target: u64) -> String {
    let sources = [source(7, Role::User, vec![text(content)])];
    checked_summary(&ask(Purpose::Message, &sources, target))
        .unwrap()
        .text
}

/// Whether every line of a range's summary begins with a label such as `[12 user]` or `[… ×3]`, or
/// is quoted.
pub(crate) fn is_labeled(summary: &str) -> bool {
    summary.lines().all(|line| {
        let label = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .map(|(label, _)| label);
        line.starts_with("> ")
            || label.is_some_and(|label| {
                label.starts_with("… ×")
                    || label.split_once(' ').is_some_and(|(id, role)| {
                        id.parse::<i64>().is_ok()
                            && matches!(role, "user" | "assistant" | "tool" | "system")
                    })
            })
    })
}
