//! Edits a message: it gets a new version of its content under the same id, role and turn. The
//! version before is moved to the table that has the content of withdrawn messages, too.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    limits::TOOL_PAIR_WINDOW,
    message::{Message, MessageId, Role, ToolMark},
    tokens::{Encoding, Tokens, count_message},
    tool_pairs,
};

use super::{
    ChangeConditions, MessageChange, MessageChangeKind, ToolPairs,
    selection::IdRange,
    targets::{Targets, read_outlines},
    transaction::{Begun, ChangeTransaction, Moved},
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    failpoint,
    idempotency::{self, EarlierRequest, IdempotentRequest},
    messages::message_columns::MessageColumns,
    policy_defaults::PolicyDefaults,
    rows::{self, column},
};

/// An edit that a caller asks for.
#[derive(Debug, Clone)]
pub struct MessageEdit {
    /// The message.
    pub message: MessageId,
    /// Its new content.
    pub new: NewContent,
    /// Whether the new content has all calls and results that the message has. If pairs are kept
    /// apart, it may lack some, and the calls of its results need not stand.
    pub pairs: ToolPairs,
    /// The version that stands. None: not checked.
    pub expected_version: Option<i32>,
    /// The state of the conversation that is expected.
    pub conditions: ChangeConditions,
    /// The caller's request id. None: a repetition is executed again.
    pub request_id: Option<String>,
}

/// How an edit treats the caller's labels of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// Those of the new content replace them.
    Replace,
    /// They stay.
    Keep,
}

/// New content of a message, with everything about it that needs no row lock.
#[derive(Debug, Clone)]
pub struct NewContent {
    role: Role,
    labels: Labels,
    metadata: BTreeMap<String, String>,
    outline: Vec<ToolMark>,
    columns: MessageColumns,
    tokens: Tokens,
    digest: Digest,
}

impl NewContent {
    /// Prepares new content for a conversation whose tokens are counted in this encoding.
    pub fn new(message: &Message, labels: Labels, encoding: Encoding) -> Self {
        let columns = MessageColumns::of(message);
        Self {
            role: message.role,
            labels,
            metadata: message.metadata.clone(),
            outline: message.tool_outline(),
            tokens: count_message(encoding, message),
            digest: digest::of_append(
                std::slice::from_ref(message),
                std::slice::from_ref(&columns.content),
            ),
            columns,
        }
    }

    /// Bytes of the content, as it is stored.
    pub const fn content_bytes(&self) -> usize {
        self.columns.content.len()
    }
}

impl MessageEdit {
    /// The request of this edit. The conditions and the expected version are no part of its digest.
    fn request(&self) -> IdempotentRequest<'_> {
        let message = self.message.0.to_be_bytes();
        let labels: &[u8] = match (self.new.labels, self.pairs) {
            (Labels::Replace, ToolPairs::Together) => b"replace",
            (Labels::Keep, ToolPairs::Together) => b"keep",
            (Labels::Replace, ToolPairs::Apart) => b"replace, pairs apart",
            (Labels::Keep, ToolPairs::Apart) => b"keep, pairs apart",
        };
        IdempotentRequest {
            method: "edit_message",
            id: self.request_id.as_deref(),
            digest: digest::of_fields([message.as_slice(), labels, &self.new.digest]),
        }
    }
}

impl Store {
    /// Gives a message that stands new content; with a request id only once. Changes nothing if the
    /// message has this content and these labels already. If only the labels differ, nothing else
    /// follows from it, and what is under way goes on.
    ///
    /// Fails if the message has another role ([`StoreError::OtherRole`]), calls or results with
    /// other ids ([`StoreError::OtherToolCalls`]), or a result whose call does not stand
    /// ([`StoreError::ToolCallMissing`]).
    pub async fn edit_message(
        &self,
        caller: Caller,
        id: ConversationId,
        edit: &MessageEdit,
    ) -> Result<MessageChange, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let edited = edit_once(&mut db, caller, id, edit, &policy_defaults).await;
        let changed = match edited {
            // An earlier call with the same request id found nothing to change.
            Ok(change) if change.version.is_none() => {
                add_version(&mut db, caller, id, edit.message, change).await
            }
            edited => edited,
        };
        db.settle(changed).await
    }

    /// Whether an earlier call with the same request id has made this edit.
    pub async fn is_repeated_edit(
        &self,
        caller: Caller,
        id: ConversationId,
        edit: &MessageEdit,
    ) -> Result<bool, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let earlier = idempotency::find_request(&mut db, caller, id, &edit.request()).await;
        let earlier = db.settle(earlier).await?;
        Ok(matches!(earlier, EarlierRequest::Done(_)))
    }
}

