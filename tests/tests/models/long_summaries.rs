//! Summaries that need many calls of the model, because their sources are far larger than its
//! window. Worker processes write them; one is killed during a call. Parts are written side by
//! side.

use std::{sync::Arc, time::Duration};

use anneal_testkit::{
    AnnealBinary, Folder, Gate, ModelRequest, ModelWorkerSettings, Process, SUMMARY_MODEL, Script,
    ScriptedModel, TestApp, TestConversation, eventually, eventually_within, pb, user,
};
use serde_json::json;

use crate::BINARY;

/// Settings of a worker whose summaries this model writes, one part after another.
fn settings_for_one_call(model: &ScriptedModel) -> String {
    worker_settings(model).replace(
        "[models.writer]\n",
        "[models.writer]\nconcurrent_calls = 1\n",
    )
}

/// Settings of a worker whose summaries this model writes.
fn worker_settings(model: &ScriptedModel) -> String {
    format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.writer]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
         [summarizer]\nmodel = \"writer\"\n[worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\n",
        model.url()
    )
}

/// A folder with the settings of a worker that writes summaries of this kind: by the model, or
/// extracts.
fn folder_for(kind: pb::SummaryKind, model: &ScriptedModel) -> Folder {
    let folder = Folder::new();
    let text = match kind {
        pb::SummaryKind::Llm => worker_settings(model),
        _ => "[worker]\nhttp_address = \"127.0.0.1:0\"\n".to_owned(),
    };
    folder.file("models.toml", &text);
    folder
}

async fn start_worker(anneal: &AnnealBinary) -> Process {
    let worker = anneal.start(&["worker", "--config", "models.toml"]);
    worker.wait_for_line("working as").await;
    worker
}

/// The JSON lines of each prompt, which hold the messages of one part of the summary. Two prompts
/// for the same part differ only in their random delimiters, which are not in these lines.
fn message_lines(requests: &[ModelRequest]) -> Vec<String> {
    requests
        .iter()
        .map(|request| {
            request.texts()[1]
                .lines()
                .filter(|line| line.starts_with('{'))
                .collect()
        })
        .collect()
}

/// Creates a conversation of at least `tokens` tokens that is due for a checkpoint. Its messages
/// have about 4,000 tokens each, and are appended in batches of 50.
async fn create_long_conversation(app: &TestApp, tokens: usize) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(0),
        token_threshold: Some(tokens as u64 / 2),
        large_message_threshold: Some(1_000_000),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let mut number_of_messages = 0;
    while number_of_messages * 4_000 < tokens {
        let batch = (number_of_messages..number_of_messages + 50).map(|number| {
            let sentence = format!(
                "In the year {} the river rose by {number} feet and the old mill stood still. ",
                1_000 + number
            );
            let mut message = user(&sentence.repeat(200));
            message.role = if number % 2 == 0 {
                pb::Role::User
            } else {
                pb::Role::Assistant
            }
            .into();
            message
        });
        conversation
            .append_all(batch.collect())
            .send()
            .await
            .expect("appends");
        number_of_messages += 50;
    }
    conversation
}

/// Upper limit of a worker's memory in MiB, as in docs/performance.md.
const WORKER_MEMORY_MIB: u64 = 512;

/// Time limit for summaries of millions of tokens.
const SUMMARY_TIME_LIMIT: Duration = Duration::from_mins(4);

async fn wait_for_checkpoint(conversation: &TestConversation<'_>) -> pb::Checkpoint {
    eventually_within(SUMMARY_TIME_LIMIT, "there is a checkpoint", async || {
        !conversation.checkpoints().await.is_empty()
    })
    .await;
    conversation.checkpoints().await.remove(0)
}

