//! A real, very small model summarizes real conversations. The model writes poorly: it loops,
//! copies and exceeds limits. Its text is stored as a summary only if the text is usable. Otherwise
//! an extract is stored and marked as one.

use std::collections::HashMap;

use anneal_testkit::{Chat, ModelWorkerSettings, TestApp, TranscriptFolder, pb, start_llm};
use prost::Message as _;
use serde_json::json;

/// The model's context window in tokens.
const WINDOW: u32 = 8_192;
/// Maximum tokens of a summary.
const SUMMARY_TOKENS: u64 = 200;

/// Maximum bytes that are taken from each conversation. A small model on a busy processor reads
/// them in seconds.
const BYTES: usize = 4_000;

/// The beginnings of real conversations from six sources of transcripts.
fn real_conversations(data: &TranscriptFolder) -> Vec<Chat> {
    let mut chats: Vec<Chat> = data.pi_sessions().into_iter().take(2).collect();
    chats.extend(data.tau_bench().into_iter().take(1));
    chats.extend(data.swe_agent().into_iter().take(1));
    chats.extend(data.crosswoz(2));
    chats.extend(data.kdconv(1));
    chats.extend(data.locomo().into_iter().take(1));
    for chat in &mut chats {
        let mut bytes = 0;
        chat.messages.retain(|message| {
            bytes += message.encoded_len();
            bytes <= BYTES
        });
    }
    chats.retain(|chat| chat.messages.len() >= 6);
    chats
}

/// Whether the summary looks broken: a sentence of more than 20 bytes comes more than three times,
/// or a line begins with a marker of a dialog.
fn is_broken(summary: &str) -> bool {
    let mut occurrences: HashMap<&str, usize> = HashMap::new();
    for sentence in summary
        .split(['.', '\n', '。'])
        .map(str::trim)
        .filter(|sentence| sentence.len() > 20)
    {
        *occurrences.entry(sentence).or_default() += 1;
    }
    let markers = [
        "<|im_start|>",
        "[inst]",
        "user:",
        "assistant:",
        "system:",
        "\"message\":",
    ];
    occurrences.values().any(|times| *times > 3)
        || summary.lines().any(|line| {
            markers
                .iter()
                .any(|marker| line.trim_start().to_lowercase().starts_with(marker))
        })
}

#[tokio::test]
async fn a_real_model_yields_a_usable_summary_or_an_extract() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    let Some(llm) = start_llm(WINDOW) else { return };
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(0),
        large_message_threshold: Some(1_500),
        ..Default::default()
    };
    let providers =
        json!({"local": {"api": "openai", "url": llm.url, "total_timeout_ms": 120_000}});
    let models =
        json!({"writer": {"provider": "local", "window_tokens": WINDOW, "output_tokens": 300}});
    let mut worker_settings = ModelWorkerSettings::of(
        serde_json::from_value(providers).expect("settings of a provider"),
        serde_json::from_value(models).expect("settings of a model"),
    );
    worker_settings.summarizer.checkpoint_tokens = anneal_core::tokens::Tokens::new(SUMMARY_TOKENS);
    let worker = app.worker_with_model(&worker_settings);
    let mut checkpoints_by_kind: HashMap<pb::SummaryKind, usize> = HashMap::new();
    for chat in real_conversations(&data) {
        let appended = app.append_chats(std::slice::from_ref(&chat), &policy).await;
        let conversation = &appended[0].conversation;
        let ask = pb::CompactRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        app.contexts().compact(ask).await.expect("is queued");
        worker.run_until_idle().await;
        for checkpoint in conversation.checkpoints().await {
            *checkpoints_by_kind.entry(checkpoint.kind()).or_default() += 1;
            println!(
                "{}: {:?}, {} calls, {} tokens read: {} became {}",
                chat.name,
                checkpoint.kind(),
                checkpoint.model_calls,
                checkpoint.input_tokens,
                checkpoint.tokens_before,
                checkpoint.tokens_after
            );
            if checkpoint.kind() == pb::SummaryKind::Llm {
                println!("    {}", checkpoint.summary.replace('\n', "\n    "));
                assert!(!is_broken(&checkpoint.summary), "{}", checkpoint.summary);
                assert_eq!(checkpoint.model, "writer");
            } else {
                assert_eq!(checkpoint.model, "extractive");
            }
            assert!(
                checkpoint.token_usage <= SUMMARY_TOKENS
                    && checkpoint.tokens_after < checkpoint.tokens_before
            );
        }
        conversation.verify().await;
    }
    println!("checkpoints: {checkpoints_by_kind:?}");
    assert!(
        checkpoints_by_kind.values().sum::<usize>() >= 5,
        "{checkpoints_by_kind:?}"
    );
}
