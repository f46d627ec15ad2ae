//! The calls of `foreign_conversations` when the tenant filters of the statements do not work: a
//! proxy puts the other tenant's id into every statement. Row-level security alone must hide the
//! other tenant's rows.

use std::collections::BTreeMap;

use anneal_testkit::{TenantSwapProxy, TestApp, every_rpc, valid_request};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::isolation::{
    foreign_conversations::{Outcome, TwoTenants, observe, start_two_tenants},
    row_security::{WITHOUT_ROW_SECURITY, tables},
};

/// Part of the title and of every user message of the other tenant's conversation.
const SECRET: &[u8] = b"secret";

/// Every row of a tenant in tables with row-level security, by table.
pub(crate) async fn rows_of(app: &TestApp, tenant: Uuid) -> BTreeMap<String, Vec<String>> {
    let mut db = app.db().await;
    let mut rows = BTreeMap::new();
    for table in tables(&mut db).await {
        if WITHOUT_ROW_SECURITY.contains(&table.as_str()) {
            continue;
        }
        let sql = format!("select t::text from {table} as t where tenant_id = $1 order by 1");
        let of_table = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(tenant)
            .fetch_all(&mut db)
            .await
            .expect("reads");
        rows.insert(table, of_table);
    }
    rows
}

/// Calls every RPC as Anna through the proxy. Returns the outcomes for Bert's conversation and for
/// one that does not exist.
async fn call_everything(tenants: &TwoTenants) -> Vec<(String, Outcome, Outcome)> {
    let (proxy, url) = TenantSwapProxy::to_database(&tenants.app.url).await;
    let unfiltered = tenants.app.second_server_at(&url).await;
    let anna = unfiltered.authorized_channel(&tenants.annas_authorization);
    let (from, to) = (
        tenants.app.tenant("anna").await,
        tenants.app.tenant("bert").await,
    );
    proxy.swap_tenants(from.0, to.0);
    let mut outcomes = Vec::new();
    for rpc in every_rpc() {
        let foreign = observe(
            &anna,
            &rpc.path,
            valid_request(&rpc.name, &tenants.foreign, "r"),
        )
        .await;
        let missing = observe(
            &anna,
            &rpc.path,
            valid_request(&rpc.name, &Uuid::now_v7().to_string(), "r"),
        )
        .await;
        outcomes.push((rpc.name, foreign, missing));
    }
    outcomes
}

/// Whether an answer or a refusal contains [`SECRET`].
pub(crate) fn holds_secret(outcome: &Outcome) -> bool {
    let bytes = match outcome {
        Ok(answer) => answer.clone().unwrap_or_default(),
        Err((_, words, details)) => [words.as_bytes(), details].concat(),
    };
    bytes.windows(SECRET.len()).any(|window| window == SECRET)
}

#[tokio::test]
async fn without_filters_a_foreign_conversation_answers_every_call_as_a_missing_one() {
    let tenants = start_two_tenants().await;
    let bert = tenants.app.tenant("bert").await.0;
    let before = rows_of(&tenants.app, bert).await;
    assert!(before["ai_message"].len() == 16 && !before["ai_conversation_checkpoint"].is_empty());
    let mut asked = 0;
    for (rpc, foreign, missing) in call_everything(&tenants).await {
        assert!(
            !holds_secret(&foreign) && !holds_secret(&missing),
            "{rpc}: {foreign:?} {missing:?}"
        );
        match rpc.as_str() {
            "ListConversations" | "ListJobs" => assert_eq!(foreign, Ok(Some(Vec::new())), "{rpc}"),
            _ if every_rpc()
                .iter()
                .any(|known| known.name == rpc && known.names_conversation) =>
            {
                asked += 1;
                assert_eq!(foreign, missing, "{rpc}");
                assert_eq!(foreign.expect_err(&rpc).0, tonic::Code::NotFound, "{rpc}");
            }
            _ => {}
        }
    }
    assert!(asked >= 20, "{asked} calls name a conversation");
    let after = rows_of(&tenants.app, bert).await;
    assert!(before == after, "rows of Bert have changed");
}

#[tokio::test]
async fn without_filters_and_row_security_the_same_calls_read_and_change_foreign_data() {
    let tenants = start_two_tenants().await;
    let bert = tenants.app.tenant("bert").await.0;
    let mut db = tenants.app.db().await;
    for table in tables(&mut db).await {
        let off = format!("alter table {table} disable row level security");
        sqlx::raw_sql(AssertSqlSafe(off))
            .execute(&mut db)
            .await
            .expect("alters");
    }
    let before = rows_of(&tenants.app, bert).await;
    let outcomes = call_everything(&tenants).await;
    let revealing: Vec<&str> = outcomes
        .iter()
        .filter(|(_, foreign, _)| holds_secret(foreign))
        .map(|(rpc, ..)| rpc.as_str())
        .collect();
    for rpc in ["GetConversation", "ListConversations"] {
        assert!(
            revealing.contains(&rpc),
            "without filters {rpc} reveals foreign data: {revealing:?}"
        );
    }
    assert!(
        before != rows_of(&tenants.app, bert).await,
        "the calls change foreign data"
    );
}
