//! Appends: ids without gaps, turns, token estimates, repeated requests, the expected last message,
//! and the job that is committed with the messages.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::tokens::Encoding;
use anneal_testkit::{
    TestApp, assert_refused, assistant, call, gate_or_nightly, pb, result, text, user,
    with_longest_deadline,
};
use pb::append_large_message_request::{Frame, Header};
use tonic::Code;
use tonic_types::StatusExt as _;

fn ids(appended: &pb::AppendMessagesResponse) -> Vec<i64> {
    appended
        .messages
        .iter()
        .map(|message| message.message_id)
        .collect()
}

#[tokio::test]
async fn message_ids_have_no_gaps_and_messages_of_one_append_stay_together() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut next = 1;
    for size in [1, 3, 100, 2] {
        let appended = conversation.append_all(vec![user("a"); size]).await;
        let expected: Vec<i64> = (next..next + size as i64).collect();
        assert_eq!(ids(&appended), expected);
        assert!(!appended.replayed);
        next += size as i64;
    }
    let stored: Vec<i64> = conversation
        .messages()
        .await
        .iter()
        .map(|message| message.message_id)
        .collect();
    assert_eq!(stored, (1..next).collect::<Vec<_>>());
    assert_eq!(conversation.conversation().await.message_count, next - 1);
}

#[tokio::test]
async fn a_turn_starts_at_a_user_message_after_another_role() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let system = || text(pb::Role::System, "be brief");
    let batches = [
        (vec![system(), assistant("hello")], vec![0, 0]),
        (vec![user("a"), user("b")], vec![1, 1]),
        (
            vec![
                user("c"),
                call("1", "{}"),
                result("1", "r"),
                assistant("d"),
                user("e"),
            ],
            vec![1, 1, 1, 1, 2],
        ),
        (vec![user("f"), system(), user("g")], vec![2, 2, 3]),
        (vec![assistant("h")], vec![3]),
        (vec![user("i"), assistant("j"), user("k")], vec![4, 4, 5]),
    ];
    let mut all = Vec::new();
    for (content, turns) in batches {
        let appended = conversation.append_all(content).await;
        assert_eq!(
            appended
                .messages
                .iter()
                .map(|message| message.turn)
                .collect::<Vec<_>>(),
            turns
        );
        all.extend(turns);
    }
    assert_eq!(
        conversation
            .messages()
            .await
            .iter()
            .map(|message| message.turn)
            .collect::<Vec<_>>(),
        all
    );
    assert_eq!(conversation.conversation().await.turn, 5);
    conversation.verify().await;
}

#[tokio::test]
async fn an_estimate_undercounts_by_at_most_5_percent() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let samples = [
        "The quick brown fox jumps over the lazy dog, and then it rests. ",
        "敏捷的棕色狐狸跳过了懒狗，然后休息了一会儿。",
        "素早い茶色の狐は怠け者の犬を飛び越えて、それから休みました。",
        "빠른 갈색 여우가 게으른 개를 뛰어넘고 나서 쉬었습니다. ",
        "Быстрая коричневая лиса прыгает через ленивую собаку. ",
        "الثعلب البني السريع يقفز فوق الكلب الكسول ",
        "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है ",
        "👩‍👩‍👧‍👦🏳️‍🌈🧊🔥🥶",
        "aGVsbG8gd29ybGQhIFRoaXMgaXMgYmFzZTY0Lg9xZ3/+KJh2",
        "{\"a\":[1,2,3.5e10,null],\"b\":{\"c\":\"\\u00e9\"}}\n",
        "\t\t\tif (x != y) { return ~(x ^ y) >> 3; }\n",
        "0123456789",
        "                                ",
        "\u{202e}\u{200d}\u{feff}",
        "a",
        "",
    ];
    let mut content = Vec::new();
    for sample in samples {
        content.extend([1, 7, 100].map(|times| user(&sample.repeat(times))));
    }
    let estimated: Vec<u64> = conversation
        .append_all(content)
        .await
        .messages
        .iter()
        .map(|message| message.tokens.expect("estimates").tokens)
        .collect();
    app.run_jobs_until_idle().await;
    for (message, estimate) in conversation.messages().await.iter().zip(estimated) {
        let counted = message.tokens.expect("counts");
        assert!(!counted.estimated);
        let least = counted.tokens as f64 * 0.95;
        assert!(
            estimate as f64 >= least.floor(),
            "{estimate} for {}: {:?}",
            counted.tokens,
            message.parts
        );
    }
}

