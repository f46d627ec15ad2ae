//! The service works behind PgBouncer in transaction mode, and tenants stay isolated.

use std::future::IntoFuture as _;

use anneal_core::caller::{Caller, TenantId};
use anneal_store::{ConversationFilter, Pooling};
use anneal_testkit::{Pooler, TestApp, TestConversation, assistant, direct_scope, pb, user};
use uuid::Uuid;

/// Appends 24 messages to each conversation, to both in parallel, and runs their jobs. Asserts that
/// both then have checkpoints.
async fn append_and_check(app: &TestApp, conversations: &[TestConversation<'_>; 2]) {
    for n in 0..12 {
        let exchange = |conversation: &str| {
            vec![
                user(&format!("{conversation} asks {n}")),
                assistant(&format!("{conversation} hears {n}")),
            ]
        };
        let (first, second) = (exchange("first"), exchange("second"));
        let (first, second) = tokio::join!(
            conversations[0]
                .append_all(first)
                .request_id(&format!("r{n}"))
                .into_future(),
            conversations[1].append_all(second).into_future(),
        );
        assert_eq!((first.messages.len(), second.messages.len()), (2, 2));
        app.run_jobs_until_idle().await;
    }
    for conversation in conversations {
        assert_eq!(conversation.messages().await.len(), 24);
        assert!(!conversation.checkpoints().await.is_empty());
        conversation.context().await.assert_covers(24);
        conversation.verify().await;
    }
}

/// Repeats requests under their request ids, and deletes what they have created.
async fn repeat_requests(app: &TestApp) {
    let ask = pb::CreateConversationRequest {
        request_id: "one".into(),
        ..Default::default()
    };
    let created = app
        .conversations()
        .create_conversation(ask.clone())
        .await
        .expect("creates")
        .into_inner();
    let created_again = app
        .conversations()
        .create_conversation(ask)
        .await
        .expect("repeats")
        .into_inner();
    assert_eq!(created, created_again);
    let other = pb::CreateConversationRequest {
        request_id: "one".into(),
        title: "x".into(),
        ..Default::default()
    };
    let reused = app
        .conversations()
        .create_conversation(other)
        .await
        .expect_err("another body");
    assert_eq!(reused.code(), tonic::Code::AlreadyExists);
    let first = app
        .rotate(&direct_scope("anna"), "n1")
        .await
        .expect("rotates");
    let repeated = app
        .rotate(&direct_scope("anna"), "n1")
        .await
        .expect("repeats");
    assert_eq!(
        app.conversation_of(&repeated).id,
        app.conversation_of(&first).id
    );
    for id in [created.conversation_id, app.conversation_of(&first).id] {
        let ask = pb::DeleteConversationRequest {
            conversation_id: id,
            ..Default::default()
        };
        app.conversations()
            .delete_conversation(ask)
            .await
            .expect("deletes");
    }
}

#[tokio::test]
async fn conversations_work_behind_pgbouncer_in_transaction_mode() {
    let direct = TestApp::start().await;
    let Some(pooler) = Pooler::start(&direct.url).await else {
        println!("skipped: there is no pgbouncer");
        return;
    };
    let app = TestApp::behind_pooler(&pooler.url, Pooling::Transaction).await;
    app.store.ping().await.expect("answers");
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversations = [
        app.conversation_with_policy(policy.clone()).await,
        app.conversation_with_policy(policy).await,
    ];
    append_and_check(&app, &conversations).await;
    repeat_requests(&app).await;
    let reused = conversations[0]
        .append("else")
        .request_id("r3")
        .send()
        .await;
    assert_eq!(
        reused.expect_err("another body").code(),
        tonic::Code::AlreadyExists
    );
    conversations[0].insert_separator().await;
    conversations[0].append("after the mark").await;
    conversations[0].verify().await;
    let outdated = conversations[0]
        .append("to nobody")
        .expecting(99)
        .send()
        .await;
    assert_eq!(
        outdated.expect_err("the newest id differs").code(),
        tonic::Code::Aborted
    );
    let filter = ConversationFilter {
        limit: 50,
        ..ConversationFilter::default()
    };
    let list_of = async |tenant| {
        app.store
            .list_conversations(Caller::of(tenant), &filter)
            .await
            .expect("lists")
            .conversations
    };
    assert_eq!(
        (
            list_of(TenantId::DEFAULT).await.len(),
            list_of(TenantId(Uuid::now_v7())).await.len()
        ),
        (2, 0)
    );
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversations[1].id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    assert_eq!(list_of(TenantId::DEFAULT).await.len(), 1);
}
