//! Looking at a conversation from the command line: the provider's request, the manifest in words, usage, compaction.

use std::fmt::Write as _;

use anneal_tests::{Anneal, Folder, House, Ran, Talk, assistant, call, pb, prose, result, user};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::BINARY;

/// The binary, beside a house.
struct Desk {
    house: House,
    folder: Folder,
}

impl Desk {
    async fn new() -> Self {
        Self { house: House::start().await, folder: Folder::new() }
    }

    async fn run(&self, command: &str, arguments: &[&str]) -> Ran {
        let address = format!("http://{}", self.house.addresses.grpc);
        let all = [&[command, "--address", &address], arguments].concat();
        Anneal::new(BINARY, &self.folder, "").run(&all).await
    }

    /// What the command prints; it must succeed and say nothing beside.
    async fn said(&self, command: &str, arguments: &[&str]) -> String {
        let ran = self.run(command, arguments).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{command} {arguments:?}: {}", ran.out);
        ran.out
    }

    /// A conversation for an agent: small talk, tool results of about 1,100 tokens, and what providers refuse.
    async fn talk(&self) -> Talk<'_> {
        let policy = pb::Policy {
            profile: "agents".into(),
            token_threshold: Some(10_000_000),
            keep_recent_turns: Some(1),
            large_message_threshold: Some(200),
            ..Default::default()
        };
        let talk = self.house.conversation_under(policy).await;
        talk.turn("What was inspected?", "I will look.").await;
        talk.append_all(vec![user("Do."), user("And where?")]).await;
        for n in 0..13 {
            let id = format!("call_{n}");
            talk.append_all(vec![call(&id, "{}"), result(&id, &prose(n * 50, 50))]).await;
        }
        talk.append_all(vec![call("lost", "{}"), assistant("Everything, everywhere.")]).await;
        self.house.run_jobs_until_idle().await;
        talk
    }

    /// Runs the worker while a command waits.
    async fn said_with_worker(&self, command: &str, arguments: &[&str]) -> String {
        let stop = CancellationToken::new();
        let worker = tokio::spawn({
            let (worker, stop) = (self.house.worker(), stop.clone());
            async move { worker.run(stop).await }
        });
        let said = self.said(command, arguments).await;
        stop.cancel();
        worker.await.expect("the worker stops");
        said
    }
}

/// Every row that a look could leave behind.
async fn traces(house: &House) -> (i64, i64) {
    let ask = "select (select count(*) from ai_context_prefix), (select count(*) from ai_job)";
    sqlx::query_as(ask).fetch_one(&mut house.db().await).await.expect("counts")
}

/// Numbers at the starts of a page's lines: `4` or `4-9`.
fn ids(page: &str) -> Vec<(i64, i64)> {
    let manifest = page.lines().skip_while(|line| *line != "messages").skip(1).take_while(|line| !line.is_empty());
    let words = manifest.filter(|line| !line.contains("left out: GetMessage"));
    words
        .map(|line| {
            let ids = line.split_whitespace().next().expect("ids");
            let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
            (first.parse().expect("an id"), last.parse().expect("an id"))
        })
        .collect()
}

fn assert_covers(page: &str, last_message_id: i64) {
    let ids = ids(page);
    let next = ids.iter().fold(1, |next, (first, last)| {
        assert_eq!(*first, next, "{page}");
        last + 1
    });
    assert_eq!(next, last_message_id + 1, "{page}");
    let longest = page.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "a line of {longest:?} characters:\n{page}");
}

