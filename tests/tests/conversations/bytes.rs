//! How much one call, or one job, reads: pages, contexts and checkpoints are bounded by the bytes of what they hold, whatever it
//! is (pictures as `data:` URIs are no text) and however small a database can store it.

use anneal_tests::{Built, House, Talk, assistant, call, media, pb, prose, result, user};
use pb::{Reason, Representation};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

const MIB: usize = 1024 * 1024;
const UNCOUNTED_MESSAGES: &str = include_str!("../../../store/sql/uncounted_messages.sql");
const CHECKPOINT_MATERIAL: &str = include_str!("../../../store/sql/checkpoint_material.sql");

/// A conversation that no trigger touches.
async fn quiet(house: &House) -> Talk<'_> {
    let policy =
        pb::Policy { max_message_count: Some(0), token_threshold: Some(1_000_000_000), ..pb::Policy::default() };
    house.conversation_under(policy).await
}

/// A picture that a database stores in a hundredth of its bytes.
fn picture(bytes: usize) -> pb::NewMessage {
    media(&format!("data:image/png;base64,{}", "A".repeat(bytes)))
}

async fn change(house: &House, sql: &str, id: &str) {
    let id: Uuid = id.parse().expect("an id");
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::query(sql).bind(id).execute(&mut house.db().await).await.expect("changes");
}

/// As a server of before migration 0014 has stored it.
async fn unmeasured(talk: &Talk<'_>) {
    change(talk.house, "update ai_message set content_bytes = null where conversation_id = $1", &talk.id).await;
}

/// How many messages each page holds.
async fn pages(talk: &Talk<'_>, newest_first: bool) -> Vec<usize> {
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: talk.id.clone(),
            newest_first,
            page_token,
            ..pb::ListMessagesRequest::default()
        };
        let page = talk.house.messages().list_messages(ask).await.expect("lists").into_inner();
        pages.push(page.messages.len());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn a_page_of_pictures_ends_as_early_as_one_of_text() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    for _ in 0..4 {
        talk.append_all(vec![picture(3 * MIB / 2)]).await;
    }
    for measured in [true, false] {
        if !measured {
            unmeasured(&talk).await;
        }
        for newest_first in [false, true] {
            assert_eq!(pages(&talk, newest_first).await, [2, 2], "{measured} {newest_first}");
        }
    }
}

#[tokio::test]
async fn a_page_without_content_is_bounded_by_its_summaries() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    talk.turns(3).await;
    let sql = "update ai_message set summary_cache = repeat('word ', 300000), summary_tokens = 9, summary_kind = 2
        where conversation_id = $1";
    change(&house, sql, &talk.id).await;
    let ask = pb::ListMessagesRequest { conversation_id: talk.id.clone(), without_content: true, ..Default::default() };
    let page = house.messages().list_messages(ask).await.expect("lists").into_inner();
    assert_eq!(page.messages.len(), 2, "of six with 1.5 MB each");
    assert!(!page.next_page_token.is_empty());
}

#[tokio::test]
async fn content_is_measured_as_it_is_read() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    talk.append_all(vec![user("a冷\u{0}"), call("1", "{\"n\" : 1}"), result("1", "seen"), picture(100_000)]).await;
    let sql = "select bool_and(content_bytes = octet_length(content::text)) from ai_message where conversation_id = $1";
    let id: Uuid = talk.id.parse().expect("an id");
    let exact: Option<bool> = sqlx::query_scalar(sql).bind(id).fetch_one(&mut house.db().await).await.expect("asks");
    assert_eq!(exact, Some(true));
}

#[tokio::test]
async fn pictures_are_counted_no_more_at_once_than_as_much_text() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    for _ in 0..4 {
        talk.append_all(vec![picture(3 * MIB)]).await;
    }
    for measured in [true, false] {
        if !measured {
            unmeasured(&talk).await;
        }
        let read = sqlx::query(UNCOUNTED_MESSAGES)
            .bind([tenant(&house).await])
            .bind([talk.id.parse::<Uuid>().expect("an id")])
            .bind(500_i64)
            .bind(8 * MIB as i64)
            .bind(false)
            .fetch_all(&mut house.db().await)
            .await
            .expect("reads");
        assert_eq!(read.len(), 2, "of four with 3 MiB each");
    }
}

async fn tenant(house: &House) -> Uuid {
    let sql = "select tenant_id from tenant where name = 'default'";
    sqlx::query_scalar(sql).fetch_one(&mut house.db().await).await.expect("is there")
}

