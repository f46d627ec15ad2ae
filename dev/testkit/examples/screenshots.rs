//! Writes a screenshot of each page into a folder: `screenshots <folder>`. The conversations are
//! real ones: a coding session of 900 messages, a dialogue in Chinese, and a run of tools of which
//! one has answered with 4 MB. Needs these conversations, PostgreSQL and Chromium.

use std::{env, error::Error, fs, path::Path};

use anneal_server::{AuthSettings, WebSettings};
use anneal_testkit::{
    Browser, Chat, Look, TestApp, TranscriptFolder, assistant, call, pb, result, user,
};

/// Messages of the coding session.
const CODING_MESSAGES: usize = 900;
/// Bytes of the long answer of a tool.
const LONG_RESULT_BYTES: usize = 4_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: screenshots <folder>")?;
    fs::create_dir_all(&folder)?;
    let transcripts = TranscriptFolder::find().ok_or("there are no real conversations")?;
    let browser = Browser::start().await.ok_or("there is no browser")?;
    let web = WebSettings {
        enabled: Some(true),
        ..WebSettings::default()
    };
    let app = TestApp::with_page(AuthSettings::default(), web).await;
    let dialogue = transcripts.crosswoz(1).pop();
    let chats = [
        coding_session(&transcripts),
        dialogue.ok_or("there is no dialogue")?,
    ];
    let appended = app.append_chats(&chats, &pb::Policy::default()).await;
    let run = app.conversation().await;
    for message in tool_run() {
        run.append_all(vec![message]).send().await?;
    }
    let ids = [
        &appended[0].conversation.id,
        &run.id,
        &appended[1].conversation.id,
    ];
    let titles = ["Astropy: separability", "Log of a harbor", "北京的景点"];
    for (id, title) in ids.into_iter().zip(titles) {
        name(&app, id, title).await?;
    }
    for (look, suffix) in [
        (Look::WIDE, ""),
        (Look::WIDE.dark(), "-dark"),
        (Look::NARROW, "-narrow"),
    ] {
        let page = browser.open(&app, "/operations", look).await;
        for (name, path) in [
            ("conversations", "/conversations".to_owned()),
            ("coding-session", format!("/conversations/{}", ids[0])),
            ("coding-xray", format!("/conversations/{}/xray", ids[0])),
            ("what-if", format!("/conversations/{}/what-if", ids[0])),
            ("tool-run", format!("/conversations/{}", ids[1])),
            ("tool-xray", format!("/conversations/{}/xray", ids[1])),
            ("chinese", format!("/conversations/{}", ids[2])),
            ("operations", "/operations".to_owned()),
        ] {
            page.visit(&path).await;
            page.wait_until(
                "the page is drawn",
                "document.readyState === 'complete' && !document.querySelector('.htmx-request')",
            )
            .await;
            let file = Path::new(&folder).join(format!("{name}{suffix}.png"));
            fs::write(file, page.screenshot().await)?;
        }
    }
    Ok(())
}

/// The sessions of an agent that mends programs, one after the other.
fn coding_session(transcripts: &TranscriptFolder) -> Chat {
    let sessions = transcripts.mini_swe_agent();
    let mut messages: Vec<pb::NewMessage> = sessions
        .iter()
        .cycle()
        .flat_map(|session| session.messages.clone())
        .take(CODING_MESSAGES)
        .collect();
    messages.truncate(CODING_MESSAGES);
    Chat {
        messages,
        ..sessions[0].clone()
    }
}

/// A run of a tool that answers with a long log.
fn tool_run() -> Vec<pb::NewMessage> {
    let line = "2026-11-27 19:07:21 INFO harbor: the schooner Ada has left the quay\n";
    let log = line.repeat(LONG_RESULT_BYTES / line.len());
    vec![
        user("When did the schooner leave? The log is long."),
        call("c1", r#"{"path": "harbor.log"}"#),
        result("c1", &log),
        assistant(
            "She left at **19:07:21**, and the log repeats it:\n\n```\nthe schooner Ada has left the quay\n```",
        ),
    ]
}

/// Gives the conversation a title.
async fn name(app: &TestApp, id: &str, title: &str) -> Result<(), Box<dyn Error>> {
    let conversation = pb::Conversation {
        conversation_id: id.to_owned(),
        title: title.to_owned(),
        ..Default::default()
    };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".to_owned()],
        }),
        ..Default::default()
    };
    app.conversations().update_conversation(ask).await?;
    Ok(())
}
