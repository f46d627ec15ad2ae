//! `anneal chat` replaces control sequences in pasted text and in the history before they reach the
//! terminal. It prints each line end once.

use std::fs;

use anneal_testkit::{
    AnnealBinary, Folder, ReportedUsage, Script, ScriptedModel, Terminal, TestApp,
    TestConversation, eventually, pb,
};

use crate::commands::{BINARY, chat_commands::start_chat};

/// Sequences that set the window title, clear the screen, set a color, write the clipboard and ring
/// the bell.
const ESCAPES: &str = "a\u{1b}]0;owned\u{7}b\u{1b}[2Jc\u{9b}31md\u{1b}]52;c;AAAA\u{7}e";
/// [`ESCAPES`] as they are displayed and stored.
const ESCAPED: &str =
    "a\u{fffd}]0;owned\u{fffd}b\u{fffd}[2Jc\u{fffd}31md\u{fffd}]52;c;AAAA\u{fffd}e";

/// Asserts that no control sequence of [`ESCAPES`] has reached the terminal.
fn assert_no_controls(terminal: &Terminal) {
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    for sequence in ["\u{1b}]0;", "\u{1b}[2J", "\u{9b}", "\u{1b}]52", "\u{7}"] {
        assert!(
            !text.contains(sequence),
            "{sequence:?} has reached the terminal: {text:?}"
        );
    }
}

#[tokio::test]
async fn pasted_control_sequences_reach_neither_the_terminal_nor_the_conversation() {
    let model = ScriptedModel::saying("Read.").await;
    let (app, folder) = (TestApp::with_scripted_model(&model).await, Folder::new());
    let terminal = start_chat(&app, &folder, &["--new", "pasted"]);
    terminal.wait_for_prompt("pasted>").await;
    terminal.paste(&format!("{ESCAPES}\n\tnext"));
    terminal.wait_for_text("next").await;
    terminal.type_text("\r");
    terminal.wait_for_text("Read.").await;
    terminal.wait_for_prompt("pasted>").await;
    let listed = app
        .conversations()
        .list_conversations(pb::ListConversationsRequest::default())
        .await;
    let id = listed.expect("lists").into_inner().conversations[0]
        .conversation_id
        .clone();
    assert_eq!(
        TestConversation { app: &app, id }.texts_by_role().await[0].1,
        format!("{ESCAPED}\n\tnext")
    );
    // The up arrow shows the history, in which the text is escaped too.
    terminal.type_text("\u{1b}[A");
    eventually("the text is shown again", async || {
        terminal.screen().matches("next").count() > 1
    })
    .await;
    assert_no_controls(&terminal);
}

#[tokio::test]
async fn control_sequences_in_the_history_file_do_not_reach_the_terminal() {
    let app = TestApp::start().await;
    let folder = Folder::new();
    let state_folder = folder.path().join(".local/state/anneal");
    fs::create_dir_all(&state_folder).expect("creates the folder");
    fs::write(
        state_folder.join("chat-history"),
        format!("older {ESCAPES}\nnewer {ESCAPES}\n"),
    )
    .expect("writes");
    let terminal = start_chat(&app, &folder, &["--new", "remembered"]);
    terminal.wait_for_prompt("remembered>").await;
    terminal.type_text("\u{1b}[A");
    terminal.wait_for_text("newer a").await;
    terminal.type_text("\u{1b}[A");
    terminal.wait_for_text("older a").await;
    // Completion and search use the history too. U+0015 (Ctrl-U) deletes the typed text, U+0012
    // (Ctrl-R) begins a search.
    terminal.type_text("\u{15}new");
    terminal.wait_for_text("> newer a").await;
    terminal.type_text("\u{15}\u{12}old");
    terminal.wait_for_text("(search: old) older a").await;
    assert_no_controls(&terminal);
}

#[tokio::test]
async fn a_line_end_split_over_two_deltas_is_printed_once() {
    // `/show 4` prints the second answer. It reads 64 KiB at a time: its first piece ends between
    // the carriage return and the line feed.
    let second_answer = "x".repeat(64 * 1024 - 1) + "\r\nthe end\r";
    let model = ScriptedModel::start(move |request| match request.nth {
        0 => Script::openai(
            &["one\r", "\ntwo\r\n", "three\r", "four\r", "", "\n"],
            ReportedUsage::default(),
        ),
        _ => Script::openai(&[&second_answer], ReportedUsage::default()),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let folder = Folder::new();
    let address = format!("http://{}", app.addresses.grpc);
    let arguments = [
        "chat",
        "--address",
        &address,
        "--user",
        "piper",
        "--new",
        "lines",
    ];
    let ran = AnnealBinary::new(BINARY, &folder, "")
        .run_with_input(&arguments, "hello\nagain\n/show 4\n")
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.starts_with("one\ntwo\nthree\u{fffd}four\n"),
        "{:?}",
        &ran.out[..60]
    );
    let printed = "x".repeat(64 * 1024 - 1) + "\nthe end\u{fffd}\n";
    let outputs: Vec<&str> = ran.out.split_inclusive("the end\u{fffd}\n").collect();
    assert_eq!(
        outputs.len(),
        2,
        "the streamed answer and the output of /show"
    );
    assert!(
        outputs[1] == printed && outputs[0].ends_with(&printed),
        "{:?}",
        &outputs[1][64 * 1024 - 9..]
    );
}
