//! Cooling: a large message is sent in the original while it is hot (recent) and as its summary
//! once it is cool. The original stays stored.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{Built, TestApp, TestConversation, assistant, message, pb, prose, user};
use pb::{Reason, Representation, part::Part};

/// Messages above 200 tokens are large. No checkpoint is triggered.
fn policy() -> pb::Policy {
    pb::Policy {
        large_message_threshold: Some(200),
        max_message_count: Some(0),
        ..Default::default()
    }
}

/// Creates a conversation whose first message is large and has an answer.
async fn conversation_with_large_first_message(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation_with_policy(policy()).await;
    conversation.turn(&prose(0, 60), "I have read it.").await;
    conversation
}

/// Whether message 1 is sent as its summary.
fn is_swapped(built: &Built) -> bool {
    built.representation(1) == (Representation::Summary, Reason::Cool)
}

#[tokio::test]
async fn row_D4_a_large_message_five_turns_old_is_hot_and_six_turns_old_is_cool() {
    let app = TestApp::start().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(5).await;
    app.run_jobs_until_idle().await;
    let hot = conversation.context().await;
    assert_eq!(hot.0.current_turn, 6);
    assert_eq!(
        hot.representation(1),
        (Representation::Original, Reason::Hot)
    );
    assert!(!hot.entry(1).cool);
    assert_eq!(hot.texts_by_role()[0].1, prose(0, 60));

    conversation.turns(1).await;
    app.run_jobs_until_idle().await;
    let cool = conversation.context().await;
    assert_eq!(cool.0.current_turn, 7);
    assert!(is_swapped(&cool) && cool.entry(1).cool);
    assert!(
        cool.entry(1).tokens < cool.entry(1).original_tokens / 2,
        "{:?}",
        cool.entry(1)
    );
    assert_eq!(cool.entry(1).original_tokens, hot.entry(1).tokens);
    assert!(!cool.text().contains(&prose(0, 60)));
    cool.assert_covers(14);
}

/// Replaces the conversation's policy.
async fn update_policy(conversation: &TestConversation<'_>, policy: pb::Policy) {
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
    let mut service = conversation.app.conversations();
    service.update_conversation(change).await.expect("changes");
}

#[tokio::test]
async fn a_context_follows_the_policy_that_is_stored_when_it_is_read() {
    let app = TestApp::start().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    let wide = pb::Policy {
        hot_zone_radius: Some(6),
        ..policy()
    };
    // The server remembers each of these policies from the context before.
    for (policy, swapped) in [
        (policy(), true),
        (policy(), true),
        (wide, false),
        (pb::Policy::default(), false),
        (policy(), true),
    ] {
        update_policy(&conversation, policy.clone()).await;
        let built = conversation.context().await;
        assert_eq!(is_swapped(&built), swapped, "{policy:?}");
        assert_eq!(built.text().contains(&prose(0, 60)), !swapped);
        built.assert_covers(14);
    }
}

#[tokio::test]
async fn current_input_that_starts_a_turn_makes_messages_cool() {
    let app = TestApp::start().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(5).await;
    app.run_jobs_until_idle().await;
    let next = conversation.context_with(vec![user("and now?")]).await;
    assert_eq!(next.0.current_turn, 7);
    assert!(is_swapped(&next));
    let same = conversation
        .context_with(vec![assistant("by the way")])
        .await;
    assert_eq!(
        same.representation(1),
        (Representation::Original, Reason::Hot),
        "an assistant message starts no turn"
    );
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Original, Reason::Hot),
        "the current input was not stored"
    );
}

#[tokio::test]
async fn current_input_after_a_user_message_starts_no_turn() {
    let app = TestApp::start().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(4).await;
    conversation.append("sixth turn, no answer").await;
    app.run_jobs_until_idle().await;
    let merged = conversation
        .context_with(vec![user("are you there?")])
        .await;
    assert_eq!(
        (merged.0.current_turn, merged.representation(1)),
        (6, (Representation::Original, Reason::Hot))
    );
    let more = conversation
        .context_with(vec![user("are you there?"), assistant("yes"), user("good")])
        .await;
    assert_eq!(more.0.current_turn, 7);
    assert!(is_swapped(&more));
}

