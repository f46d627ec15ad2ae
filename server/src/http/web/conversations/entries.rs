//! The messages of a page in their order, with separators, checkpoints and withdrawn messages
//! between them; and GET /conversations/{id}/entries: those after a message.

use std::collections::{BTreeMap, HashMap};

use anneal_core::caller::Verb;
use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _,
    message_service_server::MessageService as _,
};
use anneal_web::{
    conversation::{Entries, Entry, Progress},
    layout::Place,
    message::{Actions, Alternatives, Message},
};
use axum::{
    http::{Extensions, StatusCode},
    response::Response,
};
use serde::Deserialize;

use super::{
    OpenConversation, paths, turn,
    view::{self, MessageFrame, ShownBytes},
};
use crate::{
    http::{
        caller::HttpCaller,
        change,
        extractors::{PathParams, QueryParams},
        problem::Problem,
        web::{
            error::WebError,
            page::{self, PageContext, WebCaller},
        },
    },
    limits::cpu_pool,
};

/// Messages that are read at a time.
const PAGE_SIZE: i32 = 50;
/// A page is filled up with more reads while it has fewer messages: a read of large messages ends
/// early.
const LEAST_MESSAGES: usize = 20;
/// Most reads for one page, of at most 4 MiB each.
const MAX_READS: usize = 4;
/// Most places of a page at which earlier answers are looked for.
const MAX_QUESTIONS: usize = 8;

/// Messages that stand, oldest first, and the separators among them.
#[derive(Default)]
pub(super) struct Standing {
    stored: Vec<pb::Message>,
    separators: Vec<pb::Separator>,
    /// Whether there are messages before these.
    has_older: bool,
    /// Whether there are messages after these that were not read.
    has_newer: bool,
    /// The reservations of the content's memory, held until it is shown.
    reservations: Vec<Extensions>,
}

impl Standing {
    /// The id of the newest of the messages; 0: there are none.
    pub(super) fn last_id(&self) -> i64 {
        self.stored.last().map_or(0, |last| last.message_id)
    }

    /// The last message that was read, or is known to be withdrawn.
    pub(super) fn through(&self, conversation: &pb::Conversation) -> i64 {
        if self.has_newer {
            self.last_id()
        } else {
            self.last_id().max(conversation.message_count)
        }
    }

    fn add(&mut self, found: pb::ListMessagesResponse, reservation: Extensions) {
        self.stored.extend(found.messages);
        self.separators.extend(found.separators);
        self.reservations.push(reservation);
    }

    /// The address of the page before this one; empty: there is none.
    pub(super) fn older_url(&self, id: &str) -> String {
        match self.stored.first() {
            Some(first) if self.has_older => {
                format!("{}?before={}", paths::conversation(id), first.message_id)
            }
            _ => String::new(),
        }
    }
}

/// Reads the newest messages before this one; 0: the newest of all.
pub(super) async fn read_before(
    http_caller: &HttpCaller,
    id: &str,
    before: i64,
) -> Result<Standing, Problem> {
    let mut read = Standing::default();
    let mut page_token = String::new();
    for _ in 0..MAX_READS {
        let ask = pb::ListMessagesRequest {
            conversation_id: id.to_owned(),
            page_size: PAGE_SIZE,
            newest_first: true,
            before_message_id: before,
            page_token,
            ..pb::ListMessagesRequest::default()
        };
        let (mut found, reservation) = list_messages(http_caller, ask).await?;
        page_token = std::mem::take(&mut found.next_page_token);
        read.add(found, reservation);
        if page_token.is_empty() || read.stored.len() >= LEAST_MESSAGES {
            break;
        }
    }
    read.has_older = !page_token.is_empty();
    read.stored.reverse();
    Ok(read)
}

/// Reads the messages after this one, at most one page of them.
async fn read_after(http_caller: &HttpCaller, id: &str, after: i64) -> Result<Standing, Problem> {
    let ask = pb::ListMessagesRequest {
        conversation_id: id.to_owned(),
        page_size: PAGE_SIZE,
        after_message_id: after,
        ..pb::ListMessagesRequest::default()
    };
    let (found, reservation) = list_messages(http_caller, ask).await?;
    let mut read = Standing {
        has_older: after > 0,
        has_newer: !found.next_page_token.is_empty(),
        ..Standing::default()
    };
    read.add(found, reservation);
    Ok(read)
}

