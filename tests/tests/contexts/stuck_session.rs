//! A session that its own agent could not rescue: one oversized message, and every prompt after it was refused. Here the
//! next prompt fits the same window.

use anneal_tests::{Chat, Data, House, Recount, Rendered, assistant, pb, prose, user};

use crate::FORMATS;

/// The model's window, and what of it the answer may need.
const WINDOW: u64 = 2_048;
const RESERVE: u64 = 256;

/// Asserts that the session's last prompt fits the window in every format: stored, and as input to what came before it.
async fn assert_rescued(chat: &Chat, prompt: &str) {
    let house = House::start().await;
    let before = chat.messages.iter().rposition(|message| *message == user(prompt)).expect("the prompt was said");
    let mut earlier = chat.clone();
    earlier.messages.truncate(before);
    let sessions = [(earlier, vec![user(prompt)]), (chat.clone(), Vec::new())];
    for (session, input) in sessions {
        let imported = house.import(std::slice::from_ref(&session), &pb::Policy::default()).await;
        let talk = &imported[0].talk;
        let whole = talk.context_with(input.clone()).await;
        assert!(whole.0.total_tokens > WINDOW, "{} tokens fit as they are", whole.0.total_tokens);
        let mut recount = Recount::default();
        for format in FORMATS {
            let ask = pb::BuildContextRequest {
                current_input: input.clone(),
                budget_tokens: Some(WINDOW - RESERVE),
                format: format.into(),
                ..Default::default()
            };
            let built = talk.build(ask).await.expect("the prompt fits");
            let rendered = Rendered::read(&built, format).expect("it is read back");
            assert_eq!(rendered.refusals(), Vec::<String>::new(), "{format:?}");
            assert!(rendered.texts.iter().any(|text| text.ends_with(prompt)), "{format:?}: {:?}", rendered.texts);
            assert!(recount.tokens(&rendered) <= built.0.total_tokens);
            assert!(built.0.total_tokens <= WINDOW - RESERVE, "{format:?}: {} tokens", built.0.total_tokens);
            built.assert_covers(session.messages.len() as i64);
        }
    }
}

#[tokio::test]
async fn a_two_word_prompt_after_an_oversized_message_fits_the_window_again() {
    let Some(data) = Data::find() else { return };
    let session = data.pi_sessions().into_iter().find(|chat| chat.name == "pi-0").expect("the session is there");
    assert_rescued(&session, "Say ok.").await;
}

#[tokio::test]
async fn a_prompt_after_an_oversized_message_and_failed_answers_fits_the_window() {
    let said = vec![
        user("What is PostgreSQL? One sentence."),
        assistant("A relational database."),
        user(&["connection reset by peer while reading response header. ".repeat(400), prose(0, 60)].concat()),
        assistant(""),
        user("Say ok."),
        assistant(""),
    ];
    assert_rescued(&Chat { messages: said, ..Default::default() }, "Say ok.").await;
}
