//! Limits on concurrent watches and large appends: one tenant gets at most half. Without
//! authentication, all callers together get the whole limit.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{AuthorizedChannel, TestApp, assert_refused, pb, user};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

/// A client of a tenant, and a conversation of this tenant.
struct TenantClient {
    channel: AuthorizedChannel,
    conversation: String,
}

impl TenantClient {
    async fn new(app: &TestApp, tenant: &str) -> Self {
        let key = app.key(tenant, &Verb::ALL).await;
        let channel = app.authorized_channel(&format!("Bearer {}", key.text));
        let ask = pb::CreateConversationRequest::default();
        let made = ConversationServiceClient::new(channel.clone())
            .create_conversation(ask)
            .await
            .expect("creates");
        Self {
            channel,
            conversation: made.into_inner().conversation_id,
        }
    }

    fn messages(&self) -> MessageServiceClient<AuthorizedChannel> {
        MessageServiceClient::new(self.channel.clone())
    }

    /// Opens a watch and waits for its first event.
    async fn watch(&self) -> Result<Streaming<pb::ConversationEvent>, Status> {
        let ask = pb::WatchConversationRequest {
            conversation_id: self.conversation.clone(),
            ..Default::default()
        };
        let mut watch = self.messages().watch_conversation(ask).await?.into_inner();
        watch.message().await?;
        Ok(watch)
    }
}

async fn start_with_keys(settings: ServerSettings) -> TestApp {
    TestApp::with_auth(
        settings,
        AuthSettings {
            api_keys: true,
            ..AuthSettings::default()
        },
    )
    .await
}

#[tokio::test]
async fn a_tenant_gets_at_most_half_of_the_watches() {
    let app = start_with_keys(ServerSettings {
        concurrent_watches: 4,
        ..ServerSettings::default()
    })
    .await;
    let (anna, bert) = (
        TenantClient::new(&app, "anna").await,
        TenantClient::new(&app, "bert").await,
    );
    let mut held = vec![
        anna.watch().await.expect("is accepted"),
        anna.watch().await.expect("is accepted"),
    ];
    assert_refused(
        anna.watch().await.map(drop),
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
    held.push(bert.watch().await.expect("the other half is free"));
    held.push(bert.watch().await.expect("the other half is free"));
    assert_refused(
        bert.watch().await.map(drop),
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
}

#[tokio::test]
async fn stalled_large_appends_of_a_tenant_leave_half_to_others() {
    let app = start_with_keys(ServerSettings {
        concurrent_large_appends: 2,
        ..ServerSettings::default()
    })
    .await;
    let (anna, bert) = (
        TenantClient::new(&app, "anna").await,
        TenantClient::new(&app, "bert").await,
    );
    let header = |owner: &TenantClient| {
        let conversation_id = owner.conversation.clone();
        let header = Header {
            conversation_id,
            message: Some(user("")),
            ..Header::default()
        };
        pb::AppendLargeMessageRequest {
            frame: Some(Frame::Header(header)),
        }
    };
    let (frame_sender, frames) = mpsc::channel(1);
    let frames = futures::stream::unfold(frames, |mut frames| async {
        frames.recv().await.map(|frame| (frame, frames))
    });
    let mut messages = anna.messages();
    let stalled_call = tokio::spawn(async move { messages.append_large_message(frames).await });
    frame_sender.send(header(&anna)).await.expect("is read");
    let append = async |owner: &TenantClient| {
        let chunk = pb::AppendLargeMessageRequest {
            frame: Some(Frame::Chunk(b"said".to_vec())),
        };
        owner
            .messages()
            .append_large_message(futures::stream::iter([header(owner), chunk]))
            .await
            .map(drop)
    };
    anneal_testkit::eventually("the stalled call holds its permit", async || {
        append(&anna).await.is_err()
    })
    .await;
    assert_refused(
        append(&anna).await,
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
    append(&bert).await.expect("the other half is free");
    let chunk = pb::AppendLargeMessageRequest {
        frame: Some(Frame::Chunk(b"at last".to_vec())),
    };
    frame_sender.send(chunk).await.expect("is read");
    drop(frame_sender);
    stalled_call.await.expect("no panic").expect("is stored");
    append(&anna).await.expect("the permit is free again");
}

#[tokio::test]
async fn callers_without_authentication_get_the_whole_limit() {
    let app = TestApp::with_auth(
        ServerSettings {
            concurrent_watches: 2,
            ..Default::default()
        },
        AuthSettings::default(),
    )
    .await;
    let conversation = app.conversation().await;
    let watches = [conversation.watch().await, conversation.watch().await];
    assert_refused(
        conversation
            .open_watch(pb::WatchConversationRequest::default())
            .await
            .map(drop),
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
    drop(watches);
}
