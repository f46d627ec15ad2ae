//! Imports and exports files of other systems with the real binary, which calls a running app.

use crate::{AnnealBinary, CommandOutput, Folder, TestApp, TestConversation, pb};

/// A folder of files for an app, and the binary that imports and exports them.
pub struct ImportFolder<'a> {
    /// The app that conversations are imported into.
    pub app: &'a TestApp,
    /// The folder with the files.
    pub folder: Folder,
    /// The binary that imports and exports.
    pub anneal: AnnealBinary,
    address: String,
}

impl<'a> ImportFolder<'a> {
    /// Uses the binary (`env!("CARGO_BIN_EXE_anneal-under-test")`) in a new folder.
    pub fn new(binary: &'static str, app: &'a TestApp) -> Self {
        let folder = Folder::new();
        let anneal = AnnealBinary::new(binary, &folder, "");
        Self {
            app,
            folder,
            anneal,
            address: format!("http://{}", app.addresses.grpc),
        }
    }

    /// The arguments of a command that calls the app.
    pub fn arguments<'b>(&'b self, command: &'b str, rest: &[&'b str]) -> Vec<&'b str> {
        [&[command, "--address", self.address.as_str()], rest].concat()
    }

    /// Runs `anneal import`.
    pub async fn import(&self, rest: &[&str]) -> CommandOutput {
        self.anneal.run(&self.arguments("import", rest)).await
    }

    /// Runs `anneal import`, asserts that it succeeds, and returns the conversations that it
    /// prints.
    pub async fn import_ok(&self, rest: &[&str]) -> Vec<TestConversation<'a>> {
        let ran = self.import(rest).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        self.conversations(&ran)
    }

    /// Runs `anneal export` and returns its standard output.
    pub async fn export(&self, rest: &[&str]) -> String {
        let ran = self.anneal.run(&self.arguments("export", rest)).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    }

    /// The conversations whose ids an import has printed. Their lines begin with the id, a UUID of
    /// 36 characters, and two blanks.
    pub fn conversations(&self, ran: &CommandOutput) -> Vec<TestConversation<'a>> {
        let ids = ran
            .out
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(id, _)| id);
        ids.filter(|id| id.len() == 36)
            .map(|id| TestConversation::new(self.app, id.to_owned()))
            .collect()
    }

    /// The number of conversations in the app, at most 500.
    pub async fn count_conversations(&self) -> usize {
        let ask = pb::ListConversationsRequest {
            page_size: 500,
            ..Default::default()
        };
        let listed = self
            .app
            .conversations()
            .list_conversations(ask)
            .await
            .expect("the list is returned");
        listed.into_inner().conversations.len()
    }
}

impl TestConversation<'_> {
    /// The stored messages as requests would send them: without ids, times and counts.
    pub async fn as_new_messages(&self) -> Vec<pb::NewMessage> {
        let messages = self.messages().await.into_iter();
        messages.map(pb::NewMessage::from).collect()
    }
}

/// The records as JSON lines.
pub fn json_lines(records: impl IntoIterator<Item = serde_json::Value>) -> String {
    records
        .into_iter()
        .fold(String::new(), |mut lines, record| {
            lines += &record.to_string();
            lines.push('\n');
            lines
        })
}

/// A claw0 session with this many turns, each with a tool call.
pub fn claw0_session(turns: usize) -> String {
    let records = (0..turns).flat_map(|n| {
        let call = format!("toolu_{n}");
        [
            serde_json::json!({"type": "user", "content": format!("What is in file {n}?"), "ts": n}),
            serde_json::json!({"type": "assistant", "content": [{"type": "text", "text": "I look."}], "ts": n}),
            serde_json::json!({"type": "tool_use", "tool_use_id": call, "name": "read_file", "input": {"n": n}, "ts": n}),
            serde_json::json!({"type": "tool_result", "tool_use_id": call, "content": format!("line {n}"), "ts": n}),
            serde_json::json!({"type": "assistant", "content": [{"type": "text", "text": format!("Line {n}.")}], "ts": n}),
        ]
    });
    json_lines(records)
}

/// A pi session of format v3 with this id. Each entry gets an id and a timestamp, and the entry
/// before it as its parent unless it names another.
pub fn pi_session(id: &str, entries: &[serde_json::Value]) -> String {
    let start = serde_json::json!({"type": "session", "version": 3, "id": id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"});
    let mut lines = format!("{start}\n");
    let mut parent = serde_json::Value::Null;
    for (number, entry) in (1..).zip(entries) {
        let mut entry = entry.clone();
        let id = serde_json::Value::from(format!("{number:08x}"));
        if entry.get("parentId").is_none() {
            entry["parentId"] = parent;
        }
        entry["id"] = id.clone();
        entry["timestamp"] = "2026-01-01T00:00:01.000Z".into();
        parent = id;
        lines += &json_lines([entry]);
    }
    lines
}

/// A message entry of a pi session.
pub fn pi_message(role: &str, text: &str) -> serde_json::Value {
    let content = serde_json::json!([{"type": "text", "text": text}]);
    serde_json::json!({"type": "message", "message": {"role": role, "content": content, "timestamp": 1}})
}

/// A compaction entry of a pi session. `kept` is the number of the first entry that stays, counted
/// from 1.
pub fn pi_compaction(summary: &str, kept: usize) -> serde_json::Value {
    serde_json::json!({"type": "compaction", "summary": summary, "firstKeptEntryId": format!("{kept:08x}"), "tokensBefore": 5000})
}
