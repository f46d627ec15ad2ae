//! A small load that reaches every failpoint outside the migrations. One client repeats each call
//! with the same request id until it is answered.

use std::{collections::BTreeMap, time::Duration};

use anneal_testkit::{
    LOCK_CONVERSATION, TestApp, assistant, pb, prose, sentence, status_details, user,
};
use pb::{
    chat_response::Event, chat_service_client::ChatServiceClient,
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::stack::Stack;

/// The effects that the server has acknowledged.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Ids and texts of the messages, by conversation id.
    pub(crate) messages: BTreeMap<String, Vec<(i64, String)>>,
    /// Id of the deleted conversation.
    pub(crate) deleted: String,
    /// Id of the conversation that retention is to delete. It has a withdrawn message.
    pub(crate) expiring: String,
}

/// The user whose conversations are erased.
const FORGOTTEN_USER: &str = "forgotten";
/// The prompt of the turn.
const QUESTION: &str = "And then?";
/// The answer of the scripted model.
pub(crate) const ANSWER: &str = "Then this.";
/// The prompt of a turn that the scripted model does not answer.
pub(crate) const UNANSWERED: &str = "And what never?";

/// The client that performs the calls.
pub(crate) struct Load<'a> {
    app: &'a TestApp,
    /// Whether another transaction locks the conversation during the large append.
    contended: bool,
    acknowledged: Acknowledged,
    requests: usize,
}

/// The first text of a message.
pub(crate) fn first_text(message: &pb::Message) -> String {
    match message.parts.first().and_then(|part| part.part.as_ref()) {
        Some(pb::part::Part::Text(part)) => part.text.clone(),
        other => panic!("a text, not {other:?}"),
    }
}

/// Repeats a call until it succeeds or fails with an error that a client may not retry. Before each
/// repetition it restarts the processes that have died.
async fn call_until_answer<T>(
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
        let retryable = [
            Code::Unavailable,
            Code::Cancelled,
            Code::Unknown,
            Code::DeadlineExceeded,
        ];
        if !retryable.contains(&status.code()) && !status_details(&status).retry {
            return Err(status);
        }
        stack.restart_dead_processes().await;
    }
}

impl<'a> Load<'a> {
    pub(crate) fn new(app: &'a TestApp, contended: bool) -> Self {
        Self {
            app,
            contended,
            acknowledged: Acknowledged::default(),
            requests: 0,
        }
    }

    fn next_request_id(&mut self) -> String {
        self.requests += 1;
        format!("r{}", self.requests)
    }

    /// Performs all calls and returns what was acknowledged.
    pub(crate) async fn run(mut self, stack: &mut Stack) -> Acknowledged {
        let conversation = self.create_conversation(stack).await;
        let with_separator = self.create_conversation(stack).await;
        let to_delete = self.create_conversation(stack).await;
        for turn in 0..4 {
            for id in [&conversation, &with_separator, &to_delete] {
                let messages = vec![
                    user(&sentence(2 * turn)),
                    assistant(&sentence(2 * turn + 1)),
                ];
                self.append(stack, id, messages).await;
            }
        }
        // This message is too large to be stored or counted in a batch with others.
        let large = assistant(&prose(0, 800));
        if self.contended {
            self.append_under_contention(stack, &conversation, large)
                .await;
        } else {
            self.append(stack, &conversation, vec![large]).await;
        }
        self.delete_conversation(stack, &to_delete).await;
        let separator = self.insert_separator(stack, &with_separator).await;
        self.append(
            stack,
            &with_separator,
            vec![user("And now?"), assistant("Now this.")],
        )
        .await;
        self.delete_separator(stack, &with_separator, separator)
            .await;
        self.change_messages(stack, &with_separator).await;
        self.fork(stack, &with_separator).await;
        self.erase(stack).await;
        self.acknowledged.expiring = self.create_expiring(stack).await;
        self.compact(stack, &conversation).await;
        self.run_turn(stack, &with_separator).await;
        self.stop_turn(stack, &with_separator).await;
        self.acknowledged.messages.remove(&to_delete);
        self.acknowledged.deleted = to_delete;
        self.acknowledged
    }

    async fn create_conversation(&mut self, stack: &mut Stack) -> String {
        self.create_conversation_of(stack, "").await
    }

    async fn create_conversation_of(&mut self, stack: &mut Stack, user_id: &str) -> String {
        // Low limits, so that the load causes checkpoints and the summary of a large message.
        let policy = pb::Policy {
            max_message_count: Some(6),
            keep_recent_turns: Some(1),
            large_message_threshold: Some(2_000),
            ..Default::default()
        };
        let ask = pb::CreateConversationRequest {
            request_id: self.next_request_id(),
            user_id: user_id.to_owned(),
            policy: Some(policy),
            ..Default::default()
        };
        let created = call_until_answer(stack, async |channel| {
            ConversationServiceClient::new(channel)
                .create_conversation(ask.clone())
                .await
        });
        created.await.expect("creates").conversation_id
    }

