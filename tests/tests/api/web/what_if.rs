//! What-if shows what the RPCs answer under other settings, and stores settings on demand only.

use anneal_testkit::{ScriptedModel, TestApp, TestConversation, pb, prose};

use super::{
    drawn::{check_strip, check_usage, element, elements, number, stored_tokens},
    location, open,
};

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
