//! Profiles and their rules: thresholds derived from the model's window, checkpoints that keep half
//! of the messages or end before the last user message, tool messages that are not stored.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::{
    model::Models,
    policy::{PolicyOverrides, Profile, SessionSettings},
};
use anneal_testkit::{
    TestApp, TestConversation, assert_refused, assistant, call, message, pb, prose, result, user,
};
use pb::{Reason, Representation, part::Part};
use tonic::Code;

use crate::contexts::conversation_with_profile;

/// Appends a turn of about 260 tokens.
async fn append_turn(conversation: &TestConversation<'_>, n: usize) {
    conversation
        .turn(&prose(n * 10, 6), &prose(n * 10 + 6, 6))
        .await;
}

#[tokio::test]
async fn every_profile_has_its_thresholds() {
    let app = TestApp::start().await;
    // The profile, its token_threshold and its max_message_count (0: no limit).
    let expected = [
        ("default", 2_000_000, 50),
        ("zeroclaw", 12_000, 41),
        ("claw0", 180_000, 0),
        ("ai-panel", 80_001, 0),
        // The window is unknown and assumed to be 128,000 tokens. The threshold is 16,384 below it.
        ("openclaw", 128_000 - 16_384, 0),
    ];
    for (profile, tokens, messages) in expected {
        let conversation = conversation_with_profile(&app, profile).await;
        assert_eq!(
            conversation
                .conversation()
                .await
                .policy
                .expect("its own")
                .profile,
            profile
        );
        append_turn(&conversation, 1).await;
        app.run_jobs_until_idle().await;
        let usage = conversation.usage().await;
        assert_eq!(
            (usage.token_threshold, usage.max_message_count),
            (tokens, messages),
            "{profile}"
        );
        conversation.context().await.assert_covers(2);
    }
    let conversation = conversation_with_profile(&app, "agents").await;
    append_turn(&conversation, 1).await;
    app.run_jobs_until_idle().await;
    // At least 1.5 times the 20,000 tokens that the profile keeps, and below the assumed window.
    let auto = conversation.usage().await.token_threshold;
    assert!(
        (30_000..128_000).contains(&auto),
        "the threshold at which checkpoints and cache cost least: {auto}"
    );
}

#[tokio::test]
async fn row_Z6_zeroclaw_keeps_only_text_and_cuts_before_the_last_user_message() {
    let app = TestApp::start().await;
    let conversation = conversation_with_profile(&app, "zeroclaw").await;
    let text_and_call = message(
        pb::Role::Assistant,
        vec![
            Part::Text(pb::TextPart {
                text: "Let me look.".into(),
            }),
            Part::ToolUse(pb::ToolUsePart {
                id: "a".into(),
                name: "look".into(),
                input: "{}".into(),
            }),
        ],
    );
    let all = vec![
        user("what is there?"),
        call("b", "{}"),
        result("b", "a sea"),
        text_and_call,
        result("a", "a boat"),
        assistant("A boat."),
    ];
    let first = conversation.append_all(all.clone()).request_id("r1").await;
    assert_eq!(
        (first.skipped.as_slice(), first.messages.len()),
        ([1, 2, 4].as_slice(), 3)
    );
    assert_eq!(
        first
            .messages
            .iter()
            .map(|message| message.message_id)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let again = conversation.append_all(all).request_id("r1").await;
    assert!(again.replayed);
    assert_eq!(
        (again.skipped, again.messages),
        (first.skipped, first.messages)
    );
    let texts: Vec<String> = conversation
        .context()
        .await
        .texts_by_role()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["what is there?", "Let me look.\n\nA boat."]);
    let tools_alone = conversation
        .append_all(vec![call("c", "{}"), result("c", "nothing")])
        .await;
    assert_eq!(
        (tools_alone.messages.len(), tools_alone.skipped),
        (0, vec![0, 1])
    );
    let nothing = conversation
        .append_all(vec![call("e", "{}")])
        .request_id("r2")
        .await;
    assert!(nothing.messages.is_empty() && !nothing.replayed);
    assert!(
        conversation
            .append_all(vec![call("e", "{}")])
            .request_id("r2")
            .await
            .replayed
    );
    let reused = conversation.append("hello").request_id("r2").send().await;
    assert_refused(reused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    let stale = conversation
        .append_all(vec![call("d", "{}")])
        .expecting(1)
        .send()
        .await;
    assert_refused(stale, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");

    for n in 0..19 {
        append_turn(&conversation, n).await;
    }
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        checkpoints[0].last_message_id, 39,
        "of the 41 messages, those from the last user message on are kept"
    );
    conversation.verify().await;

    let without_user = conversation_with_profile(&app, "zeroclaw").await;
    without_user
        .append_all(
            (0..60)
                .map(|n| assistant(&format!("Still here, {n}.")))
                .collect(),
        )
        .await;
    app.run_jobs_until_idle().await;
    assert!(
        without_user.checkpoints().await.is_empty(),
        "without a user message there is no place to cut"
    );
    without_user.verify().await;
}

#[tokio::test]
async fn a_long_append_is_stored_without_its_tool_messages() {
    let app = TestApp::start().await;
    let conversation = conversation_with_profile(&app, "zeroclaw").await;
    let long = prose(0, 2_000);
    let all = vec![
        user(&long),
        call("a", "{}"),
        result("a", &long),
        assistant(&long),
    ];
    let first = conversation.append_all(all.clone()).request_id("r").await;
    let ids: Vec<i64> = first.messages.iter().map(|one| one.message_id).collect();
    assert_eq!((ids, &first.skipped), (vec![1, 2], &vec![1, 2]));
    let again = conversation.append_all(all).request_id("r").await;
    assert!(again.replayed);
    assert_eq!(
        (again.messages, again.skipped),
        (first.messages, first.skipped)
    );
    let nothing = conversation.append_all(vec![result("b", &long)]).await;
    assert_eq!((nothing.messages.len(), nothing.skipped), (0, vec![0]));
    app.run_jobs_until_idle().await;
    conversation.verify().await;
}

#[tokio::test]
async fn row_C4_a_checkpoint_of_claw0_keeps_half_of_the_messages() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "claw0".into(),
        token_threshold: Some(2_500),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..10 {
        append_turn(&conversation, n).await;
    }
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(
        checkpoints[0].last_message_id, 10,
        "the newest half of 20 messages is kept"
    );
}

