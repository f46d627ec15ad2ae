//! Connections to the database that tenants share: one whose reads stand still leaves connections to the others, and to those
//! who ask for nobody's rows.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    policy::Session,
};
use anneal_store::{AppendSettings, Entity, PageAsk, PoolFigures, Store, StoreError, StoreSettings};
use anneal_tests::{House, eventually};
use sqlx::{Connection as _, PgConnection};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

const EVE: TenantId = TenantId(Uuid::from_u128(0xe));
const ANNA: TenantId = TenantId(Uuid::from_u128(0xa));
/// Connections for reads.
const READS: u32 = 4;
/// The end of what is answered at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a call of these stores waits for a connection.
const LONG_WAIT_MS: u32 = 60_000;

fn store(house: &House, pool_wait_ms: u32) -> Store {
    let settings =
        StoreSettings { url: house.url.clone(), read_connections: READS, pool_wait_ms, ..StoreSettings::default() };
    Store::new(settings, AppendSettings::default(), Session::default()).expect("the URL is good")
}

/// Keeps everybody from reading messages, until it is dropped.
async fn hold_messages(db: &mut PgConnection) -> sqlx::Transaction<'_, sqlx::Postgres> {
    let mut holding = db.begin().await.expect("begins");
    sqlx::query("lock table ai_message in access exclusive mode").execute(&mut *holding).await.expect("locks");
    holding
}

async fn read_messages(store: &Store, tenant: TenantId) -> Result<(), StoreError> {
    let page = PageAsk { from: None, newest_first: false, content: true, limit: 1 };
    store
        .messages_after(Caller::of(tenant), ConversationId(Uuid::nil()), page, &anneal_store::ContentRoom::unlimited())
        .await
        .map(drop)
}

/// Whether a read of something else than messages is answered.
async fn is_answered(store: &Store, tenant: TenantId) -> bool {
    let asked = store.conversation(Caller::of(tenant), ConversationId(Uuid::nil()));
    matches!(timeout(PATIENCE, asked).await, Ok(Err(StoreError::NotFound(Entity::Conversation))))
}

fn reads(store: &Store) -> PoolFigures {
    store.pools().into_iter().find(|(pool, _)| *pool == "reads").expect("there is a pool for reads").1
}

#[tokio::test]
async fn a_tenant_whose_reads_stand_still_waits_in_a_line_of_its_own() {
    let house = House::start().await;
    let store = store(&house, LONG_WAIT_MS).shared_by_tenants(50);
    let mut db = house.db().await;
    let holding = hold_messages(&mut db).await;
    let mut eves = JoinSet::new();
    let mut read = || {
        let store = store.clone();
        eves.spawn(async move { read_messages(&store, EVE).await })
    };
    let mut begun: Vec<_> = (0..10).map(|_| read()).collect();
    eventually("two reads have connections, the others wait", async || reads(&store).waiting == 8).await;
    for _ in 0..20 {
        assert!(is_answered(&store, ANNA).await, "the other half of the connections is for others");
    }
    begun.pop().expect("there are ten").abort();
    eventually("one that goes away leaves the line", async || reads(&store).waiting == 7).await;
    holding.rollback().await.expect("lets go");
    let mut answered = 0;
    while let Some(eve) = eves.join_next().await {
        answered += usize::from(eve.is_ok_and(|read| read.is_ok()));
    }
    assert_eq!(answered, 9, "all that have stayed");
    assert_eq!(reads(&store).waiting, 0);
}

#[tokio::test]
async fn a_tenant_that_waits_too_long_for_its_share_is_told_so() {
    let house = House::start().await;
    let store = store(&house, 100).shared_by_tenants(50);
    let mut db = house.db().await;
    let _holding = hold_messages(&mut db).await;
    let held: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { read_messages(&store, EVE).await })
        })
        .collect();
    eventually("both have connections", async || reads(&store).open == 2 && reads(&store).idle == 0).await;
    let refused = read_messages(&store, EVE).await;
    assert!(matches!(refused, Err(StoreError::ShareInUse)), "{refused:?}");
    assert!(is_answered(&store, ANNA).await);
    held.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn credentials_and_probes_are_answered_when_all_connections_for_reads_are_in_use() {
    let house = House::start().await;
    // One tenant that may have all of them.
    let store = store(&house, LONG_WAIT_MS);
    let mut db = house.db().await;
    let _holding = hold_messages(&mut db).await;
    let mut eves = JoinSet::new();
    for _ in 0..2 * READS {
        let store = store.clone();
        eves.spawn(async move { read_messages(&store, EVE).await });
    }
    eventually("all are in use", async || reads(&store).waiting == READS as usize).await;
    timeout(PATIENCE, store.ping()).await.expect("the probe waits for nobody").expect("the database answers");
    for _ in 0..20 {
        let found = timeout(PATIENCE, store.find_key(Uuid::new_v4())).await.expect("lookups wait for no reads");
        assert_eq!(found.expect("is looked up"), None);
    }
}

#[tokio::test]
async fn reads_that_are_given_up_have_no_more_statements_under_way_than_others() {
    let house = House::start().await;
    let store = Arc::new(store(&house, LONG_WAIT_MS).shared_by_tenants(50));
    let (mut db, mut eyes) = (house.db().await, house.db().await);
    let _holding = hold_messages(&mut db).await;
    let mut most = 0;
    for _ in 0..100 {
        // Long enough for a statement to begin where there is a connection for it.
        let _ = timeout(Duration::from_millis(20), read_messages(&store, EVE)).await;
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_one(&mut eyes)
        .await
        .expect("counts");
        most = most.max(waiting);
    }
    // Two that count as under way, and two before them that PostgreSQL has still to notice.
    assert!((1..=2 * i64::from(READS) / 2).contains(&most), "{most} statements wait in the database");
}
