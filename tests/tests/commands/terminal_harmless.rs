//! `anneal chat`: whatever is pasted, remembered or said in pieces, nothing takes the terminal over, and lines end once.

use std::fs;

use anneal_tests::{Anneal, Counted, Folder, House, Script, ScriptedModel, Talk, Terminal, eventually, pb};

use crate::{BINARY, terminal::chat};

/// Sequences that rename the window, clear the screen, write the clipboard and ring.
const ESCAPES: &str = "a\u{1b}]0;owned\u{7}b\u{1b}[2Jc\u{9b}31md\u{1b}]52;c;AAAA\u{7}e";
/// The same as it is shown and said.
const SHOWN: &str = "a\u{fffd}]0;owned\u{fffd}b\u{fffd}[2Jc\u{fffd}31md\u{fffd}]52;c;AAAA\u{fffd}e";

fn assert_harmless(terminal: &Terminal) {
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    for sequence in ["\u{1b}]0;", "\u{1b}[2J", "\u{9b}", "\u{1b}]52", "\u{7}"] {
        assert!(!text.contains(sequence), "{sequence:?} has reached the terminal: {text:?}");
    }
}

#[tokio::test]
async fn pasted_control_sequences_reach_neither_the_terminal_nor_the_conversation() {
    let model = ScriptedModel::saying("Read.").await;
    let (house, folder) = (House::chatting(&model).await, Folder::new());
    let terminal = chat(&house, &folder, &["--new", "pasted"]);
    terminal.prompts("pasted>").await;
    terminal.pastes(&format!("{ESCAPES}\n\tnext"));
    terminal.shows("next").await;
    terminal.types("\r");
    terminal.shows("Read.").await;
    terminal.prompts("pasted>").await;
    let listed = house.conversations().list_conversations(pb::ListConversationsRequest::default()).await;
    let id = listed.expect("lists").into_inner().conversations[0].conversation_id.clone();
    assert_eq!(Talk { house: &house, id }.said().await[0].1, format!("{SHOWN}\n\tnext"));
    // and so it comes out of the history
    terminal.types("\u{1b}[A");
    eventually("it is there again", async || terminal.screen().matches("next").count() > 1).await;
    assert_harmless(&terminal);
}

#[tokio::test]
async fn a_history_that_holds_control_sequences_is_shown_without_them() {
    let house = House::start().await;
    let folder = Folder::new();
    let history = folder.path().join(".local/state/anneal");
    fs::create_dir_all(&history).expect("makes it");
    fs::write(history.join("chat-history"), format!("older {ESCAPES}\nnewer {ESCAPES}\n")).expect("writes");
    let terminal = chat(&house, &folder, &["--new", "remembered"]);
    terminal.prompts("remembered>").await;
    terminal.types("\u{1b}[A");
    terminal.shows("newer a").await;
    terminal.types("\u{1b}[A");
    terminal.shows("older a").await;
    // a beginning is completed from the history too
    terminal.types("\u{15}new");
    terminal.shows("> newer a").await;
    terminal.types("\u{15}\u{12}old");
    terminal.shows("(search: old) older a").await;
    assert_harmless(&terminal);
}

#[tokio::test]
async fn a_line_end_that_comes_in_two_pieces_is_one() {
    let long = "x".repeat(64 * 1024 - 1) + "\r\nthe end\r";
    let said = long.clone();
    let model = ScriptedModel::start(move |asked| match asked.nth {
        0 => Script::openai(&["one\r", "\ntwo\r\n", "three\r", "four\r", "", "\n"], Counted::default()),
        _ => Script::openai(&[&said], Counted::default()),
    })
    .await;
    let house = House::chatting(&model).await;
    let folder = Folder::new();
    let address = format!("http://{}", house.addresses.grpc);
    let arguments = ["chat", "--address", &address, "--user", "piper", "--new", "lines"];
    let ran = Anneal::new(BINARY, &folder, "").fed(&arguments, "hello\nagain\n/show 4\n").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("one\ntwo\nthree\u{fffd}four\n"), "{:?}", &ran.out[..60]);
    let whole = "x".repeat(64 * 1024 - 1) + "\nthe end\u{fffd}\n";
    let shown: Vec<&str> = ran.out.split_inclusive("the end\u{fffd}\n").collect();
    assert_eq!(shown.len(), 2, "as it was said, and as it is shown");
    assert!(shown[1] == whole && shown[0].ends_with(&whole), "{:?}", &shown[1][64 * 1024 - 9..]);
}
