//! The catalogue, played from end to end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anneal_tests::{House, ScriptedModel, pb, refusal};
use tonic::Code;

use crate::{
    case::{self, Case},
    contexts, conversations, http, messages, pages, wire,
};

/// Least number of cases that are listed by hand.
const LEAST: usize = 150;

/// Longest that a case may take, on whatever machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// What takes longer is printed.
const SLOW: Duration = Duration::from_secs(2);

/// What comes of a case; one that is never answered is wrong, and says which it is.
async fn in_time(name: &str, case: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let began = Instant::now();
    let answered = tokio::time::timeout(PATIENCE, case).await;
    if began.elapsed() > SLOW {
        println!("{name} took {:?}", began.elapsed());
    }
    answered.unwrap_or_else(|_| Err(format!("{name}: not answered within {PATIENCE:?}")))
}

/// The lists of gRPC's cases.
async fn listed(house: &House, id: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(conversations::making());
    cases.extend(conversations::odd_names());
    cases.extend(conversations::settings());
    cases.extend(conversations::changing(id));
    cases.extend(conversations::ids(id));
    cases.extend(conversations::sessions());
    cases.extend(conversations::listing());
    cases.extend(messages::appending(id));
    cases.extend(messages::parts(id));
    cases.extend(messages::places(id));
    cases.extend(messages::streams(id));
    cases.extend(contexts::building(id));
    cases.extend(contexts::compacting(id));
    cases.extend(contexts::reporting(id));
    cases.extend(contexts::chatting(id));
    cases.extend(contexts::operating(id));
    cases.extend(pages::sizes(id));
    cases.extend(pages::strange_tokens(house).await);
    cases
}

/// A house that answers turns, and a conversation in it.
pub(crate) async fn house(model: &ScriptedModel) -> (House, String) {
    let house = House::chatting(model).await;
    let talk = house.conversation().await;
    talk.turns(2).await;
    let id = talk.id.clone();
    (house, id)
}

/// After everything: all is counted, nobody's job is dead, every conversation keeps its promises, and nothing has panicked.
pub(crate) async fn is_unharmed(house: &House, panics: &std::sync::Mutex<Vec<String>>) {
    house.run_jobs_until_idle().await;
    let ask = pb::ListJobsRequest { page_size: 500, ..Default::default() };
    let jobs = house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs;
    assert!(jobs.is_empty(), "{jobs:?}");
    let mut page_token = String::new();
    let mut seen = BTreeSet::new();
    loop {
        let ask = pb::ListConversationsRequest { page_size: 500, page_token, ..Default::default() };
        let page = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
        for conversation in page.conversations {
            assert_eq!(conversation.token_total.expect("has one").estimated_messages, 0, "all is counted");
            let talk = house.talk_of(&conversation.conversation_id);
            talk.verify().await;
            talk.context().await.assert_covers(conversation.message_count);
            seen.insert(conversation.conversation_id);
        }
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    assert!(!seen.is_empty());
    let panics = panics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:#?}");
}

#[tokio::test]
async fn every_case_of_the_catalogue_is_answered_as_documented_and_hurts_nobody() {
    let panics = case::panics();
    let model = ScriptedModel::saying("Quite so.").await;
    let (house, id) = house(&model).await;
    let mut wrong = Vec::new();
    let grpc = listed(&house, &id).await;
    for case in &grpc {
        wrong.extend(in_time(&case.name, case.play(&house)).await.err());
    }
    let client = wire::client();
    let wire: Vec<_> = wire::broken().into_iter().chain(wire::headers()).collect();
    for posted in &wire {
        wrong.extend(in_time(posted.name, posted.play(&house, &client)).await.err());
    }
    let noise = wire::noise();
    // All at once: a server may hear whoever it does not understand out.
    let began = Instant::now();
    futures::future::join_all(noise.iter().map(|bytes| wire::blurt(&house, bytes))).await;
    println!("the noise was over after {:?}", began.elapsed());
    let web = house.web();
    let http: Vec<_> = [http::bodies(), http::fields(), http::paths()].into_iter().flatten().collect();
    for asked in &http {
        wrong.extend(in_time(&asked.name, asked.play(&web)).await.err());
    }
    println!("{} over gRPC, {} as bytes, {} as noise, {} over HTTP", grpc.len(), wire.len(), noise.len(), http.len());
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
    assert!(grpc.len() + wire.len() + noise.len() + http.len() >= LEAST);
    is_unharmed(&house, &panics).await;
}

#[tokio::test]
async fn a_page_token_with_a_flipped_bit_or_a_forged_place_breaks_nothing() {
    let house = House::start().await;
    for sent in pages::forged_tokens(&house).await {
        if let Err(status) = sent.send(&house).await {
            let said = refusal(&status);
            assert_eq!(
                (said.code, said.field.as_str()),
                (Code::InvalidArgument, "page_token"),
                "{} {status}",
                sent.rpc
            );
        }
    }
}

#[tokio::test]
async fn every_rpc_refuses_a_conversation_id_that_is_none_and_finds_none_under_one_that_is_nobodys() {
    let house = House::start().await;
    let gone = house.conversation().await;
    gone.turn("a", "b").await;
    let ask = pb::DeleteConversationRequest { conversation_id: gone.id.clone(), ..Default::default() };
    house.conversations().delete_conversation(ask).await.expect("deletes");
    let mut asked = 0;
    for rpc in anneal_tests::every_rpc().into_iter().filter(|rpc| rpc.names_conversation) {
        for id in ["7", &gone.id[..35], conversations::UNKNOWN, &gone.id] {
            let sent = case::Sent::raw(&rpc.name, anneal_tests::sound_request(&rpc.name, id, "r"));
            let answer = sent.send(&house).await;
            asked += 1;
            if rpc.name == "ListJobs" && id.len() == 36 {
                assert_eq!(answer.expect("a list"), Some(Vec::new()));
                continue;
            }
            let said = refusal(&answer.expect_err(&rpc.name));
            let field =
                if rpc.name == "UpdateConversation" { "conversation.conversation_id" } else { "conversation_id" };
            let (wanted, field) = match id.len() {
                36 if rpc.name.ends_with("Job") => (case::NO_JOB, ""),
                36 => (case::NO_CONVERSATION, ""),
                _ => (case::INVALID, field),
            };
            assert_eq!(
                (said.code, said.reason.as_str(), said.field.as_str()),
                (wanted.0, wanted.1, field),
                "{}",
                rpc.name
            );
        }
    }
    assert!(asked >= 80, "{asked}");
}
