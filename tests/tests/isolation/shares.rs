//! Rooms that tenants share: whoever fills its half leaves the other to the others.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{Guest, House, assert_refused, pb, user};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

/// A caller of a tenant, and a conversation of its own.
struct Owner {
    line: Guest,
    conversation: String,
}

impl Owner {
    async fn new(house: &House, tenant: &str) -> Self {
        let secret = house.key(tenant, &Verb::ALL).await;
        let line = house.showing(&format!("Bearer {}", secret.text));
        let ask = pb::CreateConversationRequest::default();
        let made = ConversationServiceClient::new(line.clone()).create_conversation(ask).await.expect("creates");
        Self { line, conversation: made.into_inner().conversation_id }
    }

    fn messages(&self) -> MessageServiceClient<Guest> {
        MessageServiceClient::new(self.line.clone())
    }

    /// A watch that stays.
    async fn watch(&self) -> Result<Streaming<pb::ConversationEvent>, Status> {
        let ask = pb::WatchConversationRequest { conversation_id: self.conversation.clone(), ..Default::default() };
        let mut watch = self.messages().watch_conversation(ask).await?.into_inner();
        watch.message().await?;
        Ok(watch)
    }
}

async fn guarded(settings: ServerSettings) -> House {
    House::guarded(settings, AuthSettings { api_keys: true, ..AuthSettings::default() }).await
}

#[tokio::test]
async fn a_tenant_that_watches_all_it_may_leaves_half_of_the_watches_to_others() {
    let house = guarded(ServerSettings { concurrent_watches: 4, ..ServerSettings::default() }).await;
    let (anna, bert) = (Owner::new(&house, "anna").await, Owner::new(&house, "bert").await);
    let mut held = vec![anna.watch().await.expect("is let in"), anna.watch().await.expect("is let in")];
    assert_refused(anna.watch().await.map(drop), Code::ResourceExhausted, "OVERLOADED", "");
    held.push(bert.watch().await.expect("there is room for others"));
    held.push(bert.watch().await.expect("there is room for others"));
    assert_refused(bert.watch().await.map(drop), Code::ResourceExhausted, "OVERLOADED", "");
}

#[tokio::test]
async fn a_tenant_whose_large_appends_stand_still_leaves_room_for_those_of_others() {
    let house = guarded(ServerSettings { concurrent_large_appends: 2, ..ServerSettings::default() }).await;
    let (anna, bert) = (Owner::new(&house, "anna").await, Owner::new(&house, "bert").await);
    let header = |owner: &Owner| {
        let conversation_id = owner.conversation.clone();
        let header = Header { conversation_id, message: Some(user("")), ..Header::default() };
        pb::AppendLargeMessageRequest { frame: Some(Frame::Header(header)) }
    };
    let (standing, frames) = mpsc::channel(1);
    let frames = futures::stream::unfold(frames, |mut frames| async { frames.recv().await.map(|one| (one, frames)) });
    let mut messages = anna.messages();
    let waiting = tokio::spawn(async move { messages.append_large_message(frames).await });
    standing.send(header(&anna)).await.expect("is read");
    let append = async |owner: &Owner| {
        let chunk = pb::AppendLargeMessageRequest { frame: Some(Frame::Chunk(b"said".to_vec())) };
        owner.messages().append_large_message(futures::stream::iter([header(owner), chunk])).await.map(drop)
    };
    anneal_tests::eventually("its call stands in the room", async || append(&anna).await.is_err()).await;
    assert_refused(append(&anna).await, Code::ResourceExhausted, "OVERLOADED", "");
    append(&bert).await.expect("there is room for others");
    let chunk = pb::AppendLargeMessageRequest { frame: Some(Frame::Chunk(b"at last".to_vec())) };
    standing.send(chunk).await.expect("is read");
    drop(standing);
    waiting.await.expect("no panic").expect("is stored");
    append(&anna).await.expect("there is room again");
}

#[tokio::test]
async fn callers_that_need_no_credential_have_the_whole_room() {
    let house =
        House::guarded(ServerSettings { concurrent_watches: 2, ..Default::default() }, AuthSettings::default()).await;
    let talk = house.conversation().await;
    let watches = [talk.watch().await, talk.watch().await];
    assert_refused(
        talk.open_watch(pb::WatchConversationRequest::default()).await.map(drop),
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
    drop(watches);
}
