//! The chat commands that switch, show or change conversations.

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
    errors::ChatError,
    parse_line::COMMANDS,
    recent_messages::recent_messages,
    screen::Reader,
    target::{ConversationRef, Target},
};
use crate::{
    compact,
    conversation_rows::{self, OwnerColumn},
    find_by_prefix::SHORT_ID_CHARACTERS,
    sanitize::sanitize,
    terminal_size,
};

/// Most conversations that /list shows.
const MAX_LISTED_CONVERSATIONS: i32 = 50;
/// How long the server waits for a checkpoint in one call. It allows a call at most 60 s in all.
const COMPACT_WAIT: Duration = Duration::from_secs(50);
/// Most calls that wait for one checkpoint, one after the other.
const COMPACT_CALLS: usize = 12;

impl Chat {
    /// Makes a new conversation the target. The next message creates it.
    pub(super) fn start_new_conversation(&mut self, title: String) -> Result<(), ChatError> {
        let quoted_title = if title.is_empty() {
            String::new()
        } else {
            format!(", \"{}\"", sanitize(&title))
        };
        self.target = Target::new(title);
        self.pending_turn = None;
        self.undone.clear();
        Ok(self.screen.print_note(&format!(
            "a new conversation{quoted_title}: your first message creates it"
        ))?)
    }

    /// Makes the conversation with this title or id prefix the target.
    pub(super) async fn switch_conversation(&mut self, prefix: &str) -> Result<(), ChatError> {
        let conversation = self.owner.find(&self.client, prefix).await?;
        self.open_conversation(&conversation).await
    }

    /// Makes the conversation the target and prints its last messages.
    pub(super) async fn open_conversation(
        &mut self,
        conversation: &pb::Conversation,
    ) -> Result<(), ChatError> {
        self.target = Target::existing(conversation);
        self.pending_turn = None;
        self.undone.clear();
        let (title, figures) =
            conversation_rows::title_and_figures(conversation, SystemTime::now());
        let Reader::Person = self.screen.reader else {
            return Ok(self.screen.print_note(&format!("{title} ({figures})"))?);
        };
        let messages = recent_messages(
            &self.client,
            &conversation.conversation_id,
            terminal_size::size().columns,
        )
        .await?;
        let title_line = format!("{} ({figures})\n", self.screen.style.bold(&title));
        Ok(self.screen.print_page(&(title_line + &messages))?)
    }

    /// Prints the conversations, newest first.
    pub(super) async fn list_conversations(&mut self) -> Result<(), ChatError> {
        let (conversations, has_more) = self
            .owner
            .newest_page(&self.client, MAX_LISTED_CONVERSATIONS)
            .await?;
        let mut page = match &self.target {
            Target::New { .. } => {
                format!("* {} (your first message creates it)\n", self.target.name())
            }
            Target::Existing(_) => String::new(),
        };
        let current = self.target.id().ok();
        page.push_str(&conversation_rows::rows(
            &conversations,
            current.as_deref(),
            OwnerColumn::Hidden,
            SystemTime::now(),
            terminal_size::size().columns,
        ));
        if has_more {
            page.push_str(
                "  … and older ones: /switch finds them by the beginning of their titles\n",
            );
        }
        let titles: Vec<String> = conversations
            .into_iter()
            .map(|conversation| conversation.title)
            .collect();
        self.add_completion_titles(&titles);
        Ok(self.screen.print_page(&page)?)
    }

    /// Adds titles to those that Tab completes. Leaves out titles with unsafe characters.
    pub(super) fn add_completion_titles(&self, titles: &[String]) {
        let mut offered = self.titles.lock().unwrap_or_else(PoisonError::into_inner);
        for title in titles {
            if !title.is_empty() && sanitize(title) == *title && !offered.contains(title) {
                offered.push(title.clone());
            }
        }
    }

