//! The second pass: imports every conversation of a file.

use anneal_formats::{FileEvent, Head, ImportOutcome, Scope};
use anneal_proto::v1 as pb;
use anyhow::Context as _;
use indicatif::ProgressBar;
use uuid::Uuid;

use super::{
    ImportOptions,
    branches::BranchSources,
    conversation::{ImportedConversation, ReadSettings},
    digest_prefix::hex_prefix,
    file_reader::{FileReader, Source},
    pause_triggers,
    report::{Report, ReportLocation, print_best_effort},
    source_label,
    survey::FileSurvey,
};
use crate::{client::Client, file_format, sanitize::sanitize, text_format::pluralize};

/// Imports all conversations. Returns their ids, in the order of the file. After an error, restores
/// the triggers of the current conversation.
pub(super) async fn send_all(
    client: &Client,
    source: &Source,
    options: &ImportOptions,
    survey: FileSurvey,
    report: &mut Report,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Uuid>> {
    let mut importer = Importer {
        client,
        options,
        source,
        survey,
        report,
        progress,
        current: None,
        current_has_branches: false,
        sources: BranchSources::default(),
        ids: Vec::new(),
    };
    let sent = importer.run().await;
    if sent.is_err()
        && let Some(current) = &mut importer.current
    {
        // The first error is reported. If restoring fails, the triggers stay paused: `anneal
        // verify` reports that, and a later run restores them.
        let _ = current.restore_triggers(client).await;
    }
    sent.map(|()| importer.ids)
}

struct Importer<'a> {
    client: &'a Client,
    options: &'a ImportOptions,
    source: &'a Source,
    survey: FileSurvey,
    report: &'a mut Report,
    progress: &'a ProgressBar,
    /// The current conversation.
    current: Option<ImportedConversation>,
    /// Whether later conversations of the file may be branches of the current one.
    current_has_branches: bool,
    /// The earlier conversations of which later ones may be branches.
    sources: BranchSources,
    /// The conversations of the file so far.
    ids: Vec<Uuid>,
}

