//! Input that is typed or pasted while `anneal chat` prints an answer.

use anneal_testkit::{
    Folder, Gate, ReportedUsage, Script, ScriptedModel, Terminal, TestApp, TestConversation,
    eventually, pb,
};

use crate::commands::{BINARY, chat_commands::start_chat};

/// A model whose answers are "The ferry leaves at nine.". They stop at the gate.
async fn start_gated_model(gate: &Gate) -> ScriptedModel {
    let gate = gate.clone();
    ScriptedModel::start(move |_| {
        let usage = ReportedUsage {
            input: 1_200,
            cached: 900,
            output: 7,
            ..ReportedUsage::default()
        };
        Script::openai(&["The ferry ", "leaves at nine."], usage).gated(&gate)
    })
    .await
}

/// Asks the first question, and waits until a part of its answer is on the screen.
async fn ask_and_wait_for_first_words(terminal: &Terminal, model: &ScriptedModel, gate: &Gate) {
    terminal.wait_for_prompt("ferry>").await;
    terminal.enter("When does the ferry leave?");
    model.wait_for_calls(1).await;
    // The role, which is OpenAI's first event, and the first text.
    gate.open(2);
    terminal.wait_for_text("The ferry ").await;
}

/// The texts of the user's messages in the app's only conversation.
async fn list_prompts(app: &TestApp) -> Vec<String> {
    let listed = app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("lists")
        .into_inner();
    let [only] = listed.conversations.try_into().expect("one conversation");
    let conversation = TestConversation {
        app,
        id: only.conversation_id,
    };
    let messages = conversation.texts_by_role().await;
    messages
        .into_iter()
        .filter(|(role, _)| *role == pb::Role::User)
        .map(|(_, text)| text)
        .collect()
}

#[tokio::test]
async fn text_typed_during_an_answer_is_not_shown_in_it_and_begins_the_next_line() {
    let gate = Gate::default();
    let model = start_gated_model(&gate).await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "ferry"]);
    ask_and_wait_for_first_words(&terminal, &model, &gate).await;
    terminal.type_text("And back?");
    gate.open_for_ever();
    terminal.wait_for_text("The ferry leaves at nine.").await;
    terminal.wait_for_text("ferry> And back?").await;
    terminal.type_text("\r");
    eventually("both prompts are stored", async || {
        list_prompts(&app).await == ["When does the ferry leave?", "And back?"]
    })
    .await;
}

#[tokio::test]
async fn lines_typed_or_pasted_during_an_answer_are_sent_one_after_the_other() {
    let gate = Gate::default();
    let model = start_gated_model(&gate).await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "ferry"]);
    ask_and_wait_for_first_words(&terminal, &model, &gate).await;
    terminal.paste("curl \\\n  -X GET\n\nthe end");
    terminal.type_text("\rAnd back?\rThanks.\r");
    gate.open_for_ever();
    eventually("all prompts are stored", async || {
        list_prompts(&app).await
            == [
                "When does the ferry leave?",
                "curl \\\n  -X GET\n\nthe end",
                "And back?",
                "Thanks.",
            ]
    })
    .await;
}

#[tokio::test]
async fn text_typed_before_ctrl_c_stops_an_answer_is_kept() {
    let gate = Gate::default();
    let model = start_gated_model(&gate).await;
    let (app, folder) = (
        TestApp::with_scripted_model_without_timeouts(&model).await,
        Folder::new(),
    );
    let terminal = start_chat(&app, &folder, &["--new", "ferry"]);
    ask_and_wait_for_first_words(&terminal, &model, &gate).await;
    terminal.type_text("And back?\u{3}");
    terminal.wait_for_text("stopped").await;
    terminal.wait_for_text("ferry> And back?").await;
    gate.open_for_ever();
}

#[tokio::test]
async fn the_terminal_mode_is_restored_when_the_chat_ends_or_is_ended_during_an_answer() {
    let (gate, folder) = (Gate::default(), Folder::new());
    let model = start_gated_model(&gate).await;
    let app = TestApp::with_scripted_model(&model).await;
    // The mode of a terminal in which no chat has run.
    let mut terminal = Terminal::start(BINARY, &folder, &["--version"], &[]);
    terminal.wait_for_exit().await;
    let before = terminal.modes();
    let mut left = start_chat(&app, &folder, &["--new", "left"]);
    left.wait_for_prompt("left>").await;
    left.enter("/quit");
    assert_eq!(left.wait_for_exit().await, 0);
    eventually("the terminal mode is restored", async || {
        left.modes() == before
    })
    .await;
    let mut ended = start_chat(&app, &folder, &["--new", "ferry"]);
    ask_and_wait_for_first_words(&ended, &model, &gate).await;
    ended.signal("TERM");
    // 128 plus the number of SIGTERM.
    assert_eq!(ended.wait_for_exit().await, 143);
    eventually("the terminal mode is restored", async || {
        ended.modes() == before
    })
    .await;
    gate.open_for_ever();
}
