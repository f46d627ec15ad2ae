//! A canary: a word that a test plants wherever a text can be stored, and that must be in no table
//! afterwards. The whole database is searched, as `pg_dump` writes it.

use std::collections::BTreeSet;

use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use crate::postgres_binaries;

/// A word that only texts of its test contain.
#[derive(Debug, Clone, Copy)]
pub struct Canary(pub &'static str);

impl Canary {
    /// A text with the word.
    pub fn in_text(self, rest: &str) -> String {
        format!("{} {rest}", self.0)
    }

    /// The tables of this database that hold the word, as text or as bytes.
    pub async fn find_tables(self, url: &str) -> BTreeSet<String> {
        let bytes = hex::encode(self.0);
        let holds = |line: &&str| line.contains(self.0) || line.contains(&bytes);
        let dump = dump_database(url).await;
        dump.lines().filter(holds).map(table_of).collect()
    }
}

/// The table that a line of a dump is about. A text with line breaks has several lines, of which
/// only the first one names the table; the others are returned themselves.
fn table_of(line: &str) -> String {
    line.strip_prefix("INSERT INTO public.")
        .and_then(|rest| rest.split(' ').next())
        .map_or_else(|| format!("{line:.80}"), str::to_owned)
}

/// The whole database as SQL, with a statement for each row.
pub async fn dump_database(url: &str) -> String {
    let dumped = Command::new(postgres_binaries().program("pg_dump"))
        .args(["--inserts", "--dbname", url])
        .output()
        .await
        .expect("pg_dump runs");
    assert!(
        dumped.status.success(),
        "{}",
        String::from_utf8_lossy(&dumped.stderr)
    );
    let dump = String::from_utf8(dumped.stdout).expect("the database is in UTF-8");
    assert!(
        dump.contains("INSERT INTO public.tenant "),
        "the dump has the rows of tables"
    );
    dump
}

/// The digests of all stored content and of the requests that brought it, as they are in a dump.
pub async fn content_digests(url: &str) -> Vec<String> {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the test's database answers");
    sqlx::query_scalar(
        "select distinct encode(digest, 'hex') from (
             select content_digest as digest from ai_message where content::text <> '[]'
             union all select request_digest from ai_message where request_digest is not null
             union all select content_digest from ai_message_version
             union all select source_digest from ai_conversation_checkpoint
             union all select source_digest from ai_void_checkpoint
             union all select request_digest from ai_response
         ) as digests",
    )
    .fetch_all(&mut db)
    .await
    .expect("selects")
}
