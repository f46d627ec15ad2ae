//! `anneal chat` at a terminal: answers as they come, and what happens where none comes.

#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use std::{fs, os::unix::fs::PermissionsExt as _};

use anneal_llm::provider::Api;
use anneal_tests::{Counted, Folder, Gate, House, MODEL, Say, Script, ScriptedModel, Talk, Terminal, eventually, pb};

use crate::{
    BINARY,
    terminal::{chat, chat_within},
};

/// The house's conversations, newest first.
async fn talks(house: &House) -> Vec<pb::Conversation> {
    let ask = pb::ListConversationsRequest::default();
    house.conversations().list_conversations(ask).await.expect("lists").into_inner().conversations
}

/// What the only conversation of the house holds.
async fn said(house: &House) -> Vec<(pb::Role, String)> {
    let [only] = talks(house).await.try_into().expect("one conversation");
    Talk { house, id: only.conversation_id }.said().await
}

fn from_user(text: &str) -> (pb::Role, String) {
    (pb::Role::User, text.to_owned())
}

fn from_model(text: &str) -> (pb::Role, String) {
    (pb::Role::Assistant, text.to_owned())
}

#[tokio::test]
async fn row_C5_an_answer_appears_while_the_model_speaks_and_ends_with_what_it_cost() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |_| {
            let counted = Counted { input: 1_200, cached: 900, output: 7, written: 0 };
            Script::openai(&["The ferry ", "leaves at nine."], counted).gated(&gate)
        }
    })
    .await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "ferry", "--system", "Be brief."]);
    terminal.prompts("ferry>").await;
    terminal.enters("When does the ferry leave?");
    model.arrived(1).await;
    gate.open(2);
    let screen = terminal.shows("The ferry ").await;
    assert!(!screen.contains("leaves at nine."), "{screen}");
    gate.open_for_ever();
    terminal.shows("The ferry leaves at nine.").await;
    let screen = terminal.prompts("ferry>").await;
    assert!(screen.contains("[1,200 in (75 % cached), 7 out; ") && screen.contains(MODEL), "{screen}");
    let [talk] = talks(&house).await.try_into().expect("one conversation");
    let owner = (talk.agent_id.as_str(), talk.user_id.as_str(), talk.message_count);
    assert_eq!(owner, ("terminal", "tester", 2));
    let prompt = &model.asked()[0].body["messages"][0];
    assert_eq!((&prompt["role"], &prompt["content"]), (&"system".into(), &"Be brief.".into()));
}

#[tokio::test]
async fn thoughts_are_dimmed_and_stand_apart_from_the_answer() {
    let model =
        ScriptedModel::start(|asked| Script::says(asked, [Say::thought("Ferries, hm."), Say::text("At nine.")])).await;
    let house = House::calling(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let terminal = chat(&house, &Folder::new(), &["--new", "thoughts"]);
    terminal.prompts("thoughts>").await;
    terminal.enters("When?");
    terminal.shows("Ferries, hm.\nAt nine.").await;
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(bytes.contains("\u{1b}[2mFerries, hm.\u{1b}[0m"), "{bytes:?}");
}

#[tokio::test]
async fn ctrl_c_stops_the_answer_keeps_the_question_and_retry_asks_again() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::says(asked, Say::texts(&["Half of an", " answer"])).hanging_after(2),
        _ => Script::says(asked, [Say::text("A whole answer.")]),
    })
    .await;
    let (house, folder) = (House::chatting_patiently(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "stops"]);
    terminal.prompts("stops>").await;
    terminal.enters("Tell me everything");
    terminal.shows("Half of an").await;
    terminal.types("\u{3}");
    terminal.shows("stopped: nothing of the answer is kept").await;
    terminal.prompts("stops>").await;
    model.closed_by_client(1).await;
    assert_eq!(said(&house).await, [from_user("Tell me everything")]);
    terminal.enters("/retry");
    terminal.shows("A whole answer.").await;
    terminal.prompts("stops>").await;
    assert_eq!(said(&house).await, [from_user("Tell me everything"), from_model("A whole answer.")]);
    terminal.enters("/retry");
    terminal.shows("nothing waits for an answer").await;
}

#[tokio::test]
async fn a_failure_is_told_with_its_reason_and_can_be_repeated() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::status(503, &[], "{}"),
        _ => Script::says(asked, [Say::text("Back again.")]),
    })
    .await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "again"]);
    terminal.prompts("again>").await;
    terminal.enters("Anybody?");
    let screen = terminal.shows("What you said is kept").await;
    assert!(screen.contains("(MODEL_UNAVAILABLE)"), "{screen}");
    terminal.prompts("again>").await;
    terminal.enters("/retry");
    terminal.shows("Back again.").await;
    terminal.prompts("again>").await;
    assert_eq!(said(&house).await, [from_user("Anybody?"), from_model("Back again.")]);
}

#[tokio::test]
async fn a_shorter_context_is_announced() {
    let refusal = r#"{"error": {"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}"#;
    let model = ScriptedModel::start(move |asked| match asked.nth {
        0 => Script::status(400, &[], refusal),
        _ => Script::says(asked, [Say::text("Found it.")]),
    })
    .await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "long"]);
    terminal.prompts("long>").await;
    terminal.enters("Where is it?");
    let screen = terminal.shows("Found it.").await;
    assert!(screen.contains("the context was too long for the model: trying again with"), "{screen}");
}

#[tokio::test]
async fn without_a_model_the_settings_are_named_and_everything_else_works() {
    let (house, folder) = (House::start().await, Folder::new());
    let terminal = chat(&house, &folder, &[]);
    terminal.prompts("new>").await;
    terminal.enters("Hello?");
    let screen = terminal.shows("then type /retry").await;
    for words in ["no model is configured", "[providers.mine]", "[chat]", "docs/models.md"] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    terminal.prompts(">").await;
    let unknown = chat(&house, &folder, &["--model", "small", "--new"]);
    unknown.prompts("new>").await;
    unknown.enters("Hello?");
    unknown.shows("this server calls no model named small").await;
}

