//! Sessions read from the database, row by row.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use anneal_core::{
    limits::METADATA_KEYS,
    message::{Message, Part, Role},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params_from_iter, types::ValueRef};

use super::{
    BOUNDARY, LABEL, SEPARATORS, SUMMARY, SUMMARY_STATE,
    sessions::{Key, Listed, listed},
};
use crate::{
    Fate, Head, Place, ReadError, ReadOptions, Summary,
    extra::{Extra, KEY},
    json::{self, Bad, Fields, Notes, named},
    out::Out,
    talks::About,
};

/// Reads all sessions of a database; changes nothing in it.
pub(crate) fn read(path: &Path, options: &ReadOptions, mut out: Out) -> Result<(), ReadError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    let tables = Tables::find(&database)?;
    if !tables.messages.has("session_id") || !tables.messages.has("content") {
        return Err(ReadError::Unknown);
    }
    let nameless: i64 = database.query_row(NAMELESS, [], |row| row.get(0))?;
    if nameless > 0 {
        out.refuse(Place::Whole, format!("{nameless} rows that name no session"))?;
    }
    for listed in listed(&database, &tables)? {
        Session::find(&database, &tables, listed, options)?.read(&database, &tables, &mut out)?;
    }
    out.end()
}

/// Rows that belong to no session.
const NAMELESS: &str = "select count(*) from session_messages where session_id is null";

/// The columns of a table; none where it is missing.
pub(super) struct Columns(Vec<String>);

impl Columns {
    fn find(database: &Connection, table: &str) -> rusqlite::Result<Self> {
        let mut statement = database.prepare("select name from pragma_table_info(?1)")?;
        let names = statement.query_map([table], |row| row.get(0))?;
        Ok(Self(names.collect::<rusqlite::Result<_>>()?))
    }

    fn has(&self, column: &str) -> bool {
        self.0.iter().any(|name| name == column)
    }

    /// The columns of messages that say nothing of what is read of them.
    fn others(&self) -> Vec<&str> {
        let read = ["id", "session_id", "role", "content", "meta_json"];
        self.0.iter().map(String::as_str).filter(|name| !read.contains(name)).collect()
    }

    /// The column, or null where there is none.
    fn or_null(&self, column: &'static str) -> &'static str {
        if self.has(column) { column } else { "null" }
    }
}

/// What the database has.
pub(super) struct Tables {
    index: Columns,
    sessions: Columns,
    messages: Columns,
    state: Columns,
}

impl Tables {
    fn find(database: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            index: Columns::find(database, "session_index")?,
            sessions: Columns::find(database, "sessions")?,
            messages: Columns::find(database, "session_messages")?,
            state: Columns::find(database, "session_state")?,
        })
    }

    /// The name of the sessions' own id.
    pub(super) fn session_id(&self) -> Option<&'static str> {
        ["id", "session_id"].into_iter().find(|column| self.sessions.has(column))
    }
}

/// A value as text, and whether it was not UTF-8.
pub(super) fn text(value: ValueRef) -> (String, bool) {
    match value {
        ValueRef::Null => (String::new(), false),
        ValueRef::Integer(number) => (number.to_string(), false),
        ValueRef::Real(number) => (number.to_string(), false),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (String::from_utf8_lossy(bytes).into_owned(), true),
        },
    }
}

/// A session before its messages.
struct Session {
    /// How its rows name it.
    keys: Vec<Key>,
    head: Head,
    /// Whether anneal wrote it: times of rows are when messages were stored, and no labels.
    is_ours: bool,
    /// The row up to which its newest summary goes.
    boundary: Option<i64>,
    summary: Option<Summary>,
    /// The rows that separators follow.
    separators: VecDeque<i64>,
}

/// A row of a session.
struct RowRead {
    id: i64,
    role: String,
    content: String,
    meta: Option<String>,
    /// Labels of the other columns.
    columns: BTreeMap<String, String>,
    notes: Notes,
}

impl Session {
    fn find(database: &Connection, tables: &Tables, listed: Listed, options: &ReadOptions) -> Result<Self, ReadError> {
        let id = listed.id.as_str();
        let mut head = Head { identity: id.to_owned(), title: format!("{} {id}", options.name), ..Default::default() };
        if let (Some(column), Some(row)) = (tables.session_id(), &listed.row) {
            head = described(database, tables, column, row, head)?;
        }
        if tables.index.has("session_key") && tables.index.has("active_session_id") {
            let query = "select session_key from session_index where active_session_id = ?1 limit 1";
            let key = database.query_row(query, [id], |row| Ok(text(row.get_ref(0)?).0)).optional()?;
            head.metadata.extend(key.map(|key| (format!("{LABEL}session_key"), key)));
        }
        head.metadata.extend(states(database, tables, id)?);
        let boundary = state(database, tables, id, BOUNDARY)?.and_then(|value| value.trim().parse().ok());
        let text = state(database, tables, id, SUMMARY_STATE)?.filter(|text| !text.trim().is_empty());
        let summary = text.map(|text| Summary { text, ..Default::default() });
        let separators = state(database, tables, id, SEPARATORS)?.and_then(|rows| serde_json::from_str(&rows).ok());
        let separators = separators.unwrap_or_default();
        let (head, is_ours) = told(head);
        Ok(Self { head, is_ours, boundary, summary, separators, keys: listed.keys })
    }

