//! `anneal chat`: `/undo`, `/redo`, `/edit`, `/fork`, and `/retry` of an answered question.

use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, Say, Script, ScriptedModel, TcpProxy, Terminal, TestApp,
    TestConversation, assistant, call, pb, result, user,
};

use crate::commands::{BINARY, chat_commands::start_chat};

/// A model that answers `Answer 1.`, `Answer 2.`, …
async fn numbering_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        Script::says(
            request,
            [Say::text(&format!("Answer {}.", request.nth + 1))],
        )
    })
    .await
}

/// Runs `anneal chat` with these lines on a pipe. It continues the newest conversation of the user
/// `piper`, or starts the first one.
async fn run_chat(app: &TestApp, input: &str) -> CommandOutput {
    let folder = Folder::new();
    let address = format!("http://{}", app.addresses.grpc);
    AnnealBinary::new(BINARY, &folder, "")
        .run_with_input(&["chat", "--address", &address, "--user", "piper"], input)
        .await
}

/// The app's only conversation.
async fn only_conversation(app: &TestApp) -> TestConversation<'_> {
    let listed = app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("lists")
        .into_inner();
    let [only] = listed.conversations.try_into().expect("one conversation");
    app.conversation_by_id(&only.conversation_id)
}

/// A conversation that `anneal chat` of [`run_chat`] continues.
async fn create_conversation(app: &TestApp) -> TestConversation<'_> {
    app.conversation_with(pb::CreateConversationRequest {
        agent_id: "terminal".into(),
        user_id: "piper".into(),
        ..Default::default()
    })
    .await
}

/// Id and text of each message.
async fn texts(conversation: &TestConversation<'_>) -> Vec<(i64, String)> {
    let ids = conversation.messages().await;
    let ids = ids.iter().map(|message| message.message_id);
    let texts = conversation.texts_by_role().await;
    ids.zip(texts.into_iter().map(|(_, text)| text)).collect()
}

fn numbered<const N: usize>(texts: [(i64, &str); N]) -> Vec<(i64, String)> {
    texts.map(|(id, text)| (id, text.to_owned())).into()
}

#[tokio::test]
async fn undo_withdraws_the_newest_question_with_its_answer_and_redo_restores_them() {
    let model = numbering_model().await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "ferry"]);
    terminal.wait_for_prompt("ferry>").await;
    for (question, answer) in [("When?", "Answer 1."), ("From where?", "Answer 2.")] {
        terminal.enter(question);
        terminal.wait_for_text(answer).await;
        terminal.wait_for_prompt("ferry>").await;
    }
    let conversation = only_conversation(&app).await;
    let all = texts(&conversation).await;
    assert_eq!(all.len(), 4);

    terminal.enter("/undo");
    terminal.wait_for_text("withdrawn: messages 3-4").await;
    terminal.wait_for_text("you   | From where?").await;
    terminal.wait_for_prompt("ferry>").await;
    assert_eq!(texts(&conversation).await, all[..2]);
    terminal.enter("/undo");
    terminal.wait_for_text("withdrawn: messages 1-2").await;
    terminal.wait_for_prompt("ferry>").await;
    assert_eq!(texts(&conversation).await, []);
    terminal.enter("/undo");
    terminal
        .wait_for_text("this conversation has no question")
        .await;
    terminal.wait_for_prompt("ferry>").await;

    terminal.enter("/redo");
    terminal.wait_for_text("restored: messages 1-2").await;
    terminal.wait_for_prompt("ferry>").await;
    assert_eq!(texts(&conversation).await, all[..2]);
    terminal.enter("/redo");
    terminal.wait_for_text("restored: messages 3-4").await;
    terminal.wait_for_prompt("ferry>").await;
    assert_eq!(texts(&conversation).await, all);
    terminal.enter("/redo");
    terminal
        .wait_for_text("nothing was undone since your last message")
        .await;
    conversation.verify().await;
}

#[tokio::test]
async fn after_the_next_message_what_was_undone_stays_withdrawn() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let ran = run_chat(&app, "When?\n/undo\nFrom where?\n/redo\n").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err
            .contains("nothing was undone since your last message"),
        "{ran:?}"
    );
    assert_eq!(ran.out, "Answer 1.\nyou   | When?\nAnswer 2.\n");
    let conversation = only_conversation(&app).await;
    assert_eq!(
        texts(&conversation).await,
        numbered([(3, "From where?"), (4, "Answer 2.")])
    );
    assert!(
        !model.requests()[1].texts().contains(&"When?".to_owned()),
        "the model gets nothing that was undone"
    );
    assert_eq!(conversation.conversation().await.title, "From where?");
}

#[tokio::test]
async fn undo_withdraws_tool_calls_and_results_after_the_question_too() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app).await;
    conversation.turn("Hello?", "Hello.").await;
    conversation.append("Look everywhere.").await;
    // More messages than one page of the search.
    for n in 0..30 {
        let id = format!("c{n}");
        conversation
            .append_all(vec![call(&id, "{}"), result(&id, "nothing")])
            .await;
    }
    conversation
        .append_all(vec![assistant("Nothing anywhere.")])
        .await;
    let ran = run_chat(&app, "/undo\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "you   | Look everywhere.\n"),
        "{ran:?}"
    );
    assert!(ran.err.contains("withdrawn: messages 3-64"), "{ran:?}");
    assert_eq!(
        texts(&conversation).await,
        numbered([(1, "Hello?"), (2, "Hello.")])
    );
}

