//! The scripts in `examples/http/` do what they say.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Output, Stdio},
};

use anneal_tests::{House, Line, ScriptedModel, pb};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

/// A script that asks there; None: there is no curl here.
async fn command(address: SocketAddr, script: &str, arguments: &[&str]) -> Option<Command> {
    if Command::new("curl").arg("--version").output().await.is_err() {
        println!("skipped: there is no curl here");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/http").join(script);
    let mut command = Command::new("bash");
    command.arg(script).args(arguments).kill_on_drop(true).env("NO_PROXY", "*");
    command.env("ANNEAL_HTTP", format!("http://{address}"));
    Some(command)
}

/// Runs a script against the house; None: there is no curl here.
async fn ran(house: &House, script: &str, arguments: &[&str]) -> Option<Output> {
    Some(command(house.addresses.http, script, arguments).await?.output().await.expect("bash is there"))
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn the_scripts_talk_list_rename_and_delete() {
    let model = ScriptedModel::saying("A race is …").await;
    let house = House::chatting(&model).await;
    let Some(chat) = ran(&house, "chat.sh", &["What is a \"race\"?\nSay."]).await else { return };
    assert!(chat.status.success(), "{chat:?}");
    let told = lines(&chat);
    assert_eq!(told.last().expect("told")["type"], "done");
    let session = told[0]["sessionId"].as_str().expect("started names it");
    assert!(told[0]["requestId"].is_string());
    let mut repeated = Vec::new();
    for _ in 0..2 {
        let chat = command(house.addresses.http, "chat.sh", &["Once."]).await;
        let chat = chat.expect("curl is there").env("REQUEST_ID", "r1").env("AGENT", "b").output().await;
        repeated.push(lines(&chat.expect("bash is there")));
    }
    assert_eq!(repeated[0][0], repeated[1][0], "one question in one session: {repeated:?}");
    assert_eq!(repeated[1].last().expect("told")["replayed"], true);
    let again = ran(&house, "chat.sh", &["And now?", session]).await.expect("curl is there");
    assert_eq!(lines(&again).last().expect("told")["messageIds"], json!([3, 4]));
    let listed = ran(&house, "sessions.sh", &[]).await.expect("curl is there");
    assert_eq!(lines(&listed)[0]["sessions"][0]["messageCount"], 4);
    let renamed = ran(&house, "sessions.sh", &[session, "\"Races\""]).await.expect("curl is there");
    assert_eq!(lines(&renamed)[0]["title"], "\"Races\"");
    let read = ran(&house, "sessions.sh", &[session]).await.expect("curl is there");
    assert_eq!(lines(&read)[0]["messages"][0]["content"][0]["text"], "What is a \"race\"?\nSay.");
    assert!(ran(&house, "sessions.sh", &[session, "--delete"]).await.expect("curl is there").status.success());
    let refused = ran(&house, "watch.sh", &[session]).await.expect("curl is there");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("CONVERSATION_NOT_FOUND"), "{refused:?}");
}

#[tokio::test]
async fn the_watch_goes_on_where_its_connection_broke_off() {
    let house = House::start().await;
    let ask = pb::CreateConversationRequest { agent_id: "example".into(), ..Default::default() };
    let talk = house.conversation_with(ask).await;
    let line = Line::to_port(house.addresses.http.port()).await;
    let Some(mut watch) = command(SocketAddr::from(([127, 0, 0, 1], line.port())), "watch.sh", &[&talk.id]).await
    else {
        return;
    };
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("bash is there");
    let mut events = BufReader::new(watch.stdout.take().expect("is piped")).lines();
    let mut appended = Vec::new();
    for id in 1..=6 {
        talk.append("more").await;
        while appended.last() != Some(&json!(id)) {
            let event = events.next_line().await.expect("is text").expect("the watch goes on");
            let event: Value = serde_json::from_str(&event).expect("JSON");
            if event["type"] == "message_appended" {
                appended.push(event["message"]["id"].clone());
            }
        }
        if id % 2 == 0 {
            line.cut();
        }
    }
    assert_eq!(appended, [1, 2, 3, 4, 5, 6], "each is told once, whatever broke off");
}