#[tokio::test]
async fn a_message_exactly_at_the_threshold_is_not_large() {
    let app = TestApp::start().await;
    let counted = app.conversation().await;
    counted.append(&prose(0, 60)).await;
    app.run_jobs_until_idle().await;
    let tokens = counted.message(1).await.tokens.expect("counted");
    assert!(!tokens.estimated);
    for (threshold, large) in [(tokens.tokens, false), (tokens.tokens - 1, true)] {
        let policy = pb::Policy {
            large_message_threshold: Some(threshold),
            ..Default::default()
        };
        let conversation = app.conversation_with_policy(policy).await;
        conversation.turn(&prose(0, 60), "read").await;
        conversation.turns(6).await;
        app.run_jobs_until_idle().await;
        assert_eq!(
            conversation.message(1).await.summary.is_some(),
            large,
            "at a threshold of {threshold}"
        );
        let expected = if large {
            (Representation::Summary, Reason::Cool)
        } else {
            (Representation::Original, Reason::Small)
        };
        assert_eq!(conversation.context().await.representation(1), expected);
    }
}

#[tokio::test]
async fn a_message_that_is_read_alone_says_what_its_summary_was_made_from() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turn(&prose(0, 60), "read").await;
    app.run_jobs_until_idle().await;
    let alone = conversation.message(1).await.summary.expect("a summary");
    assert_eq!(alone.source_digest.len(), 32, "{alone:?}");
    assert!(alone.prompt_version > 0, "{alone:?}");
    let listed = conversation.messages().await;
    let listed = listed[0].summary.clone().expect("a summary");
    assert_eq!((listed.prompt_version, listed.source_digest.len()), (0, 0));
    assert_eq!((listed.text, listed.tokens), (alone.text, alone.tokens));
    let second = conversation.message(2).await;
    assert_eq!(second.summary, None);
}

#[tokio::test]
async fn row_D4_a_cool_large_message_without_summary_is_sent_in_the_original() {
    let app = TestApp::counted_by_workers().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(7).await;
    let waiting = conversation.context().await;
    assert_eq!(
        waiting.representation(1),
        (Representation::Original, Reason::SummaryPending)
    );
    assert_eq!(waiting.texts_by_role()[0].1, prose(0, 60));
    assert!(waiting.entry(1).cool && waiting.0.estimated);
    app.run_jobs_until_idle().await;
    let ready = conversation.context().await;
    assert!(is_swapped(&ready) && !ready.0.estimated);
}

#[tokio::test]
async fn swapped_calls_and_results_keep_their_ids_and_positions() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    let call = |id: &str, name: &str| {
        let input = format!("{{\"note\": \"{}\"}}", prose(0, 40));
        Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: name.into(),
            input,
        })
    };
    let result = |id: &str, is_error: bool| {
        let text = prose(100, 40);
        Part::ToolResult(pb::ToolResultPart {
            tool_use_id: id.into(),
            text,
            is_error,
            ..Default::default()
        })
    };
    conversation
        .append_all(vec![
            user("look twice"),
            message(
                pb::Role::Assistant,
                vec![call("call-a", "find"), call("call-b", "list")],
            ),
            message(
                pb::Role::Tool,
                vec![result("call-a", false), result("call-b", true)],
            ),
            assistant("both seen"),
        ])
        .await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    assert_eq!(
        built.representation(2),
        (Representation::Summary, Reason::Cool)
    );
    assert_eq!(
        built.representation(3),
        (Representation::Summary, Reason::Cool)
    );
    assert!(built.0.repairs.is_empty(), "{:?}", built.0.repairs);
    built.assert_tools_paired();
    // The id and name of each call; the id of each result, and whether it is an error.
    let calls_and_results: Vec<(String, bool)> = built.0.messages[1..3]
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part.part.as_ref()? {
            Part::ToolUse(part) => Some((format!("{} {}", part.id, part.name), false)),
            Part::ToolResult(part) => Some((part.tool_use_id.clone(), part.is_error)),
            _ => None,
        })
        .collect();
    let expected = [
        ("call-a find", false),
        ("call-b list", false),
        ("call-a", false),
        ("call-b", true),
    ];
    assert_eq!(
        calls_and_results,
        expected.map(|(ids, is_error)| (ids.to_owned(), is_error))
    );
    assert!(
        built.text().contains("[Summary of message 2;")
            && built.text().contains("[Summary of message 3;")
    );
}

