//! Tenants share the database connections of a server. If reads of one tenant are blocked, other
//! tenants, lookups of credentials and health probes still get connections.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    policy::SessionSettings,
};
use anneal_store::{
    AppendSettings, Entity, PageAsk, PoolFigures, Store, StoreError, StoreSettings,
};
use anneal_testkit::{TestApp, eventually};
use sqlx::{Connection as _, PgConnection};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

/// The tenant whose reads are blocked.
const EVE: TenantId = TenantId(Uuid::from_u128(0xe));
/// Another tenant.
const ANNA: TenantId = TenantId(Uuid::from_u128(0xa));
/// Connections of the read pool.
const READ_CONNECTIONS: u32 = 4;
/// Deadline for calls that do not wait for a connection.
const DEADLINE: Duration = Duration::from_secs(10);
/// Wait for a connection in milliseconds, longer than any test.
const LONG_WAIT_MS: u32 = 60_000;

fn store(app: &TestApp, pool_wait_ms: u32) -> Store {
    let settings = StoreSettings {
        url: app.url.clone(),
        read_connections: READ_CONNECTIONS,
        pool_wait_ms,
        ..StoreSettings::default()
    };
    Store::new(
        settings,
        AppendSettings::default(),
        SessionSettings::default(),
    )
    .expect("the URL is good")
}

/// Locks `ai_message` against reads until the transaction is dropped.
async fn lock_messages(db: &mut PgConnection) -> sqlx::Transaction<'_, sqlx::Postgres> {
    let mut transaction = db.begin().await.expect("begins");
    sqlx::query("lock table ai_message in access exclusive mode")
        .execute(&mut *transaction)
        .await
        .expect("locks");
    transaction
}

async fn read_messages(store: &Store, tenant: TenantId) -> Result<(), StoreError> {
    let page = PageAsk {
        after: None,
        newest_first: false,
        content: true,
        limit: 1,
    };
    store
        .list_messages_after(
            Caller::of(tenant),
            ConversationId(Uuid::nil()),
            page,
            &anneal_store::ReadBudget::unlimited(),
        )
        .await
        .map(drop)
}

/// Whether a read of a table that is not locked is answered (with "not found").
async fn can_get_conversation(store: &Store, tenant: TenantId) -> bool {
    let asked = store.get_conversation(Caller::of(tenant), ConversationId(Uuid::nil()));
    matches!(
        timeout(DEADLINE, asked).await,
        Ok(Err(StoreError::NotFound(Entity::Conversation)))
    )
}

fn read_pool_figures(store: &Store) -> PoolFigures {
    store
        .pool_figures()
        .into_iter()
        .find(|(pool, _)| *pool == "reads")
        .expect("there is a pool for reads")
        .1
}

#[tokio::test]
async fn blocked_reads_of_a_tenant_use_half_of_the_connections() {
    let app = TestApp::start().await;
    // Each tenant may use 50 percent of the connections.
    let store = store(&app, LONG_WAIT_MS).shared_by_tenants(50);
    let mut db = app.db().await;
    let lock = lock_messages(&mut db).await;
    let mut reads_of_eve = JoinSet::new();
    let mut read = || {
        let store = store.clone();
        reads_of_eve.spawn(async move { read_messages(&store, EVE).await })
    };
    let mut abort_handles: Vec<_> = (0..10).map(|_| read()).collect();
    eventually("two reads have connections, the others wait", async || {
        read_pool_figures(&store).waiting == 8
    })
    .await;
    for _ in 0..20 {
        assert!(
            can_get_conversation(&store, ANNA).await,
            "the other half of the connections is free for other tenants"
        );
    }
    abort_handles.pop().expect("there are ten").abort();
    eventually("a cancelled read leaves the queue", async || {
        read_pool_figures(&store).waiting == 7
    })
    .await;
    lock.rollback().await.expect("rolls back");
    let mut answered = 0;
    while let Some(ended) = reads_of_eve.join_next().await {
        answered += usize::from(ended.is_ok_and(|read| read.is_ok()));
    }
    assert_eq!(answered, 9, "every read that was not cancelled is answered");
    assert_eq!(read_pool_figures(&store).waiting, 0);
}

#[tokio::test]
async fn a_tenant_that_waits_too_long_for_its_share_gets_share_in_use() {
    let app = TestApp::start().await;
    let store = store(&app, 100).shared_by_tenants(50);
    let mut db = app.db().await;
    let _lock = lock_messages(&mut db).await;
    let held: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { read_messages(&store, EVE).await })
        })
        .collect();
    eventually("both reads have connections", async || {
        read_pool_figures(&store).open == 2 && read_pool_figures(&store).idle == 0
    })
    .await;
    let refused = read_messages(&store, EVE).await;
    assert!(
        matches!(refused, Err(StoreError::ShareInUse)),
        "{refused:?}"
    );
    assert!(can_get_conversation(&store, ANNA).await);
    held.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn credentials_and_probes_are_answered_when_all_connections_for_reads_are_in_use() {
    let app = TestApp::start().await;
    // Without shares: one tenant may use all connections.
    let store = store(&app, LONG_WAIT_MS);
    let mut db = app.db().await;
    let _lock = lock_messages(&mut db).await;
    let mut reads_of_eve = JoinSet::new();
    for _ in 0..2 * READ_CONNECTIONS {
        let store = store.clone();
        reads_of_eve.spawn(async move { read_messages(&store, EVE).await });
    }
    eventually("all connections are in use", async || {
        read_pool_figures(&store).waiting == READ_CONNECTIONS as usize
    })
    .await;
    timeout(DEADLINE, store.ping())
        .await
        .expect("the probe does not wait for reads")
        .expect("the database answers");
    for _ in 0..20 {
        let found = timeout(DEADLINE, store.find_key(Uuid::new_v4()))
            .await
            .expect("lookups do not wait for reads");
        assert_eq!(found.expect("the lookup succeeds"), None);
    }
}

#[tokio::test]
async fn cancelled_reads_run_few_statements() {
    let app = TestApp::start().await;
    let store = Arc::new(store(&app, LONG_WAIT_MS).shared_by_tenants(50));
    let (mut db, mut observer) = (app.db().await, app.db().await);
    let _lock = lock_messages(&mut db).await;
    let mut most = 0;
    for _ in 0..100 {
        // Long enough to start a statement if a connection is free.
        let _ = timeout(Duration::from_millis(20), read_messages(&store, EVE)).await;
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .fetch_one(&mut observer)
        .await
        .expect("counts");
        most = most.max(waiting);
    }
    // The reads that have the tenant's half of the connections, and as many cancelled ones whose
    // end PostgreSQL has not noticed yet.
    let share = i64::from(READ_CONNECTIONS) / 2;
    assert!(
        (1..=2 * share).contains(&most),
        "{most} statements wait in the database"
    );
}
