//! What is refused at the door: ids, pages, ranges, budgets, policies, masks. Each with its code, reason and field.

use std::collections::HashMap;

use anneal_tests::{House, assert_refused, pb, refusal, user};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use pb::append_large_message_request::{Frame, Header};
use tonic::{Code, Status};

const UNKNOWN: &str = "0190aaaa-0000-7000-8000-000000000000";

/// Every RPC that takes a conversation's id, called with this one.
async fn every_call(house: &House, id: &str) -> Vec<(&'static str, Result<(), Status>)> {
    #![allow(clippy::needless_update, reason = "some requests have no other field")]
    let mut calls = Vec::new();
    macro_rules! call {
        ($client:ident.$rpc:ident($ask:ident { $($field:ident: $value:expr),* })) => {{
            let ask = pb::$ask { $($field: $value,)* ..Default::default() };
            let outcome = house.$client().$rpc(ask).await;
            calls.push((stringify!($rpc), outcome.map(|_| ())));
        }};
    }
    let id = || id.to_owned();
    let job = i32::from(pb::JobKind::CountTokens);
    call!(conversations.get_conversation(GetConversationRequest { conversation_id: id() }));
    call!(conversations.update_conversation(UpdateConversationRequest {
        conversation: Some(pb::Conversation { conversation_id: id(), ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["title".into()] })
    }));
    call!(messages.append_messages(AppendMessagesRequest { conversation_id: id(), messages: vec![user("a")] }));
    call!(messages.list_messages(ListMessagesRequest { conversation_id: id() }));
    call!(messages.get_message(GetMessageRequest { conversation_id: id(), message_id: 1 }));
    call!(messages.insert_separator(InsertSeparatorRequest { conversation_id: id() }));
    call!(messages.delete_separator(DeleteSeparatorRequest { conversation_id: id() }));
    call!(contexts.build_context(BuildContextRequest { conversation_id: id() }));
    call!(contexts.get_context_usage(GetContextUsageRequest { conversation_id: id() }));
    call!(contexts.compact(CompactRequest { conversation_id: id() }));
    call!(contexts.list_checkpoints(ListCheckpointsRequest { conversation_id: id() }));
    call!(operators.requeue_job(RequeueJobRequest { conversation_id: id(), kind: job }));
    call!(operators.discard_job(DiscardJobRequest { conversation_id: id(), kind: job }));
    call!(operators.verify_conversation(VerifyConversationRequest { conversation_id: id() }));
    call!(conversations.delete_conversation(DeleteConversationRequest { conversation_id: id() }));
    let header = Header { conversation_id: id(), message: Some(user("")), ..Default::default() };
    let frames = [Frame::Header(header), Frame::Chunk(b"a".to_vec())];
    let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    let large = house.messages().append_large_message(tokio_stream::iter(frames)).await;
    calls.push(("append_large_message", large.map(|_| ())));
    calls
}

#[tokio::test]
async fn an_unknown_conversation_is_not_found_by_every_call() {
    let house = House::start().await;
    let gone = house.conversation().await;
    gone.turn("a", "b").await;
    let ask = pb::DeleteConversationRequest { conversation_id: gone.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    for id in [UNKNOWN, gone.id.as_str()] {
        for (rpc, outcome) in every_call(&house, id).await {
            let said = refusal(&outcome.expect_err(rpc));
            let reason = if rpc.ends_with("_job") { "JOB_NOT_FOUND" } else { "CONVERSATION_NOT_FOUND" };
            assert_eq!((said.code, said.reason.as_str(), said.field.as_str()), (Code::NotFound, reason, ""), "{rpc}");
        }
    }
}

#[tokio::test]
async fn a_malformed_conversation_id_is_refused_by_every_call() {
    let house = House::start().await;
    let braces = format!("{{{}}}", &UNKNOWN[..34]);
    let long = format!("{UNKNOWN}0");
    let nul = UNKNOWN.replacen('-', "\0", 1);
    let simple = UNKNOWN.replace('-', "");
    let wide = "冷".repeat(12);
    for id in ["", "7", &UNKNOWN[..35], &braces, &long, &nul, &simple, &wide, "urn:uuid:0190aaaa-0000-7000-8000-000"] {
        for (rpc, outcome) in every_call(&house, id).await {
            let said = refusal(&outcome.expect_err(rpc));
            let field = match rpc {
                "update_conversation" => "conversation.conversation_id",
                _ => "conversation_id",
            };
            let wanted = (Code::InvalidArgument, "INVALID_FIELD", field);
            assert_eq!((said.code, said.reason.as_str(), said.field.as_str()), wanted, "{rpc} {id:?}");
        }
    }
    let ask = pb::ListJobsRequest { conversation_id: "7".into(), ..Default::default() };
    let refused = house.operators().list_jobs(ask).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "conversation_id");
}

