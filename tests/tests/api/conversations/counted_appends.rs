//! Small messages are counted when they are appended. They need no counting job, except where a
//! trigger may be reached.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::{
    caller::{Caller, TenantId},
    model::Models,
    policy::{PolicyOverrides, SessionSettings},
    tokens::Encoding,
};
use anneal_testkit::{TestApp, TestConversation, assistant, pb, prose, user};

const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// The number of counting jobs of the conversation.
async fn counting_jobs(conversation: &TestConversation<'_>) -> usize {
    let ask = pb::ListJobsRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let listed = conversation.app.operators().list_jobs(ask).await;
    let jobs = listed.expect("lists").into_inner().jobs;
    jobs.iter()
        .filter(|job| job.kind() == pb::JobKind::CountTokens)
        .count()
}

/// Tokens of each message, and whether they are estimated.
fn tokens(appended: &pb::AppendMessagesResponse) -> Vec<(u64, bool)> {
    let tokens = appended
        .messages
        .iter()
        .map(|message| message.tokens.expect("has tokens"));
    tokens
        .map(|count| (count.tokens, count.estimated))
        .collect()
}

async fn stored_tokens(conversation: &TestConversation<'_>) -> Vec<(u64, bool)> {
    let messages = conversation.messages().await;
    let tokens = messages
        .iter()
        .map(|message| message.tokens.expect("has tokens"));
    tokens
        .map(|count| (count.tokens, count.estimated))
        .collect()
}

#[tokio::test]
async fn small_messages_are_stored_with_their_counts_and_a_repetition_has_the_same_answer() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let (question, answer) = ("What is 冷却?", "The slow loss of heat.");
    let append = || {
        conversation
            .append_all(vec![user(question), assistant(answer)])
            .request_id("first")
    };
    let appended = append().await;
    let counter = Encoding::O200kBase.counter();
    let expected = [question, answer].map(|text| (counter.count(text).get(), false));
    assert_eq!(tokens(&appended), expected);
    assert_eq!(stored_tokens(&conversation).await, expected);
    let row = conversation.conversation().await;
    let total = row.token_total.expect("has a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (expected[0].0 + expected[1].0, 0)
    );
    let repeated = append().await;
    assert!(repeated.replayed);
    assert_eq!(tokens(&repeated), expected);
    conversation.verify().await;
}

#[tokio::test]
async fn within_the_trigger_bounds_an_append_enqueues_no_job_and_at_a_bound_it_does() {
    let app = TestApp::start().await;
    let only = |set: fn(&mut pb::Policy)| {
        let mut policy = pb::Policy {
            token_threshold: Some(1_000_000),
            max_message_count: Some(0),
            keep_recent_turns: Some(1),
            ..Default::default()
        };
        set(&mut policy);
        policy
    };
    // The last append of each reaches the trigger: the eighth message, the tokens of all, or the
    // tokens of one.
    let cases = [
        (only(|policy| policy.max_message_count = Some(8)), [5, 5, 5]),
        (
            only(|policy| policy.token_threshold = Some(400)),
            [5, 5, 400],
        ),
        (
            only(|policy| {
                policy.large_message_threshold = Some(100);
                policy.set_large_summaries(pb::LargeSummaries::Eager);
            }),
            [5, 5, 300],
        ),
    ];
    for (policy, words) in cases {
        let conversation = app.conversation_with_policy(policy.clone()).await;
        let turn = async |words: usize| {
            let text = "word ".repeat(words);
            conversation.turn(&text, &text).await;
        };
        turn(5).await;
        assert_eq!(counting_jobs(&conversation).await, 1, "no bounds are known");
        app.run_jobs_until_idle().await;
        for (words, jobs) in words.into_iter().zip([0, 0, 1]) {
            turn(words).await;
            assert_eq!(
                counting_jobs(&conversation).await,
                jobs,
                "{words} words of {policy:?}"
            );
        }
        let exact = stored_tokens(&conversation).await;
        assert!(exact.iter().all(|(_, estimated)| !estimated), "{exact:?}");
        conversation.verify().await;
        assert!(app.run_jobs_until_idle().await >= 2, "{policy:?}");
    }
}

#[tokio::test]
async fn other_settings_than_those_of_the_bounds_make_an_append_enqueue_a_job() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turn("first", "answer").await;
    app.run_jobs_until_idle().await;
    conversation.turn("second", "answer").await;
    assert_eq!(counting_jobs(&conversation).await, 0);
    let overrides = PolicyOverrides {
        max_message_count: Some(40),
        ..PolicyOverrides::default()
    };
    let session = SessionSettings::new(overrides, Models::default());
    app.store.replace_session(session);
    conversation.turn("third", "answer").await;
    assert_eq!(counting_jobs(&conversation).await, 1);
}

