//! `anneal chat` at a terminal: streamed answers, interruptions, failures, pasted text, the
//! history, and colors.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use std::{fs, os::unix::fs::PermissionsExt as _};

use anneal_llm::provider::Api;
use anneal_testkit::{
    Folder, Gate, MODEL, ReportedUsage, Say, Script, ScriptedModel, Terminal, TestApp,
    TestConversation, eventually, pb,
};

use crate::commands::{
    BINARY,
    chat_commands::{start_chat, start_chat_with_environment},
};

/// Lists the app's conversations, newest first.
async fn list_conversations(app: &TestApp) -> Vec<pb::Conversation> {
    let ask = pb::ListConversationsRequest::default();
    app.conversations()
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner()
        .conversations
}

/// Reads the messages of the app's only conversation.
async fn read_messages(app: &TestApp) -> Vec<(pb::Role, String)> {
    let [only] = list_conversations(app)
        .await
        .try_into()
        .expect("one conversation");
    TestConversation {
        app,
        id: only.conversation_id,
    }
    .texts_by_role()
    .await
}

fn from_user(text: &str) -> (pb::Role, String) {
    (pb::Role::User, text.to_owned())
}

fn from_model(text: &str) -> (pb::Role, String) {
    (pb::Role::Assistant, text.to_owned())
}

#[tokio::test]
async fn row_C5_an_answer_is_streamed_and_ends_with_its_usage() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |_| {
            let usage = ReportedUsage {
                input: 1_200,
                cached: 900,
                output: 7,
                ..ReportedUsage::default()
            };
            Script::openai(&["The ferry ", "leaves at nine."], usage).gated(&gate)
        }
    })
    .await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "ferry", "--system", "Be brief."]);
    terminal.wait_for_prompt("ferry>").await;
    terminal.enter("When does the ferry leave?");
    model.wait_for_calls(1).await;
    // The role, which is OpenAI's first event, and the first text.
    gate.open(2);
    let screen = terminal.wait_for_text("The ferry ").await;
    assert!(!screen.contains("leaves at nine."), "{screen}");
    gate.open_for_ever();
    terminal.wait_for_text("The ferry leaves at nine.").await;
    let screen = terminal.wait_for_prompt("ferry>").await;
    assert!(
        screen.contains("[1,200 in (75 % cached), 7 out; ") && screen.contains(MODEL),
        "{screen}"
    );
    let [conversation] = list_conversations(&app)
        .await
        .try_into()
        .expect("one conversation");
    let stored = (
        conversation.agent_id.as_str(),
        conversation.user_id.as_str(),
        conversation.message_count,
    );
    assert_eq!(stored, ("terminal", "tester", 2));
    let prompt = &model.requests()[0].body["messages"][0];
    assert_eq!(
        (&prompt["role"], &prompt["content"]),
        (&"system".into(), &"Be brief.".into())
    );
}

#[tokio::test]
async fn reasoning_is_printed_dimmed_and_on_lines_of_its_own() {
    let model = ScriptedModel::start(|request| {
        Script::says(
            request,
            [Say::thought("Ferries, hm."), Say::text("At nine.")],
        )
    })
    .await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let terminal = start_chat(&app, &Folder::new(), &["--new", "reasons"]);
    terminal.wait_for_prompt("reasons>").await;
    terminal.enter("When?");
    terminal.wait_for_text("Ferries, hm.\nAt nine.").await;
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(
        bytes.contains("\u{1b}[2mFerries, hm.\u{1b}[0m"),
        "{bytes:?}"
    );
}

