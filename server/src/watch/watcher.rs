//! One watcher: reads what is new since its position, page by page, and tells it.

use std::convert::Infallible;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::PAGE_DEFAULT,
};
use anneal_proto::v1 as pb;
use anneal_store::{
    Change, ChangesAsk, ContentRead, ContentRoom, DeadJob, Entity, Head, PageAsk, Store, StoreError, Stored,
    StoredMessage, within,
};
use pb::conversation_event::Event;

use super::{
    Ask, Start,
    budget::Held,
    outlet::Outlet,
    position::{Position, Scope},
    registry::{LOOK, News},
};
use crate::{
    content::{LONG_EXCHANGE, run_apart},
    house::House,
    reply,
    status::Failure,
};

/// Messages, or changes, read at once.
const PAGE: i64 = PAGE_DEFAULT;

/// A watcher of one conversation.
pub(super) struct Watcher<'a> {
    house: &'a House,
    caller: Caller,
    id: ConversationId,
    ask: Ask,
    outlet: &'a Outlet,
}

/// What a watcher has told, and where.
struct Told<'a> {
    outlet: &'a Outlet,
    scope: Scope,
    position: Position,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(house: &'a House, caller: Caller, ask: Ask, outlet: &'a Outlet) -> Self {
        Self { house, caller, id: ask.id, ask, outlet }
    }

    /// Tells what happens, until it cannot.
    pub(super) async fn run(&self) -> Failure {
        match self.tell().await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn tell(&self) -> Result<Infallible, Failure> {
        // Before the first look, so that nothing happens unseen between the two.
        let mut news = self.house.watching.subscribe(self.caller, self.id);
        let mut head = self.head().await?;
        let scope = Scope::of(self.caller, self.id, &head);
        let position = match &self.ask.start {
            Start::Now => Position::now(&head),
            Start::After(message) => Position::after(&head, *message)?,
            Start::Position(text) => Position::parse(text, &scope, &head)?,
        };
        let created = head.created;
        let mut told = Told { outlet: self.outlet, scope, position };
        told.tell(Event::Started(pb::WatchStarted { last_message_id: head.last.0 })).await?;
        loop {
            self.catch_up(&head, &mut told).await?;
            head = match news.next().await {
                News::Head(head) if head.created == created => head,
                News::Head(_) | News::Gone => return Err(gone()),
                News::Silent => return Err(StoreError::Busy.into()),
                News::Nothing => head,
            };
        }
    }

    /// Tells what has happened up to where the conversation stood. Messages first: whatever else has happened concerns
    /// messages that were told.
    async fn catch_up(&self, head: &Head, told: &mut Told<'_>) -> Result<(), Failure> {
        while told.position.last < head.last {
            self.tell_messages(told).await?;
        }
        if told.position.counted < head.counted {
            told.position.counted = head.counted;
            told.tell(Event::TokensCounted(counted(head))).await?;
        }
        while told.position.change < head.change {
            self.tell_changes(head, told).await?;
        }
        if is_new(head, &told.position) {
            self.tell_deaths(told).await?;
        }
        told.all_taken().await
    }

    /// The next page of messages.
    async fn tell_messages(&self, told: &mut Told<'_>) -> Result<(), Failure> {
        // A page at a time is all that one watcher holds, and room for it is found before it is read.
        told.all_taken().await?;
        let mut room = self.house.watching.budget().page(self.caller.tenant(), self.ask.content).await?;
        let page =
            PageAsk { from: Some(told.position.last), newest_first: false, content: self.ask.content, limit: PAGE };
        let messages = self.read_messages(page).await?;
        if messages.is_empty() {
            return Err(gone());
        }
        let events = messages.into_iter().map(|message| {
            let (id, event) = (message.id, Event::MessageAppended(reply::message(message)));
            let part = room.part(event.encoded_len());
            (id, event, part)
        });
        let events: Vec<_> = events.collect();
        // The room that the page could have needed and did not is for others.
        drop(room);
        for (id, event, part) in events {
            told.position.last = id;
            told.tell_within(event, part).await?;
        }
        Ok(())
    }

    /// A page of messages: read on a thread of its own where it is long.
    async fn read_messages(&self, page: PageAsk) -> Result<Vec<StoredMessage>, Failure> {
        let (caller, id, short) = (self.caller, self.id, ContentRoom::unreserved(LONG_EXCHANGE));
        if let ContentRead::Read { value, .. } =
            self.read(|store| store.messages_after(caller, id, page, &short)).await?
        {
            return Ok(value);
        }
        let read = |store: &Store| {
            let store = store.clone();
            run_apart(async move { store.messages_after(caller, id, page, &ContentRoom::unlimited()).await })
        };
        match self.read(read).await? {
            ContentRead::Read { value, .. } => Ok(value),
            ContentRead::TooLarge { .. } => Err(Failure::Overloaded),
        }
    }

    /// The next page of changes, up to where the conversation stood: later ones may be of messages that were not told.
    async fn tell_changes(&self, head: &Head, told: &mut Told<'_>) -> Result<(), Failure> {
        let ask = ChangesAsk {
            after: told.position.change,
            through: head.change,
            replayed: told.position.replayed,
            beyond: told.position.beyond,
            limit: PAGE,
        };
        let changes = self.read(|store| store.changes(self.caller, self.id, ask)).await?;
        let is_last = (changes.len() as i64) < PAGE;
        for change in changes {
            told.position.change = change.id;
            told.tell(happened(change)).await?;
        }
        if is_last {
            told.position.change = head.change;
        }
        Ok(())
    }

    async fn tell_deaths(&self, told: &mut Told<'_>) -> Result<(), Failure> {
        for job in self.read(|store| store.dead_jobs(self.caller, self.id)).await? {
            let before = told.position.dead.insert(job.kind.code(), job.died);
            if before.is_none_or(|before| before < job.died) {
                told.tell(Event::JobDead(died(job))).await?;
            }
        }
        Ok(())
    }

    async fn head(&self) -> Result<Head, Failure> {
        let key = (self.caller.tenant(), self.id);
        within(LOOK, self.house.store.heads(&[key])).await?.remove(&key).ok_or_else(gone)
    }

    async fn read<T, R>(&self, ask: impl Fn(&'a Store) -> R) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        self.house.watching.read(self.caller.tenant(), || ask(&self.house.store)).await
    }
}

impl Told<'_> {
    /// Tells an event, after which the watch stands at its position.
    async fn tell(&self, event: Event) -> Result<(), Failure> {
        self.tell_within(event, None).await
    }

    /// The same with what the event takes of the budget.
    async fn tell_within(&self, event: Event, room: Option<Held>) -> Result<(), Failure> {
        let position = self.position.text(&self.scope);
        let event = pb::ConversationEvent { position, event: Some(event) };
        self.outlet.send(event, room).await.map_err(|_| self.too_slow())
    }

    async fn all_taken(&self) -> Result<(), Failure> {
        self.outlet.all_taken().await.map_err(|_| self.too_slow())
    }

    fn too_slow(&self) -> Failure {
        metrics::counter!("watchers_dropped_total").increment(1);
        Failure::WatcherTooSlow { position: self.outlet.position() }
    }
}

