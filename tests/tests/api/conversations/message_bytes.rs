//! `limits.message_bytes` is enforced wherever a message comes in.

use anneal_server::LimitSettings;
use anneal_testkit::{
    MODEL, Say, Script, ScriptedModel, TestApp, TestConversation, assert_refused, pb, user,
};
use pb::append_large_message_request::{Frame, Header};
use tonic::{Code, Status};

/// The limit of the tests, which is the least that the setting accepts.
const MOST_BYTES: usize = 1024 * 1024;

fn limits() -> LimitSettings {
    LimitSettings {
        message_bytes: MOST_BYTES as u32,
        ..LimitSettings::default()
    }
}

/// A text of this many bytes.
fn text(bytes: usize) -> String {
    "a word ".repeat(bytes / 7 + 1)[..bytes].to_owned()
}

async fn append_as_stream(
    conversation: &TestConversation<'_>,
    text: String,
) -> Result<pb::AppendMessagesResponse, Status> {
    let header = Header {
        conversation_id: conversation.id.clone(),
        message: Some(user("")),
        ..Default::default()
    };
    let frames = [Frame::Header(header), Frame::Chunk(text.into_bytes())];
    let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    let mut client = conversation.app.messages();
    let appended = client.append_large_message(futures::stream::iter(frames));
    Ok(appended.await?.into_inner())
}

#[tokio::test]
async fn a_lower_message_limit_is_enforced_in_every_door() {
    let app = TestApp::with_limits(limits()).await;
    let conversation = app.conversation().await;
    let (largest, too_large) = (text(MOST_BYTES), text(MOST_BYTES + 1));
    conversation.append(&largest).await;
    append_as_stream(&conversation, largest.clone())
        .await
        .expect("a text of the limit is stored");
    conversation.append("short").await;
    let refused = |outcome: Result<(), Status>, field: &str| {
        assert_refused(outcome, Code::InvalidArgument, "LIMIT_EXCEEDED", field);
    };
    let messages = vec![user("short"), user(&too_large)];
    let appended = conversation.append_all(messages).send().await;
    refused(appended.map(|_| ()), "messages[1]");
    let streamed = append_as_stream(&conversation, too_large.clone()).await;
    refused(streamed.map(|_| ()), "chunk");
    let edited = conversation.edit(3, user(&too_large)).send().await;
    refused(edited.map(|_| ()), "message");
    let stored = conversation.conversation().await;
    assert_eq!(stored.message_count, 3, "nothing of these was stored");
    conversation.edit(3, user(&largest)).await;
}

#[tokio::test]
async fn a_turn_stores_no_answer_above_the_message_limit() {
    let model = ScriptedModel::start(|request| {
        let piece = "a word ".repeat(10_000);
        Script::says(
            request,
            vec![Say::text(&piece); MOST_BYTES / piece.len() + 1],
        )
    })
    .await;
    let app = TestApp::with_models_and_limits(model.settings(&[MODEL]), MODEL, limits()).await;
    let conversation = app.conversation().await;
    let prompted = conversation.chat(&text(MOST_BYTES + 1)).await;
    assert_refused(
        prompted.end.map(|_| ()),
        Code::InvalidArgument,
        "LIMIT_EXCEEDED",
        "messages[0]",
    );
    assert!(model.requests().is_empty());
    let answered = conversation.chat("Tell me all.").await;
    assert_refused(
        answered.end.map(|_| ()),
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    assert_eq!(
        conversation.conversation().await.message_count,
        1,
        "the question"
    );
}
