//! Conversations of the attacker that are costly to read. They are inserted with SQL before the
//! attack, without jobs.

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

/// The agent of all conversations of the attacker.
pub(super) const AGENT: &str = "a";
/// Bytes of the largest message, just below the limit of 64 MiB.
pub(super) const LARGEST: i64 = 63 << 20;
/// Bytes of a message as large as the largest request.
const LARGE: i64 = 4 << 20;

/// SQL of `tool_outline` for a tool call; `n` is the message's id.
const OUTLINE_OF_CALL: &str = r#"('[{"call":{"id":"c' || n || '","name":"look"}}]')::json"#;
/// SQL of `tool_outline` for a tool result; `n` is the message's id.
const OUTLINE_OF_RESULT: &str = r#"('[{"result":{"id":"c' || n || '"}}]')::json"#;

/// The ids of the conversations.
#[derive(Debug, Clone)]
pub(super) struct StoredConversations {
    /// One message of [`LARGEST`] bytes.
    pub(super) largest: String,
    /// 34 messages of 4 MiB: together more than the 128 MiB that one context may read.
    pub(super) large: String,
    /// 200,000 user messages of one letter.
    pub(super) tiny: String,
    /// 50,000 tool calls without results.
    pub(super) calls: String,
    /// 50,000 tool results without calls.
    pub(super) results: String,
}

/// The messages of a conversation to be inserted.
struct Messages {
    /// As stored: 1 user, 2 assistant, 3 tool.
    role: i16,
    /// SQL of the column `content`; `n` is the message's id.
    content: String,
    /// SQL of the column `tool_outline`; `n` is the message's id.
    outline: &'static str,
    /// Bytes of text in each message, which the column `text_bytes` holds.
    text_bytes: i64,
    /// Number of messages.
    count: i64,
}

impl Messages {
    /// User messages of `bytes` letters each.
    fn text(bytes: i64, count: i64) -> Self {
        let content = format!(r#"'[{{"type":"text","text":"' || repeat('x', {bytes}) || '"}}]'"#);
        Self {
            role: 1,
            content,
            outline: "null::json",
            text_bytes: bytes,
            count,
        }
    }
}

impl StoredConversations {
    /// Inserts the conversations for a tenant into the database of this URL.
    pub(super) async fn store(url: &str, tenant: Uuid) -> Self {
        let mut db = PgConnection::connect(url)
            .await
            .expect("the connection succeeds");
        let call = r#"'[{"type":"tool_use","id":"c' || n || '","name":"look","input":"{}"}]'"#;
        let result = r#"'[{"type":"tool_result","id":"c' || n || '","text":"x"}]'"#;
        let (calls, results) = (
            Messages {
                role: 2,
                content: call.into(),
                outline: OUTLINE_OF_CALL,
                text_bytes: 2,
                count: 50_000,
            },
            Messages {
                role: 3,
                content: result.into(),
                outline: OUTLINE_OF_RESULT,
                text_bytes: 1,
                count: 50_000,
            },
        );
        let stored = Self {
            largest: store(&mut db, tenant, &Messages::text(LARGEST, 1)).await,
            large: store(&mut db, tenant, &Messages::text(LARGE, 34)).await,
            tiny: store(&mut db, tenant, &Messages::text(1, 200_000)).await,
            calls: store(&mut db, tenant, &calls).await,
            results: store(&mut db, tenant, &results).await,
        };
        sqlx::query("analyze ai_conversation, ai_message")
            .execute(&mut db)
            .await
            .expect("the tables are analyzed");
        db.close().await.expect("the connection is closed");
        stored
    }

    pub(super) fn with_many_messages(&self) -> [&str; 3] {
        [&self.tiny, &self.calls, &self.results]
    }

    pub(super) fn with_large_messages(&self) -> [&str; 2] {
        [&self.largest, &self.large]
    }
}

/// Inserts a conversation with these messages, each counted as one token. Returns its id.
async fn store(db: &mut PgConnection, tenant: Uuid, messages: &Messages) -> String {
    let (
        id,
        Messages {
            role,
            content,
            outline,
            text_bytes,
            count,
        },
    ) = (Uuid::new_v4(), messages);
    // `offset 0` keeps PostgreSQL from computing the content again at each of its uses.
    let statement = format!(
        "with made as (
            insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
                system_prompt, system_prompt_tokens, policy, encoding, last_message_id, last_role, turn, counted_message_id)
            values ($1, $2, '{AGENT}', '', 'old', false, '{{}}', '', 0, '{{\"max_message_count\": 0}}', 1, $3, {role}, 1, $3)
        )
        insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes,
            content_bytes, content, content_digest, tool_outline)
        select $1, $2, n, {role}, 1, 1, 1, {text_bytes}, octet_length(content), content::json,
            sha256(convert_to(content, 'UTF8')), {outline}
        from generate_series(1, $3) as n cross join lateral (select {content} as content offset 0) as parts"
    );
    let stored = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(tenant)
        .bind(id)
        .bind(count)
        .execute(db)
        .await;
    stored.expect("the conversation is stored");
    id.to_string()
}
