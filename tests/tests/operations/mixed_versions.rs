//! While servers and workers are replaced, those of version 0.2.0 read conversations in which newer
//! ones have changed messages. Their statements, which know nothing of changes, return nothing of
//! what was withdrawn, replaced or erased: it is not where they look. Nor do they accept a key that
//! is bound, which they would take for one of the whole tenant.

use anneal_core::caller::{Bound, BoundId, Verb};
use anneal_server::GeneratedKey;
use anneal_testkit::{TestApp, TestConversation, pb, prose, user};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::plans::{AS_OWNER, AS_SERVERS, TENANT};

/// A statement of version 0.2.0: its text, and its arguments after tenant and conversation.
type Statement = (&'static str, String);

/// The settings by profile that the statement for contexts takes.
const SETTINGS: &str =
    r#"{"": {"large_message_threshold": 200, "hot_zone_radius": 1, "cooling": "strict"}}"#;

/// Reads the rows of a context.
fn context_material() -> Statement {
    let arguments = format!("0, 0, '{SETTINGS}', '{{}}', 134217728, 1000000000, 200000000");
    (
        include_str!("version_0_2_0/context_material.sql"),
        arguments,
    )
}

/// Reads a page of messages.
fn list_messages() -> Statement {
    let arguments = "0, 500, 4194304, true, 4194304".to_owned();
    (include_str!("version_0_2_0/list_messages.sql"), arguments)
}

/// Reads the messages up to this one, of which a checkpoint is made.
fn checkpoint_sources(last: i64) -> Statement {
    let arguments = format!("0, {last}, 200");
    (
        include_str!("version_0_2_0/checkpoint_sources.sql"),
        arguments,
    )
}

/// The word by which a message's first content is recognized.
fn word(message: i64) -> String {
    format!("zw{message}z")
}

/// The rows that a statement returns, as text.
async fn rows_of(
    db: &mut PgConnection,
    conversation: &TestConversation<'_>,
    (sql, arguments): Statement,
) -> String {
    let prepare = format!(
        "{AS_SERVERS}; deallocate all; prepare old as
         select coalesce(string_agg(to_json(r)::text, ' '), '') from (\n{sql}\n) as r"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *db)
        .await
        .expect("the statement fits the newer schema");
    let id = &conversation.id;
    let execute = format!("execute old ({TENANT}, '{id}', {arguments})");
    let row = sqlx::raw_sql(AssertSqlSafe(execute))
        .fetch_one(&mut *db)
        .await
        .expect("the statement runs");
    sqlx::raw_sql(AS_OWNER).execute(db).await.expect("resets");
    row.get(0)
}

/// Creates a conversation of 14 messages with words. Message 11 is large and has a summary, and a
/// checkpoint covers the older messages.
async fn create_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(2),
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for question in (1..14).step_by(2) {
        let sentences = if question == 11 { 40 } else { 2 };
        let text =
            |message: i64, count| format!("{} {}", word(message), prose(message as usize, count));
        conversation
            .turn(&text(question, sentences), &text(question + 1, 2))
            .await;
        app.run_jobs_until_idle().await;
    }
    assert!(!conversation.checkpoints().await.is_empty());
    conversation
}

#[tokio::test]
async fn statements_of_version_0_2_0_return_nothing_of_what_no_longer_stands() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    let conversation = create_conversation(&app).await;
    let last = 14;
    let gone = [1, 3, 4, 5, 11].map(word);
    let before = rows_of(&mut db, &conversation, list_messages()).await;
    for word in &gone {
        assert!(before.contains(word.as_str()), "{word} is there at first");
    }
    conversation.erase(&[1]).await;
    conversation.withdraw(&[3, 4]).await;
    conversation
        .edit(5, user("zn5z is another question."))
        .await;
    conversation.edit(11, user("zn11z is a short one.")).await;
    conversation.withdraw(&[13]).await;
    conversation.restore(&[13]).await;
    let standing = [6, 7, 8, 9, 10, 12, 13, 14].map(word);
    let edited = ["zn5z", "zn11z"].map(str::to_owned);
    // First without a checkpoint, then with a new one.
    for has_checkpoint in [false, true] {
        if has_checkpoint {
            app.run_jobs_until_idle().await;
        }
        assert_eq!(conversation.checkpoints().await.is_empty(), !has_checkpoint);
        for (statement, reads_everything) in [
            (context_material(), !has_checkpoint),
            (list_messages(), true),
            (checkpoint_sources(last), true),
        ] {
            let rows = rows_of(&mut db, &conversation, statement).await;
            for word in &gone {
                assert!(!rows.contains(word.as_str()), "{word} is in {rows}");
            }
            for word in standing.iter().chain(&edited) {
                assert!(
                    rows.contains(word.as_str()) || !reads_everything,
                    "{word} is not in {rows}"
                );
            }
        }
    }
}

/// Whether a server of version 0.2.0 accepts this key: it compares the stored digest with the SHA-256
/// of the secret.
async fn is_accepted_by_version_0_2_0(app: &TestApp, key: &GeneratedKey) -> bool {
    let (_, secret) = key.text["anneal_".len()..]
        .split_once('_')
        .expect("two parts");
    let sql = "select secret_digest = sha256(convert_to($2, 'UTF8')) from (
            select tenant_id, verbs, secret_digest, (extract(epoch from expires_ts - now()) * 1000000)::bigint as ends_in_us
            from api_key
            where key_id = $1 and revoked_ts is null and (expires_ts is null or expires_ts > now())
        ) as key";
    sqlx::query_scalar(sql)
        .bind(key.id)
        .bind(secret)
        .fetch_one(&mut app.db().await)
        .await
        .expect("there is such a key")
}

#[tokio::test]
async fn a_server_of_version_0_2_0_refuses_a_bound_key() {
    let app = TestApp::start().await;
    let bound = Bound::User(BoundId::new("anna").expect("an id"));
    let (free, bound) = (
        app.key("a", &[Verb::Read]).await,
        app.bound_key("a", &[Verb::Read], bound).await,
    );
    assert!(is_accepted_by_version_0_2_0(&app, &free).await);
    assert!(!is_accepted_by_version_0_2_0(&app, &bound).await);
}
