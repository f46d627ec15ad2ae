//! A real session of the agent pi, which failed after one oversized message: the model refused
//! every later prompt. With anneal's contexts the next prompt fits the same window. A second test
//! does the same with an invented session.

use anneal_testkit::{
    Chat, Recount, Rendered, TestApp, TranscriptFolder, assistant, pb, prose, user,
};

use crate::contexts::FORMATS;

/// The model's window in tokens.
const WINDOW: u64 = 2_048;
/// Tokens of the window that are reserved for the answer.
const RESERVE: u64 = 256;

/// Asserts that the session's last prompt fits the window in every format, whether it is stored or
/// is current input.
async fn assert_last_prompt_fits(chat: &Chat, prompt: &str) {
    let app = TestApp::start().await;
    let prompt_index = chat
        .messages
        .iter()
        .rposition(|message| *message == user(prompt))
        .expect("the session has the prompt");
    let mut earlier = chat.clone();
    earlier.messages.truncate(prompt_index);
    let sessions = [(earlier, vec![user(prompt)]), (chat.clone(), Vec::new())];
    for (session, input) in sessions {
        let imported = app
            .append_chats(std::slice::from_ref(&session), &pb::Policy::default())
            .await;
        let conversation = &imported[0].conversation;
        let whole = conversation.context_with(input.clone()).await;
        assert!(
            whole.0.total_tokens > WINDOW,
            "the whole session must exceed the window; it has {} tokens",
            whole.0.total_tokens
        );
        let mut recount = Recount::default();
        for format in FORMATS {
            let ask = pb::BuildContextRequest {
                current_input: input.clone(),
                budget_tokens: Some(WINDOW - RESERVE),
                format: format.into(),
                ..Default::default()
            };
            let built = conversation.build(ask).await.expect("the prompt fits");
            let rendered = Rendered::read(&built, format).expect("the rendered context is valid");
            assert_eq!(rendered.refusals(), Vec::<String>::new(), "{format:?}");
            assert!(
                rendered.texts.iter().any(|text| text.ends_with(prompt)),
                "{format:?}: {:?}",
                rendered.texts
            );
            assert!(recount.tokens(&rendered) <= built.0.total_tokens);
            assert!(
                built.0.total_tokens <= WINDOW - RESERVE,
                "{format:?}: {} tokens",
                built.0.total_tokens
            );
            built.assert_covers(session.messages.len() as i64);
        }
    }
}

#[tokio::test]
async fn a_two_word_prompt_after_an_oversized_message_fits_the_window_again() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let session = folder
        .pi_sessions()
        .into_iter()
        .find(|chat| chat.name == "pi-0")
        .expect("the session is there");
    assert_last_prompt_fits(&session, "Say ok.").await;
}

#[tokio::test]
async fn a_prompt_after_an_oversized_message_and_failed_answers_fits_the_window() {
    let messages = vec![
        user("What is PostgreSQL? One sentence."),
        assistant("A relational database."),
        user(
            &[
                "connection reset by peer while reading response header. ".repeat(400),
                prose(0, 60),
            ]
            .concat(),
        ),
        assistant(""),
        user("Say ok."),
        assistant(""),
    ];
    assert_last_prompt_fits(
        &Chat {
            messages,
            ..Default::default()
        },
        "Say ok.",
    )
    .await;
}