impl Importer<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut reader = FileReader::start(self.source.clone());
        while let Some(batch) = reader.next().await {
            for event in batch {
                self.import_event(event).await?;
            }
        }
        let ended = reader.end().await;
        self.close_current().await?;
        ended
    }

    async fn import_event(&mut self, event: FileEvent) -> anyhow::Result<()> {
        match (event, &mut self.current) {
            (FileEvent::Conversation(head), _) => {
                self.close_current().await?;
                self.current = Some(self.create_or_find_conversation(head).await?);
            }
            (FileEvent::Remark(remark), current) => {
                let conversation = current
                    .as_ref()
                    .filter(|_| remark.scope == Scope::Conversation)
                    .map_or("", |current| current.id.as_str());
                self.report.remark(
                    conversation,
                    ReportLocation::File(remark.location),
                    remark.outcome,
                    &remark.what,
                );
            }
            (_, None) => anyhow::bail!("the file has a message before its first conversation"),
            (FileEvent::Message(message), Some(current)) => {
                current
                    .add_message(self.client, message, self.report)
                    .await?;
                self.progress.inc(1);
            }
            (FileEvent::Summary(summary), Some(current)) => {
                current
                    .add_summary(self.client, summary, self.report)
                    .await?;
            }
            (FileEvent::Separator, Some(current)) => {
                current.add_separator(self.client, self.report).await?;
            }
        }
        Ok(())
    }

    /// Creates the conversation, as a fork if it is a branch of an earlier one, or finds the one of
    /// an earlier run. Updates its policy, title, system prompt and labels.
    async fn create_or_find_conversation(
        &mut self,
        head: Head,
    ) -> anyhow::Result<ImportedConversation> {
        let Some(expected) = self.survey.find(self.source.format, self.options, &head) else {
            anyhow::bail!("the file was changed during the import")
        };
        // The request has only fields that do not change when the file grows, so that every run
        // finds the same conversation.
        let create = pb::CreateConversationRequest {
            request_id: format!("import:{}", hex_prefix(&expected.key)),
            agent_id: file_format::agent_id(&self.options.agent, &head.agent_id).to_owned(),
            user_id: self.options.user.clone(),
            ..Default::default()
        };
        let existing = self
            .sources
            .create_or_find(self.client, &head, create)
            .await?;
        let is_fork = !existing.forked_from_conversation_id.is_empty();
        let shared_items = head
            .shared
            .filter(|_| is_fork)
            .map_or(0, |shared| shared.items);
        self.current_has_branches = head.has_branches;
        let index = self.source.index.as_ref();
        let title = match (self.descriptive_title(&head.title), index) {
            ("", Some(index)) => index.title.clone(),
            (title, _) => title.to_owned(),
        };
        let head = Head {
            title: title.clone(),
            ..head
        };
        let head = match index {
            Some(index) => index.add_to(head),
            None => head,
        };
        let is_named_by_file = head.identity == self.source.read_options.name;
        let origin = self.source.origin.as_deref().filter(|_| is_named_by_file);
        let is_other_file =
            origin.is_some_and(|origin| source_label::is_other_file(&existing, origin));
        let change = |existing| {
            let described = self.with_file_head(existing, &head, expected.summaries);
            match origin {
                Some(origin) => source_label::with_label(described, origin),
                None => described,
            }
        };
        let conversation =
            pause_triggers::update_conversation(self.client, existing, change).await?;
        if is_other_file {
            let what = "a file of the same name in another folder was imported into this conversation before; if that is \
                another log, give this one a name (--as) or a user (--user)";
            let id = &conversation.conversation_id;
            self.report.remark(
                id,
                ReportLocation::File(anneal_formats::Location::WholeFile),
                ImportOutcome::Changed,
                what,
            );
        }
        self.ids.push(
            Uuid::parse_str(&conversation.conversation_id)
                .context("the server has returned an id that is not a UUID")?,
        );
        let settings = ReadSettings {
            format: self.source.format,
            strict: self.options.strict,
        };
        let imported =
            ImportedConversation::new(self.client, expected, conversation, title, settings);
        Ok(imported.with_shared_items(shared_items))
    }

    /// The title in the file; empty if it is only the name of the session, alone or with a number.
    /// Then the server makes a title from the first message.
    fn descriptive_title<'t>(&self, title: &'t str) -> &'t str {
        let rest = title
            .strip_prefix(self.source.read_options.name.as_str())
            .map(str::trim_start);
        if rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
            ""
        } else {
            title
        }
    }

    /// The conversation with the policy of the command line and, if no message is stored yet but
    /// those that it has taken over as a fork, with title, system prompt and labels of the file. If
    /// the file has summaries, the triggers are paused where no message is stored yet or an earlier
    /// run has left them paused.
    fn with_file_head(
        &self,
        existing: pb::Conversation,
        head: &Head,
        summaries: u64,
    ) -> pb::Conversation {
        let is_new = existing.message_count == existing.forked_message_id;
        let pause = summaries > 0 && (is_new || pause_triggers::are_triggers_paused(&existing));
        let mut wanted = pause_triggers::with_restored_triggers(existing);
        if let Some(policy) = self.options.policy.policy() {
            wanted.policy = Some(policy);
        }
        if is_new {
            let text_or_stored = |text: &str, stored: String| {
                if text.is_empty() {
                    stored
                } else {
                    text.to_owned()
                }
            };
            wanted.title = text_or_stored(&head.title, wanted.title);
            wanted.system_prompt = text_or_stored(&head.system_prompt, wanted.system_prompt);
            // The labels of a fork are those of the conversation that it leaves.
            if !head.metadata.is_empty() || !wanted.forked_from_conversation_id.is_empty() {
                wanted.metadata = head.metadata.clone().into_iter().collect();
            }
        }
        if pause {
            pause_triggers::with_paused_triggers(wanted)
        } else {
            wanted
        }
    }

    /// Finishes the current conversation and prints its result.
    async fn close_current(&mut self) -> anyhow::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        current.finish(self.client, self.report).await?;
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        self.report.count_conversation(
            current.newly_stored,
            current.already_stored,
            current.tools_dropped,
        );
        let messages = pluralize(current.newly_stored + current.already_stored, "message");
        let title = self.display_title(&current).await;
        let title = if title.is_empty() {
            title
        } else {
            format!("{} ", sanitize(&title))
        };
        self.progress
            .suspend(|| print_best_effort(&format!("{}  {title}({messages})\n", current.id)));
        if self.current_has_branches {
            self.sources
                .add(self.ids.len() - 1, current.into_branch_source());
        }
        Ok(())
    }

    /// The title in the file, otherwise the server's title.
    async fn display_title(&self, current: &ImportedConversation) -> String {
        if !current.title.is_empty() {
            return current.title.clone();
        }
        let ask = pb::GetConversationRequest {
            conversation_id: current.id.clone(),
        };
        let found = self.client.conversations().get_conversation(ask).await;
        found
            .map(|found| found.into_inner().title)
            .unwrap_or_default()
    }
}