#[tokio::test]
async fn a_token_count_is_the_count_in_the_conversations_encoding() {
    let app = TestApp::start().await;
    for (name, encoding) in [
        ("o200k_base", Encoding::O200kBase),
        ("cl100k_base", Encoding::Cl100kBase),
    ] {
        let ask = pb::CreateConversationRequest {
            encoding: name.into(),
            ..Default::default()
        };
        let conversation = app.conversation_with(ask).await;
        let content = "Wie viele Tokens sind das? 冷却 🧊 1e400";
        conversation.append(content).await;
        app.run_jobs_until_idle().await;
        let counted = conversation.messages().await[0].tokens.expect("counts");
        assert_eq!(
            counted.tokens,
            encoding.counter().count(content).get(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_repeated_request_returns_the_first_answer() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let request = || {
        conversation
            .append_all(vec![user("a"), assistant("b"), user("c")])
            .request_id("r1")
    };
    let first = request().await;
    let again = request().await;
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(first.messages, again.messages);
    conversation.turns(60).await;
    app.run_jobs_until_idle().await;
    conversation.insert_separator().await;
    assert_eq!(
        request().await,
        again,
        "the answer is the same after further appends"
    );
    assert_eq!(conversation.messages().await.len(), 3 + 60 * 2);
    conversation.verify().await;
}

#[tokio::test]
async fn a_request_id_with_another_body_is_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("a").request_id("r1").await;
    let labeled = || {
        let mut new = user("a");
        new.metadata.insert("k".into(), "v".into());
        new
    };
    let bodies = [
        vec![user("b")],
        vec![user("a"), user("a")],
        vec![assistant("a")],
        vec![labeled()],
    ];
    for body in bodies {
        let reused = conversation.append_all(body).request_id("r1").send().await;
        assert_refused(reused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    }
    assert_eq!(conversation.messages().await.len(), 1);
    let other = app.conversation().await;
    assert!(
        !other.append("b").request_id("r1").await.replayed,
        "a request id is known only in its own conversation"
    );
}

#[tokio::test]
async fn an_append_that_expects_another_last_message_is_refused_and_names_the_last_one() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.append("a").expecting(0).await;
    conversation.append("b").expecting(1).request_id("r1").await;
    for expected in [0, 1, 3] {
        let status = conversation
            .append("c")
            .expecting(expected)
            .send()
            .await
            .expect_err("another message is the last one");
        let info = status
            .get_error_details()
            .error_info()
            .cloned()
            .expect("has details");
        assert_eq!(
            (status.code(), info.reason.as_str()),
            (Code::Aborted, "LAST_MESSAGE_MISMATCH")
        );
        assert_eq!(
            info.metadata.get("last_message_id").map(String::as_str),
            Some("2")
        );
        assert_eq!(
            info.metadata.get("expected_last_message_id"),
            Some(&expected.to_string())
        );
    }
    let replayed = conversation.append("b").expecting(1).request_id("r1").await;
    assert!(
        replayed.replayed,
        "a repeated request is answered although its expectation no longer holds"
    );
    assert_eq!(ids(&replayed), [2]);
    assert_eq!(conversation.messages().await.len(), 2);
}

#[tokio::test]
async fn the_totals_of_a_conversation_equal_the_sums_over_its_messages() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..20 {
        conversation
            .turn(&format!("question {n} 冷却"), &"answer ".repeat(n))
            .await;
        if n % 7 == 3 {
            app.run_jobs_until_idle().await;
        }
        let (row, messages) = (
            conversation.conversation().await,
            conversation.messages().await,
        );
        let tokens = messages
            .iter()
            .map(|message| message.tokens.expect("has tokens"));
        let total = row.token_total.expect("has a total");
        assert_eq!(
            total.tokens,
            tokens.clone().map(|count| count.tokens).sum::<u64>()
        );
        assert_eq!(
            total.estimated_messages,
            tokens.filter(|count| count.estimated).count() as i64
        );
        assert_eq!(row.message_count, messages.len() as i64);
        assert_eq!(row.turn, messages.last().expect("is there").turn);
        assert_eq!(
            row.last_activity_time,
            messages.last().expect("is there").created_time
        );
    }
    conversation.verify().await;
}

#[tokio::test]
async fn row_D8_a_message_and_its_counting_job_are_committed_together() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let ask = || pb::ListJobsRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let jobs = async || {
        app.operators()
            .list_jobs(ask())
            .await
            .expect("lists")
            .into_inner()
            .jobs
    };
    assert!(jobs().await.is_empty());
    conversation.append("a").await;
    let [job] = &jobs().await[..] else {
        panic!("one job")
    };
    assert_eq!(
        (job.kind(), job.state(), job.attempts),
        (pb::JobKind::CountTokens, pb::JobState::Waiting, 0)
    );
    assert_eq!(job.conversation_id, conversation.id);
    conversation.append("b").await;
    assert_eq!(
        jobs().await.len(),
        1,
        "one counting job for all uncounted messages"
    );
    assert_eq!(app.run_jobs_until_idle().await, 1);
    assert!(jobs().await.is_empty());
    let refused = conversation.append_all(vec![]).send().await;
    refused.expect_err("is empty");
    assert!(jobs().await.is_empty(), "a refused request queues no job");
}

