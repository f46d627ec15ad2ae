//! The commands for one conversation: `anneal context` (prints a context as a provider's request,
//! or explains it), `anneal usage` and `anneal compact`.

use std::fmt::Write as _;

use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, TestApp, TestConversation, assistant, call, pb, prose,
    result, user,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::commands::BINARY;

/// A test app and a folder in which the commands run.
struct ConversationInspector {
    app: TestApp,
    folder: Folder,
}

impl ConversationInspector {
    async fn new() -> Self {
        Self {
            app: TestApp::start().await,
            folder: Folder::new(),
        }
    }

    async fn run(&self, command: &str, arguments: &[&str]) -> CommandOutput {
        let address = format!("http://{}", self.app.addresses.grpc);
        let all = [&[command, "--address", &address], arguments].concat();
        AnnealBinary::new(BINARY, &self.folder, "").run(&all).await
    }

    /// Runs a command, which must succeed and print nothing on standard error. Returns its standard
    /// output.
    async fn run_successfully(&self, command: &str, arguments: &[&str]) -> String {
        let ran = self.run(command, arguments).await;
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (Some(0), ""),
            "{command} {arguments:?}: {}",
            ran.out
        );
        ran.out
    }

    /// Creates an agent's conversation of 32 messages: short turns, tool results of about 1,100
    /// tokens, two user messages in a row and a call without a result.
    async fn create_conversation(&self) -> TestConversation<'_> {
        let policy = pb::Policy {
            profile: "agents".into(),
            token_threshold: Some(10_000_000),
            keep_recent_turns: Some(1),
            large_message_threshold: Some(200),
            ..Default::default()
        };
        let conversation = self.app.conversation_with_policy(policy).await;
        conversation
            .turn("What was inspected?", "I will look.")
            .await;
        conversation
            .append_all(vec![user("Do."), user("And where?")])
            .await;
        for n in 0..13 {
            let id = format!("call_{n}");
            conversation
                .append_all(vec![call(&id, "{}"), result(&id, &prose(n * 50, 50))])
                .await;
        }
        conversation
            .append_all(vec![
                call("lost", "{}"),
                assistant("Everything, everywhere."),
            ])
            .await;
        self.app.run_jobs_until_idle().await;
        conversation
    }

    /// Runs a command while a worker runs. Returns its standard output.
    async fn run_with_worker(&self, command: &str, arguments: &[&str]) -> String {
        let stop = CancellationToken::new();
        let worker = tokio::spawn({
            let (worker, stop) = (self.app.worker(), stop.clone());
            async move { worker.run(stop).await }
        });
        let out = self.run_successfully(command, arguments).await;
        stop.cancel();
        worker.await.expect("the worker stops");
        out
    }
}

