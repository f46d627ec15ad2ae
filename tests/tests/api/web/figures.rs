//! The figures on the X-ray are those of the RPCs, for every real conversation. The gate takes every
//! sixteenth of the small dialogues. The tests are skipped if the transcripts are missing.

use std::collections::BTreeMap;

use anneal_testkit::{
    AppendedChat, Chat, PageClient, ScriptedModel, TestApp, TestConversation, TranscriptFolder,
    gate_or_nightly, pb, prose,
};

use super::{location, open};

/// Most runs that the strip draws one by one.
const MOST_RUNS: usize = 400;

/// The elements of the page with this attribute: their attributes, without `data-`.
fn elements(page: &str, marked: &str) -> Vec<BTreeMap<String, String>> {
    let tags = page.split('<').filter_map(|tag| tag.split_once('>'));
    let found = tags.filter(|(tag, _)| {
        let mut names = tag.split([' ', '=']);
        names.any(|name| name == marked)
    });
    let attributes = found.map(|(tag, _)| {
        let pairs = tag.split(" data-").skip(1).filter_map(|pair| {
            let (name, value) = pair.split_once("=\"")?;
            Some((name.to_owned(), value.split('"').next()?.to_owned()))
        });
        pairs.collect()
    });
    attributes.collect()
}

/// A number of an element.
#[track_caller]
fn number(element: &BTreeMap<String, String>, name: &str) -> u64 {
    let value = element.get(name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

/// The first element with this attribute.
#[track_caller]
fn element(page: &str, marked: &str) -> BTreeMap<String, String> {
    let found = elements(page, marked).into_iter().next();
    found.unwrap_or_else(|| panic!("no element has {marked}"))
}

/// Whether a context did not read these messages, because it begins after them.
fn is_unread(entry: &pb::ManifestEntry) -> bool {
    let before_boundary = [
        pb::Representation::Checkpoint,
        pb::Representation::BeforeSeparator,
    ];
    before_boundary.contains(&entry.representation())
}

/// Checks the sums of a strip, in its head and of its runs. `stored`: tokens of all messages that
/// stand.
fn check_sums(page: &str, manifest: &[pb::ManifestEntry], stored: u64, name: &str) {
    let sent: u64 = manifest.iter().map(|entry| entry.tokens).sum();
    let original = if manifest.iter().any(is_unread) {
        stored
    } else {
        manifest.iter().map(|entry| entry.original_tokens).sum()
    };
    let strip = element(page, "data-original-tokens");
    for (figure, expected) in [("tokens", sent), ("original-tokens", original)] {
        assert_eq!(number(&strip, figure), expected, "{name}: {figure}");
        let runs = elements(page, "data-first");
        let drawn: u64 = runs.iter().map(|run| number(run, figure)).sum();
        assert_eq!(drawn, expected, "{name}: {figure} of the runs");
    }
}

/// Checks the strip of a page against the manifest.
fn check_strip(page: &str, manifest: &[pb::ManifestEntry], stored: u64, name: &str) {
    check_sums(page, manifest, stored, name);
    let runs = elements(page, "data-first");
    let mut next = 1;
    for run in &runs {
        assert_eq!(number(run, "first"), next, "{name}");
        next = number(run, "last") + 1;
    }
    let last = manifest.last().map_or(0, |entry| entry.last_message_id);
    assert_eq!(next, last.unsigned_abs() + 1, "{name}");
    if manifest.len() > MOST_RUNS {
        assert!(runs.len() <= MOST_RUNS, "{name}: {} runs", runs.len());
        return;
    }
    assert_eq!(runs.len(), manifest.len(), "{name}");
    for (run, entry) in runs.iter().zip(manifest) {
        let figures = [
            number(run, "first"),
            number(run, "last"),
            number(run, "tokens"),
        ];
        let expected = [
            entry.first_message_id.unsigned_abs(),
            entry.last_message_id.unsigned_abs(),
            entry.tokens,
        ];
        assert_eq!(figures, expected, "{name}");
        if entry.original_tokens > 0 {
            let original = number(run, "original-tokens");
            assert_eq!(original, entry.original_tokens, "{name}");
        }
        let state = match entry.representation() {
            pb::Representation::Summary => "summary",
            pb::Representation::Checkpoint => "checkpoint",
            pb::Representation::BeforeSeparator => "separated",
            pb::Representation::Clipped => "clipped",
            pb::Representation::Dropped => "dropped",
            pb::Representation::Repaired => "repaired",
            pb::Representation::Withdrawn => "withdrawn",
            _ => "original",
        };
        assert_eq!(run["state"], state, "{name}");
    }
}

/// Checks the window and the costs of a page against the figures of the RPC.
fn check_usage(page: &str, usage: &pb::GetContextUsageResponse, name: &str) {
    let window = element(page, "data-total");
    let figures = ["total", "window", "saved", "pending-saved"].map(|it| number(&window, it));
    let expected = [
        usage.total_tokens,
        usage.model_window_tokens,
        usage.saved_tokens,
        usage.pending_saved_tokens,
    ];
    assert_eq!(figures, expected, "{name}");
    let thresholds = elements(page, "data-threshold");
    let before_tail = usage
        .segments
        .iter()
        .filter(|it| it.segment() != pb::Segment::Tail);
    let before_tail: u64 = before_tail.map(|it| it.tokens).sum();
    assert_eq!(
        number(&thresholds[0], "threshold"),
        before_tail.saturating_add(usage.token_threshold),
        "{name}"
    );
    if usage.model_window_tokens > 0 {
        let last = thresholds.last().expect("a mark");
        assert_eq!(
            number(last, "threshold"),
            usage.model_window_tokens,
            "{name}"
        );
    }
    if usage.max_message_count > 0 {
        let messages = element(page, "data-max-messages");
        let figures = ["tail-messages", "max-messages"].map(|it| number(&messages, it));
        let expected = [
            usage.tail_messages.unsigned_abs(),
            usage.max_message_count.into(),
        ];
        assert_eq!(figures, expected, "{name}");
    }
    let segments = elements(page, "data-segment");
    let tokens: Vec<u64> = segments.iter().map(|it| number(it, "tokens")).collect();
    let expected: Vec<u64> = usage.segments.iter().map(|it| it.tokens).collect();
    assert_eq!(tokens, expected, "{name}");
    let economics = usage.economics.expect("economics");
    let bills = elements(page, "data-bill");
    let expected = [economics.none, economics.strict, economics.stepped];
    assert_eq!(bills.len(), 3, "{name}");
    for (bill, expected) in bills.iter().zip(expected) {
        let expected = expected.expect("a bill");
        let figures = ["sent", "cached", "breaks"].map(|it| number(bill, it));
        let breaks = expected.cache_breaks.unsigned_abs();
        let expected_figures = [expected.sent_tokens, expected.cached_tokens, breaks];
        assert_eq!(figures, expected_figures, "{name}");
        let units: f64 = bill["units"].parse().expect("a number");
        assert!((units - expected.billed_units).abs() < 1e-6, "{name}");
    }
    let spend = economics.summarizer.unwrap_or_default();
    let summaries = element(page, "data-summary-read");
    let figures = [
        "summaries",
        "checkpoints",
        "summary-read",
        "summary-written",
    ];
    let expected = [
        spend.summaries.unsigned_abs(),
        spend.checkpoints.unsigned_abs(),
        spend.model_read_tokens,
        spend.model_written_tokens,
    ];
    assert_eq!(figures.map(|it| number(&summaries, it)), expected, "{name}");
}

/// Opens the X-ray of a conversation and checks its figures.
async fn check(browser: &mut PageClient, conversation: &TestConversation<'_>, name: &str) {
    let path = format!("/conversations/{}/xray", conversation.id);
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..Default::default()
    };
    let built = conversation.build(ask).await.expect("builds");
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let usage = conversation.app.contexts().get_context_usage(ask).await;
    let usage = usage.expect("answers").into_inner();
    let page = open(browser, &path).await;
    let stored = stored_tokens(conversation).await;
    check_strip(&page, &built.0.manifest, stored, name);
    check_usage(&page, &usage, name);
}

/// Tokens of the messages that stand.
async fn stored_tokens(conversation: &TestConversation<'_>) -> u64 {
    let total = conversation.conversation().await.token_total;
    total.expect("a total").tokens
}

async fn check_family(chats: &[Chat], profile: &str) {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let policy = pb::Policy {
        profile: profile.into(),
        ..Default::default()
    };
    let appended: Vec<AppendedChat<'_>> = app.append_chats(chats, &policy).await;
    assert!(!appended.is_empty(), "nothing was checked");
    let mut browser = app.page_client();
    for chat in &appended {
        check(&mut browser, &chat.conversation, &chat.name).await;
    }
}

#[tokio::test]
async fn figures_of_long_sessions_equal_manifest_and_usage() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let families = [
        folder.pi_sessions(),
        folder.mini_swe_agent(),
        folder.swe_agent(),
        folder.tau_bench(),
        folder.locomo(),
    ];
    for (chats, profile) in families
        .iter()
        .zip(["agents", "default", "agents", "claw0", "default"])
    {
        check_family(chats, profile).await;
    }
}

