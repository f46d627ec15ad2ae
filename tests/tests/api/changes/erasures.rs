//! Erased messages, conversations, users and tenants, and their receipts.

use anneal_core::{caller::Verb, digest::SetDigest};
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{TestApp, TestConversation, assert_refused, id_range, pb, user};
use pb::{
    ErasureKind, ErasureState, RepairKind, conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient,
};
use sqlx::AssertSqlSafe;
use tonic::Code;
use uuid::Uuid;

use super::{
    append_marked_turn, conversation_of_turns, conversation_with_checkpoints,
    conversation_with_tools, ids, listed_ids, listed_tokens, turns_by_id,
};

async fn get_erasure(app: &TestApp, erasure_id: &str) -> pb::Erasure {
    let ask = pb::GetErasureRequest {
        erasure_id: erasure_id.to_owned(),
    };
    let erasure = app.erasures().get_erasure(ask).await;
    erasure.expect("is there").into_inner()
}

/// The erasures of a user; of all, if the id is empty.
async fn list_erasures(app: &TestApp, user_id: &str) -> Vec<String> {
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

fn erase_user(user_id: &str, request_id: &str) -> pb::EraseUserRequest {
    pb::EraseUserRequest {
        user_id: user_id.to_owned(),
        request_id: request_id.to_owned(),
        dry_run: false,
    }
}

/// A conversation of this user, with this many turns.
async fn conversation_of_user<'a>(
    app: &'a TestApp,
    user_id: &str,
    turns: usize,
) -> TestConversation<'a> {
    let ask = pb::CreateConversationRequest {
        user_id: user_id.to_owned(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(turns).await;
    conversation
}

async fn exists(conversation: &TestConversation<'_>) -> bool {
    let ask = pb::GetConversationRequest {
        conversation_id: conversation.id.clone(),
    };
    let found = conversation.app.conversations().get_conversation(ask).await;
    found.is_ok()
}

/// The digest that a receipt has of these conversations.
fn digest_of(conversations: &[&TestConversation<'_>]) -> Vec<u8> {
    let mut digest = SetDigest::default();
    for conversation in conversations {
        digest.add(conversation.uuid().as_bytes());
    }
    digest.0.to_vec()
}

/// The numbers that this statement selects, with this conversation as `$1`.
async fn select(app: &TestApp, sql: &str, conversation: &TestConversation<'_>) -> Vec<i64> {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
        .bind(conversation.uuid())
        .fetch_all(&mut app.db().await)
        .await
        .expect("selects")
}

/// Messages and bytes that the default tenant has stored.
async fn stored(app: &TestApp) -> (i64, i64) {
    sqlx::query_as(
        "select coalesce(sum(messages), 0)::bigint, coalesce(sum(content_bytes), 0)::bigint from tenant_usage_part",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("sums")
}

/// The bytes of stored content, of messages and of versions.
async fn content_bytes(app: &TestApp) -> i64 {
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
    assert_eq!(stored(&app).await, (4, content_bytes(&app).await));
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
async fn a_range_is_erased_over_several_appends() {
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

#[tokio::test]
async fn all_conversations_of_a_user_are_deleted_and_the_receipt_no_longer_names_the_user() {
    let app = TestApp::start().await;
    let (first, second) = (
        conversation_of_user(&app, "anna", 2).await,
        conversation_of_user(&app, "anna", 1).await,
    );
    let berts = conversation_of_user(&app, "bert", 1).await;
    let dry_run = pb::EraseUserRequest {
        dry_run: true,
        ..erase_user("anna", "d")
    };
    let planned = app
        .erasures()
        .erase_user(dry_run)
        .await
        .expect("counts")
        .into_inner();
    assert_eq!(
        (planned.expected_conversations, planned.expected_messages),
        (2, 6)
    );
    assert!(planned.erasure_id.is_empty() && planned.requested_time.is_none());
    assert!(
        list_erasures(&app, "").await.is_empty(),
        "nothing is stored"
    );

    let begin = async |user_id: &str, request_id: &str| {
        let ask = erase_user(user_id, request_id);
        app.erasures()
            .erase_user(ask)
            .await
            .map(tonic::Response::into_inner)
    };
    let begun = begin("anna", "e").await.expect("begins");
    assert_eq!(begun.state(), ErasureState::Running);
    assert!(exists(&first).await, "nothing is deleted yet");
    // Made after the erasure was asked for.
    let late = conversation_of_user(&app, "anna", 1).await;
    app.run_erasures().await;
    for conversation in [&first, &second, &late] {
        assert!(!exists(conversation).await);
        let left = app.list_tables_with_rows(conversation.uuid()).await;
        assert_eq!(left, [""; 0]);
    }
    assert!(exists(&berts).await);
    berts.verify().await;

    let receipt = get_erasure(&app, &begun.erasure_id).await;
    assert_eq!(
        (receipt.kind(), receipt.state()),
        (ErasureKind::User, ErasureState::Done)
    );
    assert_eq!(
        (receipt.expected_conversations, receipt.erased_conversations),
        (2, 3)
    );
    assert_eq!((receipt.expected_messages, receipt.erased_messages), (6, 8));
    assert_eq!(receipt.rows.get("ai_conversation"), Some(&3));
    assert_eq!(receipt.rows.get("ai_message"), Some(&8));
    assert_eq!(receipt.ids_digest, digest_of(&[&late, &first, &second]));
    let names =
        "select count(*) from ai_erasure where user_id is not null and $1::uuid is not null";
    assert_eq!(select(&app, names, &berts).await, [0]);
    assert_eq!(
        list_erasures(&app, "anna").await,
        [begun.erasure_id.clone()]
    );
    assert!(list_erasures(&app, "bert").await.is_empty());

    let again = begin("anna", "e").await.expect("is answered");
    assert_eq!(again, receipt, "a repetition is answered with the receipt");
    assert_refused(
        begin("bert", "e").await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    let nothing = begin("anna", "").await.expect("begins");
    app.run_erasures().await;
    let nothing = get_erasure(&app, &nothing.erasure_id).await;
    assert_eq!(
        (nothing.state(), nothing.erased_conversations),
        (ErasureState::Done, 0)
    );
    assert_eq!(list_erasures(&app, "anna").await.len(), 2);
    app.run_jobs_until_idle().await;
    assert_eq!(stored(&app).await, (2, content_bytes(&app).await));
}

#[tokio::test]
async fn a_receipt_counts_the_rows_of_every_table() {
    let app = TestApp::start().await;
    let conversation = conversation_of_user(&app, "anna", 1).await;
    let filled = app.list_tables_with_rows(conversation.uuid()).await;
    let all = app.list_tables_of_conversations().await;
    for table in all.iter().filter(|table| !filled.contains(table)) {
        app.insert_any_row(table, conversation.uuid()).await;
    }
    let begun = app
        .erasures()
        .erase_user(erase_user("anna", ""))
        .await
        .expect("begins")
        .into_inner();
    app.run_erasures().await;
    let receipt = get_erasure(&app, &begun.erasure_id).await;
    let mut counted: Vec<String> = receipt.rows.into_keys().collect();
    counted.sort_unstable();
    assert_eq!(counted, all);
    assert_eq!(
        app.list_tables_with_rows(conversation.uuid()).await,
        [""; 0]
    );
}

#[tokio::test]
async fn a_conversation_is_deleted_with_a_receipt_on_request_and_a_repetition_finds_it() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let other = conversation_of_turns(&app, 1).await;
    let delete = |conversation: &TestConversation<'_>, request_id: &str, with_receipt| {
        pb::DeleteConversationRequest {
            conversation_id: conversation.id.clone(),
            request_id: request_id.to_owned(),
            with_receipt,
        }
    };
    let ask = delete(&conversation, "d", true);
    let mut conversations = app.conversations();
    let deleted = conversations.delete_conversation(ask.clone()).await;
    let deleted = deleted.expect("deletes").into_inner();
    let again = conversations.delete_conversation(ask).await;
    assert_eq!(again.expect("is answered").into_inner(), deleted);
    let receipt = get_erasure(&app, &deleted.erasure_id).await;
    assert_eq!(
        (receipt.kind(), receipt.state()),
        (ErasureKind::Conversation, ErasureState::Done)
    );
    assert_eq!(receipt.conversation_id, conversation.id);
    assert_eq!(
        (receipt.erased_conversations, receipt.erased_messages),
        (1, 4)
    );
    assert_eq!(receipt.ids_digest, digest_of(&[&conversation]));
    assert_refused(
        conversations
            .delete_conversation(delete(&other, "d", true))
            .await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    assert!(exists(&other).await);
    let deleted = conversations
        .delete_conversation(delete(&other, "d", false))
        .await;
    assert!(deleted.expect("deletes").into_inner().erasure_id.is_empty());
    assert_eq!(list_erasures(&app, "").await.len(), 1);
    app.run_jobs_until_idle().await;
    assert_eq!(stored(&app).await, (0, 0));
}

#[tokio::test]
async fn pages_of_erasures_hold_each_once_the_newest_first() {
    let app = TestApp::start().await;
    let mut begun = Vec::new();
    for n in 0..5 {
        let user_id = if n == 2 { "bert" } else { "anna" };
        let erasure = app.erasures().erase_user(erase_user(user_id, "")).await;
        begun.push(erasure.expect("begins").into_inner().erasure_id);
    }
    begun.reverse();
    for (user_id, expected) in [
        ("", begun.clone()),
        ("anna", [&begun[..2], &begun[3..]].concat()),
    ] {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let ask = pb::ListErasuresRequest {
                user_id: user_id.to_owned(),
                page_size: 2,
                page_token,
            };
            let page = app.erasures().list_erasures(ask).await.expect("lists");
            let page = page.into_inner();
            listed.extend(page.erasures.into_iter().map(|erasure| erasure.erasure_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(listed, expected, "of {user_id:?}");
    }
}

#[tokio::test]
async fn a_tenant_is_erased_by_its_name_and_no_other_tenant_is_touched() {
    let auth = AuthSettings {
        api_keys: true,
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    let mut conversations = Vec::new();
    for tenant in ["anna", "bert"] {
        let channel = app.authorized_channel(&format!(
            "Bearer {}",
            app.key(tenant, &Verb::ALL).await.text
        ));
        let made = ConversationServiceClient::new(channel.clone())
            .create_conversation(pb::CreateConversationRequest::default())
            .await
            .expect("creates");
        conversations.push((channel, made.into_inner().conversation_id));
    }
    let [(anna, hers), (bert, his)] = conversations.try_into().expect("two tenants");
    let mut erasures = ErasureServiceClient::new(anna.clone());
    let ask = |name: &str| pb::EraseTenantRequest {
        confirm_tenant: name.to_owned(),
        ..Default::default()
    };
    for name in ["", "bert", "Anna"] {
        assert_refused(
            erasures.erase_tenant(ask(name)).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "confirm_tenant",
        );
    }
    let begun = erasures.erase_tenant(ask("anna")).await.expect("begins");
    let begun = begun.into_inner();
    app.run_erasures().await;
    let get = |conversation_id: &str| pb::GetConversationRequest {
        conversation_id: conversation_id.to_owned(),
    };
    let gone = ConversationServiceClient::new(anna)
        .get_conversation(get(&hers))
        .await;
    assert_refused(gone, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    ConversationServiceClient::new(bert.clone())
        .get_conversation(get(&his))
        .await
        .expect("is there");
    let ask = pb::GetErasureRequest {
        erasure_id: begun.erasure_id,
    };
    let receipt = erasures.get_erasure(ask.clone()).await.expect("is there");
    let receipt = receipt.into_inner();
    assert_eq!(
        (
            receipt.kind(),
            receipt.state(),
            receipt.erased_conversations
        ),
        (ErasureKind::Tenant, ErasureState::Done, 1)
    );
    assert!(receipt.requested_by.starts_with("key:"), "{receipt:?}");
    let foreign = ErasureServiceClient::new(bert).get_erasure(ask).await;
    assert_refused(foreign, Code::NotFound, "ERASURE_NOT_FOUND", "");
}

#[tokio::test]
async fn only_an_admin_erases_and_sees_receipts() {
    let auth = AuthSettings {
        api_keys: true,
        ..Default::default()
    };
    let app = TestApp::with_auth(ServerSettings::default(), auth).await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let channel = app.authorized_channel(&format!("Bearer {}", key.text));
    let mut erasures = ErasureServiceClient::new(channel.clone());
    let list = pb::ListErasuresRequest::default();
    assert_refused(
        erasures.list_erasures(list).await,
        Code::PermissionDenied,
        "VERB_MISSING",
        "",
    );
    assert_refused(
        erasures.erase_user(erase_user("anna", "")).await,
        Code::PermissionDenied,
        "VERB_MISSING",
        "",
    );
    let erase = pb::EraseMessagesRequest {
        conversation_id: Uuid::now_v7().to_string(),
        message_ids: vec![1],
        ..Default::default()
    };
    let refused = pb::message_service_client::MessageServiceClient::new(channel)
        .erase_messages(erase)
        .await;
    assert_refused(refused, Code::PermissionDenied, "VERB_MISSING", "");
}
