//! Reads sessions from the database, row by row.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use anneal_core::{
    limits::METADATA_KEYS,
    message::{Message, Part, Role},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params_from_iter};

use super::{
    BOUNDARY, LABEL, SEPARATORS, SUMMARY, SUMMARY_STATE,
    sessions::{Key, SessionListing, list_sessions},
    tables::{Tables, has_invalid_utf8, text},
};
use crate::{
    Head, ImportOutcome, Location, ReadError, ReadOptions, Summary,
    conversation_extra::ConversationExtra,
    emitter::Emitter,
    json::{self, Fields, Notes, Unreadable, short_name},
    message_extra::{ANNEAL_KEY, MessageExtra},
};

/// Reads all sessions of a database. Opens it read-only.
pub(crate) fn read(path: &Path, options: &ReadOptions, mut out: Emitter) -> Result<(), ReadError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    let tables = Tables::find(&database)?;
    if !tables.messages.has("session_id") || !tables.messages.has("content") {
        return Err(ReadError::Unknown);
    }
    let without_session: i64 = database.query_row(COUNT_WITHOUT_SESSION, [], |row| row.get(0))?;
    if without_session > 0 {
        out.refuse(
            Location::WholeFile,
            format!("rows without a session: {without_session}"),
        )?;
    }
    for listing in list_sessions(&database, &tables)? {
        Session::load(&database, &tables, listing, options)?.emit(&database, &tables, &mut out)?;
    }
    out.finish()
}

/// Counts the messages without a session.
const COUNT_WITHOUT_SESSION: &str =
    "select count(*) from session_messages where session_id is null";

/// The data of a session that is read before its messages.
struct Session {
    /// The values of `session_id` in the rows of its messages.
    keys: Vec<Key>,
    head: Head,
    /// Whether anneal wrote the session. Then `created_at` is the time at which the message was
    /// stored, and does not become a label.
    written_by_anneal: bool,
    /// The id of the last row that its newest summary covers.
    boundary: Option<i64>,
    /// The newest summary read so far, until it is emitted.
    summary: Option<Summary>,
    /// For each separator: the id of the row before it.
    separators: VecDeque<i64>,
}

/// A row of `session_messages`.
struct MessageRow {
    id: i64,
    role: String,
    content: String,
    meta: Option<String>,
    /// The other columns, as labels.
    columns: BTreeMap<String, String>,
    notes: Notes,
}

impl Session {
    fn load(
        database: &Connection,
        tables: &Tables,
        listing: SessionListing,
        options: &ReadOptions,
    ) -> Result<Self, ReadError> {
        let id = listing.id.as_str();
        let mut head = Head {
            identity: id.to_owned(),
            title: format!("{} {id}", options.name),
            ..Default::default()
        };
        if let (Some(column), Some(key)) = (tables.session_id_column(), &listing.key_in_sessions) {
            head = add_session_columns(database, tables, column, key, head)?;
        }
        if tables.index.has("session_key") && tables.index.has("active_session_id") {
            let query =
                "select session_key from session_index where active_session_id = ?1 limit 1";
            let key = database
                .query_row(query, [id], |row| Ok(text(row.get_ref(0)?)))
                .optional()?;
            head.metadata
                .extend(key.map(|key| (format!("{LABEL}session_key"), key)));
        }
        head.metadata.extend(state_labels(database, tables, id)?);
        let boundary = state_value(database, tables, id, BOUNDARY)?
            .and_then(|value| value.trim().parse().ok());
        let summary_text = state_value(database, tables, id, SUMMARY_STATE)?
            .filter(|text| !text.trim().is_empty());
        let summary = summary_text.map(|text| Summary {
            text,
            ..Default::default()
        });
        let separators = state_value(database, tables, id, SEPARATORS)?
            .and_then(|rows| serde_json::from_str(&rows).ok());
        let separators = separators.unwrap_or_default();
        let (head, written_by_anneal) = restore_head(head);
        Ok(Self {
            head,
            written_by_anneal,
            boundary,
            summary,
            separators,
            keys: listing.keys_in_messages,
        })
    }