#[tokio::test]
async fn figures_of_small_dialogues_equal_manifest_and_usage() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let step = gate_or_nightly(16, 1);
    for chats in [
        folder.crosswoz(usize::MAX),
        folder.kdconv(usize::MAX),
        folder.xpersona(),
    ] {
        let taken: Vec<Chat> = chats.iter().step_by(step).cloned().collect();
        check_family(&taken, "default").await;
    }
}

/// A conversation with a checkpoint, a summarized message, and two eras with reported calls.
async fn eventful(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(12),
        large_message_threshold: Some(200),
        hot_zone_radius: Some(1),
        keep_recent_turns: Some(3),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turns(4).await;
    conversation.context().await;
    report(&conversation, 1_000).await;
    conversation.turns(3).await;
    app.run_jobs_until_idle().await;
    conversation.turn(&prose(0, 60), "read").await;
    conversation.turns(2).await;
    app.run_jobs_until_idle().await;
    conversation.context().await;
    report(&conversation, 77).await;
    conversation
}

async fn report(conversation: &TestConversation<'_>, input_tokens: u64) {
    let ask = pb::ReportUsageRequest {
        conversation_id: conversation.id.clone(),
        model: "made-up-1".into(),
        input_tokens,
        ..Default::default()
    };
    let reported = conversation.app.contexts().report_usage(ask).await;
    reported.expect("accepts the report");
}