#[tokio::test]
async fn ctrl_c_stops_the_answer_keeps_what_has_come_and_retry_asks_again() {
    let model = ScriptedModel::start(|request| match request.nth {
        // After the role and the first text.
        0 => Script::says(request, Say::texts(&["Half of an", " answer"])).hanging_after(2),
        _ => Script::says(request, [Say::text("A whole answer.")]),
    })
    .await;
    let (app, folder) = (
        TestApp::with_scripted_model_without_timeouts(&model).await,
        Folder::new(),
    );
    let terminal = start_chat(&app, &folder, &["--new", "stops"]);
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("Tell me everything");
    terminal.wait_for_text("Half of an").await;
    terminal.type_text("\u{3}");
    terminal
        .wait_for_text("stopped: the answer so far is stored")
        .await;
    terminal.wait_for_prompt("stops>").await;
    model.wait_for_closed_calls(1).await;
    assert_eq!(
        read_messages(&app).await,
        [from_user("Tell me everything"), from_model("Half of an")]
    );
    terminal.enter("/show 2");
    terminal
        .wait_for_text("it was stopped before its end")
        .await;
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("/retry");
    terminal
        .wait_for_text("1 earlier answer is kept: /alternatives lists them")
        .await;
    terminal.wait_for_text("A whole answer.").await;
    terminal.wait_for_prompt("stops>").await;
    assert_eq!(
        read_messages(&app).await,
        [
            from_user("Tell me everything"),
            from_model("A whole answer.")
        ],
        "an answered question is asked again"
    );
}

#[tokio::test]
async fn ctrl_c_before_the_answer_has_text_leaves_the_question_unanswered() {
    // After the role and the reasoning.
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::thought("Hm."), Say::text("No.")]).hanging_after(2)
    })
    .await;
    let (app, folder) = (
        TestApp::with_scripted_model_without_timeouts(&model).await,
        Folder::new(),
    );
    let terminal = start_chat(&app, &folder, &["--new", "stops"]);
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("Tell me everything");
    terminal.wait_for_text("Hm.").await;
    terminal.type_text("\u{3}");
    terminal
        .wait_for_text("nothing of this answer is stored")
        .await;
    terminal.wait_for_prompt("stops>").await;
    model.wait_for_closed_calls(1).await;
    assert_eq!(read_messages(&app).await, [from_user("Tell me everything")]);
}

#[tokio::test]
async fn after_a_retry_that_is_stopped_without_an_answer_the_chat_names_the_earlier_one() {
    // After the role and the reasoning.
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::says(request, [Say::text("The first answer.")]),
        _ => Script::says(request, [Say::thought("Hm."), Say::text("No.")]).hanging_after(2),
    })
    .await;
    let (app, folder) = (
        TestApp::with_scripted_model_without_timeouts(&model).await,
        Folder::new(),
    );
    let terminal = start_chat(&app, &folder, &["--new", "stops"]);
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("Tell me everything");
    terminal.wait_for_text("The first answer.").await;
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("/retry");
    terminal.wait_for_text("Hm.").await;
    terminal.type_text("\u{3}");
    terminal
        .wait_for_text("the question has no answer now: /alternatives lists")
        .await;
    terminal.wait_for_prompt("stops>").await;
    terminal.enter("/choose 1");
    terminal.wait_for_text("answer 1 stands again").await;
    assert_eq!(
        read_messages(&app).await,
        [
            from_user("Tell me everything"),
            from_model("The first answer.")
        ]
    );
}

#[tokio::test]
async fn a_failure_shows_its_reason_and_can_be_retried() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(503, &[], "{}"),
        _ => Script::says(request, [Say::text("Back again.")]),
    })
    .await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "again"]);
    terminal.wait_for_prompt("again>").await;
    terminal.enter("Anybody?");
    let screen = terminal.wait_for_text("Your message is stored").await;
    assert!(screen.contains("(MODEL_UNAVAILABLE)"), "{screen}");
    terminal.wait_for_prompt("again>").await;
    terminal.enter("/retry");
    terminal.wait_for_text("Back again.").await;
    terminal.wait_for_prompt("again>").await;
    assert_eq!(
        read_messages(&app).await,
        [from_user("Anybody?"), from_model("Back again.")]
    );
}

#[tokio::test]
async fn the_terminal_says_when_a_shorter_context_is_tried() {
    let refusal = r#"{"error": {"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}"#;
    let model = ScriptedModel::start(move |request| match request.nth {
        0 => Script::status(400, &[], refusal),
        _ => Script::says(request, [Say::text("Found it.")]),
    })
    .await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "long"]);
    terminal.wait_for_prompt("long>").await;
    terminal.enter("Where is it?");
    let screen = terminal.wait_for_text("Found it.").await;
    assert!(
        screen.contains("the context was too long for the model: trying again with"),
        "{screen}"
    );
}

