//! Lists of messages and checkpoints show what no longer stands, if they are asked to.

use anneal_testkit::{TestApp, TestConversation, pb, user};

use super::{
    append_turns, conversation_of_turns, conversation_with_checkpoints, conversation_with_tools,
};

/// The pages of a list with withdrawn messages: the messages, and the places of the separators.
async fn list_in_pages(
    conversation: &TestConversation<'_>,
    page_size: i32,
) -> (Vec<pb::Message>, Vec<i64>) {
    let (mut messages, mut separators) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size,
            page_token,
            include_withdrawn: true,
            ..Default::default()
        };
        let page = conversation.app.messages().list_messages(ask).await;
        let page = page.expect("lists").into_inner();
        messages.extend(page.messages);
        separators.extend(page.separators.iter().map(|one| one.after_message_id));
        if page.next_page_token.is_empty() {
            return (messages, separators);
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn withdrawn_messages_are_listed_with_the_content_that_they_had() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    conversation.edit(1, user("Please look twice.")).await;
    let before = conversation.messages().await;
    assert_eq!(
        conversation.messages_with_withdrawn().await,
        before,
        "nothing is withdrawn yet"
    );
    conversation.withdraw(&[1, 3, 8]).await;
    let listed = conversation.messages_with_withdrawn().await;
    let withdrawn: Vec<i64> = listed
        .iter()
        .filter(|message| message.withdrawn_time.is_some())
        .map(|message| message.message_id)
        .collect();
    assert_eq!(withdrawn, [1, 2, 3, 8]);
    assert!(listed.iter().all(|message| !message.erased));
    let as_before = listed
        .iter()
        .zip(&before)
        .map(|(message, before)| pb::Message {
            withdrawn_time: None,
            turn: before.turn,
            ..message.clone()
        });
    assert_eq!(as_before.collect::<Vec<_>>(), before);
    let standing: Vec<i64> = conversation
        .messages()
        .await
        .iter()
        .map(|message| message.message_id)
        .collect();
    assert_eq!(standing, [4, 5, 6, 7]);
}

#[tokio::test]
async fn messages_whose_content_is_gone_are_listed_as_erased() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    conversation.withdraw(&[1, 2]).await;
    let erase = "delete from ai_message_version where conversation_id = $1 and message_id = 2";
    sqlx::query(erase)
        .bind(conversation.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("erases");
    let listed = conversation.messages_with_withdrawn().await;
    let erased: Vec<bool> = listed.iter().map(|message| message.erased).collect();
    assert_eq!(erased, [false, true]);
    assert!(listed[1].parts.is_empty() && listed[1].withdrawn_time.is_some());
    assert_eq!(listed[1].tokens.expect("tokens").tokens, 0);
}

#[tokio::test]
async fn pages_with_withdrawn_messages_have_each_message_and_each_separator_once() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    conversation.insert_separator().await;
    append_turns(&conversation, 2..=3).await;
    conversation.insert_separator().await;
    conversation.withdraw(&[2, 3, 6]).await;
    let all = conversation.messages_with_withdrawn().await;
    assert_eq!(all.len(), 6);
    for page_size in [1, 2, 3, 6, 50] {
        let (listed, separators) = list_in_pages(&conversation, page_size).await;
        assert_eq!(listed, all, "{page_size}");
        assert_eq!(separators, [2, 6], "{page_size}");
    }
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        include_withdrawn: true,
        without_content: true,
        after_message_id: 4,
        ..Default::default()
    };
    let page = app.messages().list_messages(ask).await.expect("lists");
    let figures: Vec<_> = all[4..]
        .iter()
        .map(|message| pb::Message {
            parts: Vec::new(),
            ..message.clone()
        })
        .collect();
    assert_eq!(page.into_inner().messages, figures);
}

#[tokio::test]
async fn a_page_is_bounded_by_the_content_of_withdrawn_messages_too() {
    const BYTES: usize = 3 * 1024 * 1024;
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..3 {
        conversation
            .append_all(vec![user(&"a".repeat(BYTES))])
            .await;
    }
    conversation.withdraw(&[1, 3]).await;
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        include_withdrawn: true,
        ..Default::default()
    };
    let page = app.messages().list_messages(ask).await.expect("lists");
    let page = page.into_inner();
    assert_eq!(page.messages.len(), 1);
    assert!(!page.next_page_token.is_empty());
    let (listed, _) = list_in_pages(&conversation, 50).await;
    assert_eq!(listed.len(), 3);
    assert!(
        listed
            .iter()
            .all(|message| message.parts == user(&"a".repeat(BYTES)).parts)
    );
}

#[tokio::test]
async fn checkpoints_that_no_longer_hold_are_listed_on_request() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let before = conversation.checkpoints().await;
    assert_eq!(conversation.checkpoints_with_void().await, before);
    assert!(
        before
            .iter()
            .all(|one| one.void_time.is_none() && one.valid)
    );
    // The newer one no longer holds, then the older one, and then the one that was made after that.
    conversation.withdraw(&[older + 1]).await;
    let after = conversation.checkpoints_with_void().await;
    assert_eq!(after[1], before[1], "the older one holds");
    assert!(after[0].void_time.is_some() && !after[0].valid);
    assert_eq!(
        pb::Checkpoint {
            void_time: None,
            valid: true,
            ..after[0].clone()
        },
        before[0],
        "it has its summary and its figures"
    );
    conversation.withdraw(&[1]).await;
    assert!(conversation.checkpoints().await.is_empty());
    app.run_jobs_until_idle().await;
    let made = conversation.checkpoints().await;
    assert_eq!(made.len(), 1);
    conversation
        .edit(2, anneal_testkit::assistant("New."))
        .await;
    let all = conversation.checkpoints_with_void().await;
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().all(|one| one.void_time.is_some()));
    let mut lasts: Vec<i64> = all.iter().map(|one| one.last_message_id).collect();
    assert!(lasts.is_sorted_by(|one, next| one >= next), "{lasts:?}");
    lasts.retain(|last| [older, newer].contains(last));
    assert!(lasts.len() >= 2, "{lasts:?}");
}

#[tokio::test]
async fn checkpoints_of_the_same_messages_are_told_apart_by_their_changes() {
    let app = TestApp::start().await;
    let (conversation, [_, newer]) = conversation_with_checkpoints(&app).await;
    // Each round ends the checkpoint of the same messages. The last one holds.
    for round in 0..3 {
        conversation.edit(1, user(&format!("Round {round}."))).await;
        app.run_jobs_until_idle().await;
    }
    let all = conversation.checkpoints_with_void().await;
    let same = all
        .iter()
        .filter(|one| one.last_message_id == newer)
        .count();
    assert!(same >= 3, "{all:?}");
    let holding: Vec<_> = all.iter().filter(|one| one.void_time.is_none()).collect();
    assert_eq!(
        holding,
        conversation.checkpoints().await.iter().collect::<Vec<_>>()
    );
    let times = all
        .iter()
        .filter(|one| one.last_message_id == newer)
        .filter_map(|one| one.void_time.map(|time| (time.seconds, time.nanos)));
    assert!(
        times
            .collect::<Vec<_>>()
            .is_sorted_by(|one, next| one >= next),
        "the newest change comes first"
    );
    for page_size in [1, 2, 50] {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let ask = pb::ListCheckpointsRequest {
                conversation_id: conversation.id.clone(),
                page_size,
                page_token,
                include_void: true,
            };
            let page = app.contexts().list_checkpoints(ask).await;
            let page = page.expect("lists").into_inner();
            listed.extend(page.checkpoints);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(listed, all, "{page_size}");
    }
}
