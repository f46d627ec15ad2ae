//! Sends a message and streams the answer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anneal_proto::{convert::message::text_message, v1 as pb};
use pb::chat_response::{Done, Event};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{
    Chat,
    answer::{self, AnswerPhase},
    errors::{ChatError, reason},
    target::{ConversationRef, Target},
};

/// How long a turn waits for an earlier turn of the conversation to end. If the server that ran the
/// earlier turn has died, that turn ends with its lease, within 15 s.
const MAX_WAIT_FOR_TURN: Duration = Duration::from_secs(20);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// An append that expects this newest message stores nothing: no conversation has it.
const NO_NEWEST_MESSAGE: i64 = i64::MAX;

/// What stops the turn whose answer arrives. None: no answer arrives.
pub(super) type StreamingTurn = Arc<Mutex<Option<pb::CancelTurnRequest>>>;

/// A turn that has no answer yet.
#[derive(Debug, Clone)]
pub(super) struct PendingTurn {
    prompt: Prompt,
    /// Every attempt sends this id, so that the message is stored once.
    request_id: String,
    /// Whether the server has confirmed that the message is stored.
    message_is_stored: bool,
    /// How many answers to the question were withdrawn.
    earlier_answers: i32,
}

/// The prompt of a turn. A stored question is answered anew only if nobody has written to the
/// conversation since `last_message_id` was its newest message.
#[derive(Debug, Clone)]
pub(super) enum Prompt {
    /// A new message.
    Message(pb::NewMessage),
    /// The newest question, anew.
    SameQuestion { last_message_id: i64 },
    /// A question, after this message has replaced it.
    EditedQuestion {
        question_id: i64,
        message: pb::NewMessage,
        last_message_id: i64,
    },
}

impl Chat {
    /// Sends a text and prints the answer.
    pub(super) async fn send_message(&mut self, text: String) -> Result<(), ChatError> {
        let message = text_message(pb::Role::User, text);
        self.begin_turn(Prompt::Message(message)).await
    }

    /// Runs a turn and prints the answer.
    pub(super) async fn begin_turn(&mut self, prompt: Prompt) -> Result<(), ChatError> {
        self.pending_turn = Some(PendingTurn {
            message_is_stored: matches!(prompt, Prompt::SameQuestion { .. }),
            prompt,
            request_id: Uuid::new_v4().to_string(),
            earlier_answers: 0,
        });
        self.run_turn().await
    }

    /// Sends the unanswered message again. If there is none, asks for another answer to the newest
    /// question.
    pub(super) async fn retry_turn(&mut self) -> Result<(), ChatError> {
        if self.pending_turn.is_some() {
            self.run_turn().await
        } else {
            self.ask_again().await
        }
    }

    /// Forgets the unanswered message if it is a new one and the server has not stored it. Returns
    /// whether it has forgotten one. Fails if the server cannot be asked: then it may have stored
    /// the message and its answer got lost.
    pub(super) async fn forget_unstored_message(&mut self) -> Result<bool, ChatError> {
        let Some(turn) = &self.pending_turn else {
            return Ok(false);
        };
        let is_new = matches!(turn.prompt, Prompt::Message(_));
        if !is_new || turn.message_is_stored || self.look_up_message(&turn.request_id).await? {
            return Ok(false);
        }
        self.pending_turn = None;
        Ok(true)
    }

    /// Whether the message of the turn with this request id is stored. Turns and appends have their
    /// request ids in common: an append with the id of a stored message is refused as another use
    /// of the id. This append is refused in any case.
    async fn look_up_message(&self, request_id: &str) -> Result<bool, ChatError> {
        let Target::Existing(existing) = &self.target else {
            return Ok(false);
        };
        let ask = pb::AppendMessagesRequest {
            conversation_id: existing.id.clone(),
            request_id: request_id.to_owned(),
            messages: vec![text_message(pb::Role::User, "stored?")],
            expected_last_message_id: Some(NO_NEWEST_MESSAGE),
        };
        match self.client.messages().append_messages(ask).await {
            // Its content was erased since. Then the body of the request is not compared.
            Ok(_) => Ok(true),
            Err(status) => match reason(&status).as_str() {
                "REQUEST_ID_REUSED" => Ok(true),
                "LAST_MESSAGE_MISMATCH" | "STORAGE_QUOTA_EXCEEDED" => Ok(false),
                _ => Err(status.into()),
            },
        }
    }

    async fn run_turn(&mut self) -> Result<(), ChatError> {
        let Some(turn) = self.pending_turn.clone() else {
            return Ok(());
        };
        let id = self.ensure_conversation().await?;
        let deadline = Instant::now() + MAX_WAIT_FOR_TURN;
        let outcome = loop {
            match self.stream_answer(&id, &turn).await {
                Err(ChatError::FailedCall(status))
                    if reason(&status) == "TURN_IN_PROGRESS" && Instant::now() < deadline =>
                {
                    sleep(RETRY_INTERVAL).await;
                }
                outcome => break outcome,
            }
        };
        let has_begun = matches!(&self.pending_turn, Some(turn) if turn.message_is_stored);
        if has_begun && matches!(turn.prompt, Prompt::EditedQuestion { .. }) {
            // A title that nobody has chosen follows the first message.
            self.refresh_title().await;
        }
        if matches!(&outcome, Err(ChatError::FailedCall(status)) if reason(status) == "LAST_MESSAGE_MISMATCH")
        {
            // No repetition of this turn can succeed.
            self.pending_turn = None;
        }
        self.finish_turn(&outcome?).await
    }

