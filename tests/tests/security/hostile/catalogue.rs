//! Runs all cases of the catalogue of hostile requests against one app. Two more tests send forged
//! page tokens, and malformed and unknown conversation ids to every RPC.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anneal_testkit::{ScriptedModel, TestApp, pb, status_details};
use tonic::Code;

use crate::hostile::{
    case::{self, Case},
    changed_messages, changes, contexts, conversations, edits, erasures, forks, http, http_changes,
    http_turns, messages, pages, policies, sessions, stops, streams, wire,
};

/// Minimum number of cases, so that a list of cases that is left out is noticed.
const MIN_CASES: usize = 150;

/// Deadline of a case.
const DEADLINE: Duration = Duration::from_mins(1);

/// Cases that take longer than this are printed.
const SLOW: Duration = Duration::from_secs(2);

/// Runs a case. Err: its failure, or that it exceeded [`DEADLINE`].
pub(crate) async fn run_within_deadline(
    name: &str,
    case: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let began = Instant::now();
    let outcome = tokio::time::timeout(DEADLINE, case).await;
    if began.elapsed() > SLOW {
        println!("{name} took {:?}", began.elapsed());
    }
    outcome.unwrap_or_else(|_| Err(format!("{name}: not answered within {DEADLINE:?}")))
}

/// All cases over gRPC.
async fn collect_grpc_cases(app: &TestApp, id: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(conversations::creations());
    cases.extend(conversations::odd_names());
    cases.extend(policies::policies());
    cases.extend(conversations::updates(id));
    cases.extend(conversations::ids(id));
    cases.extend(sessions::sessions());
    cases.extend(conversations::lists());
    cases.extend(messages::appends(id));
    cases.extend(messages::parts(id));
    cases.extend(messages::positions(id));
    cases.extend(changes::withdrawals(id));
    cases.extend(changes::rewinds_and_restores(id));
    cases.extend(changes::choices(id));
    cases.extend(edits::edits(id));
    cases.extend(edits::history(id));
    cases.extend(changed_messages::changed_messages(app).await);
    cases.extend(forks::forks(id));
    cases.extend(forks::lists_of_forks(id));
    cases.extend(erasures::messages(id));
    cases.extend(erasures::users_and_receipts());
    cases.extend(streams::streams(id));
    cases.extend(contexts::contexts(id));
    cases.extend(contexts::compactions(id));
    cases.extend(contexts::usage_and_errors(id));
    cases.extend(contexts::turns(id));
    cases.extend(stops::stops(id));
    cases.extend(contexts::jobs(id));
    cases.extend(pages::sizes(id));
    cases.extend(pages::foreign_tokens(app).await);
    cases
}

/// Starts an app with this model and a conversation of two turns. Returns the app and the
/// conversation's id.
pub(crate) async fn start_with_conversation(model: &ScriptedModel) -> (TestApp, String) {
    let app = TestApp::with_scripted_model(model).await;
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    let id = conversation.id.clone();
    (app, id)
}

