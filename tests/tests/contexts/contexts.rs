//! What a context is made of, in which order, and what is mended on the way out.

#![expect(non_snake_case, reason = "rows are named as docs/rows.md names them")]

use anneal_tests::{Built, House, Talk, assert_refused, assistant, call, message, pb, prose, result, sentence, user};
use pb::{Reason, RepairKind, Representation, Role, Segment};
use prost::Message as _;
use tonic::Code;

/// A conversation with this system prompt, checkpointed at 10 messages.
async fn prompted<'a>(house: &'a House, system_prompt: &str) -> Talk<'a> {
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(2), ..Default::default() };
    house
        .conversation_with(pb::CreateConversationRequest {
            system_prompt: system_prompt.into(),
            policy: Some(policy),
            ..Default::default()
        })
        .await
}

async fn say(talk: &Talk<'_>, turns: usize) {
    for n in 0..turns {
        talk.turn(&sentence(2 * n), &sentence(2 * n + 1)).await;
    }
    talk.house.run_jobs_until_idle().await;
}

#[tokio::test]
async fn row_Z9_a_context_is_system_prompt_summary_tail_and_current_input_in_this_order() {
    let house = House::start().await;
    let talk = prompted(&house, "Answer in one sentence.").await;
    say(&talk, 5).await;
    let built = talk.context_with(vec![user("And tomorrow?")]).await;
    let shape: Vec<(Segment, Role)> = built.0.messages.iter().map(|sent| (sent.segment(), sent.role())).collect();
    let tail = [Role::User, Role::Assistant, Role::User, Role::Assistant].map(|role| (Segment::Tail, role));
    let mut wanted = vec![(Segment::SystemPrompt, Role::System), (Segment::CheckpointSummary, Role::User)];
    wanted.extend(tail);
    wanted.push((Segment::CurrentInput, Role::User));
    assert_eq!(shape, wanted);
    let said = built.said();
    assert_eq!(said[0].1, "Answer in one sentence.");
    assert_eq!(
        said[1].1,
        format!("[Summary of the conversation up to message 6]\n{}", talk.checkpoints().await[0].summary)
    );
    assert_eq!(said[2].1, sentence(6));
    assert_eq!(said[6].1, "And tomorrow?");
    let ids: Vec<i64> = built.0.messages.iter().flat_map(|sent| sent.message_ids.clone()).collect();
    assert_eq!(ids, [7, 8, 9, 10]);
    assert_eq!(built.0.total_tokens, built.0.messages.iter().map(|sent| sent.tokens).sum::<u64>());
    built.assert_covers(10);
    say(&talk, 2).await;
    assert_eq!(talk.checkpoints().await.len(), 1, "no new one is due");
    let later = talk.context().await.said();
    assert_eq!(later[..6], said[..6], "the summary stands, and the tail before it was said more");
}

#[tokio::test]
async fn a_system_prompt_given_with_the_call_replaces_the_stored_one_and_an_empty_one_removes_it() {
    let house = House::start().await;
    let talk = prompted(&house, "Be brief.").await;
    talk.append("Hello").await;
    let with = async |system_prompt: Option<&str>| {
        let ask = pb::BuildContextRequest { system_prompt: system_prompt.map(Into::into), ..Default::default() };
        talk.build(ask).await.expect("builds").said()
    };
    assert_eq!(with(None).await, [(Role::System, "Be brief.".into()), (Role::User, "Hello".into())]);
    assert_eq!(with(Some("Be long.")).await, [(Role::System, "Be long.".into()), (Role::User, "Hello".into())]);
    assert_eq!(with(Some("")).await, [(Role::User, "Hello".into())]);
    assert_eq!(talk.conversation().await.system_prompt, "Be brief.");
}

#[tokio::test]
async fn an_empty_conversation_has_its_system_prompt_and_its_input() {
    let house = House::start().await;
    let bare = house.conversation().await;
    let built = bare.context().await;
    assert!(built.0.messages.is_empty() && built.0.manifest.is_empty());
    assert_eq!((built.0.total_tokens, built.0.current_turn, built.0.last_message_id), (0, 0, 0));
    assert_eq!(bare.context_with(vec![user("Hi")]).await.said(), [(Role::User, "Hi".into())]);
    assert_eq!(bare.context_with(vec![user("Hi")]).await.0.current_turn, 1);
    let talk = prompted(&house, "Be brief.").await;
    assert_eq!(talk.context().await.said(), [(Role::System, "Be brief.".into())]);
    talk.verify().await;
}