/// Lists messages. Returns with them what reserves the memory of their content.
async fn list_messages(
    http_caller: &HttpCaller,
    ask: pb::ListMessagesRequest,
) -> Result<(pb::ListMessagesResponse, Extensions), Problem> {
    let found = http_caller
        .services
        .list_messages(http_caller.request(ask))
        .await?;
    let (_, found, reservation) = found.into_parts();
    Ok((found, reservation))
}

/// Which messages of a conversation are shown, and what can be done with them.
pub(super) struct Shown<'c> {
    pub(super) conversation: &'c pb::Conversation,
    pub(super) messages: Standing,
    /// The messages after this one are shown; the earlier ones are on other pages.
    pub(super) after: i64,
    /// The messages before this one are shown; 0: up to the newest.
    pub(super) before: i64,
    /// Whether a turn is under way: its question is not answered anew meanwhile.
    pub(super) is_answering: bool,
}

/// The entries of a page.
pub(super) async fn entries(
    http_caller: &HttpCaller,
    shown: Shown<'_>,
) -> Result<Vec<Entry>, Problem> {
    let conversation = shown.conversation;
    let id = conversation.conversation_id.as_str();
    let through = shown.messages.through(conversation);
    let Standing {
        stored: messages,
        separators,
        has_older,
        has_newer,
        reservations,
    } = shown.messages;
    let first_shown = match messages.first() {
        Some(first) if has_older && shown.after == 0 => first.message_id,
        _ => shown.after.saturating_add(1),
    };
    let end = match shown.before {
        0 => through + 1,
        before => before.min(through + 1),
    };
    let gaps = gaps(&messages, first_shown, end);
    let answers = find_alternatives(http_caller, id, &messages, &gaps).await?;
    let mut placed: BTreeMap<i64, Vec<Entry>> = BTreeMap::new();
    for (first, last) in gaps {
        if answers.covers(first, last) {
            continue;
        }
        let can_restore =
            http_caller.caller.may(Verb::Append) && first > conversation.forked_message_id;
        placed.entry(last).or_default().push(Entry::Withdrawn {
            first,
            last,
            can_restore,
        });
    }
    for checkpoint in list_checkpoints(http_caller, id).await? {
        let last = checkpoint.last_message_id;
        if (first_shown..end).contains(&last) {
            placed.entry(last).or_default().push(Entry::Checkpoint {
                last,
                tokens: checkpoint.token_usage,
                url: format!("{}/xray/checkpoints/{last}", paths::conversation(id)),
            });
        }
    }
    for separator in separators {
        let after = separator.after_message_id;
        placed.entry(after).or_default().push(Entry::Separator {
            after,
            time: view::time(separator.created_time),
            can_remove: http_caller.caller.may(Verb::Append),
        });
    }
    let is_newest = shown.before == 0 && !has_newer;
    let can = Can::of(http_caller, &messages, is_newest, shown.is_answering);
    let text_bytes = messages.iter().map(view::shown_text_bytes).sum();
    let is_long = cpu_pool::is_long(text_bytes, messages.len());
    let (cpu, tenant) = (&http_caller.services.state.cpu, http_caller.caller.tenant());
    let id = id.to_owned();
    let show = move || {
        let shown = show_messages(messages, &id, &can, &answers);
        // They are held until the content is gone.
        drop(reservations);
        shown
    };
    for message in cpu.run_if(is_long, tenant, show).await? {
        let at = placed.entry(message.id).or_default();
        at.insert(0, Entry::Message(message));
    }
    Ok(placed.into_values().flatten().collect())
}

/// The messages as the page shows them. The newest ones are shown whole first.
fn show_messages(
    messages: Vec<pb::Message>,
    id: &str,
    can: &Can,
    answers: &Answers,
) -> Vec<Message> {
    let mut bytes = ShownBytes::of_page();
    let newest_first = messages.into_iter().rev().map(|stored| {
        let frame = MessageFrame {
            actions: can.actions(&stored),
            alternatives: answers.beside(stored.message_id),
        };
        view::message(stored, id, frame, &mut bytes)
    });
    newest_first.collect()
}