#[tokio::test]
async fn a_providers_request_is_one_line_of_json_and_nothing_else() {
    let desk = Desk::new().await;
    let talk = desk.talk().await;
    let cases = [
        ("openai", pb::Format::OpenaiChat, "messages"),
        ("anthropic", pb::Format::AnthropicMessages, "messages"),
        ("gemini", pb::Format::GeminiContents, "contents"),
    ];
    for (name, format, key) in cases {
        let line = desk.said("context", &["--format", name, "--input", "And now?", &talk.id]).await;
        assert_eq!(line.matches('\n').count(), 1, "{name}: one line");
        let request: Value = serde_json::from_str(&line).expect("JSON");
        assert!(request[key].is_array() && line.contains("And now?"), "{name}");
        let ask = pb::BuildContextRequest {
            format: format.into(),
            dry_run: true,
            current_input: vec![user("And now?")],
            ..Default::default()
        };
        assert_eq!(talk.build(ask).await.expect("builds").0.rendered.as_deref(), line.strip_suffix('\n'));
    }
    for wrong in [["--format", "yaml"], ["--format", "openai --json"], ["--pressure", "more"]] {
        assert_eq!(desk.run("context", &[&wrong[..], &[&talk.id]].concat()).await.code, Some(2), "{wrong:?}");
    }
    let both = desk.run("context", &["--format", "openai", "--json", &talk.id]).await;
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[tokio::test]
async fn an_explanation_accounts_for_every_message_and_leaves_no_trace() {
    let desk = Desk::new().await;
    let talk = desk.talk().await;
    talk.context().await;
    let before = traces(&desk.house).await;
    let page = desk.said("context", &["--explain", "--format", "anthropic", &talk.id]).await;
    assert_covers(&page, 32);
    for words in [
        "its summary",
        "large, cool and summarised",
        "large, too young to be swapped",
        "1-",
        "joined to the message before, which has the same role: 4",
        "a call without a result got a synthetic one: 31 (call lost)",
        "a user message was put in where the provider wants one: once",
        "the provider's cache should hold",
        "the model has reported none of its own",
        "due\n  nothing\n",
    ] {
        assert!(page.contains(words), "{words:?} is not said:\n{page}");
    }
    let due = desk.said("context", &["--explain", "--max-message-count", "20", &talk.id]).await;
    assert!(due.contains("for the number of messages: "), "{due}");
    let refused = desk.said("context", &["--explain", "--pressure", "compact", &talk.id]).await;
    assert_covers(&refused, 32);
    assert!(refused.contains("in a summary") && refused.contains("because the model has refused more"), "{refused}");
    assert_eq!(traces(&desk.house).await, before, "a look records and queues nothing");
}

#[tokio::test]
async fn what_a_clip_left_out_can_be_fetched_as_the_explanation_says() {
    let desk = Desk::new().await;
    let talk = desk.talk().await;
    let page = desk.said("context", &["--explain", "--pressure", "truncate", &talk.id]).await;
    assert_covers(&page, 32);
    assert!(page.contains("clipped"), "{page}");
    let fetch = page.lines().find_map(|line| line.trim().strip_prefix("left out: GetMessage ")).expect("a range");
    let fetch: Value = serde_json::from_str(fetch).expect("JSON, to be pasted");
    let number = |value: &Value| value.as_i64().expect("a number");
    let (offset, length) = (number(&fetch["range"]["offset"]), number(&fetch["range"]["length"]));
    let (text, range) = talk.range(number(&fetch["message_id"]), offset, length).await;
    assert_eq!((range.offset, range.length, text.len() as i64), (offset, length, length));
    assert!(text.contains("was inspected"), "{text}");
    let ask = pb::BuildContextRequest {
        pressure: pb::Pressure::TruncateToolResults.into(),
        dry_run: true,
        ..Default::default()
    };
    let clipped = talk.build(ask).await.expect("builds").entry(number(&fetch["message_id"])).clipped.clone();
    assert!(clipped.contains(&pb::ClippedRange { offset, length }), "{clipped:?}");
}

#[tokio::test]
async fn a_broken_cache_is_explained_with_what_it_costs() {
    let desk = Desk::new().await;
    let talk = desk.talk().await;
    talk.context().await;
    talk.turn("And now?", "The same.").await;
    let whole = desk.said("context", &["--explain", &talk.id]).await;
    assert!(!whole.contains("broken: ") && whole.contains("sent the same before up to message 33"), "{whole}");
    talk.compact("by hand", "").await;
    let page = desk.said("context", &["--explain", &talk.id]).await;
    assert_covers(&page, 34);
    for words in ["covered by the checkpoint", "broken: a checkpoint has moved the boundary", "pays back after"] {
        assert!(page.contains(words), "{words:?} is not said:\n{page}");
    }
}

#[tokio::test]
async fn usage_shows_segments_thresholds_and_what_each_way_of_cooling_costs() {
    let desk = Desk::new().await;
    let talk = desk.talk().await;
    talk.turns(8).await;
    desk.house.run_jobs_until_idle().await;
    let ask = pb::ReportUsageRequest {
        conversation_id: talk.id.clone(),
        model: "made-up-1".into(),
        input_tokens: 4_000,
        cached_tokens: 1_000,
        output_tokens: 70,
        ..Default::default()
    };
    desk.house.contexts().report_usage(ask).await.expect("takes it");
    let usage = desk.said("usage", &[&talk.id]).await;
    let figures = talk.usage().await;
    for words in [
        format!("{} tokens to send", figures.total_tokens),
        "the token threshold, for no window is known".into(),
        "(48 messages)".into(),
        format!("{} of 10000000 tokens, 48 messages (no threshold)", figures.tail_tokens),
    ] {
        assert!(usage.contains(&words), "{words:?} is not said:\n{usage}");
    }
    assert!(!usage.contains("billed"), "{usage}");
    let known = ["--economics", "--model", "claude-sonnet-4-5", "--max-message-count", "60", &talk.id];
    let costs = desk.said("usage", &known).await;
    for words in
        ["of 200000 (the model's window)", "48 of 60 messages", "reported: 1 call, 4000 tokens in (25.0 % cached"]
    {
        assert!(costs.contains(words), "{words:?} is not said:\n{costs}");
    }
    let ask = pb::GetContextUsageRequest { conversation_id: talk.id.clone(), economics: true, ..Default::default() };
    let figures = desk.house.contexts().get_context_usage(ask).await.expect("answers").into_inner();
    let economics = figures.economics.expect("asked for");
    let bills = [economics.none, economics.strict, economics.stepped].map(|bill| bill.expect("is worked out"));
    assert!(bills[1].sent_tokens < bills[0].sent_tokens, "turns have passed: strict cooling has swapped");
    for (name, figure) in
        [("tokens sent", bills.map(|bill| bill.sent_tokens as i64)), ("breaks", bills.map(|bill| bill.cache_breaks))]
    {
        let row = costs.lines().find(|line| line.contains(name)).expect("a row");
        let shown: Vec<i64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert_eq!(shown, figure, "none, strict, stepped: {row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_does_what_its_dry_run_said() {
    let desk = Desk::new().await;
    let policy = pb::Policy { keep_recent_turns: Some(2), ..Default::default() };
    let talk = desk.house.conversation_under(policy).await;
    let short = desk.said("compact", &["--dry-run", &talk.id]).await;
    assert!(short.contains("nothing to summarise"), "{short}");
    for n in 0..8 {
        talk.turn(&prose(n * 20, 10), &prose(n * 20 + 10, 10)).await;
    }
    desk.house.run_jobs_until_idle().await;
    let before = traces(&desk.house).await;
    let dry = desk.said("compact", &["--dry-run", &talk.id]).await;
    assert!(dry.contains("a checkpoint at message 12: 12 messages would be summarised, 4 messages with"), "{dry}");
    let other = desk.said("compact", &["--dry-run", "--keep-recent", "5 turns", &talk.id]).await;
    assert!(other.contains("a checkpoint at message 6: "), "{other}");
    assert_eq!(traces(&desk.house).await, before);
    let refused = desk.run("compact", &["--keep-recent", "5 turns", &talk.id]).await;
    assert!(refused.code == Some(1) && refused.err.contains("--dry-run"), "{refused:?}");
    let made = desk.said_with_worker("compact", &["--wait", "30", "--focus", "turbines", &talk.id]).await;
    assert!(made.contains("a checkpoint at message 12: ") && made.contains("(picked by rules)"), "{made}");
    assert_eq!(talk.checkpoints().await[0].last_message_id, 12);
    let dry = desk.said("compact", &["--dry-run", &talk.id]).await;
    assert!(dry.contains("a checkpoint at message 14: "), "the last turn always stays: {dry}");
    let queued = desk.said("compact", &["--wait", "0", &talk.id]).await;
    assert!(queued.starts_with("queued"), "{queued}");
}

#[tokio::test]
async fn what_is_not_there_is_said_in_a_sentence() {
    let desk = Desk::new().await;
    let unknown = "0190aaaa-0000-7000-8000-000000000000";
    let commands: [(&str, &[&str]); 5] = [
        ("context", &["--explain", unknown]),
        ("context", &["--format", "openai", unknown]),
        ("usage", &["--economics", unknown]),
        ("compact", &[unknown]),
        ("compact", &["--dry-run", unknown]),
    ];
    let mut said = String::new();
    for (command, arguments) in commands {
        let refused = desk.run(command, arguments).await;
        assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{command} {arguments:?}");
        assert!(refused.err.starts_with("anneal: ") && refused.err.contains("not found"), "{refused:?}");
        let _ = writeln!(said, "{}", refused.err);
    }
    assert!(!said.contains("panicked"), "{said}");
}
