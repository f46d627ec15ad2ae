//! MessageService: listing and getting messages, inserting and deleting separators. `append.rs`
//! tests appends.

use anneal_testkit::{TestApp, assert_refused, assistant, call, pb, result, user};
use tonic::Code;

/// Lists all messages. Returns the message ids of each page.
async fn list_pages(app: &TestApp, ask: pb::ListMessagesRequest) -> Vec<Vec<i64>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListMessagesRequest {
            page_token,
            ..ask.clone()
        };
        let page = app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        pages.push(
            page.messages
                .iter()
                .map(|message| message.message_id)
                .collect(),
        );
        if page.next_page_token.is_empty() {
            return pages;
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn messages_are_listed_in_both_directions_page_by_page() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        page_size: 3,
        ..Default::default()
    };
    assert_eq!(list_pages(&app, ask.clone()).await, [Vec::<i64>::new()]);
    conversation.append_all(vec![user("a"); 7]).await;
    assert_eq!(
        list_pages(&app, ask.clone()).await,
        [vec![1, 2, 3], vec![4, 5, 6], vec![7]]
    );
    let newest = pb::ListMessagesRequest {
        newest_first: true,
        ..ask.clone()
    };
    assert_eq!(
        list_pages(&app, newest.clone()).await,
        [vec![7, 6, 5], vec![4, 3, 2], vec![1]]
    );
    let after = pb::ListMessagesRequest {
        after_message_id: 4,
        ..ask.clone()
    };
    assert_eq!(list_pages(&app, after).await, [vec![5, 6, 7]]);
    let first = app
        .messages()
        .list_messages(newest.clone())
        .await
        .expect("lists")
        .into_inner();
    conversation.append("meanwhile").await;
    let next = pb::ListMessagesRequest {
        page_token: first.next_page_token.clone(),
        ..newest
    };
    let second = app
        .messages()
        .list_messages(next)
        .await
        .expect("lists")
        .into_inner();
    assert_eq!(
        second.messages[0].message_id, 4,
        "concurrent appends do not shift pages"
    );
    let other_direction = pb::ListMessagesRequest {
        page_token: first.next_page_token,
        ..ask.clone()
    };
    let refused = app.messages().list_messages(other_direction).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "page_token",
    );
    let ask = pb::ListMessagesRequest {
        without_content: true,
        ..ask
    };
    let messages_without_content = app
        .messages()
        .list_messages(ask)
        .await
        .expect("lists")
        .into_inner()
        .messages;
    assert!(
        messages_without_content
            .iter()
            .all(|message| message.parts.is_empty() && message.text_bytes == 1)
    );
}

#[tokio::test]
async fn a_page_ends_early_when_its_content_is_large() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..5 {
        conversation.append(&"a".repeat(3 * 1024 * 1024)).await;
    }
    conversation.append("small").await;
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    for newest_first in [false, true] {
        let pages = list_pages(
            &app,
            pb::ListMessagesRequest {
                newest_first,
                ..ask.clone()
            },
        )
        .await;
        // The content of a page has at most 4 MiB, which two of the large messages exceed.
        assert!(
            pages.len() >= 3 && pages.iter().all(|page| (1..=2).contains(&page.len())),
            "{pages:?}"
        );
        let mut ids = pages.concat();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    }
    let pages_without_content = list_pages(
        &app,
        pb::ListMessagesRequest {
            without_content: true,
            ..ask
        },
    )
    .await;
    assert_eq!(
        pages_without_content.len(),
        1,
        "content that a page leaves out does not count towards its byte limit"
    );
}

