//! Sources beyond the window of a model: how they are split, and how the parts are merged.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{ask, source, talk, text};
use crate::scripted_model::{RecordedPrompt, ScriptedCalls, model, summarize, summarize_unchecked};
use anneal_core::{message::Role, tokens::Tokens};
use anneal_llm::{Purpose, Source, SummaryAsk};

#[test]
fn a_source_beyond_the_window_is_split_and_merged_with_the_whole_previous_summary() {
    let scripted = ScriptedCalls::reporting();
    let sources = talk(1_500);
    let previous = "Ann wants every lot in bay 7.\nBob counts them on Fridays.";
    let ask = SummaryAsk {
        previous: Some(previous),
        ..ask(Purpose::Range, &sources, 500)
    };
    summarize(&model(8_192), &scripted, &ask).unwrap();
    let prompts = scripted.prompts();
    let (last, parts) = prompts.split_last().unwrap();
    assert!(
        last.is_whole() && parts.iter().all(|prompt| !prompt.is_whole()) && parts.len() > 5,
        "{}",
        parts.len()
    );
    assert_eq!(last.texts()[0], previous);
    assert_eq!(
        (last.kinds()[0], last.kinds()[1]),
        ("earlier_summary", "part_summary")
    );
    assert!(
        parts
            .iter()
            .all(|prompt| !prompt.kinds().contains(&"earlier_summary"))
    );
    assert!(
        prompts
            .iter()
            .all(|prompt| prompt.sent + prompt.output <= 8_192),
        "a call exceeds the window"
    );
    let full = &prompts[..parts.len() - 1];
    assert!(
        full.iter().all(|prompt| prompt.sent > 4_000),
        "chunks are not filled: {:?}",
        full.iter().map(|prompt| prompt.sent).collect::<Vec<_>>()
    );
}

#[test]
fn a_previous_summary_beyond_the_window_is_split() {
    let scripted = ScriptedCalls::reporting();
    let previous: String = (0..1_500)
        .map(|i| format!("Ann wants lot {i} in bay {}.\n", i * 3))
        .collect();
    let sources = talk(30);
    let ask = SummaryAsk {
        previous: Some(&previous),
        ..ask(Purpose::Range, &sources, 500)
    };
    summarize(&model(8_192), &scripted, &ask).unwrap();
    let prompts = scripted.prompts();
    assert_eq!(prompts.last().unwrap().kinds()[0], "earlier_summary");
    let sent_in_parts: String = prompts
        .iter()
        .filter(|prompt| !prompt.is_whole())
        .flat_map(RecordedPrompt::texts)
        .collect();
    assert_eq!(sent_in_parts, previous);
}

#[test]
fn no_text_is_left_out_if_texts_have_more_tokens_together_than_separately() {
    // A token per byte, and a third more for a text of more than 600 bytes.
    let measure = |text: &str| {
        let thirds = if text.len() > 600 { 4 } else { 3 };
        Tokens::new(text.len() as u64 * thirds / 3)
    };
    let line = |i: i64| {
        (0..40)
            .map(|k| format!("M{i}: lot {k} is in bay {}. ", k * i))
            .collect::<String>()
    };
    let said = |id: i64| source(id, Role::User, vec![text(line(id))]);
    for (lines, messages) in (100..300)
        .step_by(8)
        .flat_map(|lines| (1..6).map(move |messages| (lines, messages)))
    {
        let previous: String = (0..lines)
            .map(|i| format!("Ann wants lot {i} in bay {}.\n", i * 3))
            .collect();
        let sources: Vec<Source> = (1..=messages).map(said).collect();
        let scripted = ScriptedCalls::answering("All of it is as it was said to be, lot by lot.");
        let ask = SummaryAsk {
            previous: Some(&previous),
            measure: &measure,
            ..ask(Purpose::Range, &sources, 300)
        };
        summarize_unchecked(&model(20_000), &scripted, &ask).unwrap();
        let prompts: String = scripted
            .prompts()
            .iter()
            .flat_map(RecordedPrompt::texts)
            .collect();
        let is_sent = |source: &Source| source.texts().all(|text| prompts.contains(text));
        assert!(
            sources.iter().all(is_sent),
            "{lines} lines, {messages} messages"
        );
    }
}

#[test]
fn one_long_message_is_split_between_its_lines() {
    let scripted = ScriptedCalls::reporting();
    let content: String = (0..8_000)
        .map(|i| format!("{i}: checked disk {} of rack {}\n", i * 3, i * 7))
        .collect();
    let sources = [source(7, Role::User, vec![text(content.as_str())])];
    summarize(
        &model(8_192),
        &scripted,
        &ask(Purpose::Message, &sources, 300),
    )
    .unwrap();
    let prompts = scripted.prompts();
    let chunks: Vec<_> = prompts
        .iter()
        .filter(|prompt| prompt.kinds() == ["said"])
        .collect();
    assert!(chunks.len() > 10);
    assert_eq!(
        chunks
            .iter()
            .flat_map(|prompt| prompt.texts())
            .collect::<String>(),
        content
    );
    assert!(
        chunks
            .iter()
            .all(|prompt| prompt.texts()[0].ends_with('\n')),
        "cut inside a line"
    );
    // The message has text before this part (continues) and after it (goes_on).
    assert_eq!(chunks[1].lines[0]["continues"], true);
    assert_eq!(chunks[1].lines[0]["goes_on"], true);
}

#[test]
fn a_few_messages_after_a_full_chunk_go_into_the_merge_unchanged() {
    // The number of conversations, of 40, that end with a chunk that is too short for a part.
    let mut carried = 0;
    for messages in 100..140 {
        let scripted = ScriptedCalls::reporting();
        let sources = talk(messages);
        summarize(
            &model(8_192),
            &scripted,
            &ask(Purpose::Range, &sources, 500),
        )
        .unwrap();
        let prompts = scripted.prompts();
        let said: usize = prompts
            .iter()
            .map(|prompt| {
                prompt
                    .kinds()
                    .iter()
                    .filter(|kind| **kind == "said")
                    .count()
            })
            .sum();
        assert_eq!(said, messages as usize);
        carried += usize::from(
            prompts
                .last()
                .unwrap()
                .kinds()
                .starts_with(&["part_summary", "said"]),
        );
    }
    assert!((1..5).contains(&carried), "{carried}");
}

#[test]
fn two_million_tokens_go_through_a_window_of_eight_thousand() {
    let scripted = ScriptedCalls::reporting();
    let sources = talk(62_000);
    let ask = ask(Purpose::Range, &sources, 2_000);
    let source_tokens = ask.source_tokens(Tokens::new(u64::MAX));
    assert!(source_tokens > Tokens::new(2_000_000), "{source_tokens}");
    summarize(&model(8_192), &scripted, &ask).unwrap();
    println!("{source_tokens} tokens took {} calls", scripted.calls());
    assert!(
        (400..700).contains(&scripted.calls()),
        "{} calls",
        scripted.calls()
    );
    let said: usize = scripted
        .prompts()
        .iter()
        .map(|prompt| {
            prompt
                .kinds()
                .iter()
                .filter(|kind| **kind == "said")
                .count()
        })
        .sum();
    assert!(said >= sources.len(), "{said}");
    assert!(
        scripted
            .prompts()
            .iter()
            .all(|prompt| prompt.sent + prompt.output <= 8_192)
    );
}
