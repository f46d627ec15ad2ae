//! Erased conversations, users and tenants, and their receipts.

use anneal_core::{caller::Verb, digest::SetDigest};
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{TestApp, TestConversation, assert_refused, pb};
use pb::{
    ErasureKind, ErasureState, conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
};
use tonic::Code;
use uuid::Uuid;

use super::{
    conversation_of_turns,
    erasures::{content_bytes, get_erasure, list_erasures, read_usage, select},
};

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
        (Some(2), Some(6))
    );
    assert!(planned.erasure_id.is_empty() && planned.requested_time.is_none());
    assert!(
        list_erasures(&app, "").await.is_empty(),
        "nothing is stored"
    );

    let erase_user = async |user_id: &str, request_id: &str| {
        let ask = erase_user(user_id, request_id);
        app.erasures()
            .erase_user(ask)
            .await
            .map(tonic::Response::into_inner)
    };
    let begun = erase_user("anna", "e").await.expect("begins");
    assert_eq!(begun.state(), ErasureState::Running);
    assert_eq!(
        (begun.expected_conversations, begun.expected_messages),
        (None, None),
        "the first step counts"
    );
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
        (Some(3), 3)
    );
    assert_eq!(
        (receipt.expected_messages, receipt.erased_messages),
        (Some(8), 8)
    );
    assert_eq!(receipt.rows.get("ai_conversation"), Some(&3));
    assert_eq!(receipt.rows.get("ai_message"), Some(&8));
    assert_eq!(receipt.ids_digest, digest_of(&[&late, &first, &second]));
    let names =
        "select count(*) from ai_erasure where user_id is not null and $1::uuid is not null";
    assert_eq!(select(&app, names, &berts).await, [0]);
    assert_eq!(
        list_erasures(&app, "anna").await,
        std::slice::from_ref(&begun.erasure_id)
    );
    assert!(list_erasures(&app, "bert").await.is_empty());

    let again = erase_user("anna", "e").await.expect("is answered");
    assert_eq!(again, receipt, "a repetition is answered with the receipt");
    assert_refused(
        erase_user("bert", "e").await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    let nothing = erase_user("anna", "").await.expect("begins");
    app.run_erasures().await;
    let nothing = get_erasure(&app, &nothing.erasure_id).await;
    assert_eq!(
        (nothing.state(), nothing.erased_conversations),
        (ErasureState::Done, 0)
    );
    assert_eq!(nothing.expected_conversations, Some(0));
    assert_eq!(list_erasures(&app, "anna").await.len(), 2);
    app.run_jobs_until_idle().await;
    assert_eq!(read_usage(&app).await, (2, content_bytes(&app).await));
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
    assert_eq!(read_usage(&app).await, (0, 0));
}

#[tokio::test]
async fn a_repeated_deletion_has_its_receipt_and_spares_a_conversation_that_was_created_again() {
    let app = TestApp::start().await;
    let create = || {
        let ask = pb::CreateConversationRequest {
            request_id: "c".into(),
            ..Default::default()
        };
        app.conversation_with(ask)
    };
    let delete = async |id: &str| {
        let ask = pb::DeleteConversationRequest {
            conversation_id: id.to_owned(),
            request_id: "d".into(),
            with_receipt: true,
        };
        let deleted = app.conversations().delete_conversation(ask).await;
        deleted.expect("is answered").into_inner().erasure_id
    };
    let first = create().await;
    first.turns(1).await;
    let receipt = delete(&first.id).await;
    let second = create().await;
    assert_eq!(second.id, first.id);
    assert_eq!(delete(&second.id).await, receipt);
    assert!(exists(&second).await);
    assert_eq!(list_erasures(&app, "").await, [receipt]);
}

#[tokio::test]
async fn the_erasure_of_a_tenant_keeps_the_figures_by_which_the_operator_limits_it() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let fill = "insert into ai_model_spend (tenant_id, day, model, calls, failed_calls, input_tokens, output_tokens)
            select tenant_id, now()::date, 'm', 1, 0, 5000000, 1 from tenant;
        insert into ai_tenant_breaker (tenant_id, model, failures, open_until_ts)
            select tenant_id, 'm', 7, now() + interval '1 minute' from tenant;
        insert into ai_model (tenant_id, model) select tenant_id, 'the model of Anna' from tenant";
    sqlx::raw_sql(fill)
        .execute(&mut app.db().await)
        .await
        .expect("fills");
    let ask = pb::EraseTenantRequest {
        confirm_tenant: "default".into(),
        ..Default::default()
    };
    let begun = app.erasures().erase_tenant(ask).await.expect("begins");
    app.run_erasures().await;
    let receipt = get_erasure(&app, &begun.into_inner().erasure_id).await;
    assert_eq!(receipt.state(), ErasureState::Done);
    assert_eq!(receipt.rows.get("ai_model"), Some(&1), "{receipt:?}");
    let left = "select n from (
            select 1 as at, (select sum(input_tokens) from ai_model_spend)::bigint as n
            union all select 2, (select sum(failures) from ai_tenant_breaker)::bigint
            union all select 3, (select count(*) from ai_model)) as counted
        where $1::uuid is not null order by at";
    assert_eq!(select(&app, left, &conversation).await, [5_000_000, 7, 0]);
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
    let Ok([(anna, hers), (bert, his)]) = <[_; 2]>::try_from(conversations) else {
        panic!("there are two tenants");
    };
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
    let refused = MessageServiceClient::new(channel)
        .erase_messages(erase)
        .await;
    assert_refused(refused, Code::PermissionDenied, "VERB_MISSING", "");
}