#[tokio::test]
async fn an_id_in_upper_case_names_the_same_conversation() {
    let house = House::start().await;
    let mut talk = house.conversation().await;
    talk.turns(3).await;
    talk.id = talk.id.to_uppercase();
    talk.append("again").await;
    assert_eq!(talk.messages().await.len(), 7);
    for (rpc, outcome) in every_call(&house, &talk.id).await {
        match rpc {
            // There is neither a separator nor a job to find, and then no conversation.
            "delete_separator" | "discard_job" | "append_large_message" => {
                assert_eq!(outcome.expect_err(rpc).code(), Code::NotFound, "{rpc}");
            }
            _ => outcome.expect(rpc),
        }
    }
}

#[tokio::test]
async fn pages_of_a_negative_size_are_refused_and_of_a_huge_size_are_cut() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.append_all(vec![user("a"); 100]).await;
    let id = || talk.id.clone();
    for page_size in [-1, i32::MIN] {
        let (code, reason, field) = (Code::InvalidArgument, "INVALID_FIELD", "page_size");
        let ask = pb::ListMessagesRequest { conversation_id: id(), page_size, ..Default::default() };
        assert_refused(house.messages().list_messages(ask).await, code, reason, field);
        let ask = pb::ListConversationsRequest { page_size, ..Default::default() };
        assert_refused(house.conversations().list_conversations(ask).await, code, reason, field);
        let ask = pb::ListCheckpointsRequest { conversation_id: id(), page_size, ..Default::default() };
        assert_refused(house.contexts().list_checkpoints(ask).await, code, reason, field);
        let ask = pb::ListJobsRequest { page_size, ..Default::default() };
        assert_refused(house.operators().list_jobs(ask).await, code, reason, field);
    }
    for (page_size, answered) in [(0, 50), (1, 1), (i32::MAX, 500)] {
        for _ in 0..5 {
            talk.append_all(vec![user("a"); 100]).await;
        }
        let ask = pb::ListMessagesRequest { conversation_id: id(), page_size, ..Default::default() };
        let page = house.messages().list_messages(ask).await.expect("lists").into_inner();
        assert_eq!(page.messages.len(), answered);
    }
}

/// Every list with this page token: what it answers.
async fn every_list(house: &House, id: &str, page_token: &str) -> [Result<usize, Status>; 4] {
    let (id, token) = (|| id.to_owned(), || page_token.to_owned());
    let ask =
        pb::ListMessagesRequest { conversation_id: id(), page_token: token(), page_size: 1, ..Default::default() };
    let messages = house.messages().list_messages(ask).await.map(|page| page.into_inner().messages.len());
    let ask = pb::ListConversationsRequest { page_token: token(), page_size: 1, ..Default::default() };
    let conversations = house.conversations().list_conversations(ask).await;
    let ask = pb::ListJobsRequest { page_token: token(), page_size: 1, ..Default::default() };
    let jobs = house.operators().list_jobs(ask).await.map(|page| page.into_inner().jobs.len());
    let ask = pb::ListCheckpointsRequest { conversation_id: id(), page_token: token(), page_size: 1 };
    let checkpoints = house.contexts().list_checkpoints(ask).await.map(|page| page.into_inner().checkpoints.len());
    [messages, conversations.map(|page| page.into_inner().conversations.len()), jobs, checkpoints]
}

