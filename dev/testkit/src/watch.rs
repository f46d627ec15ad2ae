//! Watches in tests: start them, read their events, resume them. Also makes a conversation's job a
//! dead one, and reads a server's metrics.

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

use crate::{Process, TestApp, TestConversation, pb};

/// A running watch.
pub struct Watch {
    stream: Streaming<pb::ConversationEvent>,
    /// The position of the last event that was read.
    pub position: String,
}

impl TestConversation<'_> {
    /// Watches new events. Returns once the watch has started.
    pub async fn watch(&self) -> Watch {
        self.watch_as(pb::WatchConversationRequest::default()).await
    }

    /// Resumes a watch after the event with this position.
    pub async fn watch_from(&self, position: &str) -> Watch {
        self.watch_as(pb::WatchConversationRequest {
            position: position.into(),
            ..Default::default()
        })
        .await
    }

    /// Watches from the message after this one.
    pub async fn watch_after(&self, message_id: i64) -> Watch {
        let after_message_id = Some(message_id);
        self.watch_as(pb::WatchConversationRequest {
            after_message_id,
            ..Default::default()
        })
        .await
    }

    /// Watches with this request; the conversation's id is filled in.
    pub async fn watch_as(&self, ask: pb::WatchConversationRequest) -> Watch {
        let mut watch = self.open_watch(ask).await.expect("the watch is accepted");
        let first = watch.next().await;
        assert!(
            matches!(first, Event::Started(_)),
            "a watch begins with `started`, not with {first:?}"
        );
        watch
    }

    /// Fails this conversation's waiting job of this kind for good, so that it becomes a dead job.
    /// Up to nine waiting jobs of other conversations are claimed with it, and stay claimed.
    pub async fn give_up_job(&self, kind: JobKind) {
        let store = &self.app.store;
        // At most ten jobs, of each tenant and in all. The nil id is before every tenant.
        let (limit, per_tenant, cursor) = (10, 10, TenantId(Uuid::nil()));
        let claimed = store
            .claim_jobs(kind, limit, per_tenant, cursor, "test", &[])
            .await
            .expect("jobs are claimed");
        let job = claimed
            .jobs
            .iter()
            .find(|job| job.conversation.to_string() == self.id)
            .expect("the job is waiting");
        let (delay_ms, most_attempts) = (0, 1);
        store
            .fail_job(job, "it cannot be done", delay_ms, most_attempts)
            .await
            .expect("the job is marked as failed");
    }

    /// Opens a watch without reading any event.
    pub async fn open_watch(&self, ask: pb::WatchConversationRequest) -> Result<Watch, Status> {
        Watch::open(
            self.app,
            pb::WatchConversationRequest {
                conversation_id: self.id.clone(),
                ..ask
            },
        )
        .await
    }
}

impl Watch {
    /// Opens a watch without reading any event.
    pub async fn open(
        app: &TestApp,
        ask: impl IntoRequest<pb::WatchConversationRequest>,
    ) -> Result<Self, Status> {
        Self::open_on(app.channel(), ask).await
    }

    /// Opens a watch on this channel without reading any event.
    pub async fn open_on(
        channel: Channel,
        ask: impl IntoRequest<pb::WatchConversationRequest>,
    ) -> Result<Self, Status> {
        let mut client = MessageServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let stream = client.watch_conversation(ask).await?.into_inner();
        Ok(Self {
            stream,
            position: String::new(),
        })
    }

    /// Waits for the next event. Panics if none arrives within a minute, or if the watch ends.
    pub async fn next(&mut self) -> Event {
        self.try_next().await.expect("the watch goes on")
    }

    /// Waits for the next event. Err holds the status that ended the watch. Panics if nothing
    /// arrives within a minute, if the event's position has more than 128 bytes, or if it is that
    /// of the event before, unless the event is `started`.
    pub async fn try_next(&mut self) -> Result<Event, Status> {
        let next = timeout(Duration::from_mins(1), self.stream.message())
            .await
            .expect("an event arrives in time");
        let response = next?.expect("a watch ends only with an error");
        assert!(
            response.position.len() <= 128,
            "the position has {} bytes, and must have at most 128",
            response.position.len()
        );
        let event = response.event.expect("every response has an event");
        assert!(
            response.position != self.position || matches!(event, Event::Started(_)),
            "an event has the position of the event before"
        );
        self.position = response.position;
        Ok(event)
    }

    /// Reads until the watch ends. Returns its status.
    pub async fn read_to_end(&mut self) -> Status {
        loop {
            if let Err(status) = self.try_next().await {
                return status;
            }
        }
    }

    /// Reads events until `is_last` returns true for one. Returns all that were read.
    pub async fn until(&mut self, mut is_last: impl FnMut(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let ends = is_last(&event);
            events.push(event);
            if ends {
                return events;
            }
        }
    }
}

/// The ids of appended messages among these events.
pub fn appended_ids(events: &[Event]) -> Vec<i64> {
    let ids = events.iter().filter_map(|event| match event {
        Event::MessageAppended(message) => Some(message.message_id),
        _ => None,
    });
    ids.collect()
}

/// Reads a metric of a server process: the sum over all its labels. 0 if the metric is missing.
pub async fn metric_value(server: &Process, name: &str) -> f64 {
    let line = server.wait_for_line("\"http\":\"127.0.0.1:").await;
    let address = line
        .split("\"http\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a valid address");
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the HTTP port is open");
    let ask = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream
        .write_all(ask.as_bytes())
        .await
        .expect("the request is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the answer is read");
    let lines = answer
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