#[tokio::test]
async fn the_next_worker_reuses_the_partial_summaries_of_a_killed_one() {
    const PARTS_BEFORE_KILL: usize = 7;
    let gate = Gate::default();
    gate.open(PARTS_BEFORE_KILL);
    let held = gate.clone();
    let model = Arc::new(
        ScriptedModel::start(move |request| Script::summarizes(request).after(&held)).await,
    );
    let app = TestApp::start().await;
    let folder = Folder::new();
    folder.file("models.toml", &settings_for_one_call(&model));
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let conversation = create_long_conversation(&app, 120_000).await;

    let first = start_worker(&anneal).await;
    model.wait_for_calls(PARTS_BEFORE_KILL + 1).await;
    first.kill().await;
    let stored_parts = "select count(*) from ai_summary_part";
    let stored_parts: i64 = sqlx::query_scalar(stored_parts)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts");
    assert_eq!(
        stored_parts, PARTS_BEFORE_KILL as i64,
        "each finished part is stored"
    );
    // State 1: running.
    let end_lease = "update ai_job set lease_until_ts = now() where state = 1";
    sqlx::query(end_lease)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    // The call of the killed worker would be the model's only one for some seconds.
    sqlx::query("delete from ai_model_lease")
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    gate.open_for_ever();

    let second = start_worker(&anneal).await;
    let checkpoint = wait_for_checkpoint(&conversation).await;
    assert_eq!(checkpoint.kind(), pb::SummaryKind::Llm);
    let prompts = message_lines(&model.requests());
    let (before, after) = prompts.split_at(PARTS_BEFORE_KILL + 1);
    assert!(
        after.len() > PARTS_BEFORE_KILL,
        "the second worker made only {} calls",
        after.len()
    );
    let repeated = after
        .iter()
        .filter(|part| before[..PARTS_BEFORE_KILL].contains(part))
        .count();
    assert_eq!(repeated, 0, "no finished part is requested again");
    assert!(
        after.contains(&before[PARTS_BEFORE_KILL]),
        "the interrupted call is repeated"
    );
    assert_eq!(
        checkpoint.model_calls as usize,
        PARTS_BEFORE_KILL + after.len(),
        "the checkpoint's cost includes the calls of the first worker"
    );
    println!(
        "{} calls before the kill, {} after it",
        before.len(),
        after.len()
    );
    eventually("parts of a finished summary are deleted", async || {
        let count_parts = "select count(*) from ai_summary_part";
        let parts: i64 = sqlx::query_scalar(count_parts)
            .fetch_one(&mut app.db().await)
            .await
            .expect("counts");
        parts == 0
    })
    .await;
    conversation.verify().await;
    second.terminate().await;
    assert_eq!(second.wait_for_exit().await, Some(0));
}

#[tokio::test]
async fn parts_are_written_side_by_side_within_the_models_limit() {
    // With another tenant, this one's share is one of two calls.
    for (limit, tenants, most) in [(Some(2), 1, 2), (None, 1, 4), (Some(2), 2, 1)] {
        let gate = Gate::default();
        let held = gate.clone();
        let model =
            ScriptedModel::start(move |request| Script::summarizes(request).after(&held)).await;
        let app = TestApp::start().await;
        if tenants == 2 {
            app.tenant("another").await;
        }
        let mut settings = ModelWorkerSettings::for_model(&model);
        let mut writer = json!({"provider": "scripted", "window_tokens": 8_192});
        if let Some(limit) = limit {
            writer["concurrent_calls"] = json!(limit);
        }
        settings.models =
            serde_json::from_value(json!({SUMMARY_MODEL: writer})).expect("settings of a model");
        let conversation = create_long_conversation(&app, 120_000).await;
        let worker = app.worker_with_model(&settings);
        let running = tokio::spawn(async move { worker.run_until_idle().await });
        model.wait_for_calls(1).await;
        gate.open(1);
        eventually("parts are written side by side", async || {
            model.open_calls() == most
        })
        .await;
        gate.open_for_ever();
        running.await.expect("runs");
        let checkpoint = conversation.checkpoints().await.remove(0);
        assert_eq!(checkpoint.kind(), pb::SummaryKind::Llm);
        assert_eq!(
            checkpoint.model_calls as usize,
            model.requests().len(),
            "each call's cost is recorded once"
        );
        assert_eq!(model.most_open_calls(), most, "{limit:?}, {tenants}");
    }
}

