//! `anneal migrate` goes wrong, and is run again.

use anneal_tests::{Anneal, Folder, House, OldRow, OldTables, empty_database, migrated, recount};

use crate::{
    BINARY,
    points::{Fault, Point},
};

/// The older tables' rows.
fn rows() -> Vec<OldRow> {
    let row = |place: i64| {
        let role = if place % 2 == 0 { "USER" } else { "ASSISTANT" };
        OldRow { conversation: 1 + place % 3, ..OldRow::said(role, &format!("said {place}"), 1_600_000_000 + place) }
    };
    (1..=60).map(row).collect()
}

/// A visit of one place with one fault.
pub(crate) async fn visit(point: &Point, fault: Fault) {
    let folder = Folder::new();
    let old = if point.is_of_older_tables() { Some(OldTables::with(3, &rows()).await) } else { None };
    let url = match &old {
        Some(old) => old.url.clone(),
        None => empty_database().await,
    };
    let anneal = Anneal::new(BINARY, &folder, &url);
    let first = anneal.failing(&point.configuration(fault)).run(&["migrate"]).await;
    assert!(first.err.contains(&format!("failpoint {}: ", point.name)), "nobody came by: {first:?}");
    match fault {
        Fault::Error => assert_eq!(first.code, Some(1), "{first:?}"),
        Fault::Abort => assert_eq!(first.code, None, "{first:?}"),
        // It has gone on, or its transaction was ended for being idle.
        Fault::Delay => assert!(first.code.is_some(), "{first:?}"),
    }
    let again = anneal.run(&["migrate"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let checked = anneal.run(&["migrate", "--check"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    if old.is_some() {
        assert_eq!(migrated(&url).await, recount(3, &rows()).kept);
    }
    let house = House::at(&url).await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    house.run_jobs_until_idle().await;
    talk.verify().await;
    drop(old);
    house.demolish().await;
}