#[tokio::test]
async fn get_message_returns_the_original_of_a_swapped_message_byte_for_byte() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    let original = format!(
        "{}\r\n\u{0}\t«漢字とかな» 🧊\n{}",
        prose(0, 40),
        "冷えた記憶は要約になる。".repeat(30)
    );
    conversation.turn(&original, "read").await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    assert!(is_swapped(&built));
    let mark = format!(
        "[Summary of message 1; its original of {} bytes is kept under that id]\n",
        original.len()
    );
    assert!(
        built.texts_by_role()[0].1.starts_with(&mark),
        "{:?}",
        built.texts_by_role()[0]
    );

    let whole = conversation.message(1).await;
    let [
        pb::Part {
            part: Some(Part::Text(stored)),
        },
    ] = &whole.parts[..]
    else {
        panic!("one text: {:?}", whole.parts)
    };
    assert_eq!(stored.text, original);
    assert_eq!(whole.text_bytes as usize, original.len());
    let mut joined = String::new();
    // If a range of 101 bytes ends within a character, the answer has the whole character.
    while joined.len() < original.len() {
        let (piece, range) = conversation.range(1, joined.len() as i64, 101).await;
        assert_eq!(
            (range.offset as usize, range.length as usize),
            (joined.len(), piece.len())
        );
        assert!(!piece.is_empty());
        joined.push_str(&piece);
    }
    assert_eq!(joined, original);
}

#[tokio::test]
async fn the_original_of_a_swapped_message_is_not_read() {
    let app = TestApp::start().await;
    let conversation = conversation_with_large_first_message(&app).await;
    conversation.turns(6).await;
    app.run_jobs_until_idle().await;
    let before = conversation.context().await;
    assert!(is_swapped(&before));
    let mut db = app.db().await;
    // The database accepts this content, but no message can be parsed from it.
    let spoil = "update ai_message set content = '{\"unreadable\": \"MARKER\"}' where conversation_id = $1 and message_id = $2";
    let id: uuid::Uuid = conversation.id.parse().expect("an id");
    sqlx::query(spoil)
        .bind(id)
        .bind(1_i64)
        .execute(&mut db)
        .await
        .expect("overwrites");
    assert_eq!(
        conversation.context().await,
        before,
        "the original was not read"
    );
    sqlx::query(spoil)
        .bind(id)
        .bind(2_i64)
        .execute(&mut db)
        .await
        .expect("overwrites");
    conversation
        .build(pb::BuildContextRequest::default())
        .await
        .expect_err("a message sent in the original is read");
}

#[tokio::test]
async fn each_large_message_is_swapped_from_the_first_turn_in_which_it_is_cool() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    // The id of each swapped message, and the turn in which it was swapped first.
    let mut swapped_at: Vec<(i64, i32)> = Vec::new();
    for turn in 1..=14 {
        let question = if [3, 5].contains(&turn) {
            prose(turn * 100, 50)
        } else {
            format!("Turn {turn}, please.")
        };
        conversation.turn(&question, "done").await;
        app.run_jobs_until_idle().await;
        let built = conversation.context().await;
        built.assert_covers(2 * turn as i64);
        for entry in built
            .0
            .manifest
            .iter()
            .filter(|entry| entry.representation() == Representation::Summary)
        {
            if !swapped_at
                .iter()
                .any(|(id, _)| *id == entry.first_message_id)
            {
                swapped_at.push((entry.first_message_id, built.0.current_turn));
            }
        }
        assert_eq!(
            conversation.usage().await.swapped_messages,
            swapped_at.len() as i64,
            "no swapped message is sent in the original again"
        );
    }
    // The questions of turns 3 and 5, six turns later.
    assert_eq!(swapped_at, [(5, 9), (9, 11)]);
    conversation.verify().await;
}

#[tokio::test]
async fn with_a_radius_of_zero_only_the_current_turn_is_hot() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            hot_zone_radius: Some(0),
            ..policy()
        })
        .await;
    conversation.turn(&prose(0, 60), "read").await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Original, Reason::Hot),
        "radius 0: the current turn is hot"
    );
    conversation.turn(&prose(500, 60), "read").await;
    let built = conversation.context().await;
    assert!(is_swapped(&built), "radius 0: the previous turn is cool");
    assert_eq!(
        built.representation(3),
        (Representation::Original, Reason::Hot)
    );
}
