//! The second reading: every conversation of a file to a server.

use anneal_formats::{Found, Head, Scope};
use anneal_proto::v1 as pb;
use indicatif::ProgressBar;

use super::{
    Ask, hold,
    keys::Known,
    reading::{Reading, Source},
    report::{Place, Report, say},
    talk::{Manner, Talk},
};
use crate::{
    client::{Client, patiently, refusal},
    files,
    paint::harmless,
    words::counted,
};

/// Sends everything; returns the ids of the file's conversations, in its order.
pub(super) async fn all(
    client: &Client,
    source: &Source,
    ask: &Ask,
    known: Known,
    report: &mut Report,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<String>> {
    let mut reading = Reading::start(source.clone());
    let mut sending = Sending { client, ask, source, known, report, progress, ids: Vec::new() };
    let mut talk = None;
    while let Some(batch) = reading.next().await {
        for found in batch {
            talk = sending.take(talk, found).await?;
        }
    }
    let ended = reading.end().await;
    sending.close(talk).await?;
    ended?;
    Ok(sending.ids)
}

struct Sending<'a> {
    client: &'a Client,
    ask: &'a Ask,
    source: &'a Source,
    known: Known,
    report: &'a mut Report,
    progress: &'a ProgressBar,
    ids: Vec<String>,
}

impl Sending<'_> {
    async fn take(&mut self, talk: Option<Talk>, found: Found) -> anyhow::Result<Option<Talk>> {
        let mut talk = match found {
            Found::Conversation(head) => {
                self.close(talk).await?;
                return self.open(head).await.map(Some);
            }
            Found::Remark(remark) => {
                let whose = talk.as_ref().filter(|_| remark.scope == Scope::Conversation);
                let conversation = whose.map_or("", |talk| talk.id.as_str());
                self.report.remark(conversation, Place::File(remark.place), remark.fate, &remark.what);
                return Ok(talk);
            }
            Found::Message(_) | Found::Summary(_) | Found::Separator if talk.is_none() => {
                anyhow::bail!("its reader found a message before any conversation")
            }
            found => talk.map(|talk| (talk, found)),
        };
        let Some((mut talk, found)) = talk.take() else { return Ok(None) };
        match found {
            Found::Message(message) => {
                talk.message(self.client, message, self.report).await?;
                self.progress.inc(1);
            }
            Found::Summary(summary) => talk.summary(self.client, summary, self.report).await?,
            Found::Separator => talk.separator(self.client, self.report).await?,
            Found::Conversation(_) | Found::Remark(_) => {}
        }
        Ok(Some(talk))
    }

    /// Makes the conversation, or finds the one of an earlier run.
    async fn open(&mut self, head: Head) -> anyhow::Result<Talk> {
        let Some(expected) = self.known.find(self.source.format, self.ask, &head) else {
            anyhow::bail!("the file has changed while it was read")
        };
        // Only what never changes while the file grows, so that the same call always finds the same conversation.
        let create = pb::CreateConversationRequest {
            request_id: format!("import:{}", expected.key),
            agent_id: files::owner(&self.ask.agent, &head.agent_id).to_owned(),
            user_id: self.ask.user.clone(),
            ..Default::default()
        };
        let made = patiently(async || self.client.conversations().create_conversation(create.clone()).await).await;
        let made = made.map_err(|status| refusal(&status))?;
        let title = self.given_title(&head.title).to_owned();
        let head = Head { title: title.clone(), ..head };
        let wanted = |made| self.described(made, &head, expected.summaries);
        let conversation = hold::change(self.client, made, wanted).await?;
        self.ids.push(conversation.conversation_id.clone());
        let manner = Manner { format: self.source.format, strict: self.ask.strict };
        Ok(Talk::new(self.client, expected, conversation, title, manner))
    }

    /// The title, where it is more than the file's name and a number: the server makes a better one of the first message.
    fn given_title<'t>(&self, title: &'t str) -> &'t str {
        let rest = title.strip_prefix(self.source.options.name.as_str()).map(str::trim_start);
        if rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) { "" } else { title }
    }

    /// The conversation as the file describes it while it is empty; settings of the command line hold for any. Its
    /// triggers are off where a summary is still to come.
    fn described(&self, made: pb::Conversation, head: &Head, summaries: u64) -> pb::Conversation {
        let hold = summaries > 0 && (made.message_count == 0 || hold::is_held(&made));
        let mut wanted = hold::released(made);
        if let Some(policy) = self.ask.policy.policy() {
            wanted.policy = Some(policy);
        }
        if wanted.message_count == 0 {
            let given = |text: &str, stored: String| if text.is_empty() { stored } else { text.to_owned() };
            wanted.title = given(&head.title, wanted.title);
            wanted.system_prompt = given(&head.system_prompt, wanted.system_prompt);
            if !head.metadata.is_empty() {
                wanted.metadata = head.metadata.clone().into_iter().collect();
            }
        }
        if hold { hold::held(wanted) } else { wanted }
    }

    /// Sends what is left of a conversation, and says what became of it.
    async fn close(&mut self, talk: Option<Talk>) -> anyhow::Result<()> {
        let Some(mut talk) = talk else { return Ok(()) };
        talk.close(self.client, self.report).await?;
        self.report.conversation(talk.stored, talk.known, talk.tools_dropped);
        let messages = counted(talk.stored + talk.known, "message");
        let title = self.title(&talk).await;
        let title = if title.is_empty() { title } else { format!("{} ", harmless(&title)) };
        self.progress.suspend(|| say(&format!("{}  {title}({messages})\n", talk.id)));
        Ok(())
    }

    /// What the conversation is called: as the file says, or else as the server does.
    async fn title(&self, talk: &Talk) -> String {
        if !talk.title.is_empty() {
            return talk.title.clone();
        }
        let ask = pb::GetConversationRequest { conversation_id: talk.id.clone() };
        let found = self.client.conversations().get_conversation(ask).await;
        found.map(|found| found.into_inner().title).unwrap_or_default()
    }
}