    /// Emits the messages and separators in order, and the newest summary when its row and the last
    /// message that it covers have been read.
    fn emit(
        mut self,
        database: &Connection,
        tables: &Tables,
        out: &mut Emitter,
    ) -> Result<(), ReadError> {
        out.emit_conversation(Location::WholeFile, std::mem::take(&mut self.head))?;
        let summary_row = self.newest_summary_row(database, tables)?;
        let (id_column, meta, role) = (
            tables.row_id_column(),
            tables.messages.or_null("meta_json"),
            tables.messages.or_null("role"),
        );
        let others = if self.written_by_anneal {
            Vec::new()
        } else {
            tables.messages.label_columns()
        };
        let columns: Vec<String> = others
            .iter()
            .map(|name| format!(", \"{}\"", name.replace('"', "\"\"")))
            .collect();
        let columns = columns.concat();
        let query = format!(
            "select {id_column}, {role}, content, {meta}{columns} from session_messages where session_id in ({}) order by {id_column}",
            self.placeholders()
        );
        let mut statement = database.prepare(&query)?;
        let mut rows = statement.query(params_from_iter(&self.keys))?;
        let mut covers = 0;
        while let Some(row) = rows.next()? {
            let row = read_row(row, &others)?;
            let (id, location) = (row.id, Location::Row(row.id));
            if is_summary(&row) {
                let text = row.content[SUMMARY.len()..]
                    .trim_start_matches(['\r', '\n'])
                    .to_owned();
                if Some(row.id) == summary_row {
                    self.summary = Some(Summary {
                        text,
                        ..Default::default()
                    });
                } else {
                    out.remark(
                        location,
                        ImportOutcome::SetAside,
                        "a summary that a newer summary has replaced",
                    )?;
                }
                continue;
            }
            while self
                .separators
                .pop_front_if(|row_before| *row_before < row.id)
                .is_some()
            {
                out.emit_separator()?;
            }
            // anneal writes the row of the summary directly after the boundary, ZeroClaw writes it
            // after the newest message at that time. So it may have been read by now, or not.
            let is_after_boundary = self.boundary.is_some_and(|boundary| id > boundary);
            let summary_row_follows = summary_row.is_some_and(|summary_row| summary_row > id);
            if is_after_boundary && !summary_row_follows {
                self.emit_pending_summary(covers, out)?;
            }
            match message_of_row(row) {
                Ok((natives, extra, notes)) => {
                    out.add_record(location, natives, extra, notes)?;
                }
                Err(Unreadable(what)) => out.refuse(location, what)?,
            }
            if self.boundary.is_none_or(|boundary| id <= boundary) {
                covers = out.message_count();
            }
        }
        self.emit_pending_summary(covers, out)?;
        self.separators
            .iter()
            .try_for_each(|_| out.emit_separator())
    }

    /// Emits the summary, unless it has been emitted. `covers`: the number of messages up to the
    /// boundary.
    fn emit_pending_summary(&mut self, covers: u64, out: &mut Emitter) -> Result<(), ReadError> {
        let Some(summary) = self.summary.take() else {
            return Ok(());
        };
        if covers == 0 || self.boundary.is_none() {
            return out.remark(
                Location::WholeFile,
                ImportOutcome::SetAside,
                "a summary whose boundary covers no message",
            );
        }
        out.emit_summary(Summary { covers, ..summary })
    }

    /// The placeholders for [`Self::keys`] in a query.
    fn placeholders(&self) -> String {
        vec!["?"; self.keys.len()].join(", ")
    }

