//! Limits on the bytes that one call or job reads. Pages, contexts and checkpoints are bounded by
//! the uncompressed bytes of their content. Images as `data:` URIs count too.

use anneal_testkit::{
    Built, TestApp, TestConversation, assistant, call, media, pb, prose, result, user,
};
use pb::{Reason, Representation};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

const MIB: usize = 1024 * 1024;
/// The store's statement that reads messages to count.
const UNCOUNTED_MESSAGES: &str = include_str!("../../../../store/sql/uncounted_messages.sql");
/// The store's statement that reads what a checkpoint is planned with.
const CHECKPOINT_MATERIAL: &str = include_str!("../../../../store/sql/checkpoint_material.sql");

/// Creates a conversation whose thresholds are never reached.
async fn conversation_without_triggers(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(0),
        token_threshold: Some(1_000_000_000),
        ..pb::Policy::default()
    };
    app.conversation_with_policy(policy).await
}

/// An image that PostgreSQL compresses to about a hundredth of its bytes.
fn compressible_image(bytes: usize) -> pb::NewMessage {
    media(&format!("data:image/png;base64,{}", "A".repeat(bytes)))
}

/// Runs a statement whose `$1` is the conversation's id.
async fn execute(app: &TestApp, sql: &str, id: &str) {
    let id: Uuid = id.parse().expect("an id");
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::query(sql)
        .bind(id)
        .execute(&mut app.db().await)
        .await
        .expect("changes");
}

/// Removes the stored content sizes, as in rows written before migration 0014.
async fn clear_stored_sizes(conversation: &TestConversation<'_>) {
    execute(
        conversation.app,
        "update ai_message set content_bytes = null where conversation_id = $1",
        &conversation.id,
    )
    .await;
}

/// Lists all messages. Returns the number of messages on each page.
async fn list_page_sizes(conversation: &TestConversation<'_>, newest_first: bool) -> Vec<usize> {
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            newest_first,
            page_token,
            ..pb::ListMessagesRequest::default()
        };
        let page = conversation
            .app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        pages.push(page.messages.len());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn the_byte_limit_of_a_page_applies_to_images_too() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    for _ in 0..4 {
        conversation
            .append_all(vec![compressible_image(3 * MIB / 2)])
            .await;
    }
    // A page holds at most 4 MiB of content, so two of the four images of 1.5 MiB each.
    for sizes_are_stored in [true, false] {
        if !sizes_are_stored {
            clear_stored_sizes(&conversation).await;
        }
        for newest_first in [false, true] {
            assert_eq!(
                list_page_sizes(&conversation, newest_first).await,
                [2, 2],
                "sizes stored: {sizes_are_stored}, newest first: {newest_first}"
            );
        }
    }
}

#[tokio::test]
async fn the_byte_limit_of_a_page_without_content_applies_to_its_summaries() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    conversation.turns(3).await;
    let sql = "update ai_message set summary_cache = repeat('word ', 300000), summary_tokens = 9, summary_kind = 2
        where conversation_id = $1";
    execute(&app, sql, &conversation.id).await;
    let ask = pb::ListMessagesRequest {
        conversation_id: conversation.id.clone(),
        without_content: true,
        ..Default::default()
    };
    let page = app
        .messages()
        .list_messages(ask)
        .await
        .expect("lists")
        .into_inner();
    assert_eq!(
        page.messages.len(),
        2,
        "two of the six summaries of 1.5 MB each"
    );
    assert!(!page.next_page_token.is_empty());
}

#[tokio::test]
async fn stored_content_bytes_equal_the_bytes_of_the_content_as_text() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    conversation
        .append_all(vec![
            user("a冷\u{0}"),
            call("1", "{\"n\" : 1}"),
            result("1", "seen"),
            compressible_image(100_000),
        ])
        .await;
    let sql = "select bool_and(content_bytes = octet_length(content::text)) from ai_message where conversation_id = $1";
    let id: Uuid = conversation.id.parse().expect("an id");
    let exact: Option<bool> = sqlx::query_scalar(sql)
        .bind(id)
        .fetch_one(&mut app.db().await)
        .await
        .expect("asks");
    assert_eq!(exact, Some(true));
}

#[tokio::test]
async fn the_byte_limit_of_a_counting_batch_applies_to_images_too() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    for _ in 0..4 {
        conversation
            .append_all(vec![compressible_image(3 * MIB)])
            .await;
    }
    for sizes_are_stored in [true, false] {
        if !sizes_are_stored {
            clear_stored_sizes(&conversation).await;
        }
        // At most 500 messages with at most 8 MiB of content. `false`: a conversation that has more
        // is read too, up to these limits.
        let read = sqlx::query(UNCOUNTED_MESSAGES)
            .bind([default_tenant(&app).await])
            .bind([conversation.id.parse::<Uuid>().expect("an id")])
            .bind(500_i64)
            .bind(8 * MIB as i64)
            .bind(false)
            .fetch_all(&mut app.db().await)
            .await
            .expect("reads");
        assert_eq!(read.len(), 2, "two of the four images of 3 MiB each");
    }
}

async fn default_tenant(app: &TestApp) -> Uuid {
    let sql = "select tenant_id from tenant where name = 'default'";
    sqlx::query_scalar(sql)
        .fetch_one(&mut app.db().await)
        .await
        .expect("is there")
}