#[tokio::test]
async fn a_worker_counts_a_large_message_and_those_that_follow_it() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let large = prose(0, 400);
    assert!(large.len() > 16 * 1024);
    let append_large = || conversation.append(&large).request_id("large");
    let estimated = tokens(&append_large().await);
    assert!(estimated[0].1);
    let small = tokens(&conversation.append("and this").await);
    let counter = Encoding::O200kBase.counter();
    // Its answer is exact. It is stored as not counted, because the message before it is not.
    assert_eq!(small, [(counter.count("and this").get(), false)]);
    let before = conversation.conversation().await.token_total;
    assert_eq!(before.expect("has a total").estimated_messages, 2);
    assert_eq!(tokens(&append_large().await), estimated);
    conversation.verify().await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        stored_tokens(&conversation).await,
        [(counter.count(&large).get(), false), small[0]]
    );
    assert_eq!(tokens(&append_large().await), estimated);
    assert!(!tokens(&conversation.append("again").await)[0].1);
    conversation.verify().await;
}

#[tokio::test]
async fn row_D8_appends_count_small_messages_and_workers_count_large_ones_and_summarize() {
    let app = TestApp::start().await;
    let mut policy = pb::Policy {
        max_message_count: Some(4),
        keep_recent_turns: Some(1),
        large_message_threshold: Some(1_000),
        ..Default::default()
    };
    policy.set_large_summaries(pb::LargeSummaries::Eager);
    let conversation = app.conversation_with_policy(policy).await;
    // Until its first job, a conversation's trigger bounds are not known.
    conversation.append(&prose(500, 6)).await;
    app.run_jobs_until_idle().await;

    let small = tokens(&conversation.append_all(vec![assistant("noted")]).await);
    let counter = Encoding::O200kBase.counter();
    assert_eq!(small, [(counter.count("noted").get(), false)]);
    assert_eq!(stored_tokens(&conversation).await[1], small[0]);
    assert_eq!(
        conversation.jobs().await,
        [],
        "a small message needs no job"
    );

    let large = prose(0, 400);
    assert!(large.len() > 16 * 1024);
    conversation.append(&large).await;
    conversation.append_all(vec![assistant("read")]).await;
    let stored = stored_tokens(&conversation).await;
    assert!(stored[2].1, "a large message is not counted: {stored:?}");
    let kinds =
        |jobs: Vec<pb::Job>| -> Vec<pb::JobKind> { jobs.iter().map(pb::Job::kind).collect() };
    assert_eq!(
        kinds(conversation.jobs().await),
        [pb::JobKind::CountTokens],
        "nothing but counting is decided by an append"
    );
    assert!(conversation.message(3).await.summary.is_none());
    assert_eq!(conversation.checkpoints().await, []);

    app.run_jobs_until_idle().await;
    let stored = stored_tokens(&conversation).await;
    assert_eq!(stored[2], (counter.count(&large).get(), false));
    assert!(conversation.message(3).await.summary.is_some());
    assert_eq!(conversation.checkpoints().await.len(), 1, "four messages");
    conversation.verify().await;
}

#[tokio::test]
async fn the_encoding_of_a_conversation_is_learned_from_its_first_append() {
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        encoding: "cl100k_base".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    let text = "冷却された記憶";
    assert!(tokens(&conversation.append(text).await)[0].1);
    app.run_jobs_until_idle().await;
    let count = Encoding::Cl100kBase.counter().count(text).get();
    assert_ne!(count, Encoding::O200kBase.counter().count(text).get());
    assert_eq!(tokens(&conversation.append(text).await), [(count, false)]);
    assert_eq!(
        stored_tokens(&conversation).await,
        [(count, false), (count, false)]
    );
    conversation.verify().await;
}

#[tokio::test]
async fn counted_messages_are_part_of_the_tenants_usage_until_they_are_deleted() {
    let app = TestApp::start().await;
    let usage = async || {
        let usage = app.store.read_tenant_usage(CALLER).await.expect("reads");
        (usage.messages, usage.content_bytes)
    };
    let conversation = app.conversation().await;
    conversation.turn("question", "answer").await;
    let bytes = "[{\"type\":\"text\",\"text\":\"\"}]".len() * 2 + "questionanswer".len();
    assert_eq!(usage().await, (2, bytes as u64));
    app.run_jobs_until_idle().await;
    assert_eq!(usage().await, (2, bytes as u64), "the job adds nothing");
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    assert_eq!(usage().await, (0, 0));
}