#[tokio::test]
async fn edit_sends_another_text_instead_of_the_newest_question() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let ran = run_chat(&app, "When?\nFrom wear?\n/edit From where?\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Answer 1.\nAnswer 2.\nAnswer 3.\n"),
        "{ran:?}"
    );
    let conversation = only_conversation(&app).await;
    let expected = numbered([
        (1, "When?"),
        (2, "Answer 1."),
        (3, "From where?"),
        (5, "Answer 3."),
    ]);
    assert_eq!(texts(&conversation).await, expected);
    assert_eq!(conversation.message(3).await.version, 2);
    let sent = model.requests()[2].texts();
    assert!(
        sent.contains(&"From where?".to_owned())
            && !sent.contains(&"From wear?".to_owned())
            && !sent.contains(&"Answer 2.".to_owned()),
        "{sent:?}"
    );
    assert!(
        ran.err.contains("1 earlier answer is kept: /alternatives"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn an_answer_to_an_earlier_text_is_listed_but_not_chosen() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let ran = run_chat(
        &app,
        "From wear?\n/edit From where?\n/retry\n/alternatives\n",
    )
    .await;
    let rows = "  1 (to an earlier text)  Answer 1.\n  2  Answer 2.\n* 3  Answer 3.\n";
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (
            Some(0),
            format!("Answer 1.\nAnswer 2.\nAnswer 3.\n{rows}").as_str()
        ),
        "{ran:?}"
    );
    let refused = run_chat(&app, "/choose 1\n").await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused
            .err
            .contains("answer 1 (message 2) is to an earlier text of your message"),
        "{refused:?}"
    );
    let conversation = only_conversation(&app).await;
    assert_eq!(
        texts(&conversation).await,
        numbered([(1, "From where?"), (4, "Answer 3.")])
    );
    let chosen = run_chat(&app, "/choose 2\n").await;
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
    assert_eq!(
        texts(&conversation).await,
        numbered([(1, "From where?"), (3, "Answer 2.")])
    );
    conversation.verify().await;
}

#[tokio::test]
async fn redo_restores_what_was_undone_but_no_edit() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = create_conversation(&app).await;
    conversation.turn("From wear?", "Nowhere.").await;
    let terminal = start_chat(&app, &Folder::new(), &["--user", "piper"]);
    terminal.wait_for_prompt("From wear?>").await;
    terminal.enter("/edit From where?");
    terminal.wait_for_text("Answer 1.").await;
    // The title follows the first message.
    terminal.wait_for_prompt("From where?>").await;
    let edited = numbered([(1, "From where?"), (3, "Answer 1.")]);
    assert_eq!(texts(&conversation).await, edited);
    terminal.enter("/redo");
    terminal
        .wait_for_text("nothing was undone since your last message")
        .await;
    terminal.wait_for_prompt("From where?>").await;
    assert_eq!(texts(&conversation).await, edited);
    terminal.enter("/undo");
    terminal.wait_for_text("withdrawn: messages 1, 3").await;
    terminal.wait_for_prompt(">").await;
    assert_eq!(texts(&conversation).await, []);
    terminal.enter("/redo");
    terminal.wait_for_text("restored: messages 1, 3").await;
    terminal.wait_for_prompt("From where?>").await;
    assert_eq!(texts(&conversation).await, edited);
    conversation.verify().await;
}

#[tokio::test]
async fn a_refused_edit_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app).await;
    conversation.turn("When?", "At nine.").await;
    let terminal = start_chat(&app, &Folder::new(), &["--user", "piper"]);
    terminal.wait_for_prompt("When?>").await;
    let etag = conversation.conversation().await.etag;
    // Without a model, the server refuses the turn.
    terminal.enter("/edit From where?");
    terminal.wait_for_text("no model is configured").await;
    terminal.wait_for_prompt("When?>").await;
    assert_eq!(
        texts(&conversation).await,
        numbered([(1, "When?"), (2, "At nine.")])
    );
    assert_eq!(conversation.conversation().await.etag, etag);
}

#[tokio::test]
async fn undo_and_edit_of_a_message_that_was_not_stored_withdraw_nothing() {
    let app = TestApp::start().await;
    let conversation = create_conversation(&app).await;
    conversation.turn("When?", "At nine.").await;
    let both = texts(&conversation).await;
    let terminal = start_chat(&app, &Folder::new(), &["--user", "piper"]);
    terminal.wait_for_prompt("When?>").await;
    // Without a model, the server stores nothing of a message.
    for line in ["From wear?", "/edit From where?"] {
        terminal.enter(line);
        terminal
            .wait_for_text(&format!("{line}\nno model is configured"))
            .await;
        terminal.wait_for_prompt("When?>").await;
        assert_eq!(texts(&conversation).await, both, "{line}");
    }
    terminal.enter("/undo");
    terminal
        .wait_for_text("your last message was not stored")
        .await;
    terminal.wait_for_prompt("When?>").await;
    assert_eq!(texts(&conversation).await, both);
    terminal.enter("/undo");
    terminal.wait_for_text("withdrawn: messages 1-2").await;
    terminal.wait_for_prompt(">").await;
    assert_eq!(texts(&conversation).await, []);
    conversation.verify().await;
}