#[tokio::test]
async fn one_message_is_a_context() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("Hello").await;
    let early = talk.context().await;
    assert!(early.0.estimated);
    house.run_jobs_until_idle().await;
    let built = talk.context().await;
    assert_eq!(built.said(), [(Role::User, "Hello".into())]);
    assert_eq!(built.fate(1), (Representation::Original, Reason::Small));
    assert!(!built.0.estimated);
    assert_eq!(built.0.total_tokens, built.entry(1).tokens + 4, "four for the framing");
    built.assert_covers(1);
}

#[tokio::test]
async fn row_Z5_orphan_user_messages_are_folded_into_the_next_one_and_stored_as_said() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append("First try").await;
    talk.append("Second try").await;
    let built = talk.context_with(vec![user("Third try")]).await;
    assert_eq!(built.said(), [(Role::User, "First try\n\nSecond try\n\nThird try".into())]);
    assert_eq!(built.0.messages[0].message_ids, [1, 2]);
    assert_eq!(built.repairs(), [(RepairKind::Merged, 2), (RepairKind::Merged, 0)]);
    assert_eq!(talk.messages().await.len(), 2);
    built.assert_covers(2);
}

#[tokio::test]
async fn a_result_without_a_call_is_left_out() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("Look."), result("nobody", "seen"), assistant("I saw nothing.")]).await;
    let built = talk.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultDropped, 2)]);
    assert_eq!(built.0.repairs[0].tool_use_id, "nobody");
    assert_eq!(built.fate(2), (Representation::Repaired, Reason::ResultWithoutCall));
    assert_eq!(built.entry(2).tokens, 0);
    assert!(!built.text().contains("seen"));
    assert_eq!(talk.messages().await.len(), 3);
    built.assert_covers(3);
}

#[tokio::test]
async fn an_unanswered_call_is_answered() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("Look."), call("c1", "{}"), user("Never mind.")]).await;
    let built = talk.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultAdded, 2)]);
    built.assert_tools_paired();
    assert_eq!(built.said()[2], (Role::Tool, "[no result]".into()));
    assert!(built.0.messages[2].message_ids.is_empty() && built.0.messages[2].tokens > 4);
    assert_eq!(built.said()[3].1, "Never mind.");
}

#[tokio::test]
async fn a_late_result_moves_up_to_its_call() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("Look."), call("c1", "{}"), user("Well?"), result("c1", "a cat")]).await;
    let built = talk.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultMoved, 4)]);
    built.assert_tools_paired();
    let said: Vec<String> = built.said().into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["Look.", "{}", "a cat", "Well?"]);
    assert_eq!(built.0.messages[2].message_ids, [4]);
    assert_eq!(built.fate(4), (Representation::Original, Reason::Small));
    built.assert_covers(4);
}

#[tokio::test]
async fn an_empty_assistant_message_is_left_out() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("Hello?"), assistant(""), user("Anybody?")]).await;
    house.run_jobs_until_idle().await;
    let built = talk.context().await;
    assert_eq!(built.said(), [(Role::User, "Hello?\n\nAnybody?".into())]);
    assert!(built.repairs().contains(&(RepairKind::EmptyDropped, 2)));
    assert_eq!(built.fate(2), (Representation::Repaired, Reason::Empty));
    assert_eq!(talk.messages().await.len(), 3);
    built.assert_covers(3);
}

#[tokio::test]
async fn parts_of_two_merged_assistant_messages_keep_their_calls_answered() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![
        user("Go."),
        assistant("I will look."),
        call("c1", "{}"),
        result("c1", "a dog"),
        assistant("A dog."),
    ])
    .await;
    let built = talk.context().await;
    built.assert_tools_paired();
    let roles: Vec<Role> = built.0.messages.iter().map(pb::ContextMessage::role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(built.0.messages[1].message_ids, [2, 3]);
    built.assert_covers(5);
}

#[tokio::test]
async fn usage_agrees_with_the_context_segment_by_segment() {
    let house = House::start().await;
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
    let talk = house.conversation_with(ask).await;
    let mut swaps = 0;
    for turn in 0..20 {
        let asked = if turn % 3 == 0 { prose(turn * 10, 30) } else { sentence(turn) };
        talk.append_all(vec![user(&asked), call("c", "{\"n\": 1}"), result("c", &prose(turn, 20)), assistant("Done.")])
            .await;
        house.run_jobs_until_idle().await;
        let (built, usage) = (talk.context().await, talk.usage().await);
        for segment in &usage.segments {
            assert_eq!(segment.tokens, built.tokens_of(segment.segment()), "{:?} in turn {turn}", segment.segment());
        }
        assert_eq!(usage.total_tokens, built.0.total_tokens);
        let swapped = built.0.manifest.iter().filter(|entry| entry.representation() == Representation::Summary);
        assert_eq!(usage.swapped_messages, swapped.count() as i64);
        assert!(!usage.estimated && usage.used_share > 0.0);
        swaps += usage.swapped_messages;
    }
    assert!(!talk.checkpoints().await.is_empty() && swaps > 0, "all segments were seen");
}