#[tokio::test]
async fn the_token_threshold_of_openclaw_is_at_least_a_quarter_of_the_window() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        profile: "openclaw".into(),
        window_tokens: Some(20_000),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    // About 3,900 tokens: more than the window less 16,384, but less than a quarter of the window.
    for n in 0..15 {
        append_turn(&conversation, n).await;
    }
    app.run_jobs_until_idle().await;
    assert!(
        conversation.checkpoints().await.is_empty(),
        "the threshold is at least a quarter of the window"
    );
    assert_eq!(conversation.usage().await.token_threshold, 5_000);
    let known = pb::Policy {
        profile: "openclaw".into(),
        model: "gpt-4o".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(known).await;
    assert_eq!(conversation.usage().await.model_window_tokens, 128_000);
}

#[tokio::test]
async fn the_servers_profile_and_models_apply_to_conversations_without_their_own() {
    let server_policy = PolicyOverrides {
        profile: Some(Profile::Openclaw),
        model: Some("our-model".into()),
        ..PolicyOverrides::default()
    };
    let models: Models =
        serde_json::from_str(r#"{"our-model": {"window_tokens": 64000}}"#).expect("reads");
    let app = TestApp::with_session(SessionSettings::new(server_policy, models)).await;
    let conversation = app.conversation().await;
    assert_eq!(conversation.usage().await.token_threshold, 64_000 - 16_384);
    let conversation = conversation_with_profile(&app, "ai-panel").await;
    let usage = conversation.usage().await;
    assert_eq!(
        (usage.token_threshold, usage.model_window_tokens),
        (80_001, 64_000),
        "the model is the server's, because profiles name none"
    );
}

#[tokio::test]
async fn invalid_policies_are_refused_with_their_reason() {
    let app = TestApp::start().await;
    let cases = [
        (
            pb::Policy {
                profile: "agent".into(),
                ..Default::default()
            },
            "policy.profile",
            "agents",
        ),
        (
            pb::Policy {
                token_threshold: Some(1),
                token_threshold_auto: Some(true),
                ..Default::default()
            },
            "policy.token_threshold",
            "one way",
        ),
        (
            pb::Policy {
                token_threshold_auto: Some(false),
                ..Default::default()
            },
            "policy.token_threshold_auto",
            "true",
        ),
        (
            pb::Policy {
                keep_recent_percent: Some(91),
                ..Default::default()
            },
            "policy.keep_recent_percent",
            "90",
        ),
        (
            pb::Policy {
                token_threshold: Some(29_000),
                keep_recent_tokens: Some(20_000),
                ..Default::default()
            },
            "policy.token_threshold",
            "at least 33000",
        ),
        (
            pb::Policy {
                token_threshold_below_window: Some(9_000),
                window_tokens: Some(9_000),
                ..Default::default()
            },
            "policy.token_threshold_below_window",
            "window of 9000",
        ),
        (
            pb::Policy {
                cooling: 9,
                ..Default::default()
            },
            "policy.cooling",
            "9",
        ),
        (
            pb::Policy {
                cache_read_price: Some(0),
                ..Default::default()
            },
            "policy.cache_read_price",
            "from 1",
        ),
        (
            pb::Policy {
                hot_zone_calls: Some(u32::MAX),
                ..Default::default()
            },
            "policy.hot_zone_calls",
            "2^31",
        ),
    ];
    for (policy, field, why) in cases {
        let ask = pb::CreateConversationRequest {
            policy: Some(policy),
            ..Default::default()
        };
        let refused = app.conversations().create_conversation(ask).await;
        let refusal = refused.as_ref().expect_err("refused").message().to_owned();
        assert!(refusal.contains(why), "{field}: {refusal}");
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn a_changed_policy_applies_to_stored_messages() {
    let app = TestApp::start().await;
    let conversation = conversation_with_profile(&app, "default").await;
    conversation.turn(&prose(0, 60), "I have read it.").await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Original, Reason::Small)
    );
    let policy = pb::Policy {
        profile: "agents".into(),
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let change = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.id.clone(),
            policy: Some(policy),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["policy".into()],
        }),
        ..Default::default()
    };
    app.conversations()
        .update_conversation(change)
        .await
        .expect("changes");
    app.run_jobs_until_idle().await;
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Original, Reason::StepPending),
        "the message is large now and waits for a cooling step"
    );
}