#[tokio::test]
async fn without_a_configured_model_the_chat_names_the_settings_and_continues() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let terminal = start_chat(&app, &folder, &[]);
    terminal.wait_for_prompt("new>").await;
    terminal.enter("Hello?");
    let screen = terminal.wait_for_text("then type /retry").await;
    for words in [
        "no model is configured",
        "[providers.mine]",
        "[chat]",
        "docs/models.md",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    terminal.wait_for_prompt(">").await;
    let unknown = start_chat(&app, &folder, &["--model", "small", "--new"]);
    unknown.wait_for_prompt("new>").await;
    unknown.enter("Hello?");
    unknown
        .wait_for_text("this server calls no model named small")
        .await;
}

#[tokio::test]
async fn a_conversation_whose_first_message_is_refused_is_reused_and_not_deleted() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "shared"]);
    terminal.wait_for_prompt("shared>").await;
    for words in ["Hello?", "Anybody?"] {
        terminal.enter(words);
        terminal
            .wait_for_text(&format!("{words}\nno model is configured"))
            .await;
        terminal.wait_for_prompt("shared>").await;
        let [only] = list_conversations(&app)
            .await
            .try_into()
            .expect("one conversation");
        TestConversation {
            app: &app,
            id: only.conversation_id,
        }
        .append("From elsewhere")
        .await;
    }
    assert_eq!(
        read_messages(&app).await,
        [from_user("From elsewhere"), from_user("From elsewhere")]
    );
}

#[tokio::test]
async fn the_terminal_mode_is_restored_when_a_signal_ends_the_chat() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    // The exit codes are 128 plus the signal's number.
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        // The mode of a terminal in which no line editor has run.
        let mut terminal = Terminal::start(BINARY, &folder, &["--version"], &[]);
        terminal.wait_for_exit().await;
        let before = terminal.modes();
        let mut terminal = start_chat(&app, &folder, &["--new", "ended"]);
        terminal.wait_for_prompt("ended>").await;
        terminal.type_text("half a li");
        terminal.wait_for_text("ended> half a li").await;
        assert_ne!(
            terminal.modes(),
            before,
            "the line editor has changed the mode"
        );
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit().await, code);
        eventually("the terminal mode is restored", async || {
            terminal.modes() == before
        })
        .await;
    }
}

#[tokio::test]
async fn escape_sequences_in_answers_and_titles_do_not_reach_the_terminal() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\u{9b}1m\u{8}\u{202e}live\u{1b}]52;c;aGk=\u{7}\u{1b}[6n end";
    let model = ScriptedModel::saying(hostile).await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let ask = pb::CreateConversationRequest {
        agent_id: "terminal".into(),
        user_id: "tester".into(),
        title: hostile.into(),
        ..Default::default()
    };
    app.conversation_with(ask)
        .await
        .turn(hostile, hostile)
        .await;
    let terminal = start_chat(&app, &folder, &[]);
    terminal.wait_for_text("/help lists the commands").await;
    terminal.wait_for_prompt("red…>").await;
    terminal.enter("Say it");
    terminal.wait_for_text(MODEL).await;
    terminal.wait_for_prompt("red…>").await;
    terminal.enter("/list");
    let screen = terminal.wait_for_text(" msgs ").await;
    assert!(screen.contains("<U+202E>live"), "{screen}");
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.contains("\u{fffd}[31mred\u{fffd}1m\u{fffd}<U+202E>live"),
        "{text:?}"
    );
    for sequence in [
        "\u{1b}]0;",
        "\u{1b}[2J",
        "\u{1b}[31mred",
        "\u{9b}",
        "\u{202e}",
        "\u{1b}]52",
        "\u{7}",
    ] {
        assert!(
            !text.contains(sequence),
            "{sequence:?} has reached the terminal"
        );
    }
}