#[tokio::test]
async fn a_model_with_an_8k_window_summarizes_two_million_tokens() {
    let model = ScriptedModel::start(Script::summarizes).await;
    // First the model summarizes, then the built-in summarizer.
    for kind in [pb::SummaryKind::Llm, pb::SummaryKind::Extractive] {
        let app = TestApp::start().await;
        let folder = folder_for(kind, &model);
        let conversation = create_long_conversation(&app, 2_000_000).await;
        let worker = start_worker(&AnnealBinary::new(BINARY, &folder, &app.url)).await;
        let checkpoint = wait_for_checkpoint(&conversation).await;
        assert_eq!(checkpoint.kind(), kind);
        assert!(
            checkpoint.tokens_before >= 2_000_000,
            "{} tokens",
            checkpoint.tokens_before
        );
        assert!(
            checkpoint.token_usage <= 2_000,
            "the default of summarizer.checkpoint_tokens"
        );
        let memory = worker.peak_memory();
        println!(
            "{} tokens became {}: {} calls, {} s, {memory} MiB at most",
            checkpoint.tokens_before,
            checkpoint.tokens_after,
            checkpoint.model_calls,
            Duration::from_millis(checkpoint.duration_ms.unsigned_abs()).as_secs()
        );
        assert!(memory <= WORKER_MEMORY_MIB, "{memory} MiB");
        conversation.verify().await;
    }
}

#[tokio::test]
async fn a_model_with_an_8k_window_summarizes_a_message_of_four_megabytes() {
    let model = ScriptedModel::start(Script::summarizes).await;
    // First the model summarizes, then the built-in summarizer.
    for kind in [pb::SummaryKind::Llm, pb::SummaryKind::Extractive] {
        let app = TestApp::start().await;
        let folder = folder_for(kind, &model);
        let policy = pb::Policy {
            large_message_threshold: Some(10_000),
            max_message_count: Some(0),
            ..Default::default()
        };
        let conversation = app.conversation_with_policy(policy).await;
        let lines = (0..).map(|number| {
            format!(
                "{number}: the gauge at the weir shows {} inches.\n",
                number * 7 % 113
            )
        });
        let mut text = String::new();
        text.extend(lines.take(95_000));
        // A request may have 4 MiB. 4 KiB are left for its other fields.
        text.truncate(4 * 1024 * 1024 - 4_096);
        conversation
            .append_all(vec![user(&text)])
            .send()
            .await
            .expect("appends");
        let worker = start_worker(&AnnealBinary::new(BINARY, &folder, &app.url)).await;
        let summarized = "select count(*) from ai_message where summary_cache is not null";
        eventually_within(
            SUMMARY_TIME_LIMIT,
            "the message has its summary",
            async || {
                let done: i64 = sqlx::query_scalar(summarized)
                    .fetch_one(&mut app.db().await)
                    .await
                    .expect("counts");
                done == 1
            },
        )
        .await;
        let row = "select summary_kind, summary_tokens, token_count, summary_duration_ms from ai_message where message_id = 1";
        let (kind_code, summary_tokens, tokens, duration_ms): (i16, i64, i64, i64) =
            sqlx::query_as(row)
                .fetch_one(&mut app.db().await)
                .await
                .expect("is there");
        assert_eq!(i32::from(kind_code), i32::from(kind));
        // The default of `summarizer.message_tokens`.
        assert!(summary_tokens <= 500, "{summary_tokens} tokens");
        let memory = worker.peak_memory();
        println!("{tokens} tokens became {summary_tokens}: {duration_ms} ms, {memory} MiB at most");
        assert!(memory <= WORKER_MEMORY_MIB, "{memory} MiB");
    }
    println!("{} calls of the model", model.requests().len());
}
