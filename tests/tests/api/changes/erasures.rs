//! Erased messages, and their receipts.

use anneal_core::digest::SetDigest;
use anneal_testkit::{TestApp, TestConversation, assert_refused, id_range, pb, user};
use pb::{ErasureKind, ErasureState, RepairKind};
use sqlx::AssertSqlSafe;
use tonic::Code;

use super::{
    append_marked_turn, conversation_of_turns, conversation_with_checkpoints,
    conversation_with_tools, ids, listed_ids, listed_tokens, turns_by_id,
};

pub(super) async fn get_erasure(app: &TestApp, erasure_id: &str) -> pb::Erasure {
    let ask = pb::GetErasureRequest {
        erasure_id: erasure_id.to_owned(),
    };
    let erasure = app.erasures().get_erasure(ask).await;
    erasure.expect("is there").into_inner()
}

/// The erasures of a user; of all, if the id is empty.
pub(super) async fn list_erasures(app: &TestApp, user_id: &str) -> Vec<String> {
    let ask = pb::ListErasuresRequest {
        user_id: user_id.to_owned(),
        ..Default::default()
    };
    let listed = app.erasures().list_erasures(ask).await.expect("lists");
    let erasures = listed.into_inner().erasures;
    erasures
        .into_iter()
        .map(|erasure| erasure.erasure_id)
        .collect()
}

/// The numbers that this statement selects, with this conversation as `$1`.
pub(super) async fn select(
    app: &TestApp,
    sql: &str,
    conversation: &TestConversation<'_>,
) -> Vec<i64> {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
        .bind(conversation.uuid())
        .fetch_all(&mut app.db().await)
        .await
        .expect("selects")
}

/// Messages and bytes that the default tenant has stored.
pub(super) async fn read_usage(app: &TestApp) -> (i64, i64) {
    sqlx::query_as(
        "select coalesce(sum(messages), 0)::bigint, coalesce(sum(content_bytes), 0)::bigint from tenant_usage_part",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("sums")
}

/// The bytes of stored content, of messages and of versions.
pub(super) async fn content_bytes(app: &TestApp) -> i64 {
    sqlx::query_scalar(
        "select (select coalesce(sum(content_bytes), 0) from ai_message)::bigint
            + (select coalesce(sum(content_bytes), 0) from ai_message_version)::bigint",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("sums")
}

#[tokio::test]
async fn erased_messages_keep_their_ids_and_cannot_be_restored() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    conversation.withdraw(&[2]).await;
    let change = conversation.erase(&[2, 3]).await;
    assert_eq!(ids(&change.changed), [(2, 3)]);
    assert_eq!(change.withdrawn_messages, 2);
    assert_eq!(listed_ids(&conversation).await, [1, 4]);
    assert_eq!(turns_by_id(&conversation).await, [(1, 1), (4, 1)]);
    let total = change.token_total.expect("a total").tokens;
    assert_eq!(total, listed_tokens(&conversation).await);
    for (named, field) in [(vec![2], "message_ids[0]"), (vec![1, 3], "message_ids[1]")] {
        assert_refused(
            conversation.restore(&named).send().await,
            Code::FailedPrecondition,
            "MESSAGE_ERASED",
            field,
        );
    }
    let versions = "select message_id from ai_message_version where conversation_id = $1";
    assert!(select(&app, versions, &conversation).await.is_empty());
    assert_eq!(read_usage(&app).await, (4, content_bytes(&app).await));
    let again = conversation.erase(&[3, 2]).await;
    assert!(
        again.changed.is_empty() && again.erasure_id.is_empty() && again.change_id == 0,
        "{again:?}"
    );
    conversation.verify().await;
    conversation.append("And now?").await;
    conversation.verify().await;
}

#[tokio::test]
async fn a_receipt_says_what_was_erased_by_whom_and_when() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    conversation.withdraw(&[2]).await;
    let change = conversation.erase(&[2, 5]).await;
    let receipt = get_erasure(&app, &change.erasure_id).await;
    assert_eq!(
        (receipt.kind(), receipt.state()),
        (ErasureKind::Messages, ErasureState::Done)
    );
    assert_eq!(receipt.conversation_id, conversation.id);
    assert_eq!(receipt.requested_by, "anyone");
    assert!(receipt.requested_time.is_some() && receipt.ended_time.is_some());
    assert_eq!(
        (receipt.erased_messages, receipt.erased_conversations),
        (2, 0)
    );
    assert_eq!(receipt.rows.get("ai_message"), Some(&1), "{receipt:?}");
    assert_eq!(
        receipt.rows.get("ai_message_version"),
        Some(&1),
        "{receipt:?}"
    );
    let mut digest = SetDigest::default();
    for message in [2_i64, 5] {
        let id = conversation.uuid();
        digest.add(&[id.as_bytes().as_slice(), &message.to_be_bytes()].concat());
    }
    assert_eq!(receipt.ids_digest, digest.0);
    assert_eq!(list_erasures(&app, "").await, [change.erasure_id]);
}

