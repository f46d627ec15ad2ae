//! Files of other systems, imported and exported by the real binary, against a house.

use crate::{Anneal, Folder, House, Ran, Talk, pb};

/// A folder of files beside a house.
pub struct Files<'a> {
    /// Where the conversations go.
    pub house: &'a House,
    /// Where the files lie.
    pub folder: Folder,
    /// The binary.
    pub anneal: Anneal,
    address: String,
}

impl<'a> Files<'a> {
    /// The binary (`env!("CARGO_BIN_EXE_anneal-under-test")`), in a folder of its own.
    pub fn new(binary: &'static str, house: &'a House) -> Self {
        let folder = Folder::new();
        let anneal = Anneal::new(binary, &folder, "");
        Self { house, folder, anneal, address: format!("http://{}", house.addresses.grpc) }
    }

    /// The arguments of a command that talks to the house.
    pub fn arguments<'b>(&'b self, command: &'b str, rest: &[&'b str]) -> Vec<&'b str> {
        [&[command, "--address", self.address.as_str()], rest].concat()
    }

    /// `anneal import`.
    pub async fn import(&self, rest: &[&str]) -> Ran {
        self.anneal.run(&self.arguments("import", rest)).await
    }

    /// `anneal import` of something that is kept whole; its conversations.
    pub async fn imported(&self, rest: &[&str]) -> Vec<Talk<'a>> {
        let ran = self.import(rest).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        self.talks(&ran)
    }

    /// `anneal export` to standard output.
    pub async fn exported(&self, rest: &[&str]) -> String {
        let ran = self.anneal.run(&self.arguments("export", rest)).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    }

    /// The conversations that an import has named.
    pub fn talks(&self, ran: &Ran) -> Vec<Talk<'a>> {
        let ids = ran.out.lines().filter_map(|line| line.split_once("  ")).map(|(id, _)| id);
        ids.filter(|id| id.len() == 36).map(|id| Talk::new(self.house, id.to_owned())).collect()
    }

    /// How many conversations there are.
    pub async fn count(&self) -> usize {
        let ask = pb::ListConversationsRequest { page_size: 500, ..Default::default() };
        let listed = self.house.conversations().list_conversations(ask).await.expect("lists");
        listed.into_inner().conversations.len()
    }
}

impl Talk<'_> {
    /// What was said, as it was given: without ids, times and counts.
    pub async fn given(&self) -> Vec<pb::NewMessage> {
        let given = |message: pb::Message| pb::NewMessage {
            role: message.role,
            parts: message.parts,
            metadata: message.metadata,
        };
        self.messages().await.into_iter().map(given).collect()
    }
}

/// The records as lines of JSON.
pub fn lines_of(records: impl IntoIterator<Item = serde_json::Value>) -> String {
    records.into_iter().fold(String::new(), |mut lines, record| {
        lines += &record.to_string();
        lines.push('\n');
        lines
    })
}

/// A claw0 session of so many turns, each with a tool call.
pub fn claw0(turns: usize) -> String {
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
    lines_of(records)
}

/// A pi session of format v3 under this id: entries in a row, each given as (type, rest of the entry).
pub fn pi(id: &str, entries: &[serde_json::Value]) -> String {
    let start = serde_json::json!({"type": "session", "version": 3, "id": id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"});
    let mut lines = format!("{start}\n");
    let mut parent = serde_json::Value::Null;
    for (number, entry) in (1..).zip(entries) {
        let mut entry = entry.clone();
        let own = serde_json::Value::from(format!("{number:08x}"));
        if entry.get("parentId").is_none() {
            entry["parentId"] = parent;
        }
        entry["id"] = own.clone();
        entry["timestamp"] = "2026-01-01T00:00:01.000Z".into();
        parent = own;
        lines += &lines_of([entry]);
    }
    lines
}

/// A message entry of a pi session.
pub fn pi_said(role: &str, text: &str) -> serde_json::Value {
    let content = serde_json::json!([{"type": "text", "text": text}]);
    serde_json::json!({"type": "message", "message": {"role": role, "content": content, "timestamp": 1}})
}

/// A compaction entry of a pi session; `kept` is the number of the first entry that stays.
pub fn pi_compaction(summary: &str, kept: usize) -> serde_json::Value {
    serde_json::json!({"type": "compaction", "summary": summary, "firstKeptEntryId": format!("{kept:08x}"), "tokensBefore": 5000})
}