#[tokio::test]
async fn a_conversation_whose_first_words_are_refused_stays_for_the_next_and_for_everybody() {
    let (house, folder) = (House::start().await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "shared"]);
    terminal.prompts("shared>").await;
    for words in ["Hello?", "Anybody?"] {
        terminal.enters(words);
        terminal.shows(&format!("{words}\nno model is configured")).await;
        terminal.prompts("shared>").await;
        let [only] = talks(&house).await.try_into().expect("one conversation");
        Talk { house: &house, id: only.conversation_id }.append("From elsewhere").await;
    }
    assert_eq!(said(&house).await, [from_user("From elsewhere"), from_user("From elsewhere")]);
}

#[tokio::test]
async fn a_terminal_is_given_back_as_it_was_whatever_ends_the_chat() {
    let (house, folder) = (House::start().await, Folder::new());
    for (signal, code) in [("TERM", 143), ("HUP", 129)] {
        let mut terminal = Terminal::start(BINARY, &folder, &["--version"], &[]);
        terminal.ended().await;
        let before = terminal.modes();
        let mut terminal = chat(&house, &folder, &["--new", "ended"]);
        terminal.prompts("ended>").await;
        terminal.types("half a li");
        terminal.shows("ended> half a li").await;
        assert_ne!(terminal.modes(), before, "a line is being typed");
        terminal.signals(signal);
        assert_eq!(terminal.ended().await, code);
        eventually("the terminal is as it was", async || terminal.modes() == before).await;
    }
}

#[tokio::test]
async fn escape_sequences_in_answers_and_titles_do_not_reach_the_terminal() {
    let hostile =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\u{9b}1m\u{8}\u{202e}live\u{1b}]52;c;aGk=\u{7}\u{1b}[6n end";
    let model = ScriptedModel::saying(hostile).await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let ask = pb::CreateConversationRequest {
        agent_id: "terminal".into(),
        user_id: "tester".into(),
        title: hostile.into(),
        ..Default::default()
    };
    house.conversation_with(ask).await.turn(hostile, hostile).await;
    let terminal = chat(&house, &folder, &[]);
    terminal.shows("/help lists the commands").await;
    terminal.prompts("red…>").await;
    terminal.enters("Say it");
    terminal.shows(MODEL).await;
    terminal.prompts("red…>").await;
    terminal.enters("/list");
    let screen = terminal.shows(" msgs ").await;
    assert!(screen.contains("<U+202E>live"), "{screen}");
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("\u{fffd}[31mred\u{fffd}1m\u{fffd}<U+202E>live"), "{text:?}");
    for sequence in ["\u{1b}]0;", "\u{1b}[2J", "\u{1b}[31mred", "\u{9b}", "\u{202e}", "\u{1b}]52", "\u{7}"] {
        assert!(!text.contains(sequence), "{sequence:?} has reached the terminal");
    }
}

#[tokio::test]
async fn a_pasted_text_of_several_lines_is_one_message() {
    let model = ScriptedModel::saying("Read.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "pasted"]);
    terminal.prompts("pasted>").await;
    terminal.pastes("curl \\\n  -X GET\n\n/quit\n港口");
    terminal.shows("港口").await;
    terminal.types("\r");
    terminal.shows("Read.").await;
    terminal.prompts("pasted>").await;
    terminal.types("one\\\r");
    terminal.shows("one\\\n| ").await;
    terminal.types("two\u{1b}\rthree\r");
    eventually("both are answered", async || said(&house).await.len() == 4).await;
    let all = said(&house).await;
    assert_eq!(all[0], from_user("curl \\\n  -X GET\n\n/quit\n港口"));
    assert_eq!(all[2], from_user("one\ntwo\nthree"));
}

#[tokio::test]
async fn what_was_typed_is_remembered_for_its_owner_alone_or_not_at_all() {
    let model = ScriptedModel::saying("Yes.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "first"]);
    terminal.prompts("first>").await;
    terminal.enters("a thing to remember");
    terminal.shows("Yes.").await;
    drop(terminal);
    let file = folder.path().join(".local/state/anneal/chat-history");
    assert_eq!(fs::metadata(&file).expect("is kept").permissions().mode() & 0o777, 0o600);
    let terminal = chat(&house, &folder, &["--new", "second"]);
    terminal.prompts("second>").await;
    terminal.types("\u{1b}[A");
    terminal.shows("second> a thing to remember").await;
    let elsewhere = Folder::new();
    let terminal = chat(&house, &elsewhere, &["--new", "third", "--no-history"]);
    terminal.prompts("third>").await;
    terminal.enters("a thing to forget");
    terminal.shows("Yes.").await;
    assert!(!elsewhere.path().join(".local").exists());
}

#[tokio::test]
async fn no_color_is_respected() {
    let model = ScriptedModel::saying("Yes.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let colours = async |environment: &[(&str, &str)]| {
        let terminal = chat_within(&house, &folder, &["--new", "grey"], environment);
        terminal.prompts("grey>").await;
        terminal.enters("Is it?");
        terminal.shows(MODEL).await;
        terminal.prompts("grey>").await;
        terminal.enters("/nonsense");
        terminal.shows("no command is called").await;
        let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        bytes.contains("\u{1b}[31m") || bytes.contains("\u{1b}[2m") || bytes.contains("\u{1b}[92m")
    };
    assert!(colours(&[]).await);
    assert!(!colours(&[("NO_COLOR", "1")]).await);
}