async fn edit_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    edit: &MessageEdit,
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let request = edit.request();
    let kind = MessageChangeKind::Edited;
    let begun =
        ChangeTransaction::begin(db, (caller, id), (kind, &request), edit.conditions).await?;
    let mut change = match begun {
        Begun::Replayed(earlier) => return Ok(earlier),
        Begun::New(change) => change,
    };
    let plan = plan_edit(change.db(), (caller, id), edit).await?;
    if plan.changes_nothing() {
        return Ok(MessageChange {
            version: Some(plan.version),
            ..change.finish_without_change().await?
        });
    }
    let moved = apply_edit(&mut change, (caller, id), edit, &plan).await?;
    if plan.has_content {
        change.finish_labels(&moved).await
    } else {
        change.finish(moved, policy_defaults).await
    }
}

/// What an edit would change.
pub(super) struct EditPlan {
    /// The version of the message that stands.
    pub(super) version: i32,
    /// Whether the message has the new content already.
    has_content: bool,
    /// Whether the message has the new labels already, or keeps those that it has.
    has_labels: bool,
}

impl EditPlan {
    pub(super) const fn changes_nothing(&self) -> bool {
        self.has_content && self.has_labels
    }
}

/// Compares the stored message with the edit. Fails if the message cannot get the new content.
pub(super) async fn plan_edit(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    edit: &MessageEdit,
) -> Result<EditPlan, StoreError> {
    let stored = read_target(db, caller, id, edit).await?;
    let new = &edit.new;
    Ok(EditPlan {
        version: stored.version,
        has_content: stored.content_digest == new.columns.content_digest,
        has_labels: new.labels == Labels::Keep || stored.metadata == new.metadata,
    })
}

/// Gives the message its new version, as a part of the change with the next number. The plan must
/// change something.
pub(super) async fn apply_edit(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    edit: &MessageEdit,
    plan: &EditPlan,
) -> Result<Moved, StoreError> {
    let new = &edit.new;
    if new.role == Role::Tool && edit.pairs == ToolPairs::Together {
        check_calls_stand(change.db(), caller, id, edit.message).await?;
    }
    let kept = store_version(change, caller, id, edit.message).await?;
    if plan.has_content {
        replace_labels(change.db(), caller, id, edit).await?;
    } else {
        replace_content(change.db(), caller, id, edit).await?;
    }
    failpoint!("change.edited");
    let relabelled = Moved {
        changed: vec![edit.message],
        token_change: 0,
        withdrawn_change: 0,
        usage_bytes_change: kept.content_bytes,
        touches_title: false,
        renumbers: false,
        version: Some(plan.version + 1),
    };
    if plan.has_content {
        return Ok(relabelled);
    }
    Ok(Moved {
        token_change: column(new.tokens) - kept.tokens,
        // Counting adds the new content of a message that is not counted yet, so only its old
        // content is added here.
        usage_bytes_change: if kept.is_counted {
            new.content_bytes() as i64
        } else {
            kept.content_bytes
        },
        touches_title: new.role == Role::User,
        ..relabelled
    })
}

/// Figures of the version that an edit replaces.
struct KeptVersion {
    tokens: i64,
    is_counted: bool,
    content_bytes: i64,
}

/// Stores what the message holds as a version that no longer stands.
async fn store_version(
    change: &mut ChangeTransaction<'_>,
    caller: Caller,
    id: ConversationId,
    message: MessageId,
) -> Result<KeptVersion, StoreError> {
    let change_id = change.next_change_id();
    let kept = sqlx::query_file_as!(
        KeptVersion,
        "sql/store_version.sql",
        caller.tenant().0,
        id.0,
        message.0,
        change_id,
    )
    .fetch_one(change.db())
    .await?;
    Ok(kept)
}

