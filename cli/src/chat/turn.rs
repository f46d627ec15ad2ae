//! A turn: words go to the server, the answer comes back piece by piece.

use std::time::Duration;

use anneal_proto::v1 as pb;
use pb::{
    chat_response::{Done, Event},
    part::Part,
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{
    Chat,
    answer::{self, Doing},
    place::{Here, Place},
    trouble::{Trouble, reason},
};

/// How long a turn waits for one before it that is still ending: a server that died holds it for 15 s.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Words that have no answer yet.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    text: String,
    /// Stores them once, however often they are said.
    request_id: String,
    /// Whether the server has said that they are stored.
    pub(super) kept: bool,
}

impl Chat {
    /// Says this, and shows the answer.
    pub(super) async fn say(&mut self, text: String) -> Result<(), Trouble> {
        self.unanswered = Some(Asked { text, request_id: Uuid::new_v4().to_string(), kept: false });
        self.ask().await
    }

    /// Says again what has no answer.
    pub(super) async fn retry(&mut self) -> Result<(), Trouble> {
        if self.unanswered.is_none() {
            return Err("nothing waits for an answer here".to_owned().into());
        }
        self.ask().await
    }

    async fn ask(&mut self) -> Result<(), Trouble> {
        let Some(asked) = self.unanswered.clone() else { return Ok(()) };
        let id = self.begun().await?;
        let deadline = Instant::now() + PATIENCE;
        let outcome = loop {
            match self.hear(&id, &asked).await {
                Err(Trouble::Refused(status)) if reason(&status) == "TURN_IN_PROGRESS" && Instant::now() < deadline => {
                    sleep(PAUSE).await;
                }
                outcome => break outcome,
            }
        };
        self.answered(&outcome?).await
    }

    /// The conversation's id. These words begin it where it has not begun; if they are refused, it takes the next ones. It is
    /// not taken away again: somebody else may have said something there by then.
    async fn begun(&mut self) -> Result<String, Trouble> {
        match &self.place {
            Place::Begun(here) => Ok(here.id.clone()),
            Place::Unbegun { title, request_id } => {
                let conversation = self.owner.begin(&self.client, title, request_id).await?;
                self.place = Place::begun(&conversation);
                Ok(conversation.conversation_id)
            }
        }
    }

    /// One call: shows the answer as it comes.
    async fn hear(&mut self, id: &str, asked: &Asked) -> Result<Done, Trouble> {
        let mut stream = self.client.chats().chat(self.request(id, asked)).await?.into_inner();
        let mut doing = Doing::default();
        while let Some(response) = stream.message().await? {
            match response.event {
                Some(Event::Started(_)) => {
                    if let Some(unanswered) = &mut self.unanswered {
                        unanswered.kept = true;
                    }
                }
                Some(Event::Done(done)) => return Ok(done),
                Some(event) => doing.show(&mut self.screen, &event)?,
                None => {}
            }
        }
        Err("the answer broke off without an end; type /retry to ask again".to_owned().into())
    }

    fn request(&self, id: &str, asked: &Asked) -> pb::ChatRequest {
        let text = pb::Part { part: Some(Part::Text(pb::TextPart { text: asked.text.clone() })) };
        pb::ChatRequest {
            conversation_id: id.to_owned(),
            request_id: asked.request_id.clone(),
            messages: vec![pb::NewMessage { role: pb::Role::User.into(), parts: vec![text], ..Default::default() }],
            model: self.owner.model.clone(),
            system_prompt: self.owner.system.clone(),
            ..Default::default()
        }
    }

    async fn answered(&mut self, done: &Done) -> Result<(), Trouble> {
        self.unanswered = None;
        if !done.model.is_empty() {
            self.model.clone_from(&done.model);
        }
        for line in answer::end(done) {
            self.screen.note(&line)?;
        }
        self.learn_title().await;
        Ok(())
    }

    /// The title that the first words gave. It is only for the prompt: where it cannot be asked for, the prompt goes without.
    async fn learn_title(&mut self) {
        let Place::Begun(Here { id, title }) = &mut self.place else { return };
        if !title.is_empty() {
            return;
        }
        let ask = pb::GetConversationRequest { conversation_id: id.clone() };
        if let Ok(conversation) = self.client.conversations().get_conversation(ask).await {
            *title = conversation.into_inner().title;
            let learnt = title.clone();
            self.offer(&[learnt]);
        }
    }

    /// Says what became of a turn or a command that Ctrl-C has ended.
    pub(super) fn stopped(&mut self, was_turn: bool) -> Result<(), Trouble> {
        let note = match &self.unanswered {
            Some(asked) if was_turn && asked.kept => {
                "stopped: nothing of the answer is kept. What you said is, without an answer, and goes along with what you say \
                 next; /retry asks again."
            }
            Some(_) if was_turn => "stopped; /retry says it again",
            _ => "stopped",
        };
        Ok(self.screen.note(note)?)
    }
}
