//! One watch: reads what is new after its position, page by page, and sends it.

use std::convert::Infallible;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::PAGE_DEFAULT,
};
use anneal_proto::v1 as pb;
use anneal_store::{
    Change, ChangeKind, ChangesAsk, ContentRead, ConversationHead, DeadJob, Entity, IdRange,
    PageAsk, ReadBudget, Store, StoreError, StoredMessage,
};
use pb::conversation_event::Event;

use super::{
    Ask, Start,
    event_channel::EventSender,
    position::{Position, PositionScope},
};
use crate::{
    failure::Failure,
    limits::content_budget::{LONG_QUERY_BYTES, run_on_blocking_thread},
    reply,
    state::ServerState,
    watch_registry::{BudgetPermit, HEADS_TIMEOUT, HeadUpdate, PAGE_TIMEOUT},
};

/// Most messages, or changes, of one page.
const PAGE_ENTRIES: i64 = PAGE_DEFAULT;

/// One watch under way.
pub(super) struct Watcher<'a> {
    state: &'a ServerState,
    /// The store that pages are read from.
    store: Store,
    caller: Caller,
    id: ConversationId,
    ask: Ask,
    events: &'a EventSender,
}

/// The position of a watch, and where its events are sent.
struct Cursor<'a> {
    events: &'a EventSender,
    scope: PositionScope,
    position: Position,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(
        state: &'a ServerState,
        caller: Caller,
        ask: Ask,
        events: &'a EventSender,
    ) -> Self {
        Self {
            state,
            store: state.store.clone().with_deadline(PAGE_TIMEOUT),
            caller,
            id: ask.id,
            ask,
            events,
        }
    }

    /// Sends events until it fails, and returns the failure.
    pub(super) async fn run(&self) -> Failure {
        match self.follow().await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn follow(&self) -> Result<Infallible, Failure> {
        // The subscription begins before the head is read, so that no change in between is missed.
        let mut updates = self.state.watch_registry.subscribe(self.caller, self.id);
        let mut head = self.read_head().await?;
        let scope = PositionScope::of(self.caller, self.id, &head);
        let position = match &self.ask.start {
            Start::Now => Position::now(&head),
            Start::After(message) => Position::after(&head, *message)?,
            Start::Position(text) => Position::parse(text, &scope, &head)?,
        };
        let created = head.created;
        let mut cursor = Cursor {
            events: self.events,
            scope,
            position,
        };
        cursor
            .send(Event::Started(pb::WatchStarted {
                last_message_id: head.last.0,
            }))
            .await?;
        loop {
            self.catch_up(&head, &mut cursor).await?;
            head = match updates.next().await {
                HeadUpdate::Head(head) if head.created == created => head,
                // With another time of creation it is a new conversation that has the same id: the
                // watched one was deleted.
                HeadUpdate::Head(_) | HeadUpdate::Gone => return Err(not_found()),
                HeadUpdate::DatabaseAway => return Err(StoreError::Busy.into()),
                HeadUpdate::NotPolled => head,
            };
        }
    }

    /// Sends everything up to this head, and waits until the reader has taken it. Messages first,
    /// because other events refer to messages that must have been sent.
    async fn catch_up(
        &self,
        head: &ConversationHead,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Failure> {
        while cursor.position.last < head.last {
            self.send_messages(cursor).await?;
        }
        if cursor.position.counted < head.counted {
            cursor.position.counted = head.counted;
            cursor
                .send(Event::TokensCounted(tokens_counted_event(head)))
                .await?;
        }
        while cursor.position.change < head.change {
            self.send_changes(head, cursor).await?;
        }
        if has_new_death(head, &cursor.position) {
            self.send_job_deaths(cursor).await?;
        }
        cursor.wait_for_reader().await
    }

    /// Sends the next page of messages that stand.
    async fn send_messages(&self, cursor: &mut Cursor<'_>) -> Result<(), Failure> {
        // A watcher holds at most one page. Its bytes are reserved before it is read.
        cursor.wait_for_reader().await?;
        let mut permit = self
            .state
            .watch_registry
            .budget()
            .reserve_page(self.caller.tenant(), self.ask.content)
            .await?;
        let page = PageAsk {
            after: Some(cursor.position.last),
            newest_first: false,
            content: self.ask.content,
            limit: PAGE_ENTRIES,
        };
        let messages = self.read_messages(page).await?;
        // The head names a later message. If none is found, the conversation was deleted meanwhile.
        if messages.is_empty() {
            return Err(not_found());
        }
        let events = messages.into_iter().map(|message| {
            let id = message.id;
            // A withdrawn message only moves the position.
            let event = message.withdrawn.is_none().then(|| {
                let event = Event::MessageAppended(reply::message(message));
                let event_permit = permit.split(event.encoded_len());
                (event, event_permit)
            });
            (id, event)
        });
        let events: Vec<_> = events.collect();
        // Releases what the page did not need.
        drop(permit);
        for (id, event) in events {
            cursor.position.last = id;
            if let Some((event, event_permit)) = event {
                cursor.send_with_permit(event, event_permit).await?;
            }
        }
        Ok(())
    }

    /// Reads a page of messages, on a blocking thread if it has more than [`LONG_QUERY_BYTES`].
    async fn read_messages(&self, page: PageAsk) -> Result<Vec<StoredMessage>, Failure> {
        let (caller, id, read_budget) = (
            self.caller,
            self.id,
            ReadBudget::unreserved(LONG_QUERY_BYTES),
        );
        if let ContentRead::Read { value, .. } = self
            .read(|store| store.list_messages_after(caller, id, page, &read_budget))
            .await?
        {
            return Ok(value);
        }
        let read = |store: &Store| {
            let store = store.clone();
            run_on_blocking_thread(async move {
                store
                    .list_messages_after(caller, id, page, &ReadBudget::unlimited())
                    .await
            })
        };
        match self.read(read).await? {
            ContentRead::Read { value, .. } => Ok(value),
            ContentRead::TooLarge { .. } => Err(Failure::Overloaded),
        }
    }

    /// Sends the next page of changes, at most up to this head: later changes may refer to messages
    /// that have not been sent.
    async fn send_changes(
        &self,
        head: &ConversationHead,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Failure> {
        // A change of messages may name thousands of ranges. Their bytes are reserved as those of
        // messages are.
        cursor.wait_for_reader().await?;
        let mut permit = self
            .state
            .watch_registry
            .budget()
            .reserve_page(self.caller.tenant(), false)
            .await?;
        let ask = ChangesAsk {
            after: cursor.position.change,
            through: head.change,
            start_change: cursor.position.start_change,
            start_message: cursor.position.start_message,
            limit: PAGE_ENTRIES,
        };
        let changes = self
            .read(|store| store.read_changes(self.caller, self.id, ask))
            .await?;
        let is_last = (changes.len() as i64) < PAGE_ENTRIES;
        let events = changes.into_iter().map(|change| {
            let id = change.id;
            let event = change_event(change);
            let event_permit = permit.split(event.encoded_len());
            (id, event, event_permit)
        });
        let events: Vec<_> = events.collect();
        // Releases what the page did not need.
        drop(permit);
        for (id, event, event_permit) in events {
            cursor.position.change = id;
            cursor.send_with_permit(event, event_permit).await?;
        }
        // Skips the changes that this watch does not get.
        if is_last {
            cursor.position.change = head.change;
        }
        Ok(())
    }

    /// Sends the jobs that were given up since the position.
    async fn send_job_deaths(&self, cursor: &mut Cursor<'_>) -> Result<(), Failure> {
        for job in self
            .read(|store| store.read_dead_jobs(self.caller, self.id))
            .await?
        {
            let before = cursor.position.dead.insert(job.kind.code(), job.died);
            if before.is_none_or(|before| before < job.died) {
                cursor.send(Event::JobDead(job_dead_event(job))).await?;
            }
        }
        Ok(())
    }

    async fn read_head(&self) -> Result<ConversationHead, Failure> {
        self.store
            .clone()
            .with_deadline(HEADS_TIMEOUT)
            .read_head(self.caller, self.id)
            .await?
            .ok_or_else(not_found)
    }

    /// Runs a query under the watchers' limit of concurrent reads.
    async fn read<'s, T, R>(&'s self, query: impl Fn(&'s Store) -> R) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        self.state
            .watch_registry
            .read(self.caller.tenant(), || query(&self.store))
            .await
    }
}

impl Cursor<'_> {
    /// Sends an event with the current position.
    async fn send(&self, event: Event) -> Result<(), Failure> {
        self.send_with_permit(event, None).await
    }

    /// Sends an event with the permit for its bytes.
    async fn send_with_permit(
        &self,
        event: Event,
        permit: Option<BudgetPermit>,
    ) -> Result<(), Failure> {
        let position = self.position.text(&self.scope);
        let event = pb::ConversationEvent {
            position,
            event: Some(event),
        };
        self.events
            .send(event, permit)
            .await
            .map_err(|_| self.too_slow())
    }

    async fn wait_for_reader(&self) -> Result<(), Failure> {
        self.events
            .wait_for_reader()
            .await
            .map_err(|_| self.too_slow())
    }

    /// The failure of a watch whose reader is too slow. Counts it in the metrics.
    fn too_slow(&self) -> Failure {
        metrics::counter!("anneal_watchers_dropped_total").increment(1);
        Failure::WatcherTooSlow {
            position: self.events.position(),
        }
    }
}

/// Whether a job was given up since this position.
fn has_new_death(head: &ConversationHead, position: &Position) -> bool {
    head.dead
        .iter()
        .any(|(kind, died)| position.dead.get(kind).is_none_or(|before| before < died))
}

fn tokens_counted_event(head: &ConversationHead) -> pb::TokensCounted {
    let total = pb::TokenTotal {
        tokens: head.token_total.get(),
        estimated_messages: head.last.0 - head.counted.0,
    };
    pb::TokensCounted {
        through_message_id: head.counted.0,
        token_total: Some(total),
    }
}

fn change_event(change: Change) -> Event {
    let change_id = change.id;
    let changed = |ranges: Vec<IdRange>| pb::MessagesChanged {
        messages: ranges.into_iter().map(reply::id_range).collect(),
        change_id,
    };
    match change.kind {
        ChangeKind::Summary {
            message,
            tokens,
            summary_tokens,
            summary_kind,
        } => Event::SummaryReady(pb::SummaryReady {
            message_id: message.0,
            summary_tokens: summary_tokens.get(),
            tokens: tokens.get(),
            kind: reply::summary_kind(summary_kind).into(),
        }),
        ChangeKind::Checkpoint {
            last,
            summary_tokens,
            summary_kind,
            trigger,
        } => Event::CheckpointCreated(pb::CheckpointCreated {
            last_message_id: last.0,
            token_usage: summary_tokens.get(),
            kind: reply::summary_kind(summary_kind).into(),
            trigger: trigger
                .map_or(pb::CheckpointTrigger::Imported, Into::into)
                .into(),
        }),
        ChangeKind::Withdrawn(ranges) => Event::MessagesWithdrawn(changed(ranges)),
        ChangeKind::Restored(ranges) => Event::MessagesRestored(changed(ranges)),
        ChangeKind::Edited { message, version } => Event::MessageChanged(pb::MessageEdited {
            message_id: message.0,
            version,
            change_id,
        }),
        ChangeKind::Erased(ranges) => Event::MessagesErased(changed(ranges)),
    }
}

fn job_dead_event(job: DeadJob) -> pb::JobDead {
    pb::JobDead {
        kind: pb::JobKind::from(job.kind).into(),
        attempts: i32::from(job.attempts),
        last_error: job.last_error,
    }
}

fn not_found() -> Failure {
    StoreError::NotFound(Entity::Conversation).into()
}
