//! ListCacheEras: the beginnings that contexts have had, and what the calls of each era have read
//! from the provider's cache. ListTokenRuns: the outline of a conversation.

use anneal_testkit::{TestApp, TestConversation, assert_refused, pb, prose};
use pb::BreakReason;
use tonic::{Code, Status};

/// A page of the eras of a conversation.
async fn eras(
    conversation: &TestConversation<'_>,
    page_size: i32,
    page_token: &str,
) -> Result<pb::ListCacheErasResponse, Status> {
    let ask = pb::ListCacheErasRequest {
        conversation_id: conversation.id.clone(),
        page_size,
        page_token: page_token.to_owned(),
    };
    let listed = conversation.app.contexts().list_cache_eras(ask).await;
    listed.map(tonic::Response::into_inner)
}

/// Reports a call with this many input tokens, of which the provider has read `cached` from its
/// cache.
async fn report(conversation: &TestConversation<'_>, input: u64, cached: u64) {
    let ask = pb::ReportUsageRequest {
        conversation_id: conversation.id.clone(),
        model: "made-up-1".into(),
        input_tokens: input,
        cached_tokens: cached,
        output_tokens: 7,
        ..Default::default()
    };
    let reported = conversation.app.contexts().report_usage(ask).await;
    reported.expect("accepts the report");
}

/// The runs of a conversation's messages.
async fn runs(
    conversation: &TestConversation<'_>,
    (first, last): (i64, i64),
    runs: i32,
) -> Result<Vec<pb::TokenRun>, Status> {
    let ask = pb::ListTokenRunsRequest {
        conversation_id: conversation.id.clone(),
        first_message_id: first,
        last_message_id: last,
        runs,
    };
    let listed = conversation.app.contexts().list_token_runs(ask).await;
    listed.map(|listed| listed.into_inner().runs)
}

#[tokio::test]
async fn eras_name_their_cause_and_sum_the_calls_of_their_time() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    assert_eq!(eras(&conversation, 0, "").await.expect("lists").eras, []);
    conversation.turns(3).await;
    conversation.context().await;
    report(&conversation, 100, 0).await;
    report(&conversation, 120, 90).await;
    conversation.insert_separator().await;
    conversation.turns(1).await;
    conversation.context().await;
    report(&conversation, 30, 5).await;
    let listed = eras(&conversation, 0, "").await.expect("lists");
    assert_eq!(listed.next_page_token, "");
    let [second, first] = &listed.eras[..] else {
        panic!("two eras: {listed:?}");
    };
    let figures = |era: &pb::CacheEra| {
        (
            era.calls,
            era.input_tokens,
            era.cached_tokens,
            era.output_tokens,
        )
    };
    assert_eq!(first.reason(), BreakReason::Unspecified, "the first");
    assert_eq!(second.reason(), BreakReason::Separator);
    assert_eq!((first.at_message_id, second.at_message_id), (6, 8));
    assert_eq!(
        (first.boundary_message_id, second.boundary_message_id),
        (0, 6)
    );
    assert_eq!(figures(first), (2, 220, 90, 14));
    assert_eq!(figures(second), (1, 30, 5, 7));
    assert!(first.number < second.number);
    // Page by page, the same.
    let newest = eras(&conversation, 1, "").await.expect("lists");
    assert_eq!(newest.eras, listed.eras[..1]);
    let oldest = eras(&conversation, 1, &newest.next_page_token).await;
    let oldest = oldest.expect("lists");
    assert_eq!(oldest.eras, listed.eras[1..]);
    assert_eq!(oldest.next_page_token, "");
}

#[tokio::test]
async fn a_change_of_messages_is_the_cause_of_the_next_era_and_no_era_itself() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(3).await;
    conversation.context().await;
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: conversation.id.clone(),
        message_ids: vec![3, 4],
        ..Default::default()
    };
    app.messages()
        .withdraw_messages(ask)
        .await
        .expect("withdraws");
    let before = eras(&conversation, 0, "").await.expect("lists").eras;
    assert_eq!(before.len(), 1, "the mark is no era: {before:?}");
    conversation.context().await;
    let after = eras(&conversation, 0, "").await.expect("lists").eras;
    assert_eq!(after.len(), 2);
    assert_eq!(after[0].reason(), BreakReason::Withdrawal);
    assert_eq!(after[0].broken_message_id, 3);
}

#[tokio::test]
async fn runs_cover_every_message_once_and_sum_the_tokens_of_those_that_stand() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    assert_eq!(runs(&conversation, (0, 0), 0).await.expect("lists"), []);
    for n in 0..5 {
        conversation
            .turn(&prose(n, 1 + n), &prose(n * 40, 3 + n * 2))
            .await;
    }
    app.run_jobs_until_idle().await;
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: conversation.id.clone(),
        message_ids: vec![9, 10],
        ..Default::default()
    };
    app.messages()
        .withdraw_messages(ask)
        .await
        .expect("withdraws");
    let messages = conversation.messages().await;
    let tokens_of = |first: i64, last: i64| -> Vec<(u64, i64)> {
        let standing = messages.iter();
        let standing = standing.filter(|it| (first..=last).contains(&it.message_id));
        standing
            .map(|it| {
                let tokens = it.tokens.expect("counted").tokens;
                (tokens, it.message_id)
            })
            .collect()
    };
    for (range, count) in [((0, 0), 4), ((2, 9), 3), ((1, 10), 2_000), ((10, 10), 1)] {
        let listed = runs(&conversation, range, count).await.expect("lists");
        let (first, last) = (range.0.max(1), if range.1 == 0 { 10 } else { range.1 });
        let ids = listed
            .iter()
            .flat_map(|run| run.first_message_id..=run.last_message_id);
        assert_eq!(ids.collect::<Vec<_>>(), (first..=last).collect::<Vec<_>>());
        assert!(listed.len() as i32 <= count);
        for run in &listed {
            let tokens = tokens_of(run.first_message_id, run.last_message_id);
            assert_eq!(run.tokens, tokens.iter().map(|it| it.0).sum::<u64>());
            let length = run.last_message_id - run.first_message_id + 1;
            assert_eq!(run.withdrawn_messages, length - tokens.len() as i64);
            let most = tokens.iter().map(|it| it.0).max().unwrap_or(0);
            assert_eq!(run.largest_tokens, most);
            let is_largest = tokens.contains(&(most, run.largest_message_id));
            assert!(is_largest || run.largest_message_id == 0, "{run:?}");
        }
    }
    let beyond = runs(&conversation, (11, 0), 5).await.expect("lists");
    assert_eq!(beyond, []);
}

#[tokio::test]
async fn runs_of_too_many_messages_are_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(1).await;
    for (range, count, reason, field) in [
        ((-1, 0), 0, "INVALID_FIELD", "first_message_id"),
        ((0, -1), 0, "INVALID_FIELD", "last_message_id"),
        ((3, 2), 0, "INVALID_FIELD", "last_message_id"),
        ((0, 0), -1, "INVALID_FIELD", "runs"),
    ] {
        let refused = runs(&conversation, range, count).await;
        assert_refused(refused, Code::InvalidArgument, reason, field);
    }
    let sql = "update ai_conversation set last_message_id = 200001";
    let mut db = app.db().await;
    sqlx::raw_sql(sql).execute(&mut db).await.expect("updates");
    let refused = runs(&conversation, (0, 0), 0).await;
    let code = Code::InvalidArgument;
    assert_refused(refused, code, "LIMIT_EXCEEDED", "last_message_id");
    let allowed = runs(&conversation, (2, 0), 0).await.expect("lists");
    assert_eq!(allowed.len(), 1);
}
