//! The figures on the X-ray are those of the RPCs, for every real conversation. The gate takes every
//! sixteenth of the small dialogues. The tests are skipped if the transcripts are missing.

use anneal_testkit::{
    AppendedChat, Chat, PageClient, ScriptedModel, TestApp, TestConversation, TranscriptFolder,
    gate_or_nightly, pb, prose,
};

use super::{
    drawn::{
        check_strip, check_sums, check_usage, element, elements, is_unread, number, stored_tokens,
    },
    open,
};

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
