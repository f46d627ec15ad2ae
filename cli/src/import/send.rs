//! The second reading: every conversation of a file to a server.

use anneal_formats::{Fate, Found, Head, Scope};
use anneal_proto::v1 as pb;
use anyhow::Context as _;
use indicatif::ProgressBar;
use uuid::Uuid;

use super::{
    Ask, hold,
    keys::{Known, hex},
    origin,
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

/// Sends everything; returns the ids of the file's conversations, in its order. Where it cannot go on, no conversation is
/// left with its triggers off that can still be reached.
pub(super) async fn all(
    client: &Client,
    source: &Source,
    ask: &Ask,
    known: Known,
    report: &mut Report,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Uuid>> {
    let mut sending = Sending { client, ask, source, known, report, progress, talk: None, ids: Vec::new() };
    let sent = sending.run().await;
    if sent.is_err()
        && let Some(talk) = &mut sending.talk
    {
        // What has ended the import is what there is to say; a next run, or `anneal verify`, finds what is left.
        let _ = talk.release(client).await;
    }
    sent.map(|()| sending.ids)
}

struct Sending<'a> {
    client: &'a Client,
    ask: &'a Ask,
    source: &'a Source,
    known: Known,
    report: &'a mut Report,
    progress: &'a ProgressBar,
    /// The conversation that the reading is in.
    talk: Option<Talk>,
    ids: Vec<Uuid>,
}

impl Sending<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut reading = Reading::start(self.source.clone());
        while let Some(batch) = reading.next().await {
            for found in batch {
                self.take(found).await?;
            }
        }
        let ended = reading.end().await;
        self.close().await?;
        ended
    }

    async fn take(&mut self, found: Found) -> anyhow::Result<()> {
        match (found, &mut self.talk) {
            (Found::Conversation(head), _) => {
                self.close().await?;
                self.talk = Some(self.open(head).await?);
            }
            (Found::Remark(remark), talk) => {
                let whose = talk.as_ref().filter(|_| remark.scope == Scope::Conversation);
                let conversation = whose.map_or("", |talk| talk.id.as_str());
                self.report.remark(conversation, Place::File(remark.place), remark.fate, &remark.what);
            }
            (_, None) => anyhow::bail!("its reader found a message before any conversation"),
            (Found::Message(message), Some(talk)) => {
                talk.message(self.client, message, self.report).await?;
                self.progress.inc(1);
            }
            (Found::Summary(summary), Some(talk)) => talk.summary(self.client, summary, self.report).await?,
            (Found::Separator, Some(talk)) => talk.separator(self.client, self.report).await?,
        }
        Ok(())
    }

    /// Makes the conversation, or finds the one of an earlier run.
    async fn open(&mut self, head: Head) -> anyhow::Result<Talk> {
        let Some(expected) = self.known.find(self.source.format, self.ask, &head) else {
            anyhow::bail!("the file has changed while it was read")
        };
        // Only what never changes while the file grows, so that the same call always finds the same conversation.
        let create = pb::CreateConversationRequest {
            request_id: format!("import:{}", hex(&expected.key)),
            agent_id: files::owner(&self.ask.agent, &head.agent_id).to_owned(),
            user_id: self.ask.user.clone(),
            ..Default::default()
        };
        let made = patiently(async || self.client.conversations().create_conversation(create.clone()).await).await;
        let made = made.map_err(|status| refusal(&status))?;
        let title = self.given_title(&head.title).to_owned();
        let head = Head { title: title.clone(), ..head };
        let known_by_its_file = head.identity == self.source.options.name;
        let origin = self.source.origin.as_deref().filter(|_| known_by_its_file);
        let is_another = origin.is_some_and(|origin| origin::is_another(&made, origin));
        let wanted = |made| {
            let described = self.described(made, &head, expected.summaries);
            match origin {
                Some(origin) => origin::labelled(described, origin),
                None => described,
            }
        };
        let conversation = hold::change(self.client, made, wanted).await?;
        if is_another {
            let what = "a file of this name that lies elsewhere was imported into this conversation before; if it is another \
                log, give this one a name (--as) or a user (--user)";
            let id = &conversation.conversation_id;
            self.report.remark(id, Place::File(anneal_formats::Place::Whole), Fate::Changed, what);
        }
        self.ids.push(Uuid::parse_str(&conversation.conversation_id).context("the server has made an odd id")?);
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

    /// Sends what is left of the conversation, and says what became of it.
    async fn close(&mut self) -> anyhow::Result<()> {
        let Some(talk) = &mut self.talk else { return Ok(()) };
        talk.close(self.client, self.report).await?;
        let Some(talk) = self.talk.take() else { return Ok(()) };
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