/// The tokens that the four lists give after their first entry.
async fn tokens(house: &House) -> (String, [String; 4]) {
    let talk = house.conversation().await;
    talk.turns(3).await;
    house.conversation().await.turns(1).await;
    let ask = pb::ListMessagesRequest { conversation_id: talk.id.clone(), page_size: 1, ..Default::default() };
    let messages = house.messages().list_messages(ask).await.expect("lists").into_inner().next_page_token;
    let ask = pb::ListConversationsRequest { page_size: 1, ..Default::default() };
    let conversations = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
    let ask = pb::ListJobsRequest { page_size: 1, ..Default::default() };
    let jobs = house.operators().list_jobs(ask).await.expect("lists").into_inner().next_page_token;
    for _ in 0..2 {
        talk.turns(6).await;
        let ask = pb::CompactRequest { conversation_id: talk.id.clone(), ..Default::default() };
        house.contexts().compact(ask).await.expect("asks");
        house.run_jobs_until_idle().await;
    }
    let ask = pb::ListCheckpointsRequest { conversation_id: talk.id.clone(), page_size: 1, ..Default::default() };
    let checkpoints = house.contexts().list_checkpoints(ask).await.expect("lists").into_inner().next_page_token;
    let tokens = [messages, conversations.next_page_token, jobs, checkpoints];
    assert!(tokens.iter().all(|token| !token.is_empty()), "{tokens:?}");
    (talk.id.clone(), tokens)
}

#[tokio::test]
async fn a_page_token_is_good_for_its_own_list_only() {
    let house = House::start().await;
    let (id, tokens) = tokens(&house).await;
    let other = house.conversation().await;
    other.turns(2).await;
    for (list, token) in tokens.iter().enumerate() {
        for (asked, outcome) in every_list(&house, &id, token).await.into_iter().enumerate() {
            if asked == list {
                outcome.expect("its own list");
            } else {
                assert_refused(outcome, Code::InvalidArgument, "INVALID_FIELD", "page_token");
            }
        }
        if list == 0 || list == 3 {
            let [messages, _, _, checkpoints] = every_list(&house, &other.id, token).await;
            assert_refused(messages, Code::InvalidArgument, "INVALID_FIELD", "page_token");
            assert_refused(checkpoints, Code::InvalidArgument, "INVALID_FIELD", "page_token");
        }
    }
    for broken in ["x", "////", "=", "\0", "bm90IGpzb24", &tokens[0][1..], &"A".repeat(100_000)] {
        for outcome in every_list(&house, &id, broken).await {
            assert_refused(outcome, Code::InvalidArgument, "INVALID_FIELD", "page_token");
        }
    }
}

#[tokio::test]
async fn a_page_token_with_a_flipped_bit_or_a_forged_place_breaks_nothing() {
    let house = House::start().await;
    let (id, tokens) = tokens(&house).await;
    let mut forged: Vec<String> = Vec::new();
    for token in &tokens {
        let text = URL_SAFE_NO_PAD.decode(token).expect("base64");
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            forged.push(URL_SAFE_NO_PAD.encode(flipped));
        }
        let (scope, place): (String, serde_json::Value) = serde_json::from_slice(&text).expect("scope and place");
        for extreme in [i64::MIN, -1, 0, 9, 32_767, i64::MAX] {
            let place = match &place {
                serde_json::Value::Array(items) => {
                    let forge = |item: &serde_json::Value| if item.is_number() { extreme.into() } else { item.clone() };
                    items.iter().map(forge).collect()
                }
                _ => serde_json::Value::from(extreme),
            };
            forged.push(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&(&scope, place)).expect("json")));
        }
    }
    for token in forged {
        for outcome in every_list(&house, &id, &token).await {
            if let Err(status) = outcome {
                let text = String::from_utf8_lossy(&URL_SAFE_NO_PAD.decode(&token).expect("base64")).into_owned();
                let said = refusal(&status);
                assert_eq!((said.code, said.field.as_str()), (Code::InvalidArgument, "page_token"), "{text} {status}");
            }
        }
    }
}

