//! The commands that go elsewhere, look around, or change the conversation.

use std::{
    fmt::Write as _,
    sync::PoisonError,
    time::{Duration, SystemTime},
};

use anneal_proto::v1 as pb;
use pb::CompactOutcome;
use tonic::Request;
use uuid::Uuid;

use super::{
    Chat,
    line::COMMANDS,
    list,
    place::{Here, Place},
    recent::recent,
    screen::{self, Reader},
    trouble::Trouble,
};
use crate::{compact, paint::harmless};

/// Conversations that /list shows.
const LISTED: i32 = 50;
/// What the server waits for a checkpoint in one call; its own limit is a minute for the whole call.
const WAIT: Duration = Duration::from_secs(50);
/// Calls that wait for a checkpoint, one after the other.
const WAITS: usize = 12;

impl Chat {
    /// A new conversation, which the next words begin.
    pub(super) fn start_anew(&mut self, title: String) -> Result<(), Trouble> {
        let named = if title.is_empty() { String::new() } else { format!(", \"{}\"", harmless(&title)) };
        self.place = Place::unbegun(title);
        self.unanswered = None;
        Ok(self.screen.note(&format!("a new conversation{named}: it begins with your first words"))?)
    }

    /// To the conversation whose title or id begins so.
    pub(super) async fn switch(&mut self, prefix: &str) -> Result<(), Trouble> {
        let conversation = self.owner.find(&self.client, prefix).await?;
        self.go_to(&conversation).await
    }

    /// Goes there, and shows what was said last.
    pub(super) async fn go_to(&mut self, conversation: &pb::Conversation) -> Result<(), Trouble> {
        self.place = Place::begun(conversation);
        self.unanswered = None;
        let (title, figures) = list::line(conversation, SystemTime::now());
        let Reader::Person = self.screen.reader else {
            return Ok(self.screen.note(&format!("{title} ({figures})"))?);
        };
        let said = recent(&self.client, &conversation.conversation_id, screen::size().0).await?;
        let head = format!("{} ({figures})\n", self.screen.paint.bold(&title));
        Ok(self.screen.page(&(head + &said))?)
    }

    /// The conversations, newest first.
    pub(super) async fn list(&mut self) -> Result<(), Trouble> {
        let (conversations, more) = self.owner.newest_of(&self.client, LISTED).await?;
        let mut page = match &self.place {
            Place::Unbegun { .. } => format!("* {} (begins with your first words)\n", self.place.name()),
            Place::Begun(_) => String::new(),
        };
        let current = self.place.id().ok();
        page.push_str(&list::rows(&conversations, current.as_deref(), SystemTime::now(), screen::size().0));
        if more {
            page.push_str("  … and older ones: /switch finds them by the beginning of their titles\n");
        }
        let titles: Vec<String> = conversations.into_iter().map(|conversation| conversation.title).collect();
        self.offer(&titles);
        Ok(self.screen.page(&page)?)
    }

    /// Titles that Tab completes from now on. What could take the terminal over is not offered.
    pub(super) fn offer(&self, titles: &[String]) {
        let mut offered = self.titles.lock().unwrap_or_else(PoisonError::into_inner);
        for title in titles {
            if !title.is_empty() && harmless(title) == *title && !offered.contains(title) {
                offered.push(title.clone());
            }
        }
    }

    /// A checkpoint now; waits for it, and says what became of it.
    pub(super) async fn compact(&mut self, focus: String) -> Result<(), Trouble> {
        let ask = pb::CompactRequest {
            conversation_id: self.place.id()?,
            request_id: Uuid::new_v4().to_string(),
            focus,
            wait: WAIT.try_into().ok(),
            ..Default::default()
        };
        self.screen.note("compacting …")?;
        for _ in 0..WAITS {
            let mut ask = Request::new(ask.clone());
            ask.set_timeout(WAIT + Duration::from_secs(10));
            let answer = self.client.contexts().compact(ask).await?.into_inner();
            if answer.outcome() != CompactOutcome::Pending {
                return Ok(self.screen.page(&harmless(&compact::said(&answer)))?);
            }
            self.screen.note("still waiting: is a worker running? Ctrl-C stops the waiting, not the compaction")?;
        }
        Err("the checkpoint is queued, and no worker has made it; `anneal jobs` shows the queue".to_owned().into())
    }

    /// A separator at the end.
    pub(super) async fn separate(&mut self) -> Result<(), Trouble> {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.place.id()?,
            request_id: Uuid::new_v4().to_string(),
            ..Default::default()
        };
        let separator = self.client.messages().insert_separator(ask).await?.into_inner();
        let after = separator.after_message_id;
        Ok(self
            .screen
            .note(&format!("a separator after message {after}: what stands before it is not sent any more"))?)
    }

    /// Another title.
    pub(super) async fn rename(&mut self, title: String) -> Result<(), Trouble> {
        match &mut self.place {
            Place::Unbegun { .. } => self.place = Place::unbegun(title.clone()),
            Place::Begun(Here { id, title: before }) => {
                let conversation =
                    pb::Conversation { conversation_id: id.clone(), title: title.clone(), ..Default::default() };
                let ask = pb::UpdateConversationRequest {
                    conversation: Some(conversation),
                    update_mask: Some(prost_types::FieldMask { paths: vec!["title".to_owned()] }),
                    request_id: Uuid::new_v4().to_string(),
                    ..Default::default()
                };
                self.client.conversations().update_conversation(ask).await?;
                before.clone_from(&title);
                self.offer(std::slice::from_ref(&title));
            }
        }
        Ok(self.screen.note(&format!("called \"{}\" from now on", harmless(&title)))?)
    }

    /// All commands.
    pub(super) fn help(&mut self) -> Result<(), Trouble> {
        let mut page = String::new();
        for command in COMMANDS {
            let usage = format!("{} {}", command.name, command.arguments);
            let _ = writeln!(page, "  {usage:<18}{}", command.does);
        }
        page.push_str(
            "\n  Whatever does not start with a slash is said to the model; // says a slash.\n  \
             Alt-Enter, or a backslash at the end: a new line. What is pasted is one message.\n  \
             Ctrl-C stops an answer, or clears the line; Ctrl-D leaves.\n",
        );
        Ok(self.screen.page(&page)?)
    }
}
