//! The parts of a context and their order, the repair of its messages for providers, and its
//! rendering.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    Built, TestApp, TestConversation, assert_refused, assistant, call, message, pb, prose, result,
    sentence, user,
};
use pb::{Reason, RepairKind, Representation, Role, Segment};
use prost::Message as _;
use tonic::Code;

/// Creates a conversation with this system prompt, whose checkpoints are due at 10 messages.
async fn conversation_with_prompt<'a>(
    app: &'a TestApp,
    system_prompt: &str,
) -> TestConversation<'a> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    app.conversation_with(pb::CreateConversationRequest {
        system_prompt: system_prompt.into(),
        policy: Some(policy),
        ..Default::default()
    })
    .await
}

/// Appends turns and runs the jobs that they queue.
async fn append_turns(conversation: &TestConversation<'_>, turns: usize) {
    for n in 0..turns {
        conversation
            .turn(&sentence(2 * n), &sentence(2 * n + 1))
            .await;
    }
    conversation.app.run_jobs_until_idle().await;
}

#[tokio::test]
async fn row_Z9_a_context_is_system_prompt_summary_tail_and_current_input_in_this_order() {
    let app = TestApp::start().await;
    let conversation = conversation_with_prompt(&app, "Answer in one sentence.").await;
    append_turns(&conversation, 5).await;
    let built = conversation.context_with(vec![user("And tomorrow?")]).await;
    let shape: Vec<(Segment, Role)> = built
        .0
        .messages
        .iter()
        .map(|sent| (sent.segment(), sent.role()))
        .collect();
    let tail = [Role::User, Role::Assistant, Role::User, Role::Assistant]
        .map(|role| (Segment::Tail, role));
    let mut expected = vec![
        (Segment::SystemPrompt, Role::System),
        (Segment::CheckpointSummary, Role::User),
    ];
    expected.extend(tail);
    expected.push((Segment::CurrentInput, Role::User));
    assert_eq!(shape, expected);
    let content = built.texts_by_role();
    assert_eq!(content[0].1, "Answer in one sentence.");
    assert_eq!(
        content[1].1,
        format!(
            "[Summary of the conversation up to message 6]\n{}",
            conversation.checkpoints().await[0].summary
        )
    );
    assert_eq!(content[2].1, sentence(6));
    assert_eq!(content[6].1, "And tomorrow?");
    let ids: Vec<i64> = built
        .0
        .messages
        .iter()
        .flat_map(|sent| sent.message_ids.clone())
        .collect();
    assert_eq!(ids, [7, 8, 9, 10]);
    assert_eq!(
        built.0.total_tokens,
        built.0.messages.iter().map(|sent| sent.tokens).sum::<u64>()
    );
    built.assert_covers(10);
    append_turns(&conversation, 2).await;
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "no new checkpoint is due"
    );
    let later = conversation.context().await.texts_by_role();
    assert_eq!(
        later[..6],
        content[..6],
        "the summary and the previous tail are unchanged"
    );
}

#[tokio::test]
async fn a_system_prompt_of_the_call_replaces_the_stored_one_and_an_empty_one_removes_it() {
    let app = TestApp::start().await;
    let conversation = conversation_with_prompt(&app, "Be brief.").await;
    conversation.append("Hello").await;
    let texts_with = async |system_prompt: Option<&str>| {
        let ask = pb::BuildContextRequest {
            system_prompt: system_prompt.map(Into::into),
            ..Default::default()
        };
        conversation
            .build(ask)
            .await
            .expect("builds")
            .texts_by_role()
    };
    assert_eq!(
        texts_with(None).await,
        [
            (Role::System, "Be brief.".into()),
            (Role::User, "Hello".into())
        ]
    );
    assert_eq!(
        texts_with(Some("Be long.")).await,
        [
            (Role::System, "Be long.".into()),
            (Role::User, "Hello".into())
        ]
    );
    assert_eq!(texts_with(Some("")).await, [(Role::User, "Hello".into())]);
    assert_eq!(conversation.conversation().await.system_prompt, "Be brief.");
}