    /// Requests a checkpoint, waits for it and prints the outcome.
    pub(super) async fn compact(&mut self, focus: String) -> Result<(), ChatError> {
        let ask = pb::CompactRequest {
            conversation_id: self.target.id()?,
            request_id: Uuid::new_v4().to_string(),
            focus,
            wait: COMPACT_WAIT.try_into().ok(),
            ..Default::default()
        };
        self.screen.print_note("compacting …")?;
        for _ in 0..COMPACT_CALLS {
            let mut request = Request::new(ask.clone());
            request.set_timeout(COMPACT_WAIT + Duration::from_secs(10));
            let answer = self.client.contexts().compact(request).await?.into_inner();
            if answer.outcome() != CompactOutcome::Pending {
                return Ok(self
                    .screen
                    .print_page(&sanitize(&compact::outcome_text(&answer)))?);
            }
            self.screen.print_note(
                "still waiting: is a worker running? Ctrl-C stops the waiting, not the compaction",
            )?;
        }
        Err(
            "the checkpoint is queued, but no worker has made it yet; `anneal jobs` shows the queue"
                .to_owned()
                .into(),
        )
    }

    /// Inserts a separator at the end of the conversation.
    pub(super) async fn insert_separator(&mut self) -> Result<(), ChatError> {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.target.id()?,
            request_id: Uuid::new_v4().to_string(),
            ..Default::default()
        };
        let separator = self
            .client
            .messages()
            .insert_separator(ask)
            .await?
            .into_inner();
        let after = separator.after_message_id;
        Ok(self.screen.print_note(&format!(
            "a separator after message {after}: messages before the separator are no longer sent"
        ))?)
    }

    /// Forks the conversation at this message (0: the newest), and makes the fork the target.
    pub(super) async fn fork_conversation(
        &mut self,
        message_id: i64,
        title: String,
    ) -> Result<(), ChatError> {
        let source = self.target.id()?;
        let ask = pb::ForkConversationRequest {
            conversation_id: source.clone(),
            request_id: Uuid::new_v4().to_string(),
            message_id,
            title: (!title.is_empty()).then_some(title),
            ..Default::default()
        };
        let fork = self
            .client
            .conversations()
            .fork_conversation(ask)
            .await?
            .into_inner();
        let start: String = source.chars().take(SHORT_ID_CHARACTERS).collect();
        self.screen.print_note(&format!(
            "forked after message {}; /switch {start} leads back",
            fork.message_count
        ))?;
        self.add_completion_titles(std::slice::from_ref(&fork.title));
        self.open_conversation(&fork).await
    }

    /// Changes the title.
    pub(super) async fn rename_conversation(&mut self, title: String) -> Result<(), ChatError> {
        match &mut self.target {
            Target::New { .. } => self.target = Target::new(title.clone()),
            Target::Existing(ConversationRef {
                id,
                title: known_title,
            }) => {
                let conversation = pb::Conversation {
                    conversation_id: id.clone(),
                    title: title.clone(),
                    ..Default::default()
                };
                let ask = pb::UpdateConversationRequest {
                    conversation: Some(conversation),
                    update_mask: Some(prost_types::FieldMask {
                        paths: vec!["title".to_owned()],
                    }),
                    request_id: Uuid::new_v4().to_string(),
                    ..Default::default()
                };
                self.client.conversations().update_conversation(ask).await?;
                known_title.clone_from(&title);
                self.add_completion_titles(std::slice::from_ref(&title));
            }
        }
        Ok(self
            .screen
            .print_note(&format!("renamed to \"{}\"", sanitize(&title)))?)
    }

    /// Prints all commands.
    pub(super) fn print_help(&mut self) -> Result<(), ChatError> {
        let mut page = String::new();
        for command in COMMANDS {
            let usage = format!("{} {}", command.name, command.arguments);
            let _ = writeln!(page, "  {usage:<20}{}", command.description);
        }
        page.push_str(
            "\n  A line without a slash at its start is sent to the model. For a message that starts \
             with a slash, type two.\n  \
             Alt-Enter, or a backslash at the end: a new line. Pasted text is one message.\n  \
             Ctrl-C stops an answer, or clears the line; Ctrl-D leaves.\n",
        );
        Ok(self.screen.print_page(&page)?)
    }
}