/// Runs all jobs. Then asserts that every message is counted, no job is left or dead, every
/// conversation passes `verify` and its context covers all its messages, and nothing has panicked.
pub(crate) async fn assert_no_harm(app: &TestApp, panics: &std::sync::Mutex<Vec<String>>) {
    app.run_jobs_until_idle().await;
    let ask = pb::ListJobsRequest {
        page_size: 500,
        ..Default::default()
    };
    let jobs = app
        .operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs;
    assert!(jobs.is_empty(), "{jobs:?}");
    let mut page_token = String::new();
    let mut verified = BTreeSet::new();
    loop {
        let ask = pb::ListConversationsRequest {
            page_size: 500,
            page_token,
            ..Default::default()
        };
        let page = app
            .conversations()
            .list_conversations(ask)
            .await
            .expect("lists")
            .into_inner();
        for row in page.conversations {
            assert_eq!(
                row.token_total.expect("has one").estimated_messages,
                0,
                "all messages are counted"
            );
            let conversation = app.conversation_by_id(&row.conversation_id);
            conversation.verify().await;
            conversation
                .context()
                .await
                .assert_covers(row.message_count);
            verified.insert(row.conversation_id);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    assert!(!verified.is_empty());
    let panics = panics
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:#?}");
}

#[tokio::test]
async fn every_case_is_answered_as_documented_and_harms_nothing() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("Quite so.").await;
    let (app, id) = start_with_conversation(&model).await;
    let mut wrong = Vec::new();
    let grpc_cases = collect_grpc_cases(&app, &id).await;
    for case in &grpc_cases {
        wrong.extend(run_within_deadline(&case.name, case.run(&app)).await.err());
    }
    let client = wire::client();
    let wire_cases: Vec<_> = wire::frames_and_paths()
        .into_iter()
        .chain(wire::headers())
        .collect();
    for case in &wire_cases {
        wrong.extend(
            run_within_deadline(case.name, case.run(&app, &client))
                .await
                .err(),
        );
    }
    let noise = wire::noise();
    // All at once, because the server may keep a connection with noise for a while.
    let began = Instant::now();
    futures::future::join_all(noise.iter().map(|bytes| wire::send_noise(&app, bytes))).await;
    println!(
        "the server has ended all connections with noise after {:?}",
        began.elapsed()
    );
    let web = app.http_client();
    let http_cases: Vec<_> = [
        http::bodies(),
        http::patches(),
        http::paths(),
        http_changes::changes(),
        http_changes::alternatives(),
        http_changes::edits(),
        http_turns::messages(),
        http_turns::results_and_models(),
        http_turns::options(),
    ]
    .into_iter()
    .flatten()
    .collect();
    for case in &http_cases {
        wrong.extend(run_within_deadline(&case.name, case.run(&web)).await.err());
    }
    println!(
        "{} over gRPC, {} as bytes, {} as noise, {} over HTTP",
        grpc_cases.len(),
        wire_cases.len(),
        noise.len(),
        http_cases.len()
    );
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
    assert!(grpc_cases.len() + wire_cases.len() + noise.len() + http_cases.len() >= MIN_CASES);
    assert_no_harm(&app, &panics).await;
}

#[tokio::test]
async fn a_page_token_with_a_flipped_bit_or_a_forged_position_is_accepted_or_refused() {
    let app = TestApp::start().await;
    for request in pages::forged_tokens(&app).await {
        if let Err(status) = request.send(&app).await {
            let details = status_details(&status);
            assert_eq!(
                (details.code, details.field.as_str()),
                (Code::InvalidArgument, "page_token"),
                "{} {status}",
                request.rpc
            );
        }
    }
}

#[tokio::test]
async fn every_rpc_refuses_a_malformed_conversation_id_and_does_not_find_an_unknown_one() {
    let app = TestApp::start().await;
    let deleted = app.conversation().await;
    deleted.turn("a", "b").await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: deleted.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let mut asked = 0;
    for rpc in anneal_testkit::every_rpc()
        .into_iter()
        .filter(|rpc| rpc.names_conversation)
    {
        // Two malformed ids, an unknown one, and that of a deleted conversation.
        for id in ["7", &deleted.id[..35], conversations::UNKNOWN, &deleted.id] {
            let request = case::GrpcRequest::raw(
                &rpc.name,
                anneal_testkit::valid_request(&rpc.name, id, "r"),
            );
            let answer = request.send(&app).await;
            asked += 1;
            // The id is a filter of this list, which is empty for an unknown conversation.
            if rpc.name == "ListJobs" && id.len() == 36 {
                assert_eq!(answer.expect("a list"), Some(Vec::new()));
                continue;
            }
            let details = status_details(&answer.expect_err(&rpc.name));
            let field = if rpc.name == "UpdateConversation" {
                "conversation.conversation_id"
            } else {
                "conversation_id"
            };
            let (expected, field) = match id.len() {
                36 if rpc.name.ends_with("Job") => (case::NO_JOB, ""),
                36 => (case::NO_CONVERSATION, ""),
                _ => (case::INVALID, field),
            };
            assert_eq!(
                (
                    details.code,
                    details.reason.as_str(),
                    details.field.as_str()
                ),
                (expected.0, expected.1, field),
                "{}",
                rpc.name
            );
        }
    }
    assert!(asked >= 80, "{asked}");
}
