//! Writes a database that ZeroClaw can load.

use std::path::Path;

use anneal_core::message::{Role, plain_text};
use rusqlite::Connection;

use super::{BOUNDARY, CREATED_AT, SEPARATORS, SUMMARY, read};
use crate::{
    Format, Head, StoredMessage, Summary, WriteError,
    conversation_extra::ConversationExtra,
    format_writer::FormatWriter,
    json::Notes,
    message_extra::{ExtraObject, with_extra},
    time::iso,
};

/// Distance between the row ids of two messages. The id between them is reserved for a summary.
const STEP: i64 = 2;

/// The tables of a new database. The column `sessions.anneal` is not ZeroClaw's: it holds what the
/// other columns cannot.
const TABLES: &str = "
create table session_index (session_key text primary key, active_session_id text not null);
create table sessions (id text primary key, status text not null, title text not null, updated_at text not null, anneal text not null);
create table session_messages (id integer primary key, session_id text not null, role text not null, content text not null, created_at text not null, meta_json text);
create table session_state (session_id text not null, key text not null, value text not null, primary key (session_id, key));
create index session_messages_of_session on session_messages (session_id, id);
";

pub(crate) struct ZeroClawWriter {
    connection: Connection,
    /// The id of the current session.
    session_id: String,
    /// Number of sessions so far.
    sessions: u64,
    /// The id of the last row of a message.
    last_message_row: i64,
    /// The id of the last row before this session.
    row_before_session: i64,
    /// For each separator: the id of the row before it.
    separators: Vec<i64>,
    /// When the last written message was stored; before the first one, when the session was
    /// created.
    created_us: i64,
}

impl ZeroClawWriter {
    /// Creates a database. The file must be missing or empty.
    pub(crate) fn create(path: &Path) -> Result<Self, WriteError> {
        let connection = Connection::open(path)?;
        connection.execute_batch("pragma journal_mode = delete; begin")?;
        connection.execute_batch(TABLES)?;
        Ok(Self {
            connection,
            session_id: String::new(),
            sessions: 0,
            last_message_row: 0,
            row_before_session: 0,
            separators: Vec::new(),
            created_us: 0,
        })
    }

    fn insert_row(
        &self,
        id: i64,
        role: &str,
        content: &str,
        created_at: &str,
        meta: Option<&str>,
    ) -> Result<(), WriteError> {
        let insert = "insert or replace into session_messages (id, session_id, role, content, created_at, meta_json)
            values (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut statement = self.connection.prepare(insert)?;
        statement.execute((id, &self.session_id, role, content, created_at, meta))?;
        Ok(())
    }

    fn insert_state(&self, key: &str, value: &str) -> Result<(), WriteError> {
        let insert =
            "insert or replace into session_state (session_id, key, value) values (?1, ?2, ?3)";
        self.connection
            .execute(insert, (&self.session_id, key, value))?;
        Ok(())
    }

    /// Ends the current session.
    fn close(&mut self) -> Result<(), WriteError> {
        if !self.separators.is_empty() {
            let rows = serde_json::to_string(&self.separators).expect("numbers are always JSON");
            self.insert_state(SEPARATORS, &rows)?;
            self.separators.clear();
        }
        let update = "update sessions set updated_at = ?2 where id = ?1";
        self.connection
            .execute(update, (&self.session_id, iso(self.created_us)))?;
        Ok(())
    }
}

impl FormatWriter for ZeroClawWriter {
    fn begin_conversation(&mut self, head: &Head) -> Result<(), WriteError> {
        self.close()?;
        self.created_us = head.created_us.unwrap_or_default();
        self.sessions += 1;
        self.row_before_session = self.last_message_row;
        self.session_id = match head.identity.as_str() {
            "" => format!("session-{}", self.sessions),
            identity => identity.to_owned(),
        };
        let label = |name: &str| head.metadata.get(name).map(String::as_str);
        let extra = ConversationExtra::with_system_prompt(Format::ZeroClaw, head).to_json();
        let status = label("zeroclaw.status").unwrap_or("active");
        let insert = "insert into sessions (id, status, title, updated_at, anneal) values (?1, ?2, ?3, ?4, ?5)";
        self.connection.execute(
            insert,
            (
                &self.session_id,
                status,
                &head.title,
                iso(self.created_us),
                extra,
            ),
        )?;
        if let Some(key) = label("zeroclaw.session_key") {
            let insert = "insert or replace into session_index (session_key, active_session_id) values (?1, ?2)";
            self.connection.execute(insert, (key, &self.session_id))?;
        }
        Ok(())
    }

    fn write_message(&mut self, stored: &StoredMessage) -> Result<(), WriteError> {
        self.created_us = stored.created_us;
        self.last_message_row += STEP;
        let message = &stored.message;
        let content = plain_text(&message.parts);
        let role = message.role.name();
        let labels = serde_json::to_string(&message.metadata).expect("texts are always JSON");
        // `native` is the message that an import would read from this row. If it differs from the
        // stored message, the differences go into an extra object. A text that begins like a
        // summary always gets that object: without it, the text would be read as a summary.
        let (metadata, _) = read::parse_meta(&labels, &mut Notes::new()).unwrap_or_default();
        let native = read::native_message(role, content.clone(), metadata)
            .expect("every role name is a role of ZeroClaw");
        let extra_object = if content.starts_with(SUMMARY) {
            ExtraObject::Required
        } else {
            ExtraObject::IfNeeded
        };
        let meta = with_extra(vec![labels], 0, &native, message, extra_object)
            .pop()
            .filter(|meta| meta != "{}");
        let original = message.metadata.get(CREATED_AT).cloned();
        let created_at = original.unwrap_or_else(|| iso(self.created_us));
        self.insert_row(
            self.last_message_row,
            role,
            &content,
            &created_at,
            meta.as_deref(),
        )
    }

    fn write_summary(&mut self, summary: &Summary) -> Result<(), WriteError> {
        let covers = i64::try_from(summary.covers).unwrap_or(i64::MAX / STEP);
        let boundary = self.last_message_row.min(
            self.row_before_session
                .saturating_add(covers.saturating_mul(STEP)),
        );
        let content = format!("{SUMMARY}\n{}", summary.text);
        self.insert_row(
            boundary + 1,
            Role::Assistant.name(),
            &content,
            &iso(self.created_us),
            None,
        )?;
        self.insert_state(BOUNDARY, &boundary.to_string())
    }

    fn write_separator(&mut self) -> Result<(), WriteError> {
        self.separators.push(self.last_message_row);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.close()?;
        Ok(self.connection.execute_batch("commit")?)
    }
}
