//! A long chain of responses: each one costs the statements that the second one does.

use std::collections::BTreeMap;

use anneal_llm::ModelAccess;
use anneal_testkit::{MODEL, OwnPostgres, ScriptedModel, TestApp, eventually};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use super::{create, id_of};

/// Responses of the chain.
const RESPONSES: usize = 30;

/// How often each statement was executed, by its first line.
type Statements = BTreeMap<String, usize>;

/// The statements on the project's tables among these entries of PostgreSQL's log. The look at
/// stops of turns and the renewal of leases come with time, not with turns.
fn count(entries: &[String]) -> Statements {
    let mut counts = Statements::new();
    for entry in entries {
        let Some((_, statement)) = entry.split_once(": ") else {
            continue;
        };
        let statement = statement.split("DETAIL:").next().unwrap_or_default();
        if statement.contains("ai_")
            && !statement.contains("stop")
            && !statement.contains("lease_until_ts =")
        {
            let first_line = statement.lines().next().unwrap_or_default();
            *counts.entry(first_line.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test]
async fn the_thirtieth_response_of_a_chain_executes_the_statements_that_the_second_one_does() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url)
        .await
        .expect("connects");
    sqlx::raw_sql("alter database anneal set log_statement = 'all'")
        .execute(&mut db)
        .await
        .expect("logs");
    let model = ScriptedModel::saying("Yes.").await;
    let (url, settings) = (postgres.url.clone(), model.settings(&[MODEL]));
    let app = TestApp::with_models_on(url, settings, MODEL, ModelAccess::default()).await;
    let web = app.http_client();
    let mut previous = json!(null);
    let mut counts = Vec::new();
    for nth in 0..RESPONSES {
        let before = postgres.statements().len();
        let body = json!({"input": format!("number {nth}"), "previous_response_id": previous});
        previous = json!(id_of(&create(&web, &body).await));
        // The turn settles its call after the answer was sent.
        eventually("the turn is over", async || {
            let leases = sqlx::query_scalar::<_, i64>("select count(*) from ai_model_lease");
            leases.fetch_one(&mut db).await.expect("is answered") == 0
        })
        .await;
        app.wait_until_statements_end().await;
        counts.push(count(&postgres.statements().split_off(before)));
    }
    let asked = model.requests();
    let texts = asked.last().expect("was asked").texts().len();
    assert_eq!(texts, 2 * RESPONSES - 1, "the model gets the whole chain");
    assert!(counts[1].len() > 5, "{counts:#?}");
    assert_eq!(counts[1], counts[RESPONSES - 1]);
}