#[tokio::test]
async fn a_context_without_a_message_is_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_with_prompt(&app, "Be brief.").await;
    let refuse_in_every_format = async || {
        for format in super::FORMATS {
            let ask = pb::BuildContextRequest {
                format: format.into(),
                ..Default::default()
            };
            assert_refused(
                conversation.build(ask.clone()).await.map(|_| ()),
                Code::FailedPrecondition,
                "CONTEXT_EMPTY",
                "",
            );
            let dry_run = pb::BuildContextRequest {
                dry_run: true,
                ..ask.clone()
            };
            conversation.build(dry_run).await.expect("is answered");
            let with_input = pb::BuildContextRequest {
                current_input: vec![user("Hello")],
                ..ask
            };
            conversation.build(with_input).await.expect("is answered");
        }
    };
    refuse_in_every_format().await;
    conversation.turn("One?", "One.").await;
    conversation
        .build(pb::BuildContextRequest::default())
        .await
        .expect("is answered");
    conversation.insert_separator().await;
    refuse_in_every_format().await;
}

#[tokio::test]
async fn a_context_of_an_empty_conversation_holds_its_system_prompt_and_input() {
    let app = TestApp::start().await;
    let bare = app.conversation().await;
    let built = bare.context().await;
    assert!(built.0.messages.is_empty() && built.0.manifest.is_empty());
    assert_eq!(
        (
            built.0.total_tokens,
            built.0.current_turn,
            built.0.last_message_id
        ),
        (0, 0, 0)
    );
    assert_eq!(
        bare.context_with(vec![user("Hi")]).await.texts_by_role(),
        [(Role::User, "Hi".into())]
    );
    assert_eq!(bare.context_with(vec![user("Hi")]).await.0.current_turn, 1);
    let conversation = conversation_with_prompt(&app, "Be brief.").await;
    assert_eq!(
        conversation.context().await.texts_by_role(),
        [(Role::System, "Be brief.".into())]
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_single_message_makes_a_context() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.append("Hello").await;
    let early = conversation.context().await;
    assert!(early.0.estimated);
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    assert_eq!(built.texts_by_role(), [(Role::User, "Hello".into())]);
    assert_eq!(
        built.representation(1),
        (Representation::Original, Reason::Small)
    );
    assert!(!built.0.estimated);
    assert_eq!(
        built.0.total_tokens,
        built.entry(1).tokens + 4,
        "four tokens for the framing"
    );
    built.assert_covers(1);
}

#[tokio::test]
async fn row_Z5_unanswered_user_messages_are_merged_with_the_next_one_and_stored_separately() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("First try").await;
    conversation.append("Second try").await;
    let built = conversation.context_with(vec![user("Third try")]).await;
    assert_eq!(
        built.texts_by_role(),
        [(Role::User, "First try\n\nSecond try\n\nThird try".into())]
    );
    assert_eq!(built.0.messages[0].message_ids, [1, 2]);
    assert_eq!(
        built.repairs(),
        [(RepairKind::Merged, 2), (RepairKind::Merged, 0)]
    );
    assert_eq!(conversation.messages().await.len(), 2);
    built.assert_covers(2);
}

#[tokio::test]
async fn a_result_without_a_call_is_left_out() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Look."),
            result("nobody", "seen"),
            assistant("I saw nothing."),
        ])
        .await;
    let built = conversation.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultDropped, 2)]);
    assert_eq!(built.0.repairs[0].tool_use_id, "nobody");
    assert_eq!(
        built.representation(2),
        (Representation::Repaired, Reason::ResultWithoutCall)
    );
    assert_eq!(built.entry(2).tokens, 0);
    assert!(!built.text().contains("seen"));
    assert_eq!(conversation.messages().await.len(), 3);
    built.assert_covers(3);
}

