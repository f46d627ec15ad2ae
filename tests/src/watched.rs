//! Watches in a test: started, read event by event, resumed.

use std::time::Duration;

use anneal_core::{caller::TenantId, job::JobKind};
use pb::{conversation_event::Event, message_service_client::MessageServiceClient};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{IntoRequest, Status, Streaming, transport::Channel};
use uuid::Uuid;

use crate::{House, Process, Talk, pb};

/// A watch that has begun.
pub struct Watch {
    stream: Streaming<pb::ConversationEvent>,
    /// The position of the last event that was read.
    pub position: String,
}

impl Talk<'_> {
    /// Watches what happens from now on; returns once the watch has started.
    pub async fn watch(&self) -> Watch {
        self.watch_as(pb::WatchConversationRequest::default()).await
    }

    /// The same after the event with this position.
    pub async fn watch_from(&self, position: &str) -> Watch {
        self.watch_as(pb::WatchConversationRequest { position: position.into(), ..Default::default() }).await
    }

    /// The same after this message.
    pub async fn watch_after(&self, message_id: i64) -> Watch {
        let after_message_id = Some(message_id);
        self.watch_as(pb::WatchConversationRequest { after_message_id, ..Default::default() }).await
    }

    /// The same as asked for, but for the conversation's id.
    pub async fn watch_as(&self, ask: pb::WatchConversationRequest) -> Watch {
        let mut watch = self.open_watch(ask).await.expect("is let in");
        let first = watch.next().await;
        assert!(matches!(first, Event::Started(_)), "a watch begins with `started`, not with {first:?}");
        watch
    }

    /// Has this job of the conversation, which waits, given up.
    pub async fn kill_job(&self, kind: JobKind) {
        let store = &self.house.store;
        let claimed = store.claim_jobs(kind, 10, 10, TenantId(Uuid::nil()), "test", &[]).await.expect("claims");
        let job = claimed.jobs.iter().find(|job| job.conversation.to_string() == self.id).expect("it waits");
        store.fail_job(job, "it cannot be done", 0, 1).await.expect("fails");
    }

    /// Asks for a watch, and reads nothing of it.
    pub async fn open_watch(&self, ask: pb::WatchConversationRequest) -> Result<Watch, Status> {
        Watch::open(self.house, pb::WatchConversationRequest { conversation_id: self.id.clone(), ..ask }).await
    }
}

impl Watch {
    /// Asks for a watch, and reads nothing of it.
    pub async fn open(house: &House, ask: impl IntoRequest<pb::WatchConversationRequest>) -> Result<Self, Status> {
        Self::open_on(house.channel(), ask).await
    }

    /// The same at any server.
    pub async fn open_on(
        channel: Channel,
        ask: impl IntoRequest<pb::WatchConversationRequest>,
    ) -> Result<Self, Status> {
        let mut client = MessageServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let stream = client.watch_conversation(ask).await?.into_inner();
        Ok(Self { stream, position: String::new() })
    }

    /// The next event, within a minute; every event has another position than the one before.
    pub async fn next(&mut self) -> Event {
        self.try_next().await.expect("the watch goes on")
    }

    /// The next event, or how the watch ended.
    pub async fn try_next(&mut self) -> Result<Event, Status> {
        let next = timeout(Duration::from_mins(1), self.stream.message()).await.expect("something happens");
        let event = next?.expect("a watch ends only with an error");
        assert!(event.position.len() <= 128, "{} bytes", event.position.len());
        let what = event.event.expect("every event is one");
        assert!(event.position != self.position || matches!(what, Event::Started(_)), "it stands still");
        self.position = event.position;
        Ok(what)
    }

    /// Reads to the watch's end.
    pub async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.try_next().await {
                return status;
            }
        }
    }

    /// Reads up to the event that says this.
    pub async fn until(&mut self, mut says: impl FnMut(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let is_it = says(&event);
            events.push(event);
            if is_it {
                return events;
            }
        }
    }
}

/// Ids of the messages among events.
pub fn appended(events: &[Event]) -> Vec<i64> {
    let ids = events.iter().filter_map(|event| match event {
        Event::MessageAppended(message) => Some(message.message_id),
        _ => None,
    });
    ids.collect()
}

/// What a server process says of a figure in its metrics: the sum over its labels; 0 while it says nothing.
pub async fn figure(server: &Process, name: &str) -> f64 {
    let line = server.said("\"http\":\"127.0.0.1:").await;
    let address = line.split("\"http\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("the HTTP port is open");
    let ask = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.expect("asks");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answers");
    let lines = answer.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