#[tokio::test]
async fn odd_message_ids_and_ranges_are_refused_or_not_found() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let get = async |message_id, range| {
        let ask = pb::GetMessageRequest { conversation_id: talk.id.clone(), message_id, range };
        house.messages().get_message(ask).await
    };
    let invalid = |outcome, field| assert_refused(outcome, Code::InvalidArgument, "INVALID_FIELD", field);
    for id in [0, -1, i64::MIN] {
        invalid(get(id, None).await, "message_id");
    }
    for id in [3, i64::MAX] {
        assert_refused(get(id, None).await, Code::NotFound, "MESSAGE_NOT_FOUND", "");
    }
    let range = |offset, length| Some(pb::ByteRange { offset, length });
    invalid(get(1, range(-1, 1)).await, "range.offset");
    invalid(get(1, range(i64::MIN, 1)).await, "range.offset");
    invalid(get(1, range(0, -1)).await, "range.length");
    assert_refused(get(1, range(0, i64::MAX)).await, Code::InvalidArgument, "LIMIT_EXCEEDED", "range.length");
    let beyond = get(1, range(i64::MAX, 1)).await.expect("an empty range").into_inner();
    assert_eq!(beyond.text, "");
    for after_message_id in [-1, i64::MIN] {
        let ask = pb::ListMessagesRequest { conversation_id: talk.id.clone(), after_message_id, ..Default::default() };
        assert_refused(
            house.messages().list_messages(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "after_message_id",
        );
        let ask =
            pb::DeleteSeparatorRequest { conversation_id: talk.id.clone(), after_message_id, ..Default::default() };
        assert_refused(
            house.messages().delete_separator(ask).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "after_message_id",
        );
        let expected = talk.append("c").expecting(after_message_id).send().await;
        assert_refused(expected, Code::InvalidArgument, "INVALID_FIELD", "expected_last_message_id");
    }
    let ask =
        pb::ListMessagesRequest { conversation_id: talk.id.clone(), after_message_id: i64::MAX, ..Default::default() };
    assert_eq!(house.messages().list_messages(ask).await.expect("nothing after").into_inner().messages.len(), 0);
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: talk.id.clone(),
        after_message_id: i64::MAX,
        ..Default::default()
    };
    assert_refused(house.messages().delete_separator(ask).await, Code::NotFound, "SEPARATOR_NOT_FOUND", "");
    let far = talk.append("c").expecting(i64::MAX).send().await;
    assert_refused(far, Code::Aborted, "LAST_MESSAGE_MISMATCH", "");
}

#[tokio::test]
async fn budgets_waits_and_focus_texts_have_their_limits() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    assert_refused(talk.context_within(0).await, Code::InvalidArgument, "INVALID_FIELD", "budget_tokens");
    assert_refused(talk.context_within(1).await, Code::ResourceExhausted, "BUDGET_TOO_SMALL", "");
    talk.context_within(u64::MAX).await.expect("a budget may be large");
    let prompt = |prompt: String| pb::BuildContextRequest { system_prompt: Some(prompt), ..Default::default() };
    assert_refused(talk.build(prompt("a\0".into())).await, Code::InvalidArgument, "INVALID_FIELD", "system_prompt");
    let long = talk.build(prompt("a".repeat(256 * 1024 + 1))).await;
    assert_refused(long, Code::InvalidArgument, "LIMIT_EXCEEDED", "system_prompt");
    let compact = async |focus: &str, wait| {
        let ask =
            pb::CompactRequest { conversation_id: talk.id.clone(), focus: focus.into(), wait, ..Default::default() };
        house.contexts().compact(ask).await
    };
    let wait = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for negative in [wait(-1, 0), wait(0, -1), wait(i64::MIN, i32::MIN)] {
        assert_refused(compact("", negative).await, Code::InvalidArgument, "INVALID_FIELD", "wait");
    }
    for long in [wait(60, 1), wait(61, 0), wait(i64::MAX, i32::MAX)] {
        assert_refused(compact("", long).await, Code::InvalidArgument, "LIMIT_EXCEEDED", "wait");
    }
    assert_refused(compact("a\0", None).await, Code::InvalidArgument, "INVALID_FIELD", "focus");
    let long = compact(&"a".repeat(4_097), None).await;
    assert_refused(long, Code::InvalidArgument, "LIMIT_EXCEEDED", "focus");
    let window =
        pb::GetContextUsageRequest { conversation_id: talk.id.clone(), window_tokens: u64::MAX, ..Default::default() };
    let usage = house.contexts().get_context_usage(window).await.expect("any window").into_inner();
    assert!(usage.used_share > 0.0 && usage.used_share < 1.0);
}