    /// The id of the row with the newest summary; None if no row has a summary.
    fn newest_summary_row(
        &self,
        database: &Connection,
        tables: &Tables,
    ) -> Result<Option<i64>, ReadError> {
        if !tables.messages.has("role") {
            return Ok(None);
        }
        let (id, meta) = (tables.row_id_column(), tables.messages.or_null("meta_json"));
        // `is_summary` needs only the beginning of the content, so a long one is not read.
        let query = format!(
            "select {id}, role, substr(content, 1, 64), {meta} from session_messages
             where session_id in ({}) and role = 'assistant' and substr(content, 1, {}) = '{SUMMARY}' order by {id} desc",
            self.placeholders(),
            SUMMARY.len()
        );
        let mut statement = database.prepare(&query)?;
        let mut rows = statement.query(params_from_iter(&self.keys))?;
        while let Some(row) = rows.next()? {
            let row = read_row(row, &[])?;
            if is_summary(&row) {
                return Ok(Some(row.id));
            }
        }
        Ok(None)
    }
}

/// Replaces the head, except its identity, by the one that anneal wrote into the label `anneal`.
/// Returns whether there was one.
fn restore_head(mut head: Head) -> (Head, bool) {
    let Some(label) = head.metadata.remove(&format!("{LABEL}{ANNEAL_KEY}")) else {
        return (head, false);
    };
    let extra = Fields::parse(&format!("{{\"{ANNEAL_KEY}\":{label}}}"))
        .ok()
        .and_then(|fields| ConversationExtra::of(&fields).ok().flatten());
    match extra.map(ConversationExtra::head) {
        Some(written) if written.title.is_empty() => (
            Head {
                title: head.title,
                identity: head.identity,
                ..written
            },
            true,
        ),
        Some(written) => (
            Head {
                identity: head.identity,
                ..written
            },
            true,
        ),
        None => (head, false),
    }
}

/// Adds the columns of the `sessions` row to the head.
fn add_session_columns(
    database: &Connection,
    tables: &Tables,
    column: &str,
    key: &Key,
    mut head: Head,
) -> Result<Head, ReadError> {
    let mut statement = database.prepare(&format!("select * from sessions where {column} = ?1"))?;
    let names: Vec<String> = statement
        .column_names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    debug_assert_eq!(names.len(), tables.sessions.len());
    let mut rows = statement.query([key])?;
    let Some(row) = rows.next()? else {
        return Ok(head);
    };
    for (index, name) in names.iter().enumerate().filter(|(_, name)| *name != column) {
        let value = text(row.get_ref(index)?);
        match name.as_str() {
            _ if value.is_empty() => {}
            "title" => head.title = value,
            "agent_id" | "agent" => head.agent_id = value,
            "system_prompt" => head.system_prompt = value,
            other => drop(head.metadata.insert(format!("{LABEL}{other}"), value)),
        }
    }
    Ok(head)
}

/// The states of a session as labels, except boundary, summary and separators, which are read by
/// [`state_value`].
fn state_labels(
    database: &Connection,
    tables: &Tables,
    id: &str,
) -> Result<Vec<(String, String)>, ReadError> {
    if !(tables.state.has("session_id") && tables.state.has("key") && tables.state.has("value")) {
        return Ok(Vec::new());
    }
    let query = "select key, value from session_state where session_id = ?1 and key not in (?2, ?3, ?4) limit ?5";
    let mut statement = database.prepare(query)?;
    let label = |row: &Row| {
        Ok((
            format!("{LABEL}state.{}", text(row.get_ref(0)?)),
            text(row.get_ref(1)?),
        ))
    };
    // More labels than a conversation can have: the emitter leaves some out, with remarks.
    let max_rows = METADATA_KEYS as i64 * 2;
    let labels = statement.query_map((id, BOUNDARY, SUMMARY_STATE, SEPARATORS, max_rows), label)?;
    Ok(labels.collect::<rusqlite::Result<_>>()?)
}

/// A state of a session: from rows of key and value, or from a column of that name.
fn state_value(
    database: &Connection,
    tables: &Tables,
    id: &str,
    key: &'static str,
) -> Result<Option<String>, ReadError> {
    if !tables.state.has("session_id") {
        return Ok(None);
    }
    let value = |row: &Row| Ok(text(row.get_ref(0)?));
    if tables.state.has("key") && tables.state.has("value") {
        let query = "select value from session_state where session_id = ?1 and key = ?2 limit 1";
        return Ok(database.query_row(query, (id, key), value).optional()?);
    }
    if !tables.state.has(key) {
        return Ok(None);
    }
    let query = format!("select {key} from session_state where session_id = ?1 limit 1");
    Ok(database
        .query_row(&query, [id], value)
        .optional()?
        .filter(|value| !value.is_empty()))
}

