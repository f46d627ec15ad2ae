//! Whether the tables are those of an older system, decided by the names and types of their
//! columns.

use sqlx::FromRow;

use crate::{connection::BoundedConnection, error::MigrationsError};

/// Which optional parts the older tables have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// There is a table of checkpoints.
    pub(crate) checkpoints: bool,
    /// Messages have a column of summaries.
    pub(crate) summary_caches: bool,
}

/// A column of a table that has the name of one of our tables.
#[derive(Debug, FromRow)]
struct Column {
    schema_name: String,
    /// Position of the schema in the search path; 1 is the current schema.
    place: i64,
    table_name: String,
    /// Whether the table is an ordinary one: no view, not partitioned, not foreign.
    plain: bool,
    name: String,
    type_name: String,
    /// Whether the type is an enum.
    enumerated: bool,
    /// Whether the column is `not null`.
    required: bool,
}

/// Which types a column may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    /// An integer, not null.
    Id,
    /// An integer.
    Number,
    /// Text, a uuid or an integer.
    Name,
    /// Text.
    Text,
    /// Text or an enum.
    Word,
    /// A boolean.
    Flag,
    /// Seconds, milliseconds or a timestamp.
    Time,
    /// jsonb.
    Json,
}

impl ColumnKind {
    fn fits(self, column: &Column) -> bool {
        let number = matches!(column.type_name.as_str(), "int2" | "int4" | "int8");
        let text = matches!(column.type_name.as_str(), "text" | "varchar" | "bpchar");
        match self {
            Self::Id => number && column.required,
            Self::Number => number,
            Self::Name => number || text || column.type_name == "uuid",
            Self::Text => text,
            Self::Word => text || column.enumerated,
            Self::Flag => column.type_name == "bool",
            Self::Time => number || column.type_name == "timestamptz",
            Self::Json => column.type_name == "jsonb",
        }
    }
}

/// A table of the older system.
#[derive(Clone, Copy)]
struct Table {
    name: &'static str,
    /// The columns that it must have. It may have others.
    columns: &'static [(&'static str, ColumnKind)],
}

const CONVERSATIONS: Table = Table {
    name: "ai_conversation",
    columns: &[
        ("id", ColumnKind::Id),
        ("uid", ColumnKind::Name),
        ("creator_id", ColumnKind::Name),
        ("title", ColumnKind::Text),
        ("pinned", ColumnKind::Flag),
        ("created_ts", ColumnKind::Time),
        ("updated_ts", ColumnKind::Time),
        ("row_status", ColumnKind::Word),
    ],
};
const MESSAGES: Table = Table {
    name: "ai_message",
    columns: &[
        ("id", ColumnKind::Id),
        ("uid", ColumnKind::Name),
        ("conversation_id", ColumnKind::Number),
        ("type", ColumnKind::Word),
        ("role", ColumnKind::Word),
        ("content", ColumnKind::Text),
        ("metadata", ColumnKind::Json),
        ("created_ts", ColumnKind::Time),
    ],
};
const CHECKPOINTS: Table = Table {
    name: "ai_conversation_checkpoint",
    columns: &[
        ("id", ColumnKind::Id),
        ("conversation_id", ColumnKind::Number),
        ("last_message_id", ColumnKind::Number),
        ("summary", ColumnKind::Text),
        ("token_usage", ColumnKind::Number),
        ("created_ts", ColumnKind::Time),
    ],
};

/// Finds the older tables in the current schema. Called only if the present schema does not exist
/// yet. Fails in these cases:
///
/// - A table in the current schema has the name of one of ours, but is no older table.
/// - There are older tables in another schema of the search path.
/// - Other objects depend on the older tables, so that these cannot be dropped.
pub(crate) async fn find(db: &mut BoundedConnection) -> Result<Option<Shape>, MigrationsError> {
    let columns: Vec<Column> = sqlx::query_as(include_str!("../../sql/legacy_columns.sql"))
        .fetch_all(&mut *db)
        .await?;
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|column| column.place == 1);
    let found = shape(&here).map_err(MigrationsError::Foreign)?;
    for columns in elsewhere.chunk_by(|one, next| one.schema_name == next.schema_name) {
        if let (Some(column), Ok(Some(_))) = (columns.first(), shape(columns)) {
            return Err(MigrationsError::Unmovable(misplaced(&column.schema_name)));
        }
    }
    let Some(shape) = found else { return Ok(None) };
    let dependents: Vec<String> =
        sqlx::query_scalar(include_str!("../../sql/legacy_dependents.sql"))
            .fetch_all(&mut *db)
            .await?;
    if dependents.is_empty() {
        return Ok(Some(shape));
    }
    Err(MigrationsError::Unmovable(format!(
        "the older tables cannot be dropped: {}",
        dependents.join(", ")
    )))
}