#[tokio::test]
async fn a_checkpoint_is_planned_by_what_it_reads_of_pictures() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    talk.append_all(vec![picture(MIB), assistant("a picture")]).await;
    for measured in [true, false] {
        if !measured {
            unmeasured(&talk).await;
        }
        let rows = sqlx::query(CHECKPOINT_MATERIAL)
            .bind(tenant(&house).await)
            .bind(talk.id.parse::<Uuid>().expect("an id"))
            .bind(house.store.session().bases())
            .bind("{}")
            .fetch_all(&mut house.db().await)
            .await
            .expect("reads");
        let bytes: i64 = rows.iter().filter(|row| row.get::<i64, _>(0) > 0).map(|row| row.get::<i64, _>(4)).sum();
        assert!((MIB as i64..MIB as i64 + 1_000).contains(&bytes), "{bytes}");
    }
}

#[tokio::test]
async fn a_page_of_checkpoints_ends_early_when_their_summaries_are_long() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    talk.turns(7).await;
    let sql = "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id, summary,
            token_usage, kind, model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after,
            generation, trigger_kind, focus, duration_ms)
        select tenant_id, conversation_id, 1, n, repeat('word ', 300000), 2, 2, 'm', 1, 1, '\\x00', 9, 2, 1, 2, '', 1
        from ai_conversation cross join generate_series(1, 7) as n where conversation_id = $1";
    change(&house, sql, &talk.id).await;
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let ask = pb::ListCheckpointsRequest { conversation_id: talk.id.clone(), page_size: 500, page_token };
        let page = house.contexts().list_checkpoints(ask).await.expect("lists").into_inner();
        pages.push(page.checkpoints.iter().map(|made| made.last_message_id).collect::<Vec<_>>());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [vec![7, 6], vec![5, 4], vec![3, 2], vec![1]]);
}

/// What messages up to this one hold is said to be 30 MiB each, of the 128 MiB that one context reads.
async fn heavy(talk: &Talk<'_>, messages: std::ops::RangeInclusive<i64>) {
    let (first, last) = messages.into_inner();
    let sql = format!(
        "update ai_message set content_bytes = 30 * 1024 * 1024
         where conversation_id = $1 and message_id between {first} and {last}"
    );
    change(talk.house, &sql, &talk.id).await;
}

fn left_out(built: &Built) -> Vec<i64> {
    let dropped = built.0.manifest.iter().filter(|entry| entry.reason() == Reason::ContentLimit);
    dropped.map(|entry| entry.first_message_id).collect()
}

#[tokio::test]
async fn a_context_reads_the_newest_that_it_can_and_says_what_it_left_out() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    for n in 0..4 {
        talk.turn(&prose(n * 9, 3), &prose(n * 9 + 3, 3)).await;
    }
    assert_eq!(left_out(&talk.context().await), [0_i64; 0]);
    heavy(&talk, 1..=8).await;
    let built = talk.context().await;
    built.assert_covers(8);
    assert_eq!(left_out(&built), [1, 2, 3, 4], "four of 30 MiB fit, which are whole turns");
    assert_eq!(built.fate(1), (Representation::Dropped, Reason::ContentLimit));
    assert!(built.entry(1).original_tokens > 0 && built.entry(1).tokens == 0);
    assert_eq!(built.said().len(), 4);

    talk.append("and now?").await;
    heavy(&talk, 9..=9).await;
    let built = talk.context().await;
    built.assert_covers(9);
    assert_eq!(left_out(&built), [1, 2, 3, 4, 5, 6], "half of a turn goes with the other half");
    assert_eq!(built.said().len(), 3);
    let within = talk.context_within(10_000).await.expect("fits");
    within.assert_covers(9);
    assert_eq!(left_out(&within), left_out(&built));

    let ask = pb::BuildContextRequest {
        pressure: pb::Pressure::Compact.into(),
        dry_run: true,
        ..pb::BuildContextRequest::default()
    };
    let pressed = talk.build(ask).await.expect("builds");
    pressed.assert_covers(9);
    talk.verify().await;
}

#[tokio::test]
async fn the_newest_user_message_is_read_however_much_came_after_it() {
    let house = House::start().await;
    let talk = quiet(&house).await;
    talk.turn("before", "yes").await;
    talk.append_all(vec![user("look at all of these")]).await;
    for n in 0..6 {
        talk.append_all(vec![call(&n.to_string(), "{}"), result(&n.to_string(), &prose(n, 2))]).await;
    }
    heavy(&talk, 1..=15).await;
    let built = talk.context().await;
    built.assert_covers(15);
    built.assert_tools_paired();
    assert_eq!(built.fate(3).0, Representation::Original, "the newest user message stays");
    assert_eq!(left_out(&built), [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert!(built.text().starts_with("look at all of these"), "{}", built.text());

    talk.append_all(vec![assistant("seen")]).await;
    heavy(&talk, 16..=16).await;
    let built = talk.context().await;
    built.assert_covers(16);
    built.assert_tools_paired();
    assert_eq!(left_out(&built), (1..=13).filter(|id| *id != 3).collect::<Vec<_>>(), "a result goes with its call");
}
