//! The matrix once more, without the application's filter: every statement asks for the other tenant's rows. What stands
//! behind the filter, row-level security, lets through what the caller's own tenant may see: nothing of it.

use std::collections::BTreeMap;

use anneal_tests::{House, Unfiltered, every_rpc, sound_request};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::{
    matrix::{Learnt, Two, learn, two_tenants},
    rows::{BEFORE_THE_CALLER, tables},
};

/// What every word of the other tenant holds.
const SECRET: &[u8] = b"secret";

/// Every row of a tenant, by table, as its owner sees it.
pub(crate) async fn rows_of(house: &House, tenant: Uuid) -> BTreeMap<String, Vec<String>> {
    let mut db = house.db().await;
    let mut rows = BTreeMap::new();
    for table in tables(&mut db).await {
        if BEFORE_THE_CALLER.contains(&table.as_str()) {
            continue;
        }
        let sql = format!("select t::text from {table} as t where tenant_id = $1 order by 1");
        let of_table = sqlx::query_scalar(AssertSqlSafe(sql)).bind(tenant).fetch_all(&mut db).await.expect("reads");
        rows.insert(table, of_table);
    }
    rows
}

/// What Anna learns by every RPC, in the words of a sound request: of Bert's conversation, and of one that nobody has.
async fn asked_of_everything(two: &Two) -> Vec<(String, Learnt, Learnt)> {
    let (line, url) = Unfiltered::to(&two.house.url).await;
    let unfiltered = two.house.beside_at(&url).await;
    let anna = unfiltered.showing(&two.credential);
    let (from, to) = (two.house.tenant("anna").await, two.house.tenant("bert").await);
    line.exchange(from.0, to.0);
    let mut learnt = Vec::new();
    for rpc in every_rpc() {
        let foreign = learn(&anna, &rpc.path, sound_request(&rpc.name, &two.foreign, "r")).await;
        let missing = learn(&anna, &rpc.path, sound_request(&rpc.name, &Uuid::now_v7().to_string(), "r")).await;
        learnt.push((rpc.name, foreign, missing));
    }
    learnt
}

pub(crate) fn holds_secret(learnt: &Learnt) -> bool {
    let said = match learnt {
        Ok(answer) => answer.clone().unwrap_or_default(),
        Err((_, words, details)) => [words.as_bytes(), details].concat(),
    };
    said.windows(SECRET.len()).any(|window| window == SECRET)
}

#[tokio::test]
async fn without_the_applications_filter_a_foreign_conversation_still_answers_every_call_as_a_missing_one() {
    let two = two_tenants().await;
    let bert = two.house.tenant("bert").await.0;
    let before = rows_of(&two.house, bert).await;
    assert!(before["ai_message"].len() == 16 && !before["ai_conversation_checkpoint"].is_empty());
    let mut asked = 0;
    for (rpc, foreign, missing) in asked_of_everything(&two).await {
        assert!(!holds_secret(&foreign) && !holds_secret(&missing), "{rpc}: {foreign:?} {missing:?}");
        match rpc.as_str() {
            "ListConversations" | "ListJobs" => assert_eq!(foreign, Ok(Some(Vec::new())), "{rpc}"),
            _ if every_rpc().iter().any(|known| known.name == rpc && known.names_conversation) => {
                asked += 1;
                assert_eq!(foreign, missing, "{rpc}");
                assert_eq!(foreign.expect_err(&rpc).0, tonic::Code::NotFound, "{rpc}");
            }
            _ => {}
        }
    }
    assert!(asked >= 20, "{asked} calls name a conversation");
    let after = rows_of(&two.house, bert).await;
    assert!(before == after, "what is Bert's has changed");
}

#[tokio::test]
async fn without_row_security_as_well_the_same_calls_show_and_change_what_is_anothers() {
    let two = two_tenants().await;
    let bert = two.house.tenant("bert").await.0;
    let mut db = two.house.db().await;
    for table in tables(&mut db).await {
        let off = format!("alter table {table} disable row level security");
        sqlx::raw_sql(AssertSqlSafe(off)).execute(&mut db).await.expect("alters");
    }
    let before = rows_of(&two.house, bert).await;
    let learnt = asked_of_everything(&two).await;
    let shown: Vec<&str> =
        learnt.iter().filter(|(_, foreign, _)| holds_secret(foreign)).map(|(rpc, ..)| rpc.as_str()).collect();
    for rpc in ["GetConversation", "ListConversations"] {
        assert!(shown.contains(&rpc), "the filter is gone: {rpc} shows what it should not, as {shown:?} do");
    }
    assert!(before != rows_of(&two.house, bert).await, "and changes it");
}