fn misplaced(schema: &str) -> String {
    format!(
        "there are older tables in schema {schema}, which is on the search_path but not first in it; put it first to move them, \
         or take it off to leave them"
    )
}

/// The shape of the older tables in one schema. None: the schema has no tables of these names. The
/// error is a sentence that says why the tables are no older ones.
fn shape(columns: &[Column]) -> Result<Option<Shape>, String> {
    let has = |table: &str| columns.iter().any(|column| column.table_name == table);
    let checkpoints = has(CHECKPOINTS.name);
    if !checkpoints && !has(CONVERSATIONS.name) && !has(MESSAGES.name) {
        return Ok(None);
    }
    check_columns(columns, CONVERSATIONS)?;
    check_columns(columns, MESSAGES)?;
    if checkpoints {
        check_columns(columns, CHECKPOINTS)?;
    }
    let summary_caches = columns
        .iter()
        .any(|column| column.table_name == MESSAGES.name && column.name == "summary_cache");
    Ok(Some(Shape {
        checkpoints,
        summary_caches,
    }))
}

/// Checks that the table has the columns of an older table. The error is a sentence that says what
/// differs.
fn check_columns(columns: &[Column], expected: Table) -> Result<(), String> {
    let table = expected.name;
    let columns: Vec<&Column> = columns
        .iter()
        .filter(|column| column.table_name == table)
        .collect();
    let Some(first) = columns.first() else {
        return Err(format!("there is no table {table} beside the others"));
    };
    if !first.plain {
        return Err(format!("{table} is not a plain table"));
    }
    for (name, kind) in expected.columns {
        match columns.iter().find(|column| column.name == *name) {
            None => return Err(format!("table {table} has no column {name}")),
            Some(column) if !kind.fits(column) => {
                let (type_name, null) = (
                    &column.type_name,
                    if column.required { "" } else { ", may be null" },
                );
                return Err(format!(
                    "column {name} of table {table} is of another type ({type_name}{null})"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(table: Table) -> Vec<Column> {
        let column = |(name, kind): &(&str, ColumnKind)| {
            let type_name = match kind {
                ColumnKind::Id | ColumnKind::Number | ColumnKind::Name => "int4",
                ColumnKind::Text | ColumnKind::Word => "text",
                ColumnKind::Flag => "bool",
                ColumnKind::Time => "int8",
                ColumnKind::Json => "jsonb",
            };
            Column {
                schema_name: "public".into(),
                place: 1,
                table_name: table.name.into(),
                plain: true,
                name: (*name).into(),
                type_name: type_name.into(),
                enumerated: false,
                required: *kind == ColumnKind::Id,
            }
        };
        table.columns.iter().map(column).collect()
    }

    #[test]
    fn older_tables_are_recognized_by_their_columns() {
        let together =
            |tables: &[Table]| tables.iter().copied().flat_map(columns).collect::<Vec<_>>();
        let older = || together(&[CONVERSATIONS, MESSAGES]);
        assert_eq!(shape(&[]), Ok(None));
        assert_eq!(
            shape(&older()),
            Ok(Some(Shape {
                checkpoints: false,
                summary_caches: false
            }))
        );
        let three = together(&[CONVERSATIONS, MESSAGES, CHECKPOINTS]);
        assert_eq!(
            shape(&three),
            Ok(Some(Shape {
                checkpoints: true,
                summary_caches: false
            }))
        );
        let alone = shape(&columns(MESSAGES)).expect_err("one table is not enough");
        assert_eq!(alone, "there is no table ai_conversation beside the others");
        let mut odd = older();
        odd.retain(|column| column.name != "row_status");
        assert_eq!(
            shape(&odd).expect_err("a column is missing"),
            "table ai_conversation has no column row_status"
        );
        let mut odd = older();
        for column in odd.iter_mut().filter(|column| column.name == "metadata") {
            column.type_name = "bytea".into();
        }
        let sentence = shape(&odd).expect_err("a column has another type");
        assert_eq!(
            sentence,
            "column metadata of table ai_message is of another type (bytea, may be null)"
        );
    }
}
