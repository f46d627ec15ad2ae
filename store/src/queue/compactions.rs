//! Compactions that callers ask for. Those that wait together are made by one job, whose argument
//! lists them.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    limits::FOCUS_BYTES,
    policy::KeepRecent,
};
use serde::{Deserialize, Serialize};

use crate::{connection::BoundedConnection, error::StoreError, rows::json};

/// Most compactions that wait for one job.
const MAX_WAITING: usize = 16;
/// Between the subjects of several compactions.
const BETWEEN_FOCI: &str = "\n\n";

/// A compaction that a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManualCompaction {
    /// The subject that the summary should preserve above all.
    pub focus: String,
    /// The caller's request id, which is stored when the checkpoint is made.
    pub request_id: String,
    /// Which messages stay in the tail; None: those that the policy keeps.
    pub keep: Option<KeepRecent>,
}

/// The compactions that one job makes: all that were asked for before it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Argument", into = "Argument")]
pub struct QueuedCompaction {
    /// The subjects that the summary should preserve above all, with blank lines between them; at
    /// most [`FOCUS_BYTES`].
    pub focus: String,
    /// Which messages stay in the tail, as the newest request says; None: those that the policy
    /// keeps.
    pub keep: Option<KeepRecent>,
    /// At least one, in the order in which they were asked for.
    requests: Vec<Request>,
}

/// One of the compactions that a job makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    request_id: String,
    focus: String,
}

/// The argument of a job. The first two keys are all that older versions write and read.
#[derive(Serialize, Deserialize)]
struct Argument {
    focus: String,
    /// Of the first request.
    request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<KeepRecent>,
    /// All requests; empty: there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requests: Vec<Request>,
}

impl From<Argument> for QueuedCompaction {
    fn from(argument: Argument) -> Self {
        let mut requests = argument.requests;
        if requests.is_empty() {
            requests.push(Request {
                request_id: argument.request_id,
                focus: argument.focus.clone(),
            });
        }
        Self {
            focus: argument.focus,
            keep: argument.keep,
            requests,
        }
    }
}

impl From<QueuedCompaction> for Argument {
    fn from(queued: QueuedCompaction) -> Self {
        Self {
            request_id: queued.first_request_id().to_owned(),
            focus: queued.focus,
            keep: queued.keep,
            requests: if queued.requests.len() == 1 {
                Vec::new()
            } else {
                queued.requests
            },
        }
    }
}

impl From<&ManualCompaction> for QueuedCompaction {
    fn from(manual: &ManualCompaction) -> Self {
        Self::of(vec![Request::from(manual)], manual.keep)
    }
}

impl From<&ManualCompaction> for Request {
    fn from(manual: &ManualCompaction) -> Self {
        Self {
            request_id: manual.request_id.clone(),
            focus: manual.focus.clone(),
        }
    }
}

impl QueuedCompaction {
    fn of(requests: Vec<Request>, keep: Option<KeepRecent>) -> Self {
        Self {
            focus: merge_foci(&requests),
            keep,
            requests,
        }
    }

    /// The request ids, in the order in which the compactions were asked for.
    pub fn request_ids(&self) -> impl Iterator<Item = &str> {
        self.requests
            .iter()
            .map(|request| request.request_id.as_str())
    }

    /// The request id of the first of them.
    pub(crate) fn first_request_id(&self) -> &str {
        self.request_ids().next().unwrap_or_default()
    }

    /// These compactions and another one, which is one of them already if it has the id of one.
    /// Fails if too many wait.
    fn with(mut self, manual: &ManualCompaction) -> Result<Self, StoreError> {
        if self.request_ids().any(|id| id == manual.request_id) {
            return Ok(self);
        }
        if self.requests.len() >= MAX_WAITING {
            return Err(StoreError::TooManyCompactions);
        }
        self.requests.push(Request::from(manual));
        Ok(Self::of(self.requests, manual.keep))
    }

    /// These compactions without those of `done`; None: none is left.
    fn without(mut self, done: &Self) -> Option<Self> {
        self.requests
            .retain(|request| done.request_ids().all(|id| id != request.request_id));
        (!self.requests.is_empty()).then(|| Self::of(self.requests, self.keep))
    }
}