    /// Returns the id of the conversation. Creates the conversation if it does not exist. If the
    /// message is then refused, the empty conversation stays and the next message goes to it. It is
    /// not deleted, because another client may have appended to it by then.
    async fn ensure_conversation(&mut self) -> Result<String, ChatError> {
        match &self.target {
            Target::Existing(existing) => Ok(existing.id.clone()),
            Target::New { title, request_id } => {
                let conversation = self.owner.create(&self.client, title, request_id).await?;
                self.target = Target::existing(&conversation);
                Ok(conversation.conversation_id)
            }
        }
    }

    /// Makes one call and prints the answer while it streams.
    async fn stream_answer(&mut self, id: &str, turn: &PendingTurn) -> Result<Done, ChatError> {
        let outcome = self.read_answer(id, turn).await;
        self.set_streaming_turn(None);
        outcome
    }

    fn set_streaming_turn(&self, turn: Option<pb::CancelTurnRequest>) {
        let mut streaming = self
            .streaming_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *streaming = turn;
    }

    async fn read_answer(&mut self, id: &str, turn: &PendingTurn) -> Result<Done, ChatError> {
        let mut stream = self
            .client
            .chats()
            .chat(self.request(id, turn))
            .await?
            .into_inner();
        let mut phase = AnswerPhase::default();
        while let Some(response) = stream.message().await? {
            match response.event {
                Some(Event::Started(started)) => {
                    if let Some(pending_turn) = &mut self.pending_turn {
                        pending_turn.message_is_stored = true;
                        pending_turn.earlier_answers = started.alternatives;
                    }
                    self.undone.clear();
                    if let Some(note) = alternatives_note(started.alternatives, &turn.prompt) {
                        self.screen.print_note(&note)?;
                    }
                    self.set_streaming_turn(Some(pb::CancelTurnRequest {
                        conversation_id: id.to_owned(),
                        turn_request_id: turn.request_id.clone(),
                        ..Default::default()
                    }));
                }
                Some(Event::Done(done)) => return Ok(done),
                Some(event) => phase.show(&mut self.screen, &event)?,
                None => {}
            }
        }
        Err(
            "the answer ended before it was complete; type /retry to ask again"
                .to_owned()
                .into(),
        )
    }

    fn request(&self, id: &str, turn: &PendingTurn) -> pb::ChatRequest {
        let request = pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: turn.request_id.clone(),
            model: self.owner.model.clone(),
            fallback_models: self.owner.fallback_models.clone(),
            system_prompt: self.owner.system.clone(),
            ..Default::default()
        };
        match &turn.prompt {
            Prompt::Message(message) => pb::ChatRequest {
                messages: vec![message.clone()],
                ..request
            },
            Prompt::SameQuestion { last_message_id } => pb::ChatRequest {
                regenerate: true,
                expected_last_message_id: Some(*last_message_id),
                ..request
            },
            Prompt::EditedQuestion {
                question_id,
                message,
                last_message_id,
            } => pb::ChatRequest {
                messages: vec![message.clone()],
                edit_message_id: Some(*question_id),
                expected_last_message_id: Some(*last_message_id),
                ..request
            },
        }
    }

    async fn finish_turn(&mut self, done: &Done) -> Result<(), ChatError> {
        let turn = self.pending_turn.take();
        if !done.model.is_empty() {
            self.model.clone_from(&done.model);
        }
        for line in answer::closing_lines(done) {
            self.screen.print_note(&line)?;
        }
        let has_earlier_answers = turn.is_some_and(|turn| turn.earlier_answers > 0);
        if done.answer_message_id == 0 && has_earlier_answers {
            self.screen.print_note(
                "the question has no answer now: /alternatives lists the earlier ones, /choose \
                 takes one",
            )?;
        }
        if matches!(&self.target, Target::Existing(existing) if existing.title.is_empty()) {
            self.refresh_title().await;
        }
        Ok(())
    }

    /// Fetches the title, which the server makes from the first message. Only the input line (the
    /// editor's prompt) and Tab completion show it, so errors are ignored.
    pub(super) async fn refresh_title(&mut self) {
        let Target::Existing(ConversationRef { id, title }) = &mut self.target else {
            return;
        };
        let ask = pb::GetConversationRequest {
            conversation_id: id.clone(),
        };
        if let Ok(conversation) = self.client.conversations().get_conversation(ask).await {
            *title = conversation.into_inner().title;
            let fetched = title.clone();
            self.add_completion_titles(&[fetched]);
        }
    }

    /// Prints what happened to the turn or command that Ctrl-C ended before its end.
    pub(super) fn report_interrupt(&mut self, was_turn: bool) -> Result<(), ChatError> {
        self.set_streaming_turn(None);
        let note = match &self.pending_turn {
            Some(turn) if was_turn && turn.message_is_stored => {
                "stopped, without waiting for the server: it may have stored the answer or its \
                 beginning. Your message is stored; /retry shows its answer, or asks again."
            }
            Some(_) if was_turn => "stopped; /retry sends the message again",
            _ => "stopped",
        };
        Ok(self.screen.print_note(note)?)
    }
}

/// Says how many answers to the question are withdrawn. None: none are.
fn alternatives_note(withdrawn: i32, prompt: &Prompt) -> Option<String> {
    let kept = match withdrawn {
        ..=0 => return None,
        1 => "1 earlier answer is kept".to_owned(),
        more => format!("{more} earlier answers are kept"),
    };
    Some(match prompt {
        // An answer to an earlier text of the question cannot be chosen.
        Prompt::EditedQuestion { .. } => format!("{kept}: /alternatives shows what was answered"),
        Prompt::Message(_) | Prompt::SameQuestion { .. } => {
            format!("{kept}: /alternatives lists them, /choose takes one")
        }
    })
}