#[tokio::test]
async fn erasing_what_stands_is_a_withdrawal_and_then_an_erasure() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let kinds =
        "select kind::bigint from ai_message_change where conversation_id = $1 order by change_id";
    // 1: a withdrawal, 4: an erasure.
    let change = conversation.erase(&[4]).await;
    assert_eq!(select(&app, kinds, &conversation).await, [1, 4]);
    conversation.withdraw(&[1]).await;
    conversation.erase(&[1]).await;
    assert_eq!(select(&app, kinds, &conversation).await, [1, 4, 1, 4]);
    let newest = "select change_id from ai_conversation where conversation_id = $1";
    assert_eq!(
        select(&app, newest, &conversation).await,
        [change.change_id + 2],
        "each change has its number"
    );
}

#[tokio::test]
async fn a_repeated_erasure_has_the_receipt_of_the_first() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let first = conversation.erase(&[1, 2]).request_id("e").await;
    let again = conversation.erase(&[2, 1]).request_id("e").await;
    assert!(again.replayed && !first.replayed);
    assert_eq!(
        (again.change_id, &again.changed, &again.erasure_id),
        (first.change_id, &first.changed, &first.erasure_id)
    );
    assert_eq!(list_erasures(&app, "").await.len(), 1);
    assert_refused(
        conversation.erase(&[3]).request_id("e").send().await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    let etag = again.etag;
    conversation.append("Something else?").await;
    assert_refused(
        conversation.erase(&[3]).expecting(4).send().await,
        Code::Aborted,
        "LAST_MESSAGE_MISMATCH",
        "",
    );
    let nothing = conversation.erase(&[1]).etag(&etag).request_id("n").await;
    assert!(nothing.erasure_id.is_empty());
    let nothing = conversation.erase(&[1]).request_id("n").await;
    assert!(
        nothing.replayed && nothing.erasure_id.is_empty(),
        "{nothing:?}"
    );
}

#[tokio::test]
async fn a_conversation_that_was_created_again_has_receipts_of_its_own() {
    let app = TestApp::start().await;
    let create = || {
        let ask = pb::CreateConversationRequest {
            request_id: "c".into(),
            ..Default::default()
        };
        app.conversation_with(ask)
    };
    let (mut ids, mut changes) = (Vec::new(), Vec::new());
    for erased in [2_i64, 1] {
        let conversation = create().await;
        conversation.turns(1).await;
        let change = conversation.erase(&[erased]).request_id("e").await;
        let receipt = get_erasure(&app, &change.erasure_id).await;
        let mut digest = SetDigest::default();
        let id = conversation.uuid();
        digest.add(&[id.as_bytes().as_slice(), &erased.to_be_bytes()].concat());
        assert_eq!(receipt.ids_digest, digest.0);
        let again = conversation.erase(&[erased]).request_id("e").await;
        assert_eq!(again.erasure_id, change.erasure_id);
        ids.push(conversation.id.clone());
        changes.push(change);
        let ask = pb::DeleteConversationRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        let deleted = app.conversations().delete_conversation(ask).await;
        deleted.expect("deletes");
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(changes[0].change_id, changes[1].change_id);
    assert_ne!(changes[0].erasure_id, changes[1].erasure_id);
    assert_eq!(list_erasures(&app, "").await.len(), 2);
}

#[tokio::test]
async fn a_job_that_was_put_off_still_waits_after_an_erasure_but_its_error_is_gone() {
    let app = TestApp::counted_by_workers().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let waits = "select (due_ts > now() + interval '30 minutes')::int::bigint from ai_job
                 where conversation_id = $1 and last_error = 'erased'";
    let put_off = async |error: &str| {
        let sql =
            "update ai_job set attempts = 0, last_error = $2, due_ts = now() + interval '1 hour'
                   where conversation_id = $1";
        let changed = sqlx::query(sql)
            .bind(conversation.uuid())
            .bind(error)
            .execute(&mut app.db().await)
            .await
            .expect("puts off");
        assert_eq!(changed.rows_affected(), 1, "the counting job");
    };
    put_off("the model is paused").await;
    let change = conversation.erase(&[1]).await;
    conversation.append("And now?").await;
    assert_eq!(select(&app, waits, &conversation).await, [1]);
    let receipt = get_erasure(&app, &change.erasure_id).await;
    assert_eq!(receipt.rows.get("ai_job"), Some(&1), "{receipt:?}");
    // The queue itself writes this error, which says nothing of messages.
    put_off("lease expired").await;
    conversation.erase(&[2]).await;
    let expired =
        "select count(*) from ai_job where conversation_id = $1 and last_error = 'lease expired'";
    assert_eq!(select(&app, expired, &conversation).await, [1]);
}

#[tokio::test]
async fn a_repeated_append_of_erased_messages_is_answered_and_no_digest_of_it_is_left() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let append = |text: &str| {
        conversation
            .append_all(vec![user(text), user("And this.")])
            .request_id("a")
    };
    let first = append("My name is Anna.").await;
    append("My name is Anna.").await;
    assert_refused(
        append("Another text.").send().await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    conversation.erase(&[2]).await;
    for text in ["My name is Anna.", "Another text."] {
        let again = append(text).await;
        assert!(again.replayed);
        assert_eq!(
            again.messages[0].message_id, first.messages[0].message_id,
            "{text}"
        );
    }
    assert_eq!(listed_ids(&conversation).await, [1]);
    conversation.verify().await;
}

#[tokio::test]
async fn no_version_of_an_erased_message_is_left_and_no_digest_of_its_edits() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let edit =
        |text: &str, request_id: &str| conversation.edit(3, user(text)).request_id(request_id);
    edit("My name is Anna.", "a").await;
    edit("My name is Bert.", "b").await;
    // This one changes nothing, so that no change says which message it is about.
    edit("My name is Bert.", "c").await;
    conversation.edit(1, user("And you?")).request_id("d").await;
    conversation.erase(&[3]).await;
    assert!(conversation.versions(3).await.is_empty());
    assert_eq!(conversation.versions(1).await.len(), 2);
    let history = conversation.messages_with_withdrawn().await;
    assert!(
        history[2].erased && history[2].parts.is_empty(),
        "{history:?}"
    );
    let digests = "select octet_length(request_digest)::bigint from ai_request
                   where conversation_id = $1 and method = 'edit_message' order by request_id";
    assert_eq!(select(&app, digests, &conversation).await, [0, 0, 0, 32]);
    assert_eq!(read_usage(&app).await, (4, content_bytes(&app).await));
    for request_id in ["a", "b", "c"] {
        let again = edit("Another text.", request_id).await;
        assert!(again.replayed, "{request_id}: {again:?}");
    }
    conversation.verify().await;
}