#[tokio::test]
async fn an_unanswered_tool_call_gets_a_synthetic_result() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("Look."), call("c1", "{}"), user("Never mind.")])
        .await;
    let built = conversation.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultAdded, 2)]);
    built.assert_tools_paired();
    assert_eq!(built.texts_by_role()[2], (Role::Tool, "[no result]".into()));
    assert!(built.0.messages[2].message_ids.is_empty() && built.0.messages[2].tokens > 4);
    assert_eq!(built.texts_by_role()[3].1, "Never mind.");
}

#[tokio::test]
async fn a_late_result_is_moved_to_its_call() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Look."),
            call("c1", "{}"),
            user("Well?"),
            result("c1", "a cat"),
        ])
        .await;
    let built = conversation.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultMoved, 4)]);
    built.assert_tools_paired();
    let content: Vec<String> = built
        .texts_by_role()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(content, ["Look.", "{}", "a cat", "Well?"]);
    assert_eq!(built.0.messages[2].message_ids, [4]);
    assert_eq!(
        built.representation(4),
        (Representation::Original, Reason::Small)
    );
    built.assert_covers(4);
}

#[tokio::test]
async fn an_empty_assistant_message_is_left_out() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("Hello?"), assistant(""), user("Anybody?")])
        .await;
    app.run_jobs_until_idle().await;
    let built = conversation.context().await;
    assert_eq!(
        built.texts_by_role(),
        [(Role::User, "Hello?\n\nAnybody?".into())]
    );
    assert!(built.repairs().contains(&(RepairKind::EmptyDropped, 2)));
    assert_eq!(
        built.representation(2),
        (Representation::Repaired, Reason::Empty)
    );
    assert_eq!(conversation.messages().await.len(), 3);
    built.assert_covers(3);
}

#[tokio::test]
async fn a_tool_call_in_merged_assistant_messages_keeps_its_result() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Go."),
            assistant("I will look."),
            call("c1", "{}"),
            result("c1", "a dog"),
            assistant("A dog."),
        ])
        .await;
    let built = conversation.context().await;
    built.assert_tools_paired();
    let roles: Vec<Role> = built
        .0
        .messages
        .iter()
        .map(pb::ContextMessage::role)
        .collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    assert_eq!(built.0.messages[1].message_ids, [2, 3]);
    built.assert_covers(5);
}

#[tokio::test]
async fn the_reported_context_usage_equals_the_built_context_in_each_segment() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(60),
        keep_recent_turns: Some(7),
        large_message_threshold: Some(200),
        hot_zone_radius: Some(2),
        ..Default::default()
    };
    let ask = pb::CreateConversationRequest {
        system_prompt: "Answer in one sentence.".into(),
        policy: Some(policy),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    let mut swaps = 0;
    for turn in 0..20 {
        let question = if turn % 3 == 0 {
            prose(turn * 10, 30)
        } else {
            sentence(turn)
        };
        conversation
            .append_all(vec![
                user(&question),
                call("c", "{\"n\": 1}"),
                result("c", &prose(turn, 20)),
                assistant("Done."),
            ])
            .await;
        app.run_jobs_until_idle().await;
        let (built, usage) = (conversation.context().await, conversation.usage().await);
        for segment in &usage.segments {
            assert_eq!(
                segment.tokens,
                built.tokens_of(segment.segment()),
                "{:?} in turn {turn}",
                segment.segment()
            );
        }
        assert_eq!(usage.total_tokens, built.0.total_tokens);
        let swapped = built
            .0
            .manifest
            .iter()
            .filter(|entry| entry.representation() == Representation::Summary);
        assert_eq!(usage.swapped_messages, swapped.count() as i64);
        assert!(!usage.estimated && usage.used_share > 0.0);
        swaps += usage.swapped_messages;
    }
    assert!(
        !conversation.checkpoints().await.is_empty() && swaps > 0,
        "there were checkpoints and swapped messages"
    );
}

#[tokio::test]
async fn two_builds_without_a_change_are_identical() {
    let app = TestApp::start().await;
    let conversation = conversation_with_prompt(&app, "Be brief.").await;
    append_turns(&conversation, 7).await;
    let first = conversation.context().await;
    assert_eq!(conversation.context().await, first);
    let second_server = app.second_server().await;
    let ask = pb::BuildContextRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let other = second_server
        .contexts()
        .build_context(ask)
        .await
        .expect("builds")
        .into_inner();
    assert_eq!(Built(other), first, "both servers answer the same");
}