    /// Its messages in their order, and its newest summary after the last message that it covers.
    fn read(mut self, database: &Connection, tables: &Tables, out: &mut Out) -> Result<(), ReadError> {
        out.conversation(Place::Whole, std::mem::take(&mut self.head))?;
        let newest = self.newest_summary(database, tables)?;
        let (id, meta, role) = (row_id(tables), tables.messages.or_null("meta_json"), tables.messages.or_null("role"));
        let others = if self.is_ours { Vec::new() } else { tables.messages.others() };
        let columns: Vec<String> = others.iter().map(|name| format!(", \"{}\"", name.replace('"', "\"\""))).collect();
        let columns = columns.concat();
        let query = format!(
            "select {id}, {role}, content, {meta}{columns} from session_messages where session_id in ({}) order by {id}",
            self.places()
        );
        let mut statement = database.prepare(&query)?;
        let mut rows = statement.query(params_from_iter(&self.keys))?;
        let mut covers = 0;
        while let Some(row) = rows.next()? {
            let row = read_row(row, &others)?;
            let (id, place) = (row.id, Place::Row(row.id));
            if is_summary(&row) {
                let text = row.content[SUMMARY.len()..].trim_start_matches(['\r', '\n']).to_owned();
                if Some(row.id) == newest {
                    self.summary = Some(Summary { text, ..Default::default() });
                } else {
                    out.remark(place, Fate::SetAside, "a summary that a newer one has replaced")?;
                }
                continue;
            }
            while self.separators.pop_front_if(|mark| *mark < row.id).is_some() {
                out.separator()?;
            }
            // the summary stands behind the boundary, or in front of it in databases that anneal wrote
            if self.boundary.is_some_and(|boundary| row.id > boundary) {
                self.summarise(covers, newest.is_some_and(|newest| newest > row.id), out)?;
            }
            match spoken(row) {
                Ok((natives, extra, notes)) => drop(out.record(place, natives, extra, notes)?),
                Err(Bad(what)) => out.refuse(place, what)?,
            }
            if self.boundary.is_none_or(|boundary| id <= boundary) {
                covers = out.messages();
            }
        }
        self.summarise(covers, false, out)?;
        self.separators.iter().try_for_each(|_| out.separator())
    }

    /// Tells the summary, once, if it is known already.
    fn summarise(&mut self, covers: u64, is_to_come: bool, out: &mut Out) -> Result<(), ReadError> {
        if is_to_come {
            return Ok(());
        }
        let Some(summary) = self.summary.take() else { return Ok(()) };
        if covers == 0 || self.boundary.is_none() {
            return out.remark(Place::Whole, Fate::SetAside, "a summary whose boundary covers no message");
        }
        out.summary(Summary { covers, ..summary })
    }

    /// Places of a query for its keys.
    fn places(&self) -> String {
        vec!["?"; self.keys.len()].join(", ")
    }