/// Gives the message its new content, and its new labels unless the edit keeps those that it has.
async fn replace_content(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    edit: &MessageEdit,
) -> Result<(), StoreError> {
    let (new, columns) = (&edit.new, &edit.new.columns);
    sqlx::query_file!(
        "sql/edit_message.sql",
        caller.tenant().0,
        id.0,
        edit.message.0,
        columns.content.as_str(),
        columns.content_digest.as_slice(),
        columns.text_bytes,
        column(new.tokens),
        columns.outline.as_deref(),
        columns.metadata.as_deref(),
        new.labels == Labels::Keep,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Gives the message its new labels. Its content, counts and summary stay.
async fn replace_labels(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    edit: &MessageEdit,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update ai_message set metadata = $4::text::jsonb, version = coalesce(version, 1) + 1, edited_ts = now()
         where tenant_id = $1 and conversation_id = $2 and message_id = $3 and withdrawn_ts is null",
        caller.tenant().0,
        id.0,
        edit.message.0,
        edit.new.columns.metadata.as_deref(),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The stored message, as far as an edit depends on it.
struct EditTarget {
    version: i32,
    content_digest: Vec<u8>,
    metadata: BTreeMap<String, String>,
}

/// Reads the message to edit. Fails if it cannot get the new content.
async fn read_target(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    edit: &MessageEdit,
) -> Result<EditTarget, StoreError> {
    let row = sqlx::query!(
        r#"select role, coalesce(version, 1) as "version!", withdrawn_ts is not null as "is_withdrawn!", content_digest,
               metadata::text as "metadata?", tool_outline::text as "outline?"
           from ai_message where tenant_id = $1 and conversation_id = $2 and message_id = $3"#,
        caller.tenant().0,
        id.0,
        edit.message.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::UnknownMessage(edit.message))?;
    if row.is_withdrawn {
        return Err(StoreError::MessageWithdrawn(edit.message));
    }
    if let Some(expected) = edit.expected_version
        && expected != row.version
    {
        return Err(StoreError::VersionMismatch {
            expected,
            actual: row.version,
        });
    }
    if rows::role(row.role)? != edit.new.role {
        return Err(StoreError::OtherRole);
    }
    let outline: Vec<ToolMark> = row
        .outline
        .map(|outline| serde_json::from_str(&outline))
        .transpose()
        .map_err(|_| StoreError::Unreadable("tool outline"))?
        .unwrap_or_default();
    if !has_fitting_tools(&outline, &edit.new.outline, edit.pairs) {
        return Err(StoreError::OtherToolCalls);
    }
    Ok(EditTarget {
        version: row.version,
        content_digest: row.content_digest,
        metadata: rows::labels(row.metadata.as_deref())?,
    })
}

/// Whether the new content has the calls and results of the stored one, or only such if pairs are
/// kept apart.
fn has_fitting_tools(stored: &[ToolMark], new: &[ToolMark], pairs: ToolPairs) -> bool {
    let (stored, new) = (tool_ids(stored), tool_ids(new));
    match pairs {
        ToolPairs::Together => stored == new,
        ToolPairs::Apart => {
            let mut left = stored.into_iter();
            new.into_iter().all(|id| left.any(|other| other == id))
        }
    }
}

/// The ids of the calls or results of an outline, sorted. No message has both: only assistants call
/// tools, and only tool messages have results.
fn tool_ids(outline: &[ToolMark]) -> Vec<&str> {
    let ids = outline.iter().map(|mark| match mark {
        ToolMark::Call { id, .. } | ToolMark::Result { id, .. } => id.as_str(),
    });
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids
}

/// Fails if a result of this message answers no call that stands among the [`TOOL_PAIR_WINDOW`]
/// messages before it.
async fn check_calls_stand(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    message: MessageId,
) -> Result<(), StoreError> {
    let window = IdRange {
        first: MessageId(message.0.saturating_sub(TOOL_PAIR_WINDOW)),
        last: message,
    };
    let marks = read_outlines(db, caller, id, &[window], Targets::Standing).await?;
    if tool_pairs::last_has_its_calls(&marks) {
        Ok(())
    } else {
        Err(StoreError::ToolCallMissing(message))
    }
}

/// The change with the number of the version that stands.
async fn add_version(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    message: MessageId,
    change: MessageChange,
) -> Result<MessageChange, StoreError> {
    let version = sqlx::query_scalar!(
        r#"select coalesce(version, 1) as "version!" from ai_message
           where tenant_id = $1 and conversation_id = $2 and message_id = $3"#,
        caller.tenant().0,
        id.0,
        message.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    Ok(MessageChange {
        version: Some(version),
        ..change
    })
}

#[cfg(test)]
mod tests {
    use anneal_core::message::Part;

    use super::*;

    fn edit(message: i64, text: &str, labels: &[(&str, &str)]) -> MessageEdit {
        let labels = labels.iter();
        let new = Message {
            role: Role::User,
            parts: vec![Part::Text { text: text.into() }],
            metadata: labels
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        };
        MessageEdit {
            message: MessageId(message),
            new: NewContent::new(&new, Labels::Replace, Encoding::default()),
            pairs: ToolPairs::Together,
            expected_version: None,
            conditions: ChangeConditions::default(),
            request_id: None,
        }
    }

    #[test]
    fn a_repetition_has_the_same_digest_whatever_it_expects() {
        let first = edit(1, "a", &[]);
        let repeated = MessageEdit {
            expected_version: Some(3),
            conditions: ChangeConditions {
                expected_last: Some(MessageId(9)),
                revision: Some(4),
            },
            ..first.clone()
        };
        assert_eq!(repeated.request().digest, first.request().digest);
    }

    #[test]
    fn another_message_another_text_and_another_choice_of_labels_have_other_digests() {
        let edits = [
            edit(1, "a", &[]),
            edit(2, "a", &[]),
            edit(1, "b", &[]),
            edit(1, "a", &[("k", "v")]),
            MessageEdit {
                new: NewContent {
                    labels: Labels::Keep,
                    ..edit(1, "a", &[]).new
                },
                ..edit(1, "a", &[])
            },
            MessageEdit {
                pairs: ToolPairs::Apart,
                ..edit(1, "a", &[])
            },
        ];
        let digests = edits.map(|edit| edit.request().digest);
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "the one at {index}");
        }
    }

    #[test]
    fn ids_of_tools_are_compared_without_their_order_but_with_their_number() {
        let calls = |ids: &[&str]| {
            let calls = ids.iter().map(|id| ToolMark::Call {
                id: (*id).into(),
                name: "look".into(),
            });
            calls.collect::<Vec<_>>()
        };
        assert_eq!(tool_ids(&calls(&["b", "a"])), tool_ids(&calls(&["a", "b"])));
        assert_ne!(tool_ids(&calls(&["a", "a"])), tool_ids(&calls(&["a"])));
    }

    #[test]
    fn an_edit_may_lack_calls_only_if_pairs_are_kept_apart_and_adds_none() {
        let calls = |ids: &[&str]| {
            let calls = ids.iter().map(|id| ToolMark::Call {
                id: (*id).into(),
                name: "look".into(),
            });
            calls.collect::<Vec<_>>()
        };
        let stored = calls(&["a", "c", "c", "b"]);
        for (new, fits) in [
            (&["c", "a", "b", "c"][..], true),
            (&["b", "c"], true),
            (&[], true),
            (&["a", "a"], false),
            (&["d"], false),
            (&["a", "b", "c", "c", "d"], false),
        ] {
            let fits_apart = has_fitting_tools(&stored, &calls(new), ToolPairs::Apart);
            assert_eq!(fits_apart, fits, "{new:?}");
            let fits_together = has_fitting_tools(&stored, &calls(new), ToolPairs::Together);
            assert_eq!(fits_together, new.len() == 4 && fits, "{new:?}");
        }
    }
}