#[tokio::test]
async fn a_pasted_text_of_several_lines_is_one_message() {
    let model = ScriptedModel::saying("Read.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "pasted"]);
    terminal.wait_for_prompt("pasted>").await;
    terminal.paste("curl \\\n  -X GET\n\n/quit\n港口");
    terminal.wait_for_text("港口").await;
    terminal.type_text("\r");
    terminal.wait_for_text("Read.").await;
    terminal.wait_for_prompt("pasted>").await;
    // A backslash at the end of a line continues the message, and so does Alt+Enter.
    terminal.type_text("one\\\r");
    terminal.wait_for_text("one\\\n| ").await;
    terminal.type_text("two\u{1b}\rthree\r");
    eventually("both messages are answered", async || {
        read_messages(&app).await.len() == 4
    })
    .await;
    let all = read_messages(&app).await;
    assert_eq!(all[0], from_user("curl \\\n  -X GET\n\n/quit\n港口"));
    assert_eq!(all[2], from_user("one\ntwo\nthree"));
}

#[tokio::test]
async fn a_pasted_text_stays_whole_after_ctrl_c_has_cleared_the_same_text() {
    let model = ScriptedModel::saying("Read.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "cleared"]);
    terminal.wait_for_prompt("cleared>").await;
    terminal.type_text("curl \\\r");
    terminal.wait_for_text("curl \\\n| ").await;
    terminal.type_text("\u{3}"); // Ctrl+C
    terminal.wait_for_prompt("cleared>").await;
    // The editor has begun the next line, and so enabled bracketed paste, once it shows a key.
    terminal.type_text("x");
    terminal.wait_for_text("cleared> x").await;
    terminal.type_text("\u{7f}"); // Backspace
    terminal.wait_for_prompt("cleared>").await;
    terminal.paste("curl \\\n  -X GET");
    terminal.wait_for_text("-X GET").await;
    terminal.type_text("\r");
    terminal.wait_for_text("Read.").await;
    eventually("the message is answered", async || {
        read_messages(&app).await.len() == 2
    })
    .await;
    let all = read_messages(&app).await;
    assert_eq!(all[0], from_user("curl \\\n  -X GET"));
}

#[tokio::test]
async fn the_history_file_is_private_and_can_be_disabled() {
    let model = ScriptedModel::saying("Yes.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "first"]);
    terminal.wait_for_prompt("first>").await;
    terminal.enter("a thing to remember");
    terminal.wait_for_text("Yes.").await;
    drop(terminal);
    let file = folder.path().join(".local/state/anneal/chat-history");
    assert_eq!(
        fs::metadata(&file).expect("is kept").permissions().mode() & 0o777,
        0o600
    );
    let terminal = start_chat(&app, &folder, &["--new", "second"]);
    terminal.wait_for_prompt("second>").await;
    // The key Up.
    terminal.type_text("\u{1b}[A");
    terminal.wait_for_text("second> a thing to remember").await;
    let elsewhere = Folder::new();
    let terminal = start_chat(&app, &elsewhere, &["--new", "third", "--no-history"]);
    terminal.wait_for_prompt("third>").await;
    terminal.enter("a thing to forget");
    terminal.wait_for_text("Yes.").await;
    assert!(!elsewhere.path().join(".local").exists());
}

#[tokio::test]
async fn the_variable_no_color_turns_colors_off() {
    let model = ScriptedModel::saying("Yes.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let has_colors = async |environment: &[(&str, &str)]| {
        let terminal = start_chat_with_environment(&app, &folder, &["--new", "gray"], environment);
        terminal.wait_for_prompt("gray>").await;
        terminal.enter("Is it?");
        terminal.wait_for_text(MODEL).await;
        terminal.wait_for_prompt("gray>").await;
        terminal.enter("/nonsense");
        terminal.wait_for_text("no command is called").await;
        let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        // Red, dimmed and bright green.
        bytes.contains("\u{1b}[31m") || bytes.contains("\u{1b}[2m") || bytes.contains("\u{1b}[92m")
    };
    assert!(has_colors(&[]).await);
    assert!(!has_colors(&[("NO_COLOR", "1")]).await);
}