    /// The row of the newest summary among the messages.
    fn newest_summary(&self, database: &Connection, tables: &Tables) -> Result<Option<i64>, ReadError> {
        if !tables.messages.has("role") {
            return Ok(None);
        }
        let (id, meta) = (row_id(tables), tables.messages.or_null("meta_json"));
        let query = format!(
            "select {id}, role, substr(content, 1, 64), {meta} from session_messages
             where session_id in ({}) and role = 'assistant' and substr(content, 1, {}) = '{SUMMARY}' order by {id} desc",
            self.places(),
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

/// The head as anneal wrote it, and whether it did.
fn told(mut head: Head) -> (Head, bool) {
    let Some(about) = head.metadata.remove(&format!("{LABEL}{KEY}")) else { return (head, false) };
    let about =
        Fields::parse(&format!("{{\"{KEY}\":{about}}}")).ok().and_then(|fields| About::of(&fields).ok().flatten());
    match about.map(About::head) {
        Some(said) if said.title.is_empty() => (Head { title: head.title, identity: head.identity, ..said }, true),
        Some(said) => (Head { identity: head.identity, ..said }, true),
        None => (head, false),
    }
}

fn row_id(tables: &Tables) -> &'static str {
    if tables.messages.has("id") { "id" } else { "rowid" }
}

/// The head with what the table of sessions says.
fn described(
    database: &Connection,
    tables: &Tables,
    column: &str,
    key: &Key,
    mut head: Head,
) -> Result<Head, ReadError> {
    let mut statement = database.prepare(&format!("select * from sessions where {column} = ?1"))?;
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    debug_assert_eq!(names.len(), tables.sessions.0.len());
    let mut rows = statement.query([key])?;
    let Some(row) = rows.next()? else { return Ok(head) };
    for (index, name) in names.iter().enumerate().filter(|(_, name)| *name != column) {
        let (value, _) = text(row.get_ref(index)?);
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

/// Whatever else a session's state says, as labels.
fn states(database: &Connection, tables: &Tables, id: &str) -> Result<Vec<(String, String)>, ReadError> {
    if !(tables.state.has("session_id") && tables.state.has("key") && tables.state.has("value")) {
        return Ok(Vec::new());
    }
    let query = "select key, value from session_state where session_id = ?1 and key not in (?2, ?3, ?4) limit ?5";
    let mut statement = database.prepare(query)?;
    let label = |row: &Row| Ok((format!("{LABEL}state.{}", text(row.get_ref(0)?).0), text(row.get_ref(1)?).0));
    let most = METADATA_KEYS as i64 * 2;
    let labels = statement.query_map((id, BOUNDARY, SUMMARY_STATE, SEPARATORS, most), label)?;
    Ok(labels.collect::<rusqlite::Result<_>>()?)
}

/// A value of a session's state: rows of key and value, or a column of that name.
fn state(database: &Connection, tables: &Tables, id: &str, key: &'static str) -> Result<Option<String>, ReadError> {
    if !tables.state.has("session_id") {
        return Ok(None);
    }
    let value = |row: &Row| Ok(text(row.get_ref(0)?).0);
    if tables.state.has("key") && tables.state.has("value") {
        let query = "select value from session_state where session_id = ?1 and key = ?2 limit 1";
        return Ok(database.query_row(query, (id, key), value).optional()?);
    }
    if !tables.state.has(key) {
        return Ok(None);
    }
    let query = format!("select {key} from session_state where session_id = ?1 limit 1");
    Ok(database.query_row(&query, [id], value).optional()?.filter(|value| !value.is_empty()))
}

/// A row: its id, who speaks, what, its `meta_json`, and then these other columns.
fn read_row(row: &Row, others: &[&str]) -> rusqlite::Result<RowRead> {
    let mut notes = Notes::new();
    let (content, mended) = text(row.get_ref(2)?);
    if mended {
        notes.push((Fate::Changed, "bytes that are not UTF-8 became U+FFFD".into()));
    }
    let meta = Some(text(row.get_ref(3)?).0).filter(|meta| !meta.trim().is_empty());
    let mut columns = BTreeMap::new();
    for (index, name) in (4..).zip(others) {
        let (value, _) = text(row.get_ref(index)?);
        if !value.is_empty() {
            columns.insert(format!("{LABEL}{name}"), value);
        }
    }
    Ok(RowRead { id: row.get(0)?, role: text(row.get_ref(1)?).0, content, meta, columns, notes })
}

/// Whether the row is a summary, and no message that only begins like one.
fn is_summary(row: &RowRead) -> bool {
    let has_extra = || row.meta.as_deref().is_some_and(|meta| Fields::parse(meta).is_ok_and(|meta| meta.has(KEY)));
    row.role == "assistant" && row.content.starts_with(SUMMARY) && !has_extra()
}

/// The message of a row.
fn spoken(row: RowRead) -> Result<(Vec<Message>, Option<Extra>, Notes), Bad> {
    let RowRead { role, content, meta, mut columns, mut notes, .. } = row;
    let (metadata, extra) = match meta {
        None => (BTreeMap::new(), None),
        Some(meta) => json::read(meta.into_bytes(), &mut notes, labels)?,
    };
    columns.extend(metadata);
    Ok((vec![native(&role, content, columns)?], extra, notes))
}

/// The message as ZeroClaw says it. A tool's answer does not say which call it answers.
pub(super) fn native(role: &str, content: String, metadata: BTreeMap<String, String>) -> Result<Message, Bad> {
    let (role, part) = match role {
        "user" => (Role::User, Part::Text { text: content }),
        "assistant" => (Role::Assistant, Part::Text { text: content }),
        "system" => (Role::System, Part::Text { text: content }),
        "tool" => {
            let id = metadata.get("tool_call_id").cloned().unwrap_or_else(|| "tool".into());
            (Role::Tool, Part::ToolResult { id, text: content, is_error: false, media: Vec::new() })
        }
        other => return Err(Bad(format!("unknown role {}", named(other)))),
    };
    Ok(Message { role, parts: vec![part], metadata })
}

/// A row's `meta_json`: labels, and what anneal has to say.
pub(super) fn labels(meta: &str, notes: &mut Notes) -> Result<(BTreeMap<String, String>, Option<Extra>), Bad> {
    let Ok(fields) = Fields::parse(meta) else {
        notes.push((Fate::SetAside, "a meta_json that is no JSON object".into()));
        return Ok((BTreeMap::new(), None));
    };
    let mut labels = BTreeMap::new();
    for name in fields.names().filter(|name| *name != KEY) {
        labels.extend(fields.label(name)?.map(|value| (name.to_owned(), value)));
    }
    Ok((labels, Extra::of(&fields)?))
}
