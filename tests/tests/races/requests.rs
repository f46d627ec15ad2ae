//! One request twice at once: the second waits for the first, and answers what that has done.

use anneal_tests::{House, JOBS, Talk, pb, refusal, user};
use uuid::Uuid;

/// The same conversation behind two servers: in one, appends to a conversation follow each other anyway.
fn beside<'a>(second: &'a House, talk: &Talk<'_>) -> Talk<'a> {
    Talk { house: second, id: talk.id.clone() }
}

#[tokio::test]
async fn an_append_repeated_while_it_is_stored_waits_and_answers_the_same() {
    let house = House::start().await;
    let second = house.beside().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let said = || vec![user("c"), user("d")];
    let (first, again, ()) = tokio::join!(
        // Has stored its messages, and waits to mark the job.
        talk.append_all(said()).request_id("r").send(),
        async {
            house.waiting(1).await;
            beside(&second, &talk).append_all(said()).request_id("r").send().await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    let (first, again) = (first.expect("appends"), again.expect("answers"));
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(first.messages, again.messages);
    assert_eq!(talk.conversation().await.message_count, 4);
    talk.verify().await;
}

#[tokio::test]
async fn another_append_with_the_same_request_id_waits_and_is_refused() {
    let house = House::start().await;
    let second = house.beside().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let held = house.holding(JOBS, talk.uuid()).await;
    let (first, other, ()) = tokio::join!(
        talk.append("c").request_id("r").send(),
        async {
            house.waiting(1).await;
            beside(&second, &talk).append("something else").request_id("r").send().await
        },
        async {
            house.waiting(2).await;
            held.let_go().await;
        },
    );
    assert_eq!(first.expect("appends").messages.len(), 1);
    assert_eq!(refusal(&other.expect_err("is another request")).reason, "REQUEST_ID_REUSED");
    assert_eq!(talk.conversation().await.message_count, 3);
}

#[tokio::test]
async fn an_append_repeated_after_the_first_was_rolled_back_is_stored() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    let id = talk.uuid();
    // The first try, as a server that dies with it leaves it: uncommitted, and then gone.
    let first =
        "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, text_bytes,
            content, content_digest, request_id, request_digest, request_messages)
        select tenant_id, conversation_id, 3, 1, 2, 1, 1, '[]', '', 'r', '', 1
        from ai_conversation where conversation_id = $1";
    let mut dying = house.holding(anneal_tests::CONVERSATION, id).await;
    assert_eq!(dying.also(first, id).await, 1);
    let (again, ()) = tokio::join!(talk.append("c").request_id("r").send(), async {
        house.waiting(1).await;
        dying.let_go().await;
    });
    let again = again.expect("appends");
    assert_eq!((again.replayed, again.messages[0].message_id), (false, 3));
    talk.verify().await;
}

#[tokio::test]
async fn a_separator_repeated_while_it_is_put_waits_and_answers_the_same() {
    let house = House::start().await;
    let talk = house.conversation().await;
    talk.turn("a", "b").await;
    // The first stops at the row of its mark.
    let mark = "insert into ai_separator (tenant_id, conversation_id, after_message_id)
        select tenant_id, conversation_id, 2 from ai_conversation where conversation_id = $1";
    let held = house.holding(mark, talk.uuid()).await;
    let separate = || {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: talk.id.clone(),
            request_id: Uuid::nil().to_string(),
            ..Default::default()
        };
        let mut messages = house.messages();
        async move { messages.insert_separator(ask).await.expect("separates").into_inner() }
    };
    let (first, (again, appended), ()) = tokio::join!(
        separate(),
        async {
            house.waiting(1).await;
            // The repeated one must not mark what comes after the first.
            tokio::join!(separate(), talk.append("c").send())
        },
        async {
            house.waiting(3).await;
            held.let_go().await;
        },
    );
    assert_eq!(first, again);
    assert_eq!(first.after_message_id, 2);
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
}
