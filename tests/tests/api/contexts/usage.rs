//! GetContextUsage reports the context that the next call would get.

use anneal_testkit::{TestApp, assistant, call, prose, result, user};

#[tokio::test]
async fn usage_equals_the_next_context() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user(&prose(0, 4)),
            // Contexts leave the result out, because it answers no call.
            result("nobody", &prose(4, 20)),
            user("Look."),
            // Contexts add a result, because this call has none.
            call("c1", "{\"where\":\"here\"}"),
            user("Well?"),
            assistant("Nothing yet."),
        ])
        .await;
    app.run_jobs_until_idle().await;
    let (built, usage) = (conversation.context().await, conversation.usage().await);
    assert!(!built.0.repairs.is_empty());
    assert_eq!(usage.total_tokens, built.0.total_tokens);
    for segment in &usage.segments {
        assert_eq!(segment.tokens, built.tokens_of(segment.segment()));
    }
    let sent: usize = built
        .0
        .messages
        .iter()
        .map(|message| message.message_ids.len())
        .sum();
    assert_eq!(usage.segments[2].messages, sent as i64);
    assert_eq!(usage.tail_messages, 6, "the result of no call is stored");
    assert!(!usage.estimated);
}

#[tokio::test]
async fn the_usage_of_a_large_tail_is_an_estimate() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("Well?"), result("nobody", &prose(0, 20))])
        .await;
    app.run_jobs_until_idle().await;
    let built = conversation.usage().await;
    assert!(!built.estimated);
    // As if the two messages had more than 8 MiB.
    sqlx::query("update ai_message set content_bytes = 5000000")
        .execute(&mut app.db().await)
        .await
        .expect("changes");
    let usage = conversation.usage().await;
    assert!(usage.estimated);
    assert!(
        usage.total_tokens > built.total_tokens,
        "the result of no call is counted: the context is not built"
    );
}