/// Reads a row of a query. Its columns are id, role, content and `meta_json`, then `others`.
fn read_row(row: &Row, others: &[&str]) -> rusqlite::Result<MessageRow> {
    let mut notes = Notes::new();
    let content = row.get_ref(2)?;
    if has_invalid_utf8(content) {
        notes.push((
            ImportOutcome::Changed,
            "bytes that are not UTF-8 became U+FFFD".into(),
        ));
    }
    let meta = Some(text(row.get_ref(3)?)).filter(|meta| !meta.trim().is_empty());
    let mut columns = BTreeMap::new();
    for (index, name) in (4..).zip(others) {
        let value = text(row.get_ref(index)?);
        if !value.is_empty() {
            columns.insert(format!("{LABEL}{name}"), value);
        }
    }
    Ok(MessageRow {
        id: row.get(0)?,
        role: text(row.get_ref(1)?),
        content: text(content),
        meta,
        columns,
        notes,
    })
}

/// Whether the row is a summary. A message that happens to begin like a summary has an object
/// `anneal`.
fn is_summary(row: &MessageRow) -> bool {
    let has_extra = || {
        row.meta
            .as_deref()
            .is_some_and(|meta| Fields::parse(meta).is_ok_and(|meta| meta.has(ANNEAL_KEY)))
    };
    row.role == "assistant" && row.content.starts_with(SUMMARY) && !has_extra()
}

fn message_of_row(
    row: MessageRow,
) -> Result<(Vec<Message>, Option<MessageExtra>, Notes), Unreadable> {
    let MessageRow {
        role,
        content,
        meta,
        mut columns,
        mut notes,
        ..
    } = row;
    let (metadata, extra) = match meta {
        None => (BTreeMap::new(), None),
        Some(meta) => json::parse_bytes(meta.into_bytes(), &mut notes, parse_meta)?,
    };
    columns.extend(metadata);
    Ok((vec![native_message(&role, content, columns)?], extra, notes))
}

/// The message of a row, before the object `anneal` is applied. A tool message without a label
/// `tool_call_id` gets the call id `tool`.
pub(super) fn native_message(
    role: &str,
    content: String,
    metadata: BTreeMap<String, String>,
) -> Result<Message, Unreadable> {
    let (role, part) = match role {
        "user" => (Role::User, Part::Text { text: content }),
        "assistant" => (Role::Assistant, Part::Text { text: content }),
        "system" => (Role::System, Part::Text { text: content }),
        "tool" => {
            let id = metadata
                .get("tool_call_id")
                .cloned()
                .unwrap_or_else(|| "tool".into());
            (
                Role::Tool,
                Part::ToolResult {
                    id,
                    text: content,
                    is_error: false,
                    media: Vec::new(),
                },
            )
        }
        other => return Err(Unreadable(format!("unknown role {}", short_name(other)))),
    };
    Ok(Message {
        role,
        parts: vec![part],
        metadata,
    })
}

/// The labels in `meta_json`, and the object `anneal`.
pub(super) fn parse_meta(
    meta: &str,
    notes: &mut Notes,
) -> Result<(BTreeMap<String, String>, Option<MessageExtra>), Unreadable> {
    let Ok(fields) = Fields::parse(meta) else {
        notes.push((
            ImportOutcome::SetAside,
            "a meta_json that is not a JSON object".into(),
        ));
        return Ok((BTreeMap::new(), None));
    };
    let mut labels = BTreeMap::new();
    for name in fields.names().filter(|name| *name != ANNEAL_KEY) {
        labels.extend(
            fields
                .text_or_raw(name)?
                .map(|value| (name.to_owned(), value)),
        );
    }
    Ok((labels, MessageExtra::of(&fields)?))
}
