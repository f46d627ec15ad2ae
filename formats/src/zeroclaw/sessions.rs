//! Lists the sessions of a database. The ids are kept as they are stored, because a query by the
//! stored value can use an index.

use std::collections::HashMap;

use rusqlite::{
    Connection, ToSql,
    types::{ToSqlOutput, ValueRef},
};

use super::tables::{Tables, text};

/// A session of the database.
#[derive(Debug, Default)]
pub(super) struct SessionListing {
    /// The session id as text.
    pub(super) id: String,
    /// The stored id in the table `sessions`; None if only messages name the session.
    pub(super) key_in_sessions: Option<Key>,
    /// The stored ids in the rows of messages: one for each form in which the id occurs (for
    /// example a number and a text).
    pub(super) keys_in_messages: Vec<Key>,
}

/// A session id as it is stored. A text need not be UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Key {
    /// None for null.
    fn of(value: ValueRef) -> Option<Self> {
        Some(match value {
            ValueRef::Null => return None,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
        })
    }
}

impl ToSql for Key {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Sessions by id, in the order in which they were found.
#[derive(Default)]
struct Sessions {
    all: Vec<SessionListing>,
    indices: HashMap<String, usize>,
}

impl Sessions {
    /// The session with this id. Adds it if it is new.
    fn find_or_add(&mut self, id: String) -> &mut SessionListing {
        let index = *self.indices.entry(id).or_insert_with_key(|id| {
            self.all.push(SessionListing {
                id: id.clone(),
                ..Default::default()
            });
            self.all.len() - 1
        });
        &mut self.all[index]
    }
}

/// All sessions: those of the table `sessions`, then those that only messages name.
pub(super) fn list_sessions(
    database: &Connection,
    tables: &Tables,
) -> rusqlite::Result<Vec<SessionListing>> {
    let mut sessions = Sessions::default();
    if let Some(column) = tables.session_id_column() {
        for_each_key(
            database,
            &format!("select {column} from sessions order by rowid"),
            &mut |id, key| {
                sessions.find_or_add(id).key_in_sessions.get_or_insert(key);
            },
        )?;
    }
    let ids_in_messages =
        "select session_id, min(rowid) from session_messages group by session_id order by 2";
    for_each_key(database, ids_in_messages, &mut |id, key| {
        sessions.find_or_add(id).keys_in_messages.push(key);
    })?;
    Ok(sessions.all)
}

/// Calls `take` for each value of the query's first column that is not null, with the value as text
/// and as it is stored.
fn for_each_key(
    database: &Connection,
    query: &str,
    take: &mut dyn FnMut(String, Key),
) -> rusqlite::Result<()> {
    let mut statement = database.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let value = row.get_ref(0)?;
        if let Some(key) = Key::of(value) {
            take(text(value), key);
        }
    }
    Ok(())
}
