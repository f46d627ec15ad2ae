//! Which of the known tables and columns a database has, and the conversion of values to text.

use rusqlite::{Connection, types::ValueRef};

/// The columns of a table, generated ones included: those of `select *`. Empty if the table does
/// not exist.
pub(super) struct Columns(Vec<String>);

impl Columns {
    fn find(database: &Connection, table: &str) -> rusqlite::Result<Self> {
        // 1 marks hidden columns of virtual tables; generated columns have 2 or 3.
        let query = "select name from pragma_table_xinfo(?1) where hidden <> 1";
        let mut statement = database.prepare(query)?;
        let names = statement.query_map([table], |row| row.get(0))?;
        Ok(Self(names.collect::<rusqlite::Result<_>>()?))
    }

    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.0.iter().any(|name| name == column)
    }

    /// The columns of `session_messages` that become labels, because no other code reads them.
    pub(super) fn label_columns(&self) -> Vec<&str> {
        let read = ["id", "session_id", "role", "content", "meta_json"];
        self.0
            .iter()
            .map(String::as_str)
            .filter(|name| !read.contains(name))
            .collect()
    }

    /// The column's name for a query, or `null` if the column does not exist.
    pub(super) fn or_null(&self, column: &'static str) -> &'static str {
        if self.has(column) { column } else { "null" }
    }
}

/// The columns of the four tables.
pub(super) struct Tables {
    pub(super) index: Columns,
    pub(super) sessions: Columns,
    pub(super) messages: Columns,
    pub(super) state: Columns,
}

impl Tables {
    pub(super) fn find(database: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            index: Columns::find(database, "session_index")?,
            sessions: Columns::find(database, "sessions")?,
            messages: Columns::find(database, "session_messages")?,
            state: Columns::find(database, "session_state")?,
        })
    }

    /// The column of `sessions` that holds the session id.
    pub(super) fn session_id_column(&self) -> Option<&'static str> {
        ["id", "session_id"]
            .into_iter()
            .find(|column| self.sessions.has(column))
    }

    /// The column of messages that holds the row id.
    pub(super) fn row_id_column(&self) -> &'static str {
        if self.messages.has("id") {
            "id"
        } else {
            "rowid"
        }
    }
}

/// A value as text; empty for null. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn text(value: ValueRef) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// Whether a value has bytes that are not UTF-8.
pub(super) fn has_invalid_utf8(value: ValueRef) -> bool {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => std::str::from_utf8(bytes).is_err(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => false,
    }
}
