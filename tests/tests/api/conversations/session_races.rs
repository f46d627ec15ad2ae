//! Concurrent calls on one session, and how many statements resolving a session takes.

use std::collections::HashSet;

use anneal_testkit::{OwnPostgres, TestApp, direct_scope, pb};
use futures::future::join_all;
use sqlx::{Connection as _, PgConnection};

use crate::conversations::sessions::conversation_id;

/// How many calls are made at the same time.
const CALLERS: usize = 32;

/// Counts the conversations and the sessions.
async fn count_rows(db: &mut PgConnection) -> (i64, i64) {
    sqlx::query_as(
        "select (select count(*) from ai_conversation), (select count(*) from ai_session)",
    )
    .fetch_one(db)
    .await
    .expect("counts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_first_resolves_of_a_session_at_two_servers_create_one_conversation() {
    let app = TestApp::start().await;
    let second_server = app.second_server().await;
    let mut db = app.db().await;
    for scope in (0..10).map(|person| direct_scope(&format!("person {person}"))) {
        let before = count_rows(&mut db).await;
        let servers = (0..CALLERS).map(|n| if n % 2 == 0 { &app } else { &second_server });
        let sessions = join_all(servers.map(|server| server.resolve(&scope))).await;
        let sessions: Vec<_> = sessions
            .into_iter()
            .map(|session| session.expect("resolves"))
            .collect();
        let ids: HashSet<_> = sessions.iter().map(conversation_id).collect();
        assert_eq!(ids.len(), 1, "all calls resolve to the same conversation");
        assert_eq!(
            sessions.iter().filter(|session| session.created).count(),
            1,
            "one call created the conversation"
        );
        assert_eq!(
            count_rows(&mut db).await,
            (before.0 + 1, before.1 + 1),
            "no other conversation or session is created"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_repeated_by_thirty_two_callers_happens_once() {
    let app = TestApp::start().await;
    let second_server = app.second_server().await;
    let mut db = app.db().await;
    for (round, session_exists) in [false, true].into_iter().enumerate() {
        let scope = direct_scope(&format!("person {round}"));
        if session_exists {
            app.resolve(&scope).await.expect("resolves");
        }
        let before = count_rows(&mut db).await;
        let servers = (0..CALLERS).map(|n| if n % 2 == 0 { &app } else { &second_server });
        let rotated = join_all(servers.map(|server| server.rotate(&scope, "r1"))).await;
        let ids: HashSet<_> = rotated
            .into_iter()
            .map(|session| conversation_id(&session.expect("rotates")))
            .collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(
            count_rows(&mut db).await,
            (before.0 + 1, before.1 + i64::from(!session_exists))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_rotations_appends_and_deletions_leave_one_active_conversation() {
    let app = TestApp::start().await;
    let second_server = app.second_server().await;
    let scope = direct_scope("anna");
    app.resolve(&scope).await.expect("resolves");
    let calls = (0..CALLERS).map(|caller| {
        let server = if caller % 2 == 0 {
            &app
        } else {
            &second_server
        };
        let scope = &scope;
        async move {
            match caller % 4 {
                0 | 1 => {
                    server.rotate(scope, "").await.expect("rotates");
                }
                2 => {
                    let session = server.resolve(scope).await.expect("resolves");
                    // Another call may have deleted the conversation. Then this call is refused.
                    let _ = server
                        .conversation_of(&session)
                        .append("hello")
                        .send()
                        .await;
                }
                _ => {
                    let session = server.resolve(scope).await.expect("resolves");
                    let ask = pb::DeleteConversationRequest {
                        conversation_id: conversation_id(&session),
                        ..Default::default()
                    };
                    let _ = server.conversations().delete_conversation(ask).await;
                }
            }
        }
    });
    join_all(calls).await;
    let session = app.resolve(&scope).await.expect("resolves");
    let listed = app.list(pb::ListConversationsRequest::default()).await;
    let active: Vec<_> = listed
        .iter()
        .filter(|row| row.status() == pb::ConversationStatus::Active)
        .collect();
    assert_eq!(
        active.len(),
        1,
        "rotated conversations are archived: {listed:#?}"
    );
    assert_eq!(active[0].conversation_id, conversation_id(&session));
}

#[tokio::test]
async fn resolving_an_existing_session_takes_one_statement() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url)
        .await
        .expect("connects");
    // Connections made after this log every statement that they run.
    sqlx::raw_sql("alter database anneal set log_statement = 'all'")
        .execute(&mut db)
        .await
        .expect("logs");
    db.close().await.expect("closes");
    let app = TestApp::on_database(&postgres.url).await;
    let scope = direct_scope("anna");
    let first = app.resolve(&scope).await.expect("creates the session");
    let uses_tables_or_transactions = |statement: &String| {
        let statement = statement.to_lowercase();
        ["ai_", "begin", "commit", "rollback"]
            .iter()
            .any(|word| statement.contains(word))
    };
    let logged_statements = || {
        postgres
            .statements()
            .into_iter()
            .filter(uses_tables_or_transactions)
            .collect::<Vec<_>>()
    };
    let before = logged_statements().len();
    assert!(before > 0, "statements are logged");
    for _ in 0..10 {
        assert_eq!(
            conversation_id(&app.resolve(&scope).await.expect("finds the session")),
            conversation_id(&first)
        );
    }
    let ran = logged_statements().split_off(before);
    println!(
        "resolving an existing session 10 times ran {} statements",
        ran.len()
    );
    assert_eq!(ran.len(), 10, "{ran:#?}");
    assert!(
        ran.iter()
            .all(|statement| statement.contains("from ai_session as s")),
        "{ran:#?}"
    );
}
