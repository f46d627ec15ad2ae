//! Sessions from everywhere at once, and what finding one costs.

use std::collections::HashSet;

use anneal_tests::{House, OwnPostgres, direct, pb};
use futures::future::join_all;
use sqlx::{Connection as _, PgConnection};

use crate::sessions::id;

const CALLERS: usize = 32;

/// How many conversations and sessions there are, and how many sessions lead nowhere of their own.
async fn rows(db: &mut PgConnection) -> (i64, i64) {
    sqlx::query_as("select (select count(*) from ai_conversation), (select count(*) from ai_session)")
        .fetch_one(db)
        .await
        .expect("counts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_first_messages_at_two_servers_make_one_conversation() {
    let house = House::start().await;
    let second = house.beside().await;
    let mut db = house.db().await;
    for scope in (0..10).map(|person| direct(&format!("person {person}"))) {
        let before = rows(&mut db).await;
        let asked = (0..CALLERS).map(|caller| if caller % 2 == 0 { &house } else { &second });
        let found = join_all(asked.map(|house| house.resolve(&scope))).await;
        let found: Vec<_> = found.into_iter().map(|session| session.expect("resolves")).collect();
        let ids: HashSet<_> = found.iter().map(id).collect();
        assert_eq!(ids.len(), 1, "all find the same conversation");
        assert_eq!(found.iter().filter(|session| session.created).count(), 1, "one call made it");
        assert_eq!(rows(&mut db).await, (before.0 + 1, before.1 + 1), "no conversation is left over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_repeated_by_thirty_two_callers_is_one() {
    let house = House::start().await;
    let second = house.beside().await;
    let mut db = house.db().await;
    for (round, begun) in [false, true].into_iter().enumerate() {
        let scope = direct(&format!("person {round}"));
        if begun {
            house.resolve(&scope).await.expect("resolves");
        }
        let before = rows(&mut db).await;
        let asked = (0..CALLERS).map(|caller| if caller % 2 == 0 { &house } else { &second });
        let rotated = join_all(asked.map(|house| house.rotate(&scope, "again"))).await;
        let ids: HashSet<_> = rotated.into_iter().map(|session| id(&session.expect("rotates"))).collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(rows(&mut db).await, (before.0 + 1, before.1 + i64::from(!begun)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotations_resolves_appends_and_deletions_at_once_leave_one_active_conversation() {
    let house = House::start().await;
    let second = house.beside().await;
    let scope = direct("anna");
    house.resolve(&scope).await.expect("resolves");
    let asked = (0..CALLERS).map(|caller| {
        let (house, scope) = (if caller % 2 == 0 { &house } else { &second }, &scope);
        async move {
            match caller % 4 {
                0 | 1 => {
                    house.rotate(scope, "").await.expect("rotates");
                }
                2 => {
                    let session = house.resolve(scope).await.expect("resolves");
                    let _ = house.talk(&session).append("hello").send().await;
                }
                _ => {
                    let session = house.resolve(scope).await.expect("resolves");
                    let ask = pb::DeleteConversationRequest { conversation_id: id(&session), ..Default::default() };
                    let _ = house.conversations().delete_conversation(ask).await;
                }
            }
        }
    });
    join_all(asked).await;
    let active = house.resolve(&scope).await.expect("resolves");
    let listed = house.list(pb::ListConversationsRequest::default()).await;
    let in_use: Vec<_> = listed.iter().filter(|row| row.status() == pb::ConversationStatus::Active).collect();
    assert_eq!(in_use.len(), 1, "what was rotated away is archived: {listed:#?}");
    assert_eq!(in_use[0].conversation_id, id(&active));
}

#[tokio::test]
async fn finding_a_session_takes_one_statement() {
    let postgres = OwnPostgres::start().await;
    let mut db = PgConnection::connect(&postgres.url).await.expect("connects");
    // Connections made after this log every statement that they run.
    sqlx::raw_sql("alter database anneal set log_statement = 'all'").execute(&mut db).await.expect("logs");
    db.close().await.expect("closes");
    let house = House::at(&postgres.url).await;
    let scope = direct("anna");
    let first = house.resolve(&scope).await.expect("makes it");
    let about = |statement: &String| {
        let statement = statement.to_lowercase();
        ["ai_", "begin", "commit", "rollback"].iter().any(|word| statement.contains(word))
    };
    let ran = || postgres.statements().into_iter().filter(about).collect::<Vec<_>>();
    let before = ran().len();
    assert!(before > 0, "statements are logged");
    for _ in 0..10 {
        assert_eq!(id(&house.resolve(&scope).await.expect("finds it")), id(&first));
    }
    let ran = ran().split_off(before);
    println!("10 resolves of a session that is there ran {} statements", ran.len());
    assert_eq!(ran.len(), 10, "{ran:#?}");
    assert!(ran.iter().all(|statement| statement.contains("from ai_session as s")), "{ran:#?}");
}