/// What the caller can do with the messages of a page.
struct Can {
    append: bool,
    /// The newest message, if its question can be answered anew.
    regenerate: Option<i64>,
    is_answering: bool,
}

impl Can {
    fn of(
        http_caller: &HttpCaller,
        messages: &[pb::Message],
        is_newest_page: bool,
        busy: bool,
    ) -> Self {
        let append = http_caller.caller.may(Verb::Append);
        let newest = messages
            .last()
            .filter(|_| is_newest_page && append && !busy);
        let newest =
            newest.filter(|newest| matches!(newest.role(), pb::Role::Assistant | pb::Role::User));
        Self {
            append,
            regenerate: newest.map(|newest| newest.message_id),
            is_answering: busy,
        }
    }

    fn actions(&self, message: &pb::Message) -> Actions {
        Actions {
            edit: self.append && !self.is_answering && message.role() == pb::Role::User,
            regenerate: self.regenerate == Some(message.message_id),
            fork: self.append,
            withdraw: self.append && !self.is_answering,
        }
    }
}

/// The ids between the messages, which are withdrawn, as ranges.
fn gaps(messages: &[pb::Message], first: i64, end: i64) -> Vec<(i64, i64)> {
    let mut next = first;
    let mut gaps = Vec::new();
    let ids = messages.iter().map(|message| message.message_id);
    for id in ids.chain([end]) {
        if id > next {
            gaps.push((next, id - 1));
        }
        next = id + 1;
    }
    gaps
}

/// Answers beside those that stand.
#[derive(Default)]
struct Answers {
    /// By the first message of the answer that stands.
    beside: HashMap<i64, (i64, i32, i32)>,
    /// The messages of the other answers. In order and apart from each other once all are found.
    ranges: Vec<(i64, i64)>,
}

impl Answers {
    fn beside(&self, message: i64) -> Option<Alternatives> {
        let (question, current, count) = *self.beside.get(&message)?;
        Some(Alternatives {
            question,
            current,
            count,
        })
    }

    /// Whether all these messages belong to other answers.
    fn covers(&self, first: i64, last: i64) -> bool {
        let after = self.ranges.partition_point(|(from, _)| *from <= first);
        let before = after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index));
        before.is_some_and(|(_, to)| last <= *to)
    }

    /// Joins ranges that overlap or touch.
    fn merge_ranges(&mut self) {
        self.ranges.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::new();
        for (first, last) in std::mem::take(&mut self.ranges) {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        self.ranges = merged;
    }
}

/// Finds the other answers to questions after which messages are withdrawn.
async fn find_alternatives(
    http_caller: &HttpCaller,
    id: &str,
    messages: &[pb::Message],
    gaps: &[(i64, i64)],
) -> Result<Answers, Problem> {
    let mut answers = Answers::default();
    let mut questions: Vec<i64> = Vec::new();
    for (first, _) in gaps.iter().rev() {
        let before = messages
            .iter()
            .rev()
            .find(|message| message.message_id < *first);
        let Some(before) = before.filter(|before| !questions.contains(&before.message_id)) else {
            continue;
        };
        if questions.len() == MAX_QUESTIONS {
            break;
        }
        questions.push(before.message_id);
        let ask = pb::GetMessageRequest {
            conversation_id: id.to_owned(),
            message_id: before.message_id,
            // The message itself is here already.
            range: Some(pb::ByteRange {
                offset: 0,
                length: 1,
            }),
            alternatives: true,
            ..pb::GetMessageRequest::default()
        };
        let found = http_caller
            .services
            .get_message(http_caller.request(ask))
            .await?
            .into_inner();
        answers.add(messages, found.alternatives);
    }
    answers.merge_ranges();
    Ok(answers)
}

