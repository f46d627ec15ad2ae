//! Which sessions a database has, each with the values that name it: looked up by those, an index serves.

use std::collections::HashMap;

use rusqlite::{
    Connection, ToSql,
    types::{ToSqlOutput, ValueRef},
};

use super::read::{Tables, text};

/// A session of the database.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Its id as a text.
    pub(super) id: String,
    /// Its id in the table of sessions.
    pub(super) row: Option<Key>,
    /// Its id in the rows of messages, in each form in which it stands there.
    pub(super) keys: Vec<Key>,
}

/// A value as it is stored, which need not be UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Key {
    /// Of a value; None of null.
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

/// Sessions by their ids, in the order in which they were found.
#[derive(Default)]
struct Sessions {
    all: Vec<Listed>,
    places: HashMap<String, usize>,
}

impl Sessions {
    /// The one of this id, new or not.
    fn of(&mut self, id: String) -> &mut Listed {
        let place = *self.places.entry(id).or_insert_with_key(|id| {
            self.all.push(Listed { id: id.clone(), ..Default::default() });
            self.all.len() - 1
        });
        &mut self.all[place]
    }
}

/// All sessions: those of the table, then those that only messages name.
pub(super) fn listed(database: &Connection, tables: &Tables) -> rusqlite::Result<Vec<Listed>> {
    let mut sessions = Sessions::default();
    if let Some(id) = tables.session_id() {
        each(database, &format!("select {id} from sessions order by rowid"), &mut |id, key| {
            sessions.of(id).row.get_or_insert(key);
        })?;
    }
    let named = "select session_id, min(rowid) from session_messages group by session_id order by 2";
    each(database, named, &mut |id, key| sessions.of(id).keys.push(key))?;
    Ok(sessions.all)
}

/// Each value of the query's first column that is not null.
fn each(database: &Connection, query: &str, take: &mut dyn FnMut(String, Key)) -> rusqlite::Result<()> {
    let mut statement = database.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let value = row.get_ref(0)?;
        if let Some(key) = Key::of(value) {
            take(text(value).0, key);
        }
    }
    Ok(())
}