#[tokio::test]
async fn policies_that_make_no_sense_are_refused_by_key() {
    let house = House::start().await;
    let none = pb::Policy::default;
    let cases = [
        ("policy.token_threshold", pb::Policy { token_threshold: Some(0), ..none() }),
        ("policy.token_threshold", pb::Policy { token_threshold: Some(u64::MAX), ..none() }),
        ("policy.keep_recent_turns", pb::Policy { keep_recent_turns: Some(0), ..none() }),
        ("policy.large_message_threshold", pb::Policy { large_message_threshold: Some(u64::MAX), ..none() }),
        ("policy.hot_zone_radius", pb::Policy { hot_zone_radius: Some(u32::MAX), ..none() }),
    ];
    for (field, policy) in cases {
        let ask = pb::CreateConversationRequest { policy: Some(policy), ..Default::default() };
        let refused = house.conversations().create_conversation(ask).await;
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
    }
    let most = pb::Policy {
        token_threshold: Some(i64::MAX as u64),
        max_message_count: Some(u32::MAX),
        keep_recent_turns: Some(u32::MAX),
        large_message_threshold: Some(0),
        hot_zone_radius: Some(i32::MAX as u32),
        ..Default::default()
    };
    let talk = house.conversation_under(most.clone()).await;
    assert_eq!(talk.conversation().await.policy, Some(most));
    talk.turns(3).await;
    house.run_jobs_until_idle().await;
    talk.context().await.assert_covers(6);
    talk.verify().await;
}

#[tokio::test]
async fn labels_of_a_conversation_are_refused_by_field() {
    let house = House::start().await;
    let none = pb::CreateConversationRequest::default;
    let map = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    let keys: HashMap<_, _> = (0..33).map(|n| (n.to_string(), String::new())).collect();
    let long = || "a".repeat(129);
    let invalid = [
        ("agent_id", pb::CreateConversationRequest { agent_id: "a\0".into(), ..none() }),
        ("user_id", pb::CreateConversationRequest { user_id: "\0".into(), ..none() }),
        ("title", pb::CreateConversationRequest { title: "a\0b".into(), ..none() }),
        ("system_prompt", pb::CreateConversationRequest { system_prompt: "\0".into(), ..none() }),
        ("request_id", pb::CreateConversationRequest { request_id: "\0".into(), ..none() }),
        ("metadata", pb::CreateConversationRequest { metadata: map("k\0", "v"), ..none() }),
        ("metadata", pb::CreateConversationRequest { metadata: map("k", "v\0"), ..none() }),
        ("encoding", pb::CreateConversationRequest { encoding: "p50k_base".into(), ..none() }),
        ("model", pb::CreateConversationRequest { model: "\0".into(), ..none() }),
    ];
    for (field, ask) in invalid {
        let refused = house.conversations().create_conversation(ask).await;
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
    }
    let limits = [
        ("agent_id", pb::CreateConversationRequest { agent_id: long(), ..none() }),
        ("user_id", pb::CreateConversationRequest { user_id: long(), ..none() }),
        ("title", pb::CreateConversationRequest { title: "a".repeat(513), ..none() }),
        ("system_prompt", pb::CreateConversationRequest { system_prompt: "a".repeat(256 * 1024 + 1), ..none() }),
        ("request_id", pb::CreateConversationRequest { request_id: long(), ..none() }),
        ("metadata", pb::CreateConversationRequest { metadata: keys, ..none() }),
        ("metadata", pb::CreateConversationRequest { metadata: map("k", &"v".repeat(4_096)), ..none() }),
        ("model", pb::CreateConversationRequest { model: long(), ..none() }),
    ];
    for (field, ask) in limits {
        let refused = house.conversations().create_conversation(ask).await;
        assert_refused(refused, Code::InvalidArgument, "LIMIT_EXCEEDED", field);
    }
    let whole =
        pb::CreateConversationRequest { agent_id: "a".repeat(128), metadata: map("k", &"v".repeat(4_095)), ..none() };
    let talk = house.conversation_with(whole.clone()).await;
    assert_eq!(talk.conversation().await.metadata, whole.metadata);
}
