//! Separators: the user's marks. The context starts after the newest; taking it away brings back what was before.

#![expect(non_snake_case, reason = "rows are named as docs/rows.md names them")]

use anneal_tests::{House, Talk, assistant, pb, refusal, sentence, user};
use pb::{BoundaryKind, Reason, Representation};
use tonic::Code;

/// A checkpoint is made at 10 messages, and leaves one turn.
fn policy() -> pb::Policy {
    pb::Policy { max_message_count: Some(10), keep_recent_turns: Some(1), ..Default::default() }
}

/// `turns` turns that say something; then the jobs that they cause.
async fn say(talk: &Talk<'_>, from: usize, turns: usize) {
    for n in from..from + turns {
        talk.append_all(vec![user(&sentence(2 * n)), assistant(&sentence(2 * n + 1))]).await;
    }
    talk.house.run_jobs_until_idle().await;
}

/// Where the context starts, after checking that every message is accounted for and every promise kept.
async fn boundary(talk: &Talk<'_>) -> (BoundaryKind, i64) {
    let built = talk.context().await;
    built.assert_covers(talk.conversation().await.message_count);
    talk.verify().await;
    (built.0.boundary_kind(), built.0.boundary_message_id)
}

async fn insert(talk: &Talk<'_>, request_id: &str, expected: Option<i64>) -> Result<pb::Separator, tonic::Status> {
    let ask = pb::InsertSeparatorRequest {
        conversation_id: talk.id.clone(),
        request_id: request_id.into(),
        expected_last_message_id: expected,
    };
    Ok(talk.house.messages().insert_separator(ask).await?.into_inner())
}

async fn delete(talk: &Talk<'_>, request_id: &str, after_message_id: i64) -> Result<i64, tonic::Status> {
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: talk.id.clone(),
        after_message_id,
        request_id: request_id.into(),
    };
    Ok(talk.house.messages().delete_separator(ask).await?.into_inner().boundary_message_id)
}

#[tokio::test]
async fn the_context_starts_after_a_separator() {
    let house = House::start().await;
    let talk = house.conversation_under(policy()).await;
    say(&talk, 0, 3).await;
    assert_eq!(talk.separate().await.after_message_id, 6);
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 6));
    assert!(talk.context().await.0.messages.is_empty(), "nothing was said since");
    say(&talk, 3, 1).await;
    let built = talk.context().await;
    assert_eq!(built.said().iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), [sentence(6), sentence(7)]);
    assert_eq!(built.fate(6), (Representation::BeforeSeparator, Reason::Separated));
    assert_eq!(built.fate(7), (Representation::Original, Reason::Small));
    assert_eq!(talk.messages().await.len(), 8, "a separator is no message");
    boundary(&talk).await;
}

#[tokio::test]
async fn a_checkpoint_covers_from_the_separator_on() {
    let house = House::start().await;
    let talk = house.conversation_under(policy()).await;
    say(&talk, 0, 4).await;
    talk.separate().await;
    say(&talk, 4, 5).await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "ten messages after the separator");
    assert_eq!((checkpoints[0].first_message_id, checkpoints[0].last_message_id), (9, 16));
    assert_eq!((checkpoints[0].source_first_message_id, checkpoints[0].generation), (9, 1));
    assert!(!checkpoints[0].summary.contains(&sentence(0)));
    assert_eq!(boundary(&talk).await, (BoundaryKind::Checkpoint, 16));
    let built = talk.context().await;
    assert_eq!(built.fate(8), (Representation::BeforeSeparator, Reason::Separated));
    assert_eq!(built.fate(9), (Representation::Checkpoint, Reason::Checkpointed));
}

#[tokio::test]
async fn row_D5_a_separator_after_a_checkpoint_discards_it_and_deleting_the_separator_revives_it() {
    let house = House::start().await;
    let talk = house.conversation_under(policy()).await;
    say(&talk, 0, 5).await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Checkpoint, 8));
    let before = talk.context().await;
    talk.separate().await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 10));
    assert!(!talk.checkpoints().await[0].valid, "set aside");
    say(&talk, 5, 1).await;
    let separated = talk.context().await;
    assert_eq!(separated.0.messages.len(), 2, "no summary: {:#?}", separated.said());
    assert_eq!(talk.join(10).await, 8, "where contexts start now");
    house.run_jobs_until_idle().await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Checkpoint, 8));
    assert!(talk.checkpoints().await[0].valid);
    let after = talk.context().await;
    assert_eq!(after.0.messages[..before.0.messages.len()], before.0.messages[..], "as it was, and two messages more");
}

#[tokio::test]
async fn a_checkpoint_made_under_a_separator_does_not_hold_without_it() {
    let house = House::start().await;
    let talk = house.conversation_under(policy()).await;
    say(&talk, 0, 2).await;
    talk.separate().await;
    say(&talk, 2, 5).await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Checkpoint, 12));
    talk.join(4).await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Unspecified, 0), "what it covers does not reach back to 1");
    let built = talk.context().await;
    assert_eq!(built.fate(1), (Representation::Original, Reason::Small));
    assert_eq!(built.0.messages.len(), 14);
    assert!(!talk.checkpoints().await[0].valid);
    house.run_jobs_until_idle().await;
    assert_eq!(boundary(&talk).await, (BoundaryKind::Checkpoint, 12), "fourteen messages were one too many");
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 2, "the same boundary, another start");
    let valid: Vec<_> = checkpoints.iter().filter(|checkpoint| checkpoint.valid).collect();
    assert_eq!(valid.len(), 1);
    assert_eq!((valid[0].first_message_id, valid[0].generation), (1, 1));
}