#[tokio::test]
async fn the_plan_of_a_checkpoint_counts_the_bytes_of_images() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    conversation
        .append_all(vec![compressible_image(MIB), assistant("a picture")])
        .await;
    for sizes_are_stored in [true, false] {
        if !sizes_are_stored {
            clear_stored_sizes(&conversation).await;
        }
        // $3: the server's settings by profile. $4: the overrides of a preview, here none.
        let rows = sqlx::query(CHECKPOINT_MATERIAL)
            .bind(default_tenant(&app).await)
            .bind(conversation.id.parse::<Uuid>().expect("an id"))
            .bind(app.store.session().bases())
            .bind("{}")
            .fetch_all(&mut app.db().await)
            .await
            .expect("reads");
        // Column 0 is the message id, or 0 for the row about the conversation. Column 4 has the
        // bytes.
        let bytes: i64 = rows
            .iter()
            .filter(|row| row.get::<i64, _>(0) > 0)
            .map(|row| row.get::<i64, _>(4))
            .sum();
        assert!((MIB as i64..MIB as i64 + 1_000).contains(&bytes), "{bytes}");
    }
}

#[tokio::test]
async fn a_page_of_checkpoints_ends_early_when_summaries_are_long() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    conversation.turns(7).await;
    let sql = "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id, summary,
            token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
            generation, trigger_kind, focus, duration_ms)
        select tenant_id, conversation_id, 1, n, repeat('word ', 300000), 2, 2, 'm', 1, 1, '\\x00', 9, 2, 1, 2, '', 1
        from ai_conversation cross join generate_series(1, 7) as n where conversation_id = $1";
    execute(&app, sql, &conversation.id).await;
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: conversation.id.clone(),
            page_size: 500,
            page_token,
            ..Default::default()
        };
        let page = app
            .contexts()
            .list_checkpoints(ask)
            .await
            .expect("lists")
            .into_inner();
        pages.push(
            page.checkpoints
                .iter()
                .map(|checkpoint| checkpoint.last_message_id)
                .collect::<Vec<_>>(),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    // A page has at most 4 MiB of summaries, so two of 1.5 MB each.
    assert_eq!(pages, [vec![7, 6], vec![5, 4], vec![3, 2], vec![1]]);
}

/// Sets the stored content size of these messages to 30 MiB each. A context reads at most 128 MiB.
async fn set_large_content_bytes(
    conversation: &TestConversation<'_>,
    messages: std::ops::RangeInclusive<i64>,
) {
    let (first, last) = messages.into_inner();
    let sql = format!(
        "update ai_message set content_bytes = 30 * 1024 * 1024
         where conversation_id = $1 and message_id between {first} and {last}"
    );
    execute(conversation.app, &sql, &conversation.id).await;
}

fn omitted_messages(built: &Built) -> Vec<i64> {
    let omitted = built
        .0
        .manifest
        .iter()
        .filter(|entry| entry.reason() == Reason::ContentLimit);
    omitted.map(|entry| entry.first_message_id).collect()
}

#[tokio::test]
async fn a_context_reads_the_newest_messages_up_to_its_byte_limit_and_reports_the_omitted_ones() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    for n in 0..4 {
        conversation
            .turn(&prose(n * 9, 3), &prose(n * 9 + 3, 3))
            .await;
    }
    assert_eq!(omitted_messages(&conversation.context().await), [0_i64; 0]);
    set_large_content_bytes(&conversation, 1..=8).await;
    let built = conversation.context().await;
    built.assert_covers(8);
    assert_eq!(
        omitted_messages(&built),
        [1, 2, 3, 4],
        "four messages of 30 MiB fit; they are two whole turns"
    );
    assert_eq!(
        built.representation(1),
        (Representation::Dropped, Reason::ContentLimit)
    );
    assert!(built.entry(1).original_tokens > 0 && built.entry(1).tokens == 0);
    assert_eq!(built.texts_by_role().len(), 4);

    conversation.append("and now?").await;
    set_large_content_bytes(&conversation, 9..=9).await;
    let built = conversation.context().await;
    built.assert_covers(9);
    assert_eq!(
        omitted_messages(&built),
        [1, 2, 3, 4, 5, 6],
        "a turn is omitted as a whole"
    );
    assert_eq!(built.texts_by_role().len(), 3);
    let within_budget = conversation.context_within(10_000).await.expect("fits");
    within_budget.assert_covers(9);
    assert_eq!(omitted_messages(&within_budget), omitted_messages(&built));

    let ask = pb::BuildContextRequest {
        pressure: pb::Pressure::Compact.into(),
        dry_run: true,
        ..pb::BuildContextRequest::default()
    };
    let under_pressure = conversation.build(ask).await.expect("builds");
    under_pressure.assert_covers(9);
    conversation.verify().await;
}

#[tokio::test]
async fn the_newest_user_message_is_read_however_much_follows_it() {
    let app = TestApp::start().await;
    let conversation = conversation_without_triggers(&app).await;
    conversation.turn("before", "yes").await;
    conversation
        .append_all(vec![user("look at all of these")])
        .await;
    for n in 0..6 {
        conversation
            .append_all(vec![
                call(&n.to_string(), "{}"),
                result(&n.to_string(), &prose(n, 2)),
            ])
            .await;
    }
    set_large_content_bytes(&conversation, 1..=15).await;
    let built = conversation.context().await;
    built.assert_covers(15);
    built.assert_tools_paired();
    assert_eq!(
        built.representation(3).0,
        Representation::Original,
        "the newest user message is kept"
    );
    assert_eq!(omitted_messages(&built), [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert!(
        built.text().starts_with("look at all of these"),
        "{}",
        built.text()
    );

    conversation.append_all(vec![assistant("seen")]).await;
    set_large_content_bytes(&conversation, 16..=16).await;
    let built = conversation.context().await;
    built.assert_covers(16);
    built.assert_tools_paired();
    assert_eq!(
        omitted_messages(&built),
        (1..=13).filter(|id| *id != 3).collect::<Vec<_>>(),
        "a result is omitted with its call"
    );
}