#[tokio::test]
async fn a_message_of_several_mib_comes_back_and_is_counted() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let line = "2026-11-21T10:00:00Z INFO served 冷却 in 12 ms, request 7f3a\n";
    let content = line.repeat((gate_or_nightly(5, 20) << 20) / line.len() + 1);
    let send = async || {
        let header = Header {
            conversation_id: conversation.id.clone(),
            request_id: "large".into(),
            message: Some(user("")),
            ..Default::default()
        };
        // Some chunks of this size end within a character.
        let chunks = content
            .as_bytes()
            .chunks(1_000_001)
            .map(|chunk| Frame::Chunk(chunk.to_vec()));
        let frames: Vec<_> = std::iter::once(Frame::Header(header))
            .chain(chunks)
            .collect();
        let frames = frames
            .into_iter()
            .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
        app.messages()
            .append_large_message(with_longest_deadline(tokio_stream::iter(frames)))
            .await
            .expect("appends")
            .into_inner()
    };
    let first = send().await;
    assert_eq!(ids(&first), [1]);
    assert!(send().await.replayed);
    app.run_jobs_until_idle().await;
    let [stored] = &conversation.messages().await[..] else {
        panic!("one message")
    };
    assert!(
        stored.parts == user(&content).parts,
        "the message comes back unchanged"
    );
    assert_eq!(stored.text_bytes, content.len() as i64);
    let counted = stored.tokens.expect("counts");
    assert!(
        !counted.estimated && counted.tokens > 250_000,
        "{counted:?}"
    );
    let range = Some(pb::ByteRange {
        offset: 10_000_000,
        length: 100,
    });
    let ask = pb::GetMessageRequest {
        conversation_id: conversation.id.clone(),
        message_id: 1,
        range,
        ..Default::default()
    };
    let piece = app
        .messages()
        .get_message(ask)
        .await
        .expect("is there")
        .into_inner();
    // The range of bytes 10,000,000 to 10,000,099 is widened to whole characters.
    let (start, end) = (
        content.floor_char_boundary(10_000_000),
        content.ceil_char_boundary(10_000_100),
    );
    let widened = pb::ByteRange {
        offset: start as i64,
        length: (end - start) as i64,
    };
    assert_eq!(piece.range, Some(widened));
    assert_eq!(piece.text, content[start..end]);
    conversation.verify().await;
}

#[tokio::test]
async fn a_request_above_4_mib_is_refused_and_names_append_large_message() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let refused = conversation
        .append(&"a".repeat(4 * 1024 * 1024))
        .send()
        .await;
    let status = refused.clone().expect_err("is refused");
    assert!(status.message().contains("AppendLargeMessage"), "{status}");
    assert_refused(refused, Code::InvalidArgument, "LIMIT_EXCEEDED", "request");
    // 100 bytes are enough for the other fields of the request.
    conversation
        .append(&"a".repeat(4 * 1024 * 1024 - 100))
        .await;
}