#[tokio::test]
async fn exactly_the_named_messages_are_erased_and_contexts_repair_the_pairs() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let change = conversation.erase(&[3]).await;
    assert_eq!(ids(&change.changed), [(3, 3)]);
    let built = conversation.context().await;
    built.assert_tools_paired();
    assert!(
        built.repairs().contains(&(RepairKind::ResultAdded, 2)),
        "{:?}",
        built.repairs()
    );
    conversation.verify().await;
}

#[tokio::test]
async fn summaries_of_erased_messages_are_gone_and_checkpoints_without_them_stay() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let withdrawn = conversation.withdraw(&[newer]).await;
    assert_eq!(withdrawn.void_checkpoints.len(), 1);
    assert_eq!(withdrawn.boundary_message_id, older);
    // A new checkpoint, of which the withdrawn message is no source.
    for _ in 0..6 {
        append_marked_turn(&conversation).await;
        app.run_jobs_until_idle().await;
    }
    let standing = conversation.checkpoints().await;
    assert!(standing[0].last_message_id > newer, "{standing:?}");
    let texts =
        "select octet_length(summary)::bigint from ai_void_checkpoint where conversation_id = $1";
    assert!(select(&app, texts, &conversation).await[0] > 0);
    let change = conversation.erase(&[newer]).await;
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(conversation.checkpoints().await, standing);
    assert_eq!(select(&app, texts, &conversation).await, [0]);
    let receipt = get_erasure(&app, &change.erasure_id).await;
    assert_eq!(receipt.rows.get("ai_void_checkpoint"), Some(&1));
    conversation.verify().await;
    // A message that stands, in the range of all checkpoints.
    let change = conversation.erase(&[1]).await;
    assert_eq!(change.void_checkpoints.len(), standing.len());
    assert!(conversation.checkpoints().await.is_empty());
    let texts = select(&app, texts, &conversation).await;
    assert!(texts.iter().all(|bytes| *bytes == 0), "{texts:?}");
    app.run_jobs_until_idle().await;
    conversation.verify().await;
}

#[tokio::test]
async fn a_range_that_spans_several_appends_is_erased() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 4).await;
    let ask = pb::EraseMessagesRequest {
        conversation_id: conversation.id.clone(),
        range: Some(id_range(2, 7)),
        ..Default::default()
    };
    let erased = app.messages().erase_messages(ask).await.expect("erases");
    assert_eq!(ids(&erased.into_inner().changed), [(2, 7)]);
    assert_eq!(listed_ids(&conversation).await, [1, 8]);
    conversation.verify().await;
}
