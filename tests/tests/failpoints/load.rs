//! A small load that comes by every place: one client, each call with one request id until it is answered.

use std::{collections::BTreeMap, time::Duration};

use anneal_tests::{CONVERSATION, House, assistant, pb, prose, refusal, sentence, user};
use pb::{
    chat_response::Event, chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::stack::Stack;

/// What the client was told.
#[derive(Default)]
pub(crate) struct Told {
    /// By conversation: its messages' ids and texts.
    pub(crate) said: BTreeMap<String, Vec<(i64, String)>>,
    /// The conversation that is deleted.
    pub(crate) deleted: String,
}

/// What the model is asked, and what it says.
const QUESTION: &str = "And then?";
pub(crate) const ANSWER: &str = "Then this.";

/// The client.
pub(crate) struct Load<'a> {
    house: &'a House,
    contended: bool,
    told: Told,
    requests: usize,
}

/// The first text of a message.
pub(crate) fn text_of(message: &pb::Message) -> String {
    match message.parts.first().and_then(|part| part.part.as_ref()) {
        Some(pb::part::Part::Text(said)) => said.text.clone(),
        other => panic!("a text, not {other:?}"),
    }
}

/// Calls until the answer is not one that a client may try again.
async fn until_answered<T>(
    stack: &mut Stack,
    mut call: impl AsyncFnMut(tonic::transport::Channel) -> Result<tonic::Response<T>, Status>,
) -> Result<T, Status> {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let channel = stack.channel();
    loop {
        pace.tick().await;
        let status = match call(channel.clone()).await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => status,
        };
        let gone = [Code::Unavailable, Code::Cancelled, Code::Unknown, Code::DeadlineExceeded];
        if !gone.contains(&status.code()) && !refusal(&status).retry {
            return Err(status);
        }
        stack.revive().await;
    }
}

impl<'a> Load<'a> {
    pub(crate) fn new(house: &'a House, contended: bool) -> Self {
        Self { house, contended, told: Told::default(), requests: 0 }
    }

    fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("r{}", self.requests)
    }

    /// Says and does everything.
    pub(crate) async fn run(mut self, stack: &mut Stack) -> Told {
        let (talk, marked, doomed) = (self.create(stack).await, self.create(stack).await, self.create(stack).await);
        for turn in 0..4 {
            for id in [&talk, &marked, &doomed] {
                let said = vec![user(&sentence(2 * turn)), assistant(&sentence(2 * turn + 1))];
                self.append(stack, id, said).await;
            }
        }
        // Too much to be stored, or counted, with others.
        let large = assistant(&prose(0, 800));
        if self.contended {
            self.append_contended(stack, &talk, large).await;
        } else {
            self.append(stack, &talk, vec![large]).await;
        }
        self.delete(stack, &doomed).await;
        let after = self.separate(stack, &marked).await;
        self.append(stack, &marked, vec![user("And now?"), assistant("Now this.")]).await;
        self.join(stack, &marked, after).await;
        self.compact(stack, &talk).await;
        self.ask(stack, &marked).await;
        self.told.said.remove(&doomed);
        self.told.deleted = doomed;
        self.told
    }

    async fn create(&mut self, stack: &mut Stack) -> String {
        let policy = pb::Policy {
            max_message_count: Some(6),
            keep_recent_turns: Some(1),
            large_message_threshold: Some(2_000),
            ..Default::default()
        };
        let ask =
            pb::CreateConversationRequest { request_id: self.request_id(), policy: Some(policy), ..Default::default() };
        let made = until_answered(stack, async |channel| {
            ConversationServiceClient::new(channel).create_conversation(ask.clone()).await
        });
        made.await.expect("creates").conversation_id
    }

    async fn append(&mut self, stack: &mut Stack, id: &str, messages: Vec<pb::NewMessage>) {
        let ask = pb::AppendMessagesRequest {
            conversation_id: id.to_owned(),
            request_id: self.request_id(),
            messages,
            ..Default::default()
        };
        let done = until_answered(stack, async |channel| {
            MessageServiceClient::new(channel).append_messages(ask.clone()).await
        });
        let done = done.await.expect("appends");
        let said = ask
            .messages
            .into_iter()
            .map(|message| text_of(&pb::Message { parts: message.parts, ..Default::default() }));
        let ids = done.messages.iter().map(|message| message.message_id);
        self.told.said.entry(id.to_owned()).or_default().extend(ids.zip(said));
    }

    /// The same while another transaction holds the conversation, until the append waits for it.
    async fn append_contended(&mut self, stack: &mut Stack, id: &str, message: pb::NewMessage) {
        let house = self.house;
        // Nobody but the append may be the one that waits.
        stack.signal_worker("STOP").await;
        house.answered().await;
        let held = house.holding(CONVERSATION, id.parse::<Uuid>().expect("an id")).await;
        tokio::join!(self.append(stack, id, vec![message]), async {
            house.waiting(1).await;
            held.let_go().await;
        });
        stack.signal_worker("CONT").await;
    }

    /// A turn, until the model has answered it.
    async fn ask(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: self.request_id(),
            messages: vec![user(QUESTION)],
            ..Default::default()
        };
        let answered = until_answered(stack, async |channel| {
            let mut events = ChatServiceClient::new(channel).chat(ask.clone()).await?.into_inner();
            while let Some(event) = events.message().await? {
                if let Some(Event::Done(done)) = event.event {
                    return Ok(tonic::Response::new(done.message_ids));
                }
            }
            Err(Status::unknown("the turn broke off"))
        });
        let ids = answered.await.expect("is answered");
        let said = [QUESTION, ANSWER].map(str::to_owned);
        assert_eq!(ids.len(), said.len());
        self.told.said.entry(id.to_owned()).or_default().extend(ids.into_iter().zip(said));
    }

    async fn delete(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::DeleteConversationRequest { conversation_id: id.to_owned(), request_id: self.request_id() };
        let deleted = until_answered(stack, async |channel| {
            ConversationServiceClient::new(channel).delete_conversation(ask.clone()).await
        });
        // A first call that was not answered may have deleted it.
        let gone = deleted.await.map_err(|status| status.code());
        assert!(matches!(gone, Ok(()) | Err(Code::NotFound)), "{gone:?}");
    }

    async fn separate(&mut self, stack: &mut Stack, id: &str) -> i64 {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: id.to_owned(),
            request_id: self.request_id(),
            ..Default::default()
        };
        let put = until_answered(stack, async |channel| {
            MessageServiceClient::new(channel).insert_separator(ask.clone()).await
        });
        put.await.expect("separates").after_message_id
    }

    async fn join(&mut self, stack: &mut Stack, id: &str, after_message_id: i64) {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: id.to_owned(),
            request_id: self.request_id(),
            after_message_id,
        };
        let joined = until_answered(stack, async |channel| {
            MessageServiceClient::new(channel).delete_separator(ask.clone()).await
        });
        joined.await.expect("joins");
    }

    async fn compact(&mut self, stack: &mut Stack, id: &str) {
        let ask =
            pb::CompactRequest { conversation_id: id.to_owned(), request_id: self.request_id(), ..Default::default() };
        let asked =
            until_answered(stack, async |channel| ContextServiceClient::new(channel).compact(ask.clone()).await);
        asked.await.expect("queues");
    }
}