/// Counts the recorded prefixes and the jobs. A request for a context can write no other rows.
async fn count_side_effects(app: &TestApp) -> (i64, i64) {
    let counts = "select (select count(*) from ai_context_prefix), (select count(*) from ai_job)";
    sqlx::query_as(counts)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

/// The first and last message id of each line of the explanation's manifest. A line begins with one
/// id (`4`) or two (`4-9`). Skips lines that print the request for a range that is left out.
fn manifest_ids(page: &str) -> Vec<(i64, i64)> {
    let manifest = page
        .lines()
        .skip_while(|line| *line != "messages")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let lines = manifest.filter(|line| !line.contains("left out: GetMessage"));
    lines
        .map(|line| {
            let ids = line.split_whitespace().next().expect("ids");
            let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
            (first.parse().expect("an id"), last.parse().expect("an id"))
        })
        .collect()
}

/// Asserts that the explanation lists every message once, in lines of at most 100 characters.
fn assert_covers(page: &str, last_message_id: i64) {
    let ids = manifest_ids(page);
    let next = ids.iter().fold(1, |next, (first, last)| {
        assert_eq!(*first, next, "{page}");
        last + 1
    });
    assert_eq!(next, last_message_id + 1, "{page}");
    let longest = page.lines().map(|line| line.chars().count()).max();
    assert!(
        longest <= Some(100),
        "a line of {longest:?} characters:\n{page}"
    );
}

#[tokio::test]
async fn a_providers_request_is_one_line_of_json_and_nothing_else() {
    let inspector = ConversationInspector::new().await;
    let conversation = inspector.create_conversation().await;
    let cases = [
        ("openai", pb::Format::OpenaiChat, "messages"),
        ("anthropic", pb::Format::AnthropicMessages, "messages"),
        ("gemini", pb::Format::GeminiContents, "contents"),
    ];
    for (name, format, key) in cases {
        let line = inspector
            .run_successfully(
                "context",
                &["--format", name, "--input", "And now?", &conversation.id],
            )
            .await;
        assert_eq!(line.matches('\n').count(), 1, "{name}: one line");
        let request: Value = serde_json::from_str(&line).expect("JSON");
        assert!(
            request[key].is_array() && line.contains("And now?"),
            "{name}"
        );
        let ask = pb::BuildContextRequest {
            format: format.into(),
            dry_run: true,
            current_input: vec![user("And now?")],
            ..Default::default()
        };
        assert_eq!(
            conversation
                .build(ask)
                .await
                .expect("builds")
                .0
                .rendered
                .as_deref(),
            line.strip_suffix('\n')
        );
    }
    for wrong in [
        ["--format", "yaml"],
        ["--format", "openai --json"],
        ["--pressure", "more"],
    ] {
        assert_eq!(
            inspector
                .run("context", &[&wrong[..], &[&conversation.id]].concat())
                .await
                .code,
            Some(2),
            "{wrong:?}"
        );
    }
    let both = inspector
        .run(
            "context",
            &["--format", "openai", "--json", &conversation.id],
        )
        .await;
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[tokio::test]
async fn an_explanation_lists_every_message_and_stores_nothing() {
    let inspector = ConversationInspector::new().await;
    let conversation = inspector.create_conversation().await;
    conversation.context().await;
    let before = count_side_effects(&inspector.app).await;
    let page = inspector
        .run_successfully(
            "context",
            &["--explain", "--format", "anthropic", &conversation.id],
        )
        .await;
    assert_covers(&page, 32);
    // The messages before the first tool result are small.
    assert_eq!(manifest_ids(&page)[0], (1, 5), "{page}");
    for words in [
        "its summary",
        "large, cool and summarized",
        "large, too recent to be swapped",
        "joined to the message before, which has the same role: 4",
        "a call without a result got a synthetic one: 31 (call lost)",
        "a user message was added where the provider wants one: once",
        "the provider's cache should hold",
        "unknown in the model's own tokens",
        "due\n  nothing\n",
    ] {
        assert!(page.contains(words), "{words:?} is not printed:\n{page}");
    }
    let due = inspector
        .run_successfully(
            "context",
            &["--explain", "--max-message-count", "20", &conversation.id],
        )
        .await;
    assert!(due.contains("for the number of messages: "), "{due}");
    let under_pressure = inspector
        .run_successfully(
            "context",
            &["--explain", "--pressure", "compact", &conversation.id],
        )
        .await;
    assert_covers(&under_pressure, 32);
    assert!(
        under_pressure.contains("in a summary")
            && under_pressure.contains("because the model refused a longer context"),
        "{under_pressure}"
    );
    assert_eq!(
        count_side_effects(&inspector.app).await,
        before,
        "the commands record and queue nothing"
    );
}

#[tokio::test]
async fn the_explanation_prints_the_request_that_fetches_a_clipped_range() {
    let inspector = ConversationInspector::new().await;
    let conversation = inspector.create_conversation().await;
    let page = inspector
        .run_successfully(
            "context",
            &["--explain", "--pressure", "truncate", &conversation.id],
        )
        .await;
    assert_covers(&page, 32);
    assert!(page.contains("clipped"), "{page}");
    let fetch = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("left out: GetMessage "))
        .expect("a range");
    let fetch: Value = serde_json::from_str(fetch).expect("JSON");
    let number = |value: &Value| value.as_i64().expect("a number");
    let (offset, length) = (
        number(&fetch["range"]["offset"]),
        number(&fetch["range"]["length"]),
    );
    let (text, range) = conversation
        .range(number(&fetch["message_id"]), offset, length)
        .await;
    assert_eq!(
        (range.offset, range.length, text.len() as i64),
        (offset, length, length)
    );
    assert!(text.contains("was inspected"), "{text}");
    let ask = pb::BuildContextRequest {
        pressure: pb::Pressure::TruncateToolResults.into(),
        dry_run: true,
        ..Default::default()
    };
    let clipped = conversation
        .build(ask)
        .await
        .expect("builds")
        .entry(number(&fetch["message_id"]))
        .clipped
        .clone();
    assert!(
        clipped.contains(&pb::ClippedRange { offset, length }),
        "{clipped:?}"
    );
}

#[tokio::test]
async fn a_broken_cache_is_explained_with_its_cost() {
    let inspector = ConversationInspector::new().await;
    let conversation = inspector.create_conversation().await;
    conversation.context().await;
    conversation.turn("And now?", "The same.").await;
    let unbroken = inspector
        .run_successfully("context", &["--explain", &conversation.id])
        .await;
    assert!(
        !unbroken.contains("broken: ") && unbroken.contains("sent the same up to message 33"),
        "the call that gave message 34 had sent all messages before it: {unbroken}"
    );
    conversation.compact("by hand", "").await;
    let page = inspector
        .run_successfully("context", &["--explain", &conversation.id])
        .await;
    assert_covers(&page, 34);
    for words in [
        "covered by the checkpoint",
        "broken: a checkpoint has moved the boundary",
        "pays back after",
    ] {
        assert!(page.contains(words), "{words:?} is not printed:\n{page}");
    }
}

#[tokio::test]
async fn usage_shows_segments_thresholds_and_what_each_cooling_mode_costs() {
    let inspector = ConversationInspector::new().await;
    let conversation = inspector.create_conversation().await;
    conversation.turns(8).await; // 48 messages with the 32 before
    inspector.app.run_jobs_until_idle().await;
    let ask = pb::ReportUsageRequest {
        conversation_id: conversation.id.clone(),
        model: "made-up-1".into(),
        input_tokens: 4_000,
        cached_tokens: 1_000,
        output_tokens: 70,
        ..Default::default()
    };
    inspector
        .app
        .contexts()
        .report_usage(ask)
        .await
        .expect("accepts the report");
    let usage = inspector
        .run_successfully("usage", &[&conversation.id])
        .await;
    let figures = conversation.usage().await;
    for words in [
        format!("{} tokens to send", figures.total_tokens),
        "the token threshold, because no window is known".into(),
        "(48 messages)".into(),
        format!(
            "{} of 10000000 tokens, 48 messages (no threshold)",
            figures.tail_tokens
        ),
    ] {
        assert!(usage.contains(&words), "{words:?} is not printed:\n{usage}");
    }
    assert!(!usage.contains("billed"), "{usage}");
    let with_known_model = [
        "--economics",
        "--model",
        "claude-sonnet-4-5",
        "--max-message-count",
        "60",
        &conversation.id,
    ];
    let costs = inspector.run_successfully("usage", &with_known_model).await;
    for words in [
        "of 200000 (the model's window)",
        "48 of 60 messages",
        "reported: 1 call, 4000 tokens in (25.0 % cached",
    ] {
        assert!(costs.contains(words), "{words:?} is not printed:\n{costs}");
    }
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let figures = inspector
        .app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("answers")
        .into_inner();
    let economics = figures.economics.expect("was requested");
    let costs_by_mode = [economics.none, economics.strict, economics.stepped]
        .map(|mode| mode.expect("is computed"));
    assert!(
        costs_by_mode[1].sent_tokens < costs_by_mode[0].sent_tokens,
        "strict cooling has swapped old messages"
    );
    for (name, expected) in [
        (
            "tokens sent",
            costs_by_mode.map(|mode| mode.sent_tokens as i64),
        ),
        ("breaks", costs_by_mode.map(|mode| mode.cache_breaks)),
    ] {
        let row = costs
            .lines()
            .find(|line| line.contains(name))
            .expect("a row");
        let shown: Vec<i64> = row
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(shown, expected, "none, strict, stepped: {row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_does_what_its_dry_run_printed() {
    let inspector = ConversationInspector::new().await;
    let policy = pb::Policy {
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversation = inspector.app.conversation_with_policy(policy).await;
    let dry_run_as_json = async || -> Value {
        let printed = inspector
            .run_successfully("compact", &["--dry-run", "--json", &conversation.id])
            .await;
        serde_json::from_str(&printed).expect("a line of JSON")
    };
    let empty = inspector
        .run_successfully("compact", &["--dry-run", &conversation.id])
        .await;
    assert!(empty.contains("nothing to summarize"), "{empty}");
    assert_eq!(
        dry_run_as_json().await,
        json!({"conversation_id": conversation.id, "outcome": "no_progress", "preview": null})
    );
    for n in 0..8 {
        conversation
            .turn(&prose(n * 20, 10), &prose(n * 20 + 10, 10))
            .await;
    }
    inspector.app.run_jobs_until_idle().await;
    let before = count_side_effects(&inspector.app).await;
    let dry = inspector
        .run_successfully("compact", &["--dry-run", &conversation.id])
        .await;
    assert!(
        dry.contains(
            "a checkpoint at message 12: 12 messages would be summarized, 4 messages with"
        ),
        "{dry}"
    );
    let printed = dry_run_as_json().await;
    let preview = &printed["preview"];
    assert_eq!(printed["outcome"], "would_create", "{printed}");
    assert_eq!(
        [
            &preview["last_message_id"],
            &preview["trigger"],
            &preview["summarized_messages"],
            &preview["kept_messages"],
            &preview["quoted_message_ids"],
        ],
        [
            &json!(12),
            &json!("manual"),
            &json!(12),
            &json!(4),
            &json!([])
        ],
        "{printed}"
    );
    // The text is broken between words.
    let words: Vec<&str> = dry.split_whitespace().collect();
    for figure in ["tokens_before", "kept_tokens"] {
        let tokens = preview[figure].to_string();
        assert!(words.contains(&tokens.as_str()), "{figure}: {dry}");
    }
    let other = inspector
        .run_successfully(
            "compact",
            &["--dry-run", "--keep-recent", "5 turns", &conversation.id],
        )
        .await;
    assert!(other.contains("a checkpoint at message 6: "), "{other}");
    assert_eq!(count_side_effects(&inspector.app).await, before);
    let refused = inspector
        .run("compact", &["--keep-recent", "5 turns", &conversation.id])
        .await;
    assert!(
        refused.code == Some(1) && refused.err.contains("--dry-run"),
        "{refused:?}"
    );
    let made = inspector
        .run_with_worker(
            "compact",
            &["--wait", "30", "--focus", "turbines", &conversation.id],
        )
        .await;
    assert!(
        made.contains("a checkpoint at message 12: ") && made.contains("(selected by rules)"),
        "{made}"
    );
    assert_eq!(conversation.checkpoints().await[0].last_message_id, 12);
    // Only the two turns that the policy keeps are left. A manual compaction then cuts before the
    // last turn.
    let dry = inspector
        .run_successfully("compact", &["--dry-run", &conversation.id])
        .await;
    assert!(
        dry.contains("a checkpoint at message 14: "),
        "only the last turn is kept: {dry}"
    );
    let queued = inspector
        .run_successfully("compact", &["--wait", "0", &conversation.id])
        .await;
    assert!(queued.starts_with("queued"), "{queued}");
}

#[tokio::test]
async fn an_unknown_conversation_is_reported_as_not_found() {
    let inspector = ConversationInspector::new().await;
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    let commands: [(&str, &[&str]); 5] = [
        ("context", &["--explain", unknown]),
        ("context", &["--format", "openai", unknown]),
        ("usage", &["--economics", unknown]),
        ("compact", &[unknown]),
        ("compact", &["--dry-run", unknown]),
    ];
    let mut errors = String::new();
    for (command, arguments) in commands {
        let refused = inspector.run(command, arguments).await;
        assert_eq!(
            (refused.code, refused.out.as_str()),
            (Some(1), ""),
            "{command} {arguments:?}"
        );
        assert!(
            refused.err.starts_with("anneal: ") && refused.err.contains("not found"),
            "{refused:?}"
        );
        let _ = writeln!(errors, "{}", refused.err);
    }
    assert!(!errors.contains("panicked"), "{errors}");
}
