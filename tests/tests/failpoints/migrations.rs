//! `anneal migrate` runs with a fault at a failpoint; a second run without a fault completes the
//! migration.

use anneal_testkit::{
    AnnealBinary, Folder, OldRow, OldTables, TestApp, empty_database, expected_migration,
    read_migrated_conversations,
};

use crate::{
    BINARY,
    points::{Fault, Point},
};

/// Conversations in the tables of an older system.
const OLD_CONVERSATIONS: i64 = 3;

/// Rows of the tables of an older system: messages of all its conversations.
fn old_rows() -> Vec<OldRow> {
    let row = |number: i64| {
        let role = if number % 2 == 0 { "USER" } else { "ASSISTANT" };
        OldRow {
            conversation: 1 + number % OLD_CONVERSATIONS,
            ..OldRow::message(role, &format!("said {number}"), 1_600_000_000 + number)
        }
    };
    (1..=60).map(row).collect()
}

/// Runs `anneal migrate` with the fault at one failpoint, then without a fault. Checks the result.
pub(crate) async fn inject(point: &Point, fault: Fault) {
    let folder = Folder::new();
    let old = if point.is_in_legacy_migration() {
        Some(OldTables::with(OLD_CONVERSATIONS, &old_rows()).await)
    } else {
        None
    };
    let url = match &old {
        Some(old) => old.url.clone(),
        None => empty_database().await,
    };
    let anneal = AnnealBinary::new(BINARY, &folder, &url);
    let first = anneal
        .with_failpoints(&point.configuration(fault))
        .run(&["migrate"])
        .await;
    assert!(
        first.err.contains(&format!("failpoint {}: ", point.name)),
        "the failpoint was not reached: {first:?}"
    );
    match fault {
        Fault::Error => assert_eq!(first.code, Some(1), "{first:?}"),
        Fault::Abort => assert_eq!(first.code, None, "{first:?}"),
        // The migration has continued, or PostgreSQL has ended its idle transaction.
        Fault::Delay => assert!(first.code.is_some(), "{first:?}"),
    }
    let again = anneal.run(&["migrate"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let checked = anneal.run(&["migrate", "--check"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    if old.is_some() {
        assert_eq!(
            read_migrated_conversations(&url).await,
            expected_migration(OLD_CONVERSATIONS, &old_rows()).conversations
        );
    }
    let app = TestApp::on_database(&url).await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    app.run_jobs_until_idle().await;
    conversation.verify().await;
    drop(old);
    app.drop_database().await;
}