#[tokio::test]
async fn an_image_and_a_system_message_are_sent_in_order() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let note = anneal_testkit::text(Role::System, "The user is on a train.");
    let reasoning = pb::part::Part::Reasoning(pb::ReasoningPart {
        text: "hm".into(),
        signature: "s1g".into(),
        ..Default::default()
    });
    let answer = pb::part::Part::Text(pb::TextPart {
        text: "Nice.".into(),
    });
    let content = vec![
        anneal_testkit::media("https://x.test/a.png"),
        note,
        message(Role::Assistant, vec![reasoning, answer]),
    ];
    conversation.append_all(content.clone()).await;
    let built = conversation.context().await;
    let sent: Vec<_> = built
        .0
        .messages
        .iter()
        .map(|sent| (sent.role, sent.parts.clone()))
        .collect();
    assert_eq!(
        sent,
        content
            .into_iter()
            .map(|content| (content.role, content.parts))
            .collect::<Vec<_>>()
    );
    assert!(built.0.repairs.is_empty());
}

#[tokio::test]
async fn a_provider_gets_one_json_object_that_is_ready_to_send() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            anneal_testkit::text(Role::User, "Hello"),
            anneal_testkit::text(Role::Assistant, "Hi"),
        ])
        .await;
    let starts = [
        (pb::Format::OpenaiChat, "{\"messages\":["),
        (pb::Format::AnthropicMessages, "{\"messages\":["),
        (pb::Format::GeminiContents, "{\"contents\":["),
    ];
    for (format, start) in starts {
        let ask = pb::BuildContextRequest {
            format: format.into(),
            ..Default::default()
        };
        let built = conversation.build(ask).await.expect("builds");
        let rendered = built.0.rendered.as_deref().expect("a provider's request");
        assert!(
            rendered.starts_with(start) && rendered.contains("Hello"),
            "{rendered}"
        );
        assert!(built.0.messages.is_empty());
        let user_added = built.repairs().contains(&(RepairKind::UserAdded, 0));
        assert_eq!(
            user_added,
            format != pb::Format::OpenaiChat,
            "a user message is added at the end if the format requires one"
        );
    }
    assert_eq!(conversation.context().await.0.rendered, None);
    for ask in [
        pb::BuildContextRequest {
            format: 9,
            ..Default::default()
        },
        pb::BuildContextRequest {
            pressure: 9,
            ..Default::default()
        },
    ] {
        let refused = conversation
            .build(ask)
            .await
            .expect_err("no format and no pressure has this number");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_streamed_context_equals_the_unary_one() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..3 {
        conversation
            .turn(&prose(n * 20_000, 20_000), "I have read it.")
            .await;
    }
    let ask = pb::BuildContextRequest {
        conversation_id: conversation.id.clone(),
        format: pb::Format::OpenaiChat.into(),
        ..Default::default()
    };
    let whole = conversation.build(ask.clone()).await.expect("builds");
    // The client accepts messages of up to 2 MiB, which is less than the whole context.
    let mut pieces = app
        .contexts()
        .max_decoding_message_size(2 << 20)
        .stream_context(ask)
        .await
        .expect("streams")
        .into_inner();
    let mut bytes = Vec::new();
    let mut count = 0;
    while let Some(piece) = pieces.message().await.expect("a piece") {
        bytes.extend(piece.piece);
        count += 1;
    }
    assert!(count > 3, "{count} pieces of {} bytes", bytes.len());
    let joined = pb::BuildContextResponse::decode(bytes.as_slice()).expect("decodes");
    assert_eq!(Built(joined), whole);
    let unknown = pb::BuildContextRequest {
        conversation_id: uuid::Uuid::new_v4().to_string(),
        ..Default::default()
    };
    assert_refused(
        app.contexts().stream_context(unknown).await,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
}