#[tokio::test]
async fn get_message_returns_a_whole_message_or_byte_ranges() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("a冷b🧊c"),
            call("1", "{\"n\":1}"),
            result("1", "seen"),
        ])
        .await;
    let get = async |message_id, range| {
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.id.clone(),
            message_id,
            range,
            ..Default::default()
        };
        app.messages()
            .get_message(ask)
            .await
            .expect("is there")
            .into_inner()
    };
    let whole = get(1, None).await;
    assert_eq!(
        whole.message.as_ref(),
        conversation.messages().await.first()
    );
    assert_eq!((whole.text.as_str(), whole.range), ("", None));
    let range = |offset, length| Some(pb::ByteRange { offset, length });
    // A range is widened to whole characters: 冷 is in bytes 1 to 3, 🧊 in bytes 5 to 8. A length
    // of 0 asks for the rest. Each case: the requested offset and length, the text, its first byte.
    let cases = [
        (0, 0, "a冷b🧊c", 0),
        (0, 1, "a", 0),
        (2, 1, "冷", 1),
        (1, 4, "冷b", 1),
        (6, 1, "🧊", 5),
        (10, 5, "", 10),
    ];
    for (offset, length, text, start) in cases {
        let piece = get(1, range(offset, length)).await;
        assert_eq!(piece.text, text, "{offset} {length}");
        assert_eq!(piece.range, range(start, text.len() as i64));
        assert!(
            piece.message.expect("is there").parts.is_empty(),
            "a range comes without the parts"
        );
    }
    assert_eq!(get(2, range(0, 0)).await.text, "{\"n\":1}");
    assert_eq!(get(3, range(0, 0)).await.text, "seen");
}

#[tokio::test]
async fn separators_are_inserted_listed_and_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let insert = async |request_id: &str, expected| {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: conversation.id.clone(),
            request_id: request_id.into(),
            expected_last_message_id: expected,
            ..Default::default()
        };
        app.messages()
            .insert_separator(ask)
            .await
            .map(tonic::Response::into_inner)
    };
    let delete = async |after_message_id, request_id: &str| {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: conversation.id.clone(),
            after_message_id,
            request_id: request_id.into(),
        };
        app.messages()
            .delete_separator(ask)
            .await
            .map(|done| done.into_inner().boundary_message_id)
    };
    conversation
        .append_all(vec![user("a"), assistant("b")])
        .await;
    assert_refused(
        insert("s0", Some(1)).await,
        Code::Aborted,
        "LAST_MESSAGE_MISMATCH",
        "",
    );
    let first = insert("s1", Some(2)).await.expect("inserts");
    assert_eq!(
        (first.after_message_id, &first.conversation_id),
        (2, &conversation.id)
    );
    conversation
        .append_all(vec![user("c"), assistant("d")])
        .await;
    assert_eq!(
        insert("s1", Some(2))
            .await
            .expect("repeats")
            .after_message_id,
        2
    );
    assert_eq!(
        insert("s2", None).await.expect("inserts").after_message_id,
        4
    );
    assert_eq!(
        insert("", None)
            .await
            .expect("is there already")
            .after_message_id,
        4
    );
    conversation.append("e").await;
    let built = conversation.context().await;
    built.assert_covers(5);
    assert_eq!(
        (built.0.boundary_message_id, built.0.boundary_kind()),
        (4, pb::BoundaryKind::Separator)
    );
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let page = app
        .messages()
        .list_messages(ask)
        .await
        .expect("lists")
        .into_inner();
    assert_eq!(
        page.separators
            .iter()
            .map(|one| one.after_message_id)
            .collect::<Vec<_>>(),
        [2, 4]
    );
    assert_eq!(page.messages.len(), 5, "a separator is not a message");
    assert_eq!(delete(4, "d1").await.expect("deletes"), 2);
    assert_eq!(delete(4, "d1").await.expect("repeats"), 2);
    assert_refused(
        delete(4, "").await,
        Code::NotFound,
        "SEPARATOR_NOT_FOUND",
        "",
    );
    assert_eq!(delete(2, "").await.expect("deletes"), 0);
    assert_eq!(conversation.context().await.0.boundary_message_id, 0);
    conversation.verify().await;
}

#[tokio::test]
async fn an_id_in_upper_case_names_the_same_conversation() {
    let app = TestApp::start().await;
    let mut conversation = app.conversation().await;
    conversation.turns(3).await;
    conversation.id = conversation.id.to_uppercase();
    conversation.append("again").await;
    assert_eq!(conversation.messages().await.len(), 7);
    conversation.context().await.assert_covers(7);
    conversation.verify().await;
}