#[tokio::test]
async fn two_builds_without_a_change_are_identical() {
    let house = House::start().await;
    let talk = prompted(&house, "Be brief.").await;
    say(&talk, 7).await;
    let first = talk.context().await;
    assert_eq!(talk.context().await, first);
    let beside = house.beside().await;
    let ask = pb::BuildContextRequest { conversation_id: talk.id.clone(), ..Default::default() };
    let other = beside.contexts().build_context(ask).await.expect("builds").into_inner();
    assert_eq!(Built(other), first, "from any server");
}

#[tokio::test]
async fn a_picture_and_a_system_message_are_sent_in_their_places() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let note = anneal_tests::text(Role::System, "The user is on a train.");
    let thought = pb::part::Part::Reasoning(pb::ReasoningPart {
        text: "hm".into(),
        signature: "s1g".into(),
        ..Default::default()
    });
    let answer = pb::part::Part::Text(pb::TextPart { text: "Nice.".into() });
    let said = vec![anneal_tests::media("https://x.test/a.png"), note, message(Role::Assistant, vec![thought, answer])];
    talk.append_all(said.clone()).await;
    let built = talk.context().await;
    let sent: Vec<_> = built.0.messages.iter().map(|sent| (sent.role, sent.parts.clone())).collect();
    assert_eq!(sent, said.into_iter().map(|said| (said.role, said.parts)).collect::<Vec<_>>());
    assert!(built.0.repairs.is_empty());
}

#[tokio::test]
async fn a_provider_gets_one_json_object_that_is_ready_to_send() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![anneal_tests::text(Role::User, "Hello"), anneal_tests::text(Role::Assistant, "Hi")]).await;
    let keys = [
        (pb::Format::OpenaiChat, "{\"messages\":["),
        (pb::Format::AnthropicMessages, "{\"messages\":["),
        (pb::Format::GeminiContents, "{\"contents\":["),
    ];
    for (format, start) in keys {
        let ask = pb::BuildContextRequest { format: format.into(), ..Default::default() };
        let built = talk.build(ask).await.expect("builds");
        let rendered = built.0.rendered.as_deref().expect("a provider's request");
        assert!(rendered.starts_with(start) && rendered.contains("Hello"), "{rendered}");
        assert!(built.0.messages.is_empty());
        let asked = built.repairs().contains(&(RepairKind::UserAdded, 0));
        assert_eq!(asked, format != pb::Format::OpenaiChat, "the user ends the conversation where that must be");
    }
    assert_eq!(talk.context().await.0.rendered, None);
    for ask in [
        pb::BuildContextRequest { format: 9, ..Default::default() },
        pb::BuildContextRequest { pressure: 9, ..Default::default() },
    ] {
        let refused = talk.build(ask).await.expect_err("no such number");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_streamed_context_is_the_same_in_pieces() {
    let house = House::start().await;
    let talk = house.conversation().await;
    for n in 0..3 {
        talk.turn(&prose(n * 20_000, 20_000), "I have read it.").await;
    }
    let ask = pb::BuildContextRequest {
        conversation_id: talk.id.clone(),
        format: pb::Format::OpenaiChat.into(),
        ..Default::default()
    };
    let whole = talk.build(ask.clone()).await.expect("builds");
    let mut pieces =
        house.contexts().max_decoding_message_size(2 << 20).stream_context(ask).await.expect("streams").into_inner();
    let mut bytes = Vec::new();
    let mut count = 0;
    while let Some(piece) = pieces.message().await.expect("a piece") {
        bytes.extend(piece.piece);
        count += 1;
    }
    assert!(count > 3, "{count} pieces of {} bytes", bytes.len());
    let joined = pb::BuildContextResponse::decode(bytes.as_slice()).expect("decodes");
    assert_eq!(Built(joined), whole);
    let nobody = pb::BuildContextRequest { conversation_id: uuid::Uuid::new_v4().to_string(), ..Default::default() };
    assert_refused(house.contexts().stream_context(nobody).await, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
}