#[tokio::test]
async fn the_newest_of_several_separators_holds_and_an_older_one_may_go() {
    let house = House::start().await;
    let talk = house.conversation_under(policy()).await;
    for turn in 0..3 {
        say(&talk, turn, 1).await;
        talk.separate().await;
    }
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 6));
    assert_eq!(talk.join(4).await, 6, "not the newest: nothing moves");
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 6));
    assert_eq!(talk.join(6).await, 2);
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 2));
    assert_eq!(talk.join(2).await, 0);
    assert_eq!(boundary(&talk).await, (BoundaryKind::Unspecified, 0));
}

#[tokio::test]
async fn an_empty_conversation_takes_a_separator() {
    let house = House::start().await;
    let talk = house.conversation().await;
    assert_eq!(talk.separate().await.after_message_id, 0);
    talk.context().await.assert_covers(0);
    talk.verify().await;
    say(&talk, 0, 2).await;
    assert_eq!(boundary(&talk).await.1, 0);
    assert_eq!(talk.context().await.0.messages.len(), 4);
    assert_eq!(talk.join(0).await, 0);
    boundary(&talk).await;
}

#[tokio::test]
async fn a_second_separator_at_one_place_is_the_first() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 1).await;
    let first = talk.separate().await;
    assert_eq!(talk.separate().await, first, "its place and its time");
    assert_eq!(talk.join(2).await, 0, "one was there, none is left");
    assert_eq!(refusal(&delete(&talk, "", 2).await.expect_err("gone")).code, Code::NotFound);
}

#[tokio::test]
async fn an_insert_with_a_known_request_id_answers_what_it_did() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 1).await;
    let first = insert(&talk, "r1", None).await.expect("separates");
    say(&talk, 1, 1).await;
    assert_eq!(insert(&talk, "r1", None).await.expect("replays"), first);
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 2), "no second one at 4");
    assert_eq!(insert(&talk, "r2", None).await.expect("separates").after_message_id, 4);
}

#[tokio::test]
async fn a_delete_with_a_known_request_id_deletes_once() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 1).await;
    talk.separate().await;
    assert_eq!(delete(&talk, "d1", 2).await.expect("joins"), 0);
    assert_eq!(delete(&talk, "d1", 2).await.expect("replays"), 0);
    talk.separate().await;
    delete(&talk, "d1", 2).await.expect("replays");
    assert_eq!(boundary(&talk).await, (BoundaryKind::Separator, 2), "the new one stays");
    let reused = refusal(&delete(&talk, "d1", 0).await.expect_err("another request"));
    assert_eq!(reused.reason, "REQUEST_ID_REUSED");
}

#[tokio::test]
async fn a_separator_after_messages_that_the_caller_has_not_seen_is_refused() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 2).await;
    let refused = refusal(&insert(&talk, "", Some(3)).await.expect_err("4 is the newest"));
    assert_eq!(refused.code, Code::Aborted);
    assert_eq!(boundary(&talk).await, (BoundaryKind::Unspecified, 0));
    assert_eq!(insert(&talk, "", Some(4)).await.expect("separates").after_message_id, 4);
}

#[tokio::test]
async fn a_missing_separator_and_a_missing_conversation_are_not_found() {
    let house = House::start().await;
    let talk = house.conversation().await;
    say(&talk, 0, 1).await;
    let missing = refusal(&delete(&talk, "", 1).await.expect_err("none there"));
    assert_eq!((missing.code, missing.reason.as_str()), (Code::NotFound, "SEPARATOR_NOT_FOUND"));
    let ask = pb::InsertSeparatorRequest { conversation_id: uuid::Uuid::new_v4().to_string(), ..Default::default() };
    let missing = refusal(&house.messages().insert_separator(ask).await.expect_err("nobody's"));
    assert_eq!((missing.code, missing.reason.as_str()), (Code::NotFound, "CONVERSATION_NOT_FOUND"));
}

#[tokio::test]
async fn lists_of_messages_show_the_separators_within_a_page() {
    let house = House::start().await;
    let talk = house.conversation().await;
    for turn in 0..3 {
        talk.separate().await;
        say(&talk, turn, 1).await;
    }
    assert_eq!(listed(&talk, 500, false).await, [vec![0, 2, 4]]);
    assert_eq!(listed(&talk, 2, false).await, [vec![0, 2], vec![4], vec![]], "with the message before, each once");
    assert_eq!(listed(&talk, 2, true).await, [vec![], vec![4], vec![0, 2]]);
    let empty = house.conversation().await;
    assert_eq!(listed(&empty, 2, false).await, [Vec::<i64>::new()]);
    empty.separate().await;
    assert_eq!(listed(&empty, 2, false).await, [vec![0]]);
}

/// Places of the separators, page by page.
async fn listed(talk: &Talk<'_>, page_size: i32, newest_first: bool) -> Vec<Vec<i64>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let conversation_id = talk.id.clone();
        let ask =
            pb::ListMessagesRequest { conversation_id, page_size, page_token, newest_first, ..Default::default() };
        let page = talk.house.messages().list_messages(ask).await.expect("lists").into_inner();
        pages.push(page.separators.iter().map(|separator| separator.after_message_id).collect());
        if page.next_page_token.is_empty() {
            return pages;
        }
        page_token = page.next_page_token;
    }
}