#[tokio::test]
async fn every_part_of_the_xray_shows_what_the_rpcs_answer() {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = eventful(&app).await;
    let mut browser = app.page_client();
    check(&mut browser, &conversation, "eventful").await;
    let base = format!("/conversations/{}/xray", conversation.id);
    let page = open(&mut browser, &base).await;
    let reported = element(&page, "data-cold-by-us");
    assert_eq!(
        (number(&reported, "calls"), number(&reported, "input")),
        (2, 1_077)
    );
    let checkpoints = conversation.checkpoints().await;
    let marks = elements(&page, "data-checkpoint");
    assert_eq!(marks.len(), checkpoints.len());
    let last = checkpoints[0].last_message_id;
    let shown = open(&mut browser, &format!("{base}/checkpoints/{last}")).await;
    let provenance = element(&shown, "data-provenance");
    assert_eq!(number(&provenance, "tokens"), checkpoints[0].token_usage);
    let strip = open(&mut browser, &format!("{base}/strip")).await;
    let runs = elements(&strip, "data-first");
    assert!(runs.len() > elements(&page, "data-first").len(), "{strip}");
    let manifest = manifest(&conversation).await;
    let stored = stored_tokens(&conversation).await;
    check_sums(&strip, &manifest, stored, "in detail");
    let eras = open(&mut browser, &format!("{base}/eras")).await;
    let calls = elements(&eras, "data-era")
        .iter()
        .map(|era| (number(era, "calls"), number(era, "input")))
        .collect::<Vec<_>>();
    assert_eq!(calls.iter().map(|it| it.1).sum::<u64>(), 1_077, "{calls:?}");
    assert_eq!(calls.last(), Some(&(1, 1_000)), "of the first era");
    let then = open(&mut browser, &format!("{base}/at/8")).await;
    assert_eq!(number(&element(&then, "data-point"), "boundary"), 0);
    let messages = conversation.messages().await;
    let summarized = messages.iter().find(|it| it.summary.is_some());
    let summarized = summarized.expect("a message is summarized");
    let path = format!("{base}/messages/{}", summarized.message_id);
    let original = open(&mut browser, &path).await;
    let summary = summarized.summary.as_ref().expect("a summary");
    assert_eq!(
        number(&element(&original, "data-provenance"), "tokens"),
        summary.tokens
    );
    let is_covered = summarized.message_id <= last;
    let covering = elements(&original, "data-stands-for").len();
    assert_eq!(covering, usize::from(is_covered), "{original}");
    let covered = open(&mut browser, &format!("{base}/messages/1")).await;
    assert_eq!(
        number(&element(&covered, "data-stands-for"), "stands-for"),
        1
    );
    let provenance = element(&covered, "data-provenance");
    assert_eq!(number(&provenance, "tokens"), checkpoints[0].token_usage);
    for path in [
        "checkpoints/99999",
        "messages/99999",
        "messages/0",
        "at/x",
        "at/-1",
        "strip?last=-9223372036854775808",
        "strip?first=x",
        "strip?budget=few",
    ] {
        let answer = browser.get(&format!("{base}/{path}")).await;
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
    }
}