    async fn append(&mut self, stack: &mut Stack, id: &str, messages: Vec<pb::NewMessage>) {
        let ask = pb::AppendMessagesRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            messages,
            ..Default::default()
        };
        let done = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .append_messages(ask.clone())
                .await
        });
        let done = done.await.expect("appends");
        let texts = ask.messages.into_iter().map(|message| {
            first_text(&pb::Message {
                parts: message.parts,
                ..Default::default()
            })
        });
        let ids = done.messages.iter().map(|message| message.message_id);
        self.acknowledged
            .messages
            .entry(id.to_owned())
            .or_default()
            .extend(ids.zip(texts));
    }

    /// Appends while another transaction locks the conversation. That transaction ends as soon as
    /// the append waits for its lock.
    async fn append_under_contention(
        &mut self,
        stack: &mut Stack,
        id: &str,
        message: pb::NewMessage,
    ) {
        let app = self.app;
        // The append must be the only statement that waits for a lock.
        stack.signal_worker("STOP").await;
        app.wait_until_statements_end().await;
        let held = app
            .hold_lock(LOCK_CONVERSATION, id.parse::<Uuid>().expect("an id"))
            .await;
        tokio::join!(self.append(stack, id, vec![message]), async {
            app.wait_for_lock_waiters(1).await;
            held.rollback().await;
        });
        stack.signal_worker("CONT").await;
    }

    /// Repeats a turn until the model has answered it.
    async fn run_turn(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            messages: vec![user(QUESTION)],
            ..Default::default()
        };
        let answered = call_until_answer(stack, async |channel| {
            let mut events = ChatServiceClient::new(channel)
                .chat(ask.clone())
                .await?
                .into_inner();
            while let Some(event) = events.message().await? {
                if let Some(Event::Done(done)) = event.event {
                    return Ok(tonic::Response::new(done.message_ids));
                }
            }
            Err(Status::unknown("the turn broke off"))
        });
        let ids = answered.await.expect("is answered");
        let texts = [QUESTION, ANSWER].map(str::to_owned);
        assert_eq!(ids.len(), texts.len());
        self.acknowledged
            .messages
            .entry(id.to_owned())
            .or_default()
            .extend(ids.into_iter().zip(texts));
    }

    /// Repeats a turn that the model does not answer, and stops it once the model has begun, until
    /// that has ended it.
    async fn stop_turn(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            messages: vec![user(UNANSWERED)],
            ..Default::default()
        };
        let stop = pb::CancelTurnRequest {
            conversation_id: id.to_owned(),
            turn_request_id: ask.request_id.clone(),
            ..Default::default()
        };
        let stopped = call_until_answer(stack, async |channel| {
            let mut chats = ChatServiceClient::new(channel);
            let mut events = chats.chat(ask.clone()).await?.into_inner();
            while let Some(event) = events.message().await? {
                match event.event {
                    Some(Event::ReasoningDelta(_)) => {
                        chats.cancel_turn(stop.clone()).await?;
                    }
                    Some(Event::Done(done)) => return Ok(tonic::Response::new(done)),
                    _ => {}
                }
            }
            Err(Status::unknown("the turn broke off"))
        });
        let done = stopped.await.expect("is stopped");
        assert!(done.stopped && done.answer_message_id == 0, "{done:?}");
        let [question] = done.message_ids[..] else {
            panic!("the question alone is stored: {done:?}")
        };
        self.acknowledged
            .messages
            .entry(id.to_owned())
            .or_default()
            .push((question, UNANSWERED.to_owned()));
    }

    async fn delete_conversation(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::DeleteConversationRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            ..Default::default()
        };
        let deleted = call_until_answer(stack, async |channel| {
            ConversationServiceClient::new(channel)
                .delete_conversation(ask.clone())
                .await
        });
        // An earlier attempt whose answer was lost may have deleted the conversation.
        let deleted = deleted.await.map_err(|status| status.code());
        assert!(
            matches!(deleted, Ok(_) | Err(Code::NotFound)),
            "{deleted:?}"
        );
    }

    /// Inserts a separator. Returns the id of the message that it follows.
    async fn insert_separator(&mut self, stack: &mut Stack, id: &str) -> i64 {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            ..Default::default()
        };
        let inserted = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .insert_separator(ask.clone())
                .await
        });
        inserted.await.expect("inserts").after_message_id
    }

    async fn delete_separator(&mut self, stack: &mut Stack, id: &str, after_message_id: i64) {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            after_message_id,
        };
        let deleted = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .delete_separator(ask.clone())
                .await
        });
        deleted.await.expect("deletes");
    }

    /// Withdraws the first two messages, which a checkpoint covers, restores them, and edits the
    /// first one.
    async fn change_messages(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::WithdrawMessagesRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            message_ids: vec![1, 2],
            ..Default::default()
        };
        let withdrawn = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .withdraw_messages(ask.clone())
                .await
        });
        assert_eq!(withdrawn.await.expect("withdraws").changed.len(), 1);
        let ask = pb::RestoreMessagesRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            message_ids: vec![1, 2],
            ..Default::default()
        };
        let restored = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .restore_messages(ask.clone())
                .await
        });
        assert_eq!(restored.await.expect("restores").changed.len(), 1);
        let ask = pb::EditMessageRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            message_id: 1,
            message: Some(user("Edited.")),
            ..Default::default()
        };
        let edited = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .edit_message(ask.clone())
                .await
        });
        assert_eq!(edited.await.expect("edits").version, 2);
        let messages = self.acknowledged.messages.get_mut(id);
        let first = messages.and_then(|messages| messages.first_mut());
        *first.expect("was appended") = (1, "Edited.".into());
    }

    /// Forks the conversation. The fork has the same messages.
    async fn fork(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::ForkConversationRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            ..Default::default()
        };
        let forked = call_until_answer(stack, async |channel| {
            ConversationServiceClient::new(channel)
                .fork_conversation(ask.clone())
                .await
        });
        let fork = forked.await.expect("forks").conversation_id;
        let messages = self.acknowledged.messages[id].clone();
        self.acknowledged.messages.insert(fork, messages);
    }

    /// Erases a message, a conversation and a user, and waits until nothing of the user is left.
    async fn erase(&mut self, stack: &mut Stack) {
        let with_receipt = self.create_conversation(stack).await;
        let erased = self.create_conversation_of(stack, FORGOTTEN_USER).await;
        self.append(stack, &erased, vec![user("Me?"), assistant("You.")])
            .await;
        self.acknowledged.messages.remove(&erased);
        let ask = pb::EraseMessagesRequest {
            conversation_id: erased,
            request_id: self.next_request_id(),
            message_ids: vec![1],
            ..Default::default()
        };
        let change = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .erase_messages(ask.clone())
                .await
        });
        assert_eq!(change.await.expect("erases").changed.len(), 1);
        let ask = pb::DeleteConversationRequest {
            conversation_id: with_receipt,
            request_id: self.next_request_id(),
            with_receipt: true,
        };
        let deleted = call_until_answer(stack, async |channel| {
            ConversationServiceClient::new(channel)
                .delete_conversation(ask.clone())
                .await
        });
        deleted.await.expect("a repetition has the same receipt");
        let ask = pb::EraseUserRequest {
            request_id: self.next_request_id(),
            user_id: FORGOTTEN_USER.into(),
            dry_run: false,
        };
        let begun = call_until_answer(stack, async |channel| {
            ErasureServiceClient::new(channel)
                .erase_user(ask.clone())
                .await
        });
        let ask = pb::GetErasureRequest {
            erasure_id: begun.await.expect("begins").erasure_id,
        };
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            // The worker may have died.
            stack.restart_dead_processes().await;
            let read = call_until_answer(stack, async |channel| {
                ErasureServiceClient::new(channel)
                    .get_erasure(ask.clone())
                    .await
            });
            let erasure = read.await.expect("is there");
            if erasure.state() == pb::ErasureState::Done {
                assert_eq!(erasure.erased_conversations, 1, "it ends once");
                return;
            }
        }
    }

    /// Creates a conversation with a withdrawn message. Returns its id.
    async fn create_expiring(&mut self, stack: &mut Stack) -> String {
        let id = self.create_conversation(stack).await;
        self.append(stack, &id, vec![user("Still?"), assistant("No.")])
            .await;
        self.acknowledged.messages.remove(&id);
        let ask = pb::WithdrawMessagesRequest {
            conversation_id: id.clone(),
            request_id: self.next_request_id(),
            message_ids: vec![1],
            ..Default::default()
        };
        let withdrawn = call_until_answer(stack, async |channel| {
            MessageServiceClient::new(channel)
                .withdraw_messages(ask.clone())
                .await
        });
        withdrawn.await.expect("withdraws");
        id
    }

    async fn compact(&mut self, stack: &mut Stack, id: &str) {
        let ask = pb::CompactRequest {
            conversation_id: id.to_owned(),
            request_id: self.next_request_id(),
            ..Default::default()
        };
        let queued = call_until_answer(stack, async |channel| {
            ContextServiceClient::new(channel)
                .compact(ask.clone())
                .await
        });
        queued.await.expect("queues");
    }
}