#[tokio::test]
async fn edit_replaces_a_message_that_is_stored_although_the_connection_was_lost() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::says(request, [Say::text("Never read.")]).hanging_after(0),
        _ => Script::says(request, [Say::text("From the harbor.")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = create_conversation(&app).await;
    conversation.turn("When?", "At nine.").await;
    let proxy = TcpProxy::to_port(app.addresses.grpc.port()).await;
    let address = format!("http://127.0.0.1:{}", proxy.port());
    let arguments = ["chat", "--address", &address, "--user", "piper"];
    let terminal = Terminal::start(BINARY, &Folder::new(), &arguments, &[]);
    terminal.wait_for_prompt("When?>").await;
    proxy.mute_answers();
    terminal.enter("From wear?");
    model.wait_for_calls(1).await;
    proxy.close_connections();
    terminal.wait_for_text("the server cannot be reached").await;
    terminal.wait_for_prompt("When?>").await;
    model.wait_for_closed_calls(1).await;
    assert_eq!(conversation.messages().await.len(), 3);

    terminal.enter("/edit From where?");
    terminal.wait_for_text("From the harbor.").await;
    terminal.wait_for_prompt("When?>").await;
    let expected = numbered([
        (1, "When?"),
        (2, "At nine."),
        (3, "From where?"),
        (4, "From the harbor."),
    ]);
    assert_eq!(texts(&conversation).await, expected);
    conversation.verify().await;
}

#[tokio::test]
async fn retry_of_an_answered_question_gets_another_answer_and_choose_takes_an_earlier_one() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = create_conversation(&app).await;
    conversation
        .append_all(vec![
            user("Where is the harbor?"),
            assistant("I do not know."),
        ])
        .await;
    let ran = run_chat(&app, "/retry\n/retry\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Answer 1.\nAnswer 2.\n"),
        "{ran:?}"
    );
    let question = (1, "Where is the harbor?".to_owned());
    assert_eq!(
        texts(&conversation).await,
        [question.clone(), (4, "Answer 2.".to_owned())]
    );
    let sent = model.requests()[1].texts();
    assert!(
        !sent.contains(&"I do not know.".to_owned()) && !sent.contains(&"Answer 1.".to_owned()),
        "{sent:?}"
    );
    let listed = run_chat(&app, "/alternatives\n").await;
    assert_eq!(
        (listed.code, listed.out.as_str()),
        (
            Some(0),
            "  1  I do not know.\n  2  Answer 1.\n* 3  Answer 2.\n"
        ),
        "{listed:?}"
    );
    let chosen = run_chat(&app, "/choose 2\n").await;
    assert!(chosen.err.contains("answer 2 stands again"), "{chosen:?}");
    assert_eq!(
        texts(&conversation).await,
        [question, (3, "Answer 1.".to_owned())]
    );
    let unknown = run_chat(&app, "/choose 4\n").await;
    assert!(unknown.err.contains("there is no answer 4"), "{unknown:?}");
    conversation.verify().await;
}

#[tokio::test]
async fn retry_without_a_question_is_refused() {
    let app = TestApp::start().await;
    create_conversation(&app).await;
    let ran = run_chat(&app, "/retry\n").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.err.contains("this conversation has no question"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_fork_is_continued_and_leaves_its_source_as_it_is() {
    let model = numbering_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let ran = run_chat(&app, "When?\nFrom where?\n/fork 2 Another try\nTo where?\n").await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Answer 1.\nAnswer 2.\nAnswer 3.\n"),
        "{ran:?}"
    );
    assert!(ran.err.contains("forked after message 2"), "{ran:?}");
    let listed = app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("lists")
        .into_inner();
    let [fork, source] = listed.conversations.try_into().expect("two conversations");
    assert_eq!(
        (fork.title.as_str(), source.title.as_str()),
        ("Another try", "When?")
    );
    let expected = numbered([
        (1, "When?"),
        (2, "Answer 1."),
        (3, "To where?"),
        (4, "Answer 3."),
    ]);
    let fork = app.conversation_by_id(&fork.conversation_id);
    assert_eq!(texts(&fork).await, expected);
    let expected = numbered([
        (1, "When?"),
        (2, "Answer 1."),
        (3, "From where?"),
        (4, "Answer 2."),
    ]);
    let source = app.conversation_by_id(&source.conversation_id);
    assert_eq!(texts(&source).await, expected);
    assert!(
        !model.requests()[2]
            .texts()
            .contains(&"From where?".to_owned())
    );
}