/// Whether a job has died since this position.
fn is_new(head: &Head, position: &Position) -> bool {
    head.dead.iter().any(|(kind, died)| position.dead.get(kind).is_none_or(|before| before < died))
}

fn counted(head: &Head) -> pb::TokensCounted {
    let total = pb::TokenTotal { tokens: head.token_total.get(), estimated_messages: head.last.0 - head.counted.0 };
    pb::TokensCounted { through_message_id: head.counted.0, token_total: Some(total) }
}

fn happened(change: Change) -> Event {
    let kind = reply::summary_kind(change.kind).into();
    match change.what {
        Stored::Summary(tokens) => Event::SummaryReady(pb::SummaryReady {
            message_id: change.message.0,
            summary_tokens: change.summary_tokens.get(),
            tokens: tokens.get(),
            kind,
        }),
        Stored::Checkpoint(trigger) => Event::CheckpointCreated(pb::CheckpointCreated {
            last_message_id: change.message.0,
            token_usage: change.summary_tokens.get(),
            kind,
            trigger: trigger.map_or(pb::CheckpointTrigger::Imported, reply::trigger).into(),
        }),
    }
}

fn died(job: DeadJob) -> pb::JobDead {
    pb::JobDead {
        kind: reply::job_kind(job.kind).into(),
        attempts: i32::from(job.attempts),
        last_error: job.last_error,
    }
}

fn gone() -> Failure {
    StoreError::NotFound(Entity::Conversation).into()
}
