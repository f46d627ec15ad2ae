//! Whether the tables are the older ones: told by the names and types of their columns.

use sqlx::{FromRow, PgConnection};

use crate::migrate::MigrationsError;

/// What the older tables have beyond what all of them have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A table of checkpoints.
    pub(crate) checkpoints: bool,
    /// Summaries of large messages beside the messages.
    pub(crate) caches: bool,
}

#[derive(Debug, FromRow)]
struct Column {
    schema_name: String,
    /// Of the schema on the search path: 1 is the current one.
    place: i64,
    table_name: String,
    plain: bool,
    name: String,
    type_name: String,
    enumerated: bool,
    required: bool,
}

/// What a column may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// A whole number, never null.
    Id,
    /// A whole number.
    Number,
    /// Text or a whole number.
    Name,
    /// Text.
    Text,
    /// Text, or one of a list of words.
    Word,
    /// Yes or no.
    Flag,
    /// Seconds, milliseconds or a timestamp.
    Time,
    /// JSON.
    Json,
}

impl Holds {
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

/// A table, and the columns that it must have.
type Table = (&'static str, &'static [(&'static str, Holds)]);

const CONVERSATIONS: Table = (
    "ai_conversation",
    &[
        ("id", Holds::Id),
        ("uid", Holds::Name),
        ("creator_id", Holds::Name),
        ("title", Holds::Text),
        ("pinned", Holds::Flag),
        ("created_ts", Holds::Time),
        ("updated_ts", Holds::Time),
        ("row_status", Holds::Word),
    ],
);
const MESSAGES: Table = (
    "ai_message",
    &[
        ("id", Holds::Id),
        ("uid", Holds::Name),
        ("conversation_id", Holds::Number),
        ("type", Holds::Word),
        ("role", Holds::Word),
        ("content", Holds::Text),
        ("metadata", Holds::Json),
        ("created_ts", Holds::Time),
    ],
);
const CHECKPOINTS: Table = (
    "ai_conversation_checkpoint",
    &[
        ("id", Holds::Id),
        ("conversation_id", Holds::Number),
        ("last_message_id", Holds::Number),
        ("summary", Holds::Text),
        ("token_usage", Holds::Number),
        ("created_ts", Holds::Time),
    ],
);

/// The older tables, if they are there. Asked only where the schema of today is not. Tables that lie elsewhere on the search path
/// are refused if they are older ones, and left alone if they are somebody else's.
pub(crate) async fn find(db: &mut PgConnection) -> Result<Option<Shape>, MigrationsError> {
    let columns: Vec<Column> = sqlx::query_as(include_str!("../../sql/legacy_columns.sql")).fetch_all(&mut *db).await?;
    let (here, elsewhere): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.place == 1);
    let found = shape(&here).map_err(MigrationsError::Foreign)?;
    for behind in elsewhere.chunk_by(|one, next| one.schema_name == next.schema_name) {
        if let (Some(column), Ok(Some(_))) = (behind.first(), shape(behind)) {
            return Err(MigrationsError::Unmovable(misplaced(&column.schema_name)));
        }
    }
    let Some(shape) = found else { return Ok(None) };
    let dependants: Vec<String> =
        sqlx::query_scalar(include_str!("../../sql/legacy_dependants.sql")).fetch_all(&mut *db).await?;
    if dependants.is_empty() {
        return Ok(Some(shape));
    }
    Err(MigrationsError::Unmovable(format!("the older tables cannot be dropped: {}", dependants.join(", "))))
}

fn misplaced(schema: &str) -> String {
    format!(
        "there are older tables in schema {schema}, which is on the search_path but not first in it; put it first to move them, \
         or take it off to leave them"
    )
}

fn shape(columns: &[Column]) -> Result<Option<Shape>, String> {
    let has = |table: &str| columns.iter().any(|column| column.table_name == table);
    let checkpoints = has(CHECKPOINTS.0);
    if !checkpoints && !has(CONVERSATIONS.0) && !has(MESSAGES.0) {
        return Ok(None);
    }
    fits(columns, CONVERSATIONS)?;
    fits(columns, MESSAGES)?;
    if checkpoints {
        fits(columns, CHECKPOINTS)?;
    }
    let caches = columns.iter().any(|column| column.table_name == MESSAGES.0 && column.name == "summary_cache");
    Ok(Some(Shape { checkpoints, caches }))
}

/// Whether the table has what an older one has; if not, a sentence that says what is amiss.
fn fits(columns: &[Column], (table, wanted): Table) -> Result<(), String> {
    let own: Vec<&Column> = columns.iter().filter(|column| column.table_name == table).collect();
    let Some(first) = own.first() else { return Err(format!("there is no table {table} beside the others")) };
    if !first.plain {
        return Err(format!("{table} is not a plain table"));
    }
    for (name, holds) in wanted {
        match own.iter().find(|column| column.name == *name) {
            None => return Err(format!("table {table} has no column {name}")),
            Some(column) if !holds.fits(column) => {
                let (kind, null) = (&column.type_name, if column.required { "" } else { ", may be null" });
                return Err(format!("column {name} of table {table} is of another type ({kind}{null})"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns((table, wanted): Table) -> Vec<Column> {
        let column = |(name, holds): &(&str, Holds)| {
            let type_name = match holds {
                Holds::Id | Holds::Number | Holds::Name => "int4",
                Holds::Text | Holds::Word => "text",
                Holds::Flag => "bool",
                Holds::Time => "int8",
                Holds::Json => "jsonb",
            };
            Column {
                schema_name: "public".into(),
                place: 1,
                table_name: table.into(),
                plain: true,
                name: (*name).into(),
                type_name: type_name.into(),
                enumerated: false,
                required: *holds == Holds::Id,
            }
        };
        wanted.iter().map(column).collect()
    }

    #[test]
    fn tables_are_told_by_their_columns_and_others_are_named() {
        let together = |tables: &[Table]| tables.iter().copied().flat_map(columns).collect::<Vec<_>>();
        let older = || together(&[CONVERSATIONS, MESSAGES]);
        assert_eq!(shape(&[]), Ok(None));
        assert_eq!(shape(&older()), Ok(Some(Shape { checkpoints: false, caches: false })));
        let three = together(&[CONVERSATIONS, MESSAGES, CHECKPOINTS]);
        assert_eq!(shape(&three), Ok(Some(Shape { checkpoints: true, caches: false })));
        let alone = shape(&columns(MESSAGES)).expect_err("one table is not enough");
        assert_eq!(alone, "there is no table ai_conversation beside the others");
        let mut odd = older();
        odd.retain(|column| column.name != "row_status");
        assert_eq!(shape(&odd).expect_err("lacks one"), "table ai_conversation has no column row_status");
        let mut odd = older();
        for column in odd.iter_mut().filter(|column| column.name == "metadata") {
            column.type_name = "bytea".into();
        }
        let sentence = shape(&odd).expect_err("another type");
        assert_eq!(sentence, "column metadata of table ai_message is of another type (bytea, may be null)");
    }
}
