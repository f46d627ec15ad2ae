//! Rows in the tables of conversations: which tables have rows of a conversation, and rows of any
//! values.

use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use crate::TestApp;

impl TestApp {
    /// Lists the tables whose rows belong to a conversation, in alphabetical order: those with a
    /// column `conversation_id`.
    pub async fn list_tables_of_conversations(&self) -> Vec<String> {
        let tables = "select table_name::text from information_schema.columns
            where table_schema = current_schema() and column_name = 'conversation_id' order by 1";
        sqlx::query_scalar(tables)
            .fetch_all(&mut self.db().await)
            .await
            .expect("lists tables")
    }

    /// Lists the tables that have rows of a conversation, in alphabetical order.
    pub async fn list_tables_with_rows(&self, conversation: Uuid) -> Vec<String> {
        let mut db = self.db().await;
        let mut with_rows = Vec::new();
        for table in self.list_tables_of_conversations().await {
            let exists = format!("select exists (select from {table} where conversation_id = $1)");
            let has_rows: bool = sqlx::query_scalar(AssertSqlSafe(exists))
                .bind(conversation)
                .fetch_one(&mut db)
                .await
                .expect("looks for rows");
            if has_rows {
                with_rows.push(table);
            }
        }
        with_rows
    }

    /// Inserts a row of the default tenant and of a conversation into a table. Every other column
    /// that needs a value gets one of its type.
    pub async fn insert_any_row(&self, table: &str, conversation: Uuid) {
        let mut db = self.db().await;
        let columns = "select column_name::text, udt_name::text from information_schema.columns
            where table_name = $1 and table_schema = current_schema() and is_nullable = 'NO' and column_default is null";
        let columns = sqlx::query(columns)
            .bind(table)
            .fetch_all(&mut db)
            .await
            .expect("lists columns");
        let (names, values): (Vec<String>, Vec<String>) = columns
            .iter()
            .map(|column| {
                let (name, kind): (String, String) = (column.get(0), column.get(1));
                let value = match (name.as_str(), kind.as_str()) {
                    ("tenant_id", _) => "'00000000-0000-7000-8000-000000000001'".to_owned(),
                    ("conversation_id", _) | (_, "text") => format!("'{conversation}'"),
                    (_, "uuid") => "gen_random_uuid()".into(),
                    (_, "bool") => "false".into(),
                    (_, "json" | "jsonb") => "'{}'".into(),
                    (_, "bytea") => "'\\x00'".into(),
                    (_, "timestamptz" | "date") => "now()".into(),
                    (_, array) if array.starts_with('_') => "'{}'".into(),
                    _ => "1".into(),
                };
                (name, value)
            })
            .unzip();
        let sql = format!(
            "insert into {table} ({}) values ({})",
            names.join(", "),
            values.join(", ")
        );
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut db)
            .await
            .unwrap_or_else(|error| panic!("{table}: {error}"));
    }
}