/// The different subjects of the requests, in order, as one text.
fn merge_foci(requests: &[Request]) -> String {
    let mut foci: Vec<&str> = Vec::new();
    for request in requests {
        if !request.focus.is_empty() && !foci.contains(&request.focus.as_str()) {
            foci.push(&request.focus);
        }
    }
    let mut merged = foci.join(BETWEEN_FOCI);
    let mut end = merged.len().min(FOCUS_BYTES);
    while !merged.is_char_boundary(end) {
        end -= 1;
    }
    merged.truncate(end);
    merged
}

/// The argument for the conversation's checkpoint job: the compactions that wait already, and this
/// one. The caller holds the conversation's row lock. Fails if too many wait.
pub(crate) async fn argument_with(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<String, StoreError> {
    let queued = match find_queued_request(db, caller, id).await? {
        Some(waiting) => waiting.with(manual)?,
        None => QueuedCompaction::from(manual),
    };
    Ok(json(&queued))
}

/// Removes the compactions that a job has made from its argument, if it waits again because others
/// were asked for meanwhile. The transaction has ended the job before, and holds the conversation's
/// row lock.
pub(crate) async fn forget_compactions(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    done: &QueuedCompaction,
) -> Result<(), StoreError> {
    let Some(queued) = find_queued_request(db, caller, id).await? else {
        return Ok(());
    };
    let left = queued.without(done).map(|left| json(&left));
    sqlx::query!(
        "update ai_job
         set argument = $4::text::json,
             argument_generation = case when $4 is not null then argument_generation end,
             priority = case when $4 is not null then priority else 0 end
         where tenant_id = $1 and conversation_id = $2 and kind = $3",
        caller.tenant().0,
        id.0,
        JobKind::Checkpoint.code(),
        left,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The compactions that wait or are under way; None: there are none that this build can read.
async fn find_queued_request(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<Option<QueuedCompaction>, StoreError> {
    let argument = sqlx::query_scalar!(
        "select argument::text from ai_job where tenant_id = $1 and conversation_id = $2 and kind = $3",
        caller.tenant().0,
        id.0,
        JobKind::Checkpoint.code(),
    )
    .fetch_optional(db)
    .await?;
    Ok(argument
        .flatten()
        .and_then(|argument| serde_json::from_str(&argument).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manual(request_id: &str, focus: &str) -> ManualCompaction {
        ManualCompaction {
            focus: focus.into(),
            request_id: request_id.into(),
            keep: None,
        }
    }

    #[test]
    fn compactions_that_wait_together_have_one_focus_and_all_ids() {
        let both = QueuedCompaction::from(&manual("r1", "dates"))
            .with(&manual("r2", "names"))
            .and_then(|both| both.with(&manual("r3", "dates")))
            .expect("three may wait");
        assert_eq!(both.focus, "dates\n\nnames");
        assert_eq!(both.request_ids().collect::<Vec<_>>(), ["r1", "r2", "r3"]);
        let stored: QueuedCompaction = serde_json::from_str(&json(&both)).expect("is an argument");
        assert_eq!(stored, both);
        let again = both
            .clone()
            .with(&manual("r2", "other"))
            .expect("is one of them");
        assert_eq!(again, both, "a repetition adds nothing");
        let left = both.without(&QueuedCompaction::from(&manual("r1", "")));
        assert_eq!(
            left.map(|left| left.focus).as_deref(),
            Some("names\n\ndates")
        );
    }

    #[test]
    fn one_compaction_is_written_as_older_versions_read_it() {
        let one = QueuedCompaction::from(&manual("r1", "dates"));
        assert_eq!(json(&one), r#"{"focus":"dates","request_id":"r1"}"#);
        let read = serde_json::from_str::<QueuedCompaction>(&json(&one)).expect("is an argument");
        assert_eq!(read, one);
    }

    #[test]
    fn a_merged_focus_ends_between_characters_within_the_limit() {
        let long = "ä".repeat(FOCUS_BYTES / 2 - 1);
        let both = QueuedCompaction::from(&manual("r1", "x"))
            .with(&manual("r2", &long))
            .expect("two may wait");
        assert_eq!(both.focus.len(), FOCUS_BYTES - 1);
    }

    #[test]
    fn seventeen_compactions_do_not_wait_for_one_job() {
        let mut queued = QueuedCompaction::from(&manual("r0", ""));
        for number in 1..MAX_WAITING {
            queued = queued
                .with(&manual(&format!("r{number}"), ""))
                .expect("sixteen may wait");
        }
        assert!(matches!(
            queued.with(&manual("one more", "")),
            Err(StoreError::TooManyCompactions)
        ));
    }
}
