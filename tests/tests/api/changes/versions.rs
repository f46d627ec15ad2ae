//! Earlier versions of edited messages are kept: they can be listed and read.

use anneal_testkit::{TestApp, TestConversation, assert_refused, assistant, pb, prose, text, user};
use tonic::Code;

use super::conversation_of_turns;

/// A version of message 1.
async fn version_of_first(conversation: &TestConversation<'_>, version: i32) -> pb::Message {
    conversation
        .message_version(1, version)
        .await
        .expect("the version exists")
}

#[tokio::test]
async fn all_versions_are_listed_and_each_can_be_read() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let original = conversation.message(1).await;
    let labelled = pb::NewMessage {
        metadata: [("source".to_owned(), "web".to_owned())].into(),
        ..user("The second version.")
    };
    conversation.edit(1, labelled.clone()).await;
    let second = conversation.message(1).await;
    conversation.edit(1, user(&prose(1, 9))).await;
    let third = conversation.message(1).await;

    for message in [&original, &second, &third] {
        assert_eq!(
            version_of_first(&conversation, message.version).await,
            *message
        );
    }
    assert_eq!(second.metadata, labelled.metadata);
    let versions = conversation.versions(1).await;
    let numbers: Vec<i32> = versions.iter().map(|version| version.version).collect();
    assert_eq!(numbers, [3, 2, 1]);
    for (version, message) in versions.iter().zip([&third, &second, &original]) {
        assert_eq!(
            (version.tokens, version.text_bytes),
            (message.tokens, message.text_bytes)
        );
        let stored = message.edited_time.or(message.created_time);
        assert_eq!(version.created_time, stored);
    }
    assert_eq!(versions[0].replaced_time, None);
    assert_eq!(versions[1].replaced_time, versions[0].created_time);
    assert_eq!(versions[2].replaced_time, versions[1].created_time);
    assert_eq!(conversation.versions(2).await.len(), 1);
}

#[tokio::test]
async fn versions_are_listed_in_pages() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    for number in 2..=5 {
        conversation
            .edit(1, user(&format!("Version {number}.")))
            .await;
    }
    let all = conversation.versions(1).await;
    for page_size in [1, 2, 4, 5] {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let ask = pb::ListMessageVersionsRequest {
                conversation_id: conversation.id.clone(),
                message_id: 1,
                page_size,
                page_token,
            };
            let page = app.messages().list_message_versions(ask).await;
            let page = page.expect("lists").into_inner();
            assert!(!page.versions.is_empty(), "{page_size}: an empty page");
            assert!(page.versions.len() <= page_size as usize);
            listed.extend(page.versions);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(listed, all, "{page_size}");
    }
}

#[tokio::test]
async fn a_withdrawn_message_has_no_version_that_stands_and_its_versions_can_be_read() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    conversation.edit(1, user("The second version.")).await;
    let second = conversation.message(1).await;
    conversation.withdraw(&[1]).await;
    let versions = conversation.versions(1).await;
    assert_eq!(versions.len(), 2);
    assert!(
        versions
            .iter()
            .all(|version| version.replaced_time.is_some())
    );
    let withdrawn = version_of_first(&conversation, 2).await;
    assert!(withdrawn.withdrawn_time.is_some());
    assert_eq!(
        pb::Message {
            withdrawn_time: None,
            ..withdrawn
        },
        second
    );
    conversation.restore(&[1]).await;
    assert_eq!(version_of_first(&conversation, 2).await, second);
    let change = conversation.edit(1, user("The third version.")).await;
    assert_eq!(change.version, 3, "versions are numbered on");
    assert_eq!(conversation.versions(1).await.len(), 3);
    assert_eq!(
        version_of_first(&conversation, 2).await.parts,
        second.parts,
        "the version that was withdrawn and restored is kept"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_version_that_is_not_kept_is_not_found() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    conversation.edit(1, user("The second version.")).await;
    conversation.edit(1, user("The third version.")).await;
    let erase = "delete from ai_message_version where conversation_id = $1 and message_id = 1 and version = 1";
    sqlx::query(erase)
        .bind(conversation.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("erases");
    let numbers: Vec<i32> = conversation
        .versions(1)
        .await
        .iter()
        .map(|version| version.version)
        .collect();
    assert_eq!(numbers, [3, 2]);
    for (message, version, reason) in [
        (1, 1, "VERSION_NOT_FOUND"),
        (1, 4, "VERSION_NOT_FOUND"),
        (2, 2, "VERSION_NOT_FOUND"),
        (3, 1, "MESSAGE_NOT_FOUND"),
    ] {
        let refused = conversation.message_version(message, version).await;
        assert_refused(refused, Code::NotFound, reason, "");
    }
}

#[tokio::test]
async fn a_large_version_is_read_as_a_whole_and_in_ranges() {
    const BYTES: usize = 3 * 1024 * 1024;
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let large: String = ('a'..='z').cycle().take(BYTES).collect();
    conversation.append_all(vec![user(&large)]).await;
    conversation.edit(1, user("It was too long.")).await;
    let whole = version_of_first(&conversation, 1).await;
    assert_eq!(whole.parts, user(&large).parts);
    for (version, offset, expected) in [
        (1, 2_000_000, &large[2_000_000..2_000_010]),
        (2, 7, "too long."),
    ] {
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.id.clone(),
            message_id: 1,
            range: Some(pb::ByteRange { offset, length: 10 }),
            version,
            ..Default::default()
        };
        let read = app.messages().get_message(ask).await.expect("reads");
        let read = read.into_inner();
        assert_eq!(read.text, expected, "version {version}");
        let message = read.message.expect("a message");
        assert_eq!((message.version, message.parts.len()), (version, 0));
    }
}

#[tokio::test]
async fn every_kind_of_content_comes_back_from_a_version_byte_for_byte() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let odd = "a\0b \\u0000 \u{202e}\u{1F980} \"\\\" \r\n";
    conversation
        .append_all(vec![user(odd), text(pb::Role::Assistant, odd)])
        .await;
    conversation.edit(1, user("One.")).await;
    conversation.edit(2, assistant("Two.")).await;
    for id in [1, 2] {
        let version = conversation.message_version(id, 1).await.expect("exists");
        assert_eq!(version.parts, user(odd).parts, "message {id}");
    }
    let ask = pb::GetMessageRequest {
        conversation_id: conversation.id.clone(),
        message_id: 1,
        range: Some(pb::ByteRange::default()),
        version: 1,
        ..Default::default()
    };
    let read = app.messages().get_message(ask).await.expect("reads");
    assert_eq!(read.into_inner().text, odd);
}