impl Answers {
    fn add(&mut self, messages: &[pb::Message], found: Vec<pb::Alternative>) {
        let count = i32::try_from(found.len()).unwrap_or(i32::MAX);
        let Some(question) = found.first().map(|answer| answer.question_message_id) else {
            return;
        };
        // Without an answer that stands, the place of one is after the last.
        let (mut current, mut standing) = (count + 1, None);
        for answer in found {
            if answer.current {
                current = answer.number;
                standing = answer.messages.first().map(|range| range.first_message_id);
            } else {
                let ranges = answer.messages.into_iter();
                self.ranges
                    .extend(ranges.map(|range| (range.first_message_id, range.last_message_id)));
            }
        }
        let shown_at = standing.unwrap_or(question);
        if count > i32::from(standing.is_some())
            && messages
                .iter()
                .any(|message| message.message_id == shown_at)
        {
            self.beside.insert(shown_at, (question, current, count));
        }
    }
}

/// The newest checkpoints that hold.
async fn list_checkpoints(
    http_caller: &HttpCaller,
    id: &str,
) -> Result<Vec<pb::Checkpoint>, Problem> {
    let ask = pb::ListCheckpointsRequest {
        conversation_id: id.to_owned(),
        page_size: PAGE_SIZE,
        ..pb::ListCheckpointsRequest::default()
    };
    let found = http_caller
        .services
        .list_checkpoints(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(found.checkpoints)
}

/// After which message the page goes on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EntriesQuery {
    /// The newest message that the page shows; 0: it shows none.
    after: String,
}

/// Parses the id of a message in a query; absent or 0: none.
pub(super) fn parse_place(text: &str) -> Result<i64, Problem> {
    match text {
        "" | "0" => Ok(0),
        text => change::parse_message_id(text),
    }
}

/// Shows the entries after a message, for a page that is open.
pub(super) async fn show_entries(
    WebCaller(http_caller, context, _): WebCaller<OpenConversation>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<EntriesQuery>,
) -> Result<Response, WebError> {
    let after = parse_place(&query.after)?;
    let running = turn::find_running(&http_caller, &id).await?;
    let conversation = super::get_conversation(&http_caller, &id).await?;
    let messages = read_after(&http_caller, &id, after).await?;
    let progress = Progress {
        through: messages
            .through(&conversation)
            .max(after.min(conversation.message_count)),
        has_more: messages.has_newer,
    };
    let shown = Shown {
        conversation: &conversation,
        messages,
        after,
        before: 0,
        is_answering: running.is_some(),
    };
    let entries = entries(&http_caller, shown).await?;
    let fragment = Entries {
        last: progress.through,
        progress: Some(progress),
        ..fragment(&context, conversation, String::new(), entries)
    };
    page::html(StatusCode::OK, fragment.render())
}

/// Entries alone, for a page that is open.
pub(super) fn fragment(
    context: &PageContext,
    conversation: pb::Conversation,
    older_url: String,
    entries: Vec<Entry>,
) -> Entries {
    Entries {
        id: conversation.conversation_id,
        csrf: context.page("", Place::Conversations).csrf,
        etag: conversation.etag,
        request_id: turn::random_request_id(),
        older_url,
        entries,
        last: conversation.message_count,
        progress: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawn_messages_belong_to_other_answers_if_these_have_all_of_them() {
        let mut answers = Answers {
            ranges: vec![(9, 12), (3, 4), (5, 6), (10, 11), (20, 30)],
            ..Answers::default()
        };
        answers.merge_ranges();
        assert_eq!(answers.ranges, [(3, 6), (9, 12), (20, 30)]);
        for (first, last, expected) in [
            (3, 6, true),
            (4, 5, true),
            (12, 12, true),
            (2, 3, false),
            (6, 7, false),
            (3, 12, false),
            (1, i64::MAX, false),
            (31, 31, false),
        ] {
            assert_eq!(answers.covers(first, last), expected, "{first} to {last}");
        }
    }

    #[test]
    fn places_are_ids_of_messages_or_nothing() {
        for (text, expected) in [("", 0), ("0", 0), ("7", 7)] {
            assert_eq!(parse_place(text).ok(), Some(expected));
        }
        for text in ["-1", "x", "9223372036854775808"] {
            assert!(parse_place(text).is_err(), "{text}");
        }
    }
}