/// The manifest of the context of now.
async fn manifest(conversation: &TestConversation<'_>) -> Vec<pb::ManifestEntry> {
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..Default::default()
    };
    conversation.build(ask).await.expect("builds").0.manifest
}

#[tokio::test]
async fn a_strip_shows_separator_checkpoint_and_withdrawn_messages_apart() {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let policy = pb::Policy {
        max_message_count: Some(8),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turns(2).await;
    conversation.insert_separator().await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    let withdrawn = conversation.withdraw(&[1, 2]).send().await;
    withdrawn.expect("the messages are withdrawn");
    app.run_jobs_until_idle().await;
    let manifest = manifest(&conversation).await;
    let unread = manifest.iter().filter(|it| is_unread(it)).count();
    assert_eq!(unread, 2, "{manifest:?}");
    let stored = stored_tokens(&conversation).await;
    let mut browser = app.page_client();
    let base = format!("/conversations/{}/xray", conversation.id);
    let page = open(&mut browser, &base).await;
    check_strip(&page, &manifest, stored, "page");
    // The boundary of the separator is exact, though the context reads none of its messages.
    let separated = &elements(&page, "data-first")[0];
    let strip = open(&mut browser, &format!("{base}/strip")).await;
    check_sums(&strip, &manifest, stored, "in detail");
    let runs = elements(&strip, "data-first");
    let of_separator: u64 = runs[..4]
        .iter()
        .map(|run| number(run, "original-tokens"))
        .sum();
    assert_eq!(number(separated, "original-tokens"), of_separator);
    let states: Vec<&str> = runs.iter().map(|run| run["state"].as_str()).collect();
    assert_eq!(
        states[..5],
        [
            "withdrawn",
            "withdrawn",
            "separated",
            "separated",
            "checkpoint"
        ]
    );
    // A range has the summary only with the end of the messages that it stands for.
    let part = open(&mut browser, &format!("{base}/strip?first=1&last=6")).await;
    assert_eq!(number(&element(&part, "data-original-tokens"), "tokens"), 0);
    let runs = elements(&part, "data-first");
    assert_eq!(number(runs.last().expect("a run"), "last"), 6);
}

#[tokio::test]
async fn the_context_as_it_was_counts_summaries_of_then() {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        hot_zone_radius: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turn(&prose(0, 60), "read").await;
    conversation.turns(3).await;
    app.run_jobs_until_idle().await;
    conversation.context().await;
    let manifest = manifest(&conversation).await;
    let messages = conversation.messages().await;
    let swapped = manifest
        .iter()
        .filter(|it| it.representation() == pb::Representation::Summary);
    let swapped: Vec<i64> = swapped.map(|it| it.first_message_id).collect();
    assert!(!swapped.is_empty(), "{manifest:?}");
    let mut expected = 0;
    for entry in &manifest {
        let of_entry = messages
            .iter()
            .filter(|it| it.message_id == entry.first_message_id);
        let summary = of_entry.into_iter().find_map(|it| it.summary.as_ref());
        expected += match summary {
            // In a context, a line around it says of what it is the summary.
            Some(summary) if swapped.contains(&entry.first_message_id) => summary.tokens,
            _ => entry.tokens,
        };
    }
    let mut browser = app.page_client();
    let last = messages.last().expect("a message").message_id;
    let path = format!("/conversations/{}/xray/at/{last}", conversation.id);
    let page = open(&mut browser, &path).await;
    let point = element(&page, "data-point");
    assert_eq!(number(&point, "swapped"), swapped.len() as u64);
    assert_eq!(number(&point, "tokens"), expected, "{page}");
    let runs = elements(&page, "data-first");
    let summaries = runs.iter().filter(|run| run["state"] == "summary");
    assert_eq!(summaries.count(), swapped.len());
}

#[tokio::test]
async fn fragments_are_pages_unless_the_script_asks() {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = eventful(&app).await;
    let last = conversation.checkpoints().await[0].last_message_id;
    let mut browser = app.page_client();
    for fragment in [
        "strip".to_owned(),
        "eras".to_owned(),
        "checkpoints".to_owned(),
        format!("checkpoints/{last}"),
        "messages/1".to_owned(),
        "at/3".to_owned(),
    ] {
        let path = format!("/conversations/{}/xray/{fragment}", conversation.id);
        let page = open(&mut browser, &path).await;
        assert!(
            page.contains("<html") && page.contains("<h1>"),
            "{fragment}"
        );
        let ask = browser.request("GET", &path).header("hx-request", "true");
        let alone = browser.send(ask).await;
        assert_eq!(alone.status, 200, "{alone:?}");
        assert!(!alone.body.contains("<html"), "{fragment}");
        assert!(page.contains(alone.body.trim()), "{fragment}");
    }
}

/// Checks the figures of now and then on a page of what-if.
async fn check_effects(
    conversation: &TestConversation<'_>,
    page: &str,
    then: &pb::BuildContextResponse,
    policy: pb::Policy,
) {
    let ask = pb::BuildContextRequest {
        dry_run: true,
        ..Default::default()
    };
    let now = conversation.build(ask).await.expect("builds");
    let usage = async |policy| {
        let ask = pb::GetContextUsageRequest {
            conversation_id: conversation.id.clone(),
            policy,
            economics: true,
            ..Default::default()
        };
        let usage = conversation.app.contexts().get_context_usage(ask).await;
        usage.expect("answers").into_inner()
    };
    let usage_then = usage(Some(policy)).await;
    check_usage(page, &usage_then, "what if");
    let economics = [usage(None).await, usage_then].map(|it| it.economics.expect("economics"));
    let bill = |bill: Option<pb::Bill>| bill.expect("a bill").billed_units.round() as u64;
    let effect = |name: &str| {
        let effects = elements(page, "data-effect");
        let found = effects.into_iter().find(|it| it["effect"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not compared"));
        [number(&found, "now"), number(&found, "then")]
    };
    assert_eq!(effect("total"), [now.0.total_tokens, then.total_tokens]);
    assert_eq!(effect("none"), economics.map(|it| bill(it.none)));
    assert_eq!(effect("strict"), economics.map(|it| bill(it.strict)));
    assert_eq!(effect("stepped"), economics.map(|it| bill(it.stepped)));
    let built = number(&element(page, "data-built"), "built");
    assert_eq!(built, then.total_tokens);
}

#[tokio::test]
async fn what_if_shows_other_settings_and_stores_them_on_demand() {
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for n in 0..8 {
        conversation.turn(&prose(n * 50, 30), "noted").await;
    }
    app.run_jobs_until_idle().await;
    let mut browser = app.page_client();
    let path = format!("/conversations/{}/what-if", conversation.id);
    let budget = 2_000;
    let page = open(
        &mut browser,
        &format!("{path}?budget={budget}&max_message_count=6&cooling=strict"),
    )
    .await;
    let policy = pb::Policy {
        max_message_count: Some(6),
        cooling: pb::Cooling::Strict.into(),
        ..Default::default()
    };
    let ask = pb::BuildContextRequest {
        dry_run: true,
        budget_tokens: Some(budget),
        policy: Some(policy.clone()),
        ..Default::default()
    };
    let built = conversation.build(ask).await.expect("builds");
    let stored = stored_tokens(&conversation).await;
    check_strip(&page, &built.0.manifest, stored, "what if");
    check_effects(&conversation, &page, &built.0, policy).await;
    let due = built.0.due.expect("a checkpoint is due");
    let shown = number(&element(&page, "data-due"), "due");
    assert_eq!(shown, due.last_message_id.unsigned_abs());
    assert_eq!(elements(&page, "data-differs").len(), 2);
    // Nothing is stored yet.
    let stored = conversation.conversation().await.policy;
    assert_eq!(stored.unwrap_or_default().max_message_count, None);
    for (query, control) in [
        ("budget=1", "r-budget"),
        ("budget=1", "e-budget"),
        ("token_threshold=many", "e-token_threshold"),
        ("keep_recent=some", "e-keep_recent"),
        ("profile=unknown", "Refused"),
    ] {
        let refused = open(&mut browser, &format!("{path}?{query}")).await;
        assert!(refused.contains(control), "{query}: {refused}");
    }
    let etag = conversation.conversation().await.etag;
    let fields = [("max_message_count", "6"), ("etag", etag.as_str())];
    let saved = browser.post(&path, &fields).await;
    let xray = format!("/conversations/{}/xray", conversation.id);
    assert_eq!(location(&saved), format!("{xray}?notice=saved"));
    let stored = conversation.conversation().await.policy.expect("a policy");
    assert_eq!(stored.max_message_count, Some(6));
    let again = browser.post(&path, &fields).await;
    assert_eq!(again.status, 412, "the etag is an old one: {again:?}");
    let shown = open(&mut browser, &format!("{path}?reset=max_message_count")).await;
    let differs = element(&shown, "data-differs");
    assert_eq!(differs["differs"], "max_message_count");
    let etag = conversation.conversation().await.etag;
    let fields = [("reset", "max_message_count"), ("etag", etag.as_str())];
    location(&browser.post(&path, &fields).await);
    let stored = conversation.conversation().await.policy;
    assert_eq!(stored.unwrap_or_default().max_message_count, None);
}
