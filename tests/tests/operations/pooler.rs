//! Behind PgBouncer in transaction mode: everything is there, and nobody sees what is another's.

use std::future::IntoFuture as _;

use anneal_core::caller::{Caller, TenantId};
use anneal_store::{ConversationFilter, Pooling};
use anneal_tests::{House, Pooler, assistant, direct, pb, user};
use uuid::Uuid;

#[tokio::test]
async fn conversations_live_behind_pgbouncer_in_transaction_mode() {
    let beside = House::start().await;
    let Some(pooler) = Pooler::before(&beside.url).await else {
        println!("skipped: there is no pgbouncer");
        return;
    };
    let house = House::pooled(&pooler.url, Pooling::Transaction).await;
    house.store.ping().await.expect("answers");
    let policy = pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(2), ..Default::default() };
    let talks = [house.conversation_under(policy.clone()).await, house.conversation_under(policy).await];
    for n in 0..12 {
        let said = |talk: &str| vec![user(&format!("{talk} asks {n}")), assistant(&format!("{talk} hears {n}"))];
        let (first, second) = (said("first"), said("second"));
        let (first, second) = tokio::join!(
            talks[0].append_all(first).request_id(&format!("r{n}")).into_future(),
            talks[1].append_all(second).into_future(),
        );
        assert_eq!((first.messages.len(), second.messages.len()), (2, 2));
        house.run_jobs_until_idle().await;
    }
    for talk in &talks {
        assert_eq!(talk.messages().await.len(), 24);
        assert!(!talk.checkpoints().await.is_empty());
        talk.context().await.assert_covers(24);
        talk.verify().await;
    }
    let ask = pb::CreateConversationRequest { request_id: "one".into(), ..Default::default() };
    let made = house.conversations().create_conversation(ask.clone()).await.expect("creates").into_inner();
    let same = house.conversations().create_conversation(ask).await.expect("repeats").into_inner();
    assert_eq!(made, same);
    let other = pb::CreateConversationRequest { request_id: "one".into(), title: "x".into(), ..Default::default() };
    let reused = house.conversations().create_conversation(other).await.expect_err("another body");
    assert_eq!(reused.code(), tonic::Code::AlreadyExists);
    let first = house.rotate(&direct("anna"), "n1").await.expect("rotates");
    let repeated = house.rotate(&direct("anna"), "n1").await.expect("repeats");
    assert_eq!(house.talk(&repeated).id, house.talk(&first).id);
    for id in [made.conversation_id, house.talk(&first).id] {
        let ask = pb::DeleteConversationRequest { conversation_id: id, ..Default::default() };
        house.conversations().delete_conversation(ask).await.expect("deletes");
    }
    let again = talks[0].append("else").request_id("r3").send().await;
    assert_eq!(again.expect_err("another body").code(), tonic::Code::AlreadyExists);
    talks[0].separate().await;
    talks[0].append("after the mark").await;
    talks[0].verify().await;
    let missing = talks[0].append("to nobody").expecting(99).send().await;
    assert_eq!(missing.expect_err("has moved on").code(), tonic::Code::Aborted);
    let filter = ConversationFilter { limit: 50, ..ConversationFilter::default() };
    let of =
        async |tenant| house.store.list_conversations(Caller::of(tenant), &filter).await.expect("lists").conversations;
    assert_eq!((of(TenantId::DEFAULT).await.len(), of(TenantId(Uuid::now_v7())).await.len()), (2, 0));
    let ask = pb::DeleteConversationRequest { conversation_id: talks[1].id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    assert_eq!(of(TenantId::DEFAULT).await.len(), 1);
}
