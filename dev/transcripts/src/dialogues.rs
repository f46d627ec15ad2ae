//! Dialogues of two people: LoCoMo, CrossWOZ, KdConv and XPersona.

use std::process::Command;

use anneal_test_data::skip_without_test_data;
use serde_json::Value;

use crate::{Chat, TranscriptFolder, pb, text, transcript_folder::stem};

impl TranscriptFolder {
    /// LoCoMo: two people in many sessions over months. The file's `speaker_a` is the user.
    pub fn locomo(&self) -> Vec<Chat> {
        let dialogues = self.json("locomo/locomo4.json");
        dialogues
            .as_array()
            .expect("a list")
            .iter()
            .map(locomo_dialogue)
            .collect()
    }

    /// The LoCoMo dialogue `conv-26`, which is the first of its file.
    pub fn locomo_26(&self) -> Chat {
        locomo_dialogue(&self.json("locomo/locomo4.json")[0])
    }

    /// At most `count` Chinese dialogues of CrossWOZ. python3 unpacks them; if that fails,
    /// prints that they are skipped and returns none, or panics where test data is required.
    pub fn crosswoz(&self, count: usize) -> Vec<Chat> {
        let unpack = "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read('val.json'))";
        let run = Command::new("python3")
            .arg("-c")
            .arg(unpack)
            .arg(self.path("crosswoz/val.json.zip"))
            .output();
        let Some(unpacked) = run.ok().filter(|run| run.status.success()) else {
            skip_without_test_data("CrossWOZ needs python3 to be unpacked");
            return Vec::new();
        };
        let dialogues: Value = serde_json::from_slice(&unpacked.stdout).expect("the file is JSON");
        let dialogues = dialogues
            .as_object()
            .expect("dialogues by id")
            .iter()
            .take(count);
        dialogues
            .map(|(id, dialogue)| dialogue_from_objects(&dialogue["messages"], "content").named(id))
            .collect()
    }

    /// At most `count` Chinese dialogues of KdConv: about films, then music, then travel.
    pub fn kdconv(&self, count: usize) -> Vec<Chat> {
        let mut chats = Vec::new();
        for file in self.files("kdconv", "_dev.json") {
            let dialogues = self.json(&file);
            for (index, dialogue) in dialogues.as_array().expect("a list").iter().enumerate() {
                if chats.len() == count {
                    return chats;
                }
                chats.push(
                    dialogue_from_objects(&dialogue["messages"], "message")
                        .named(format!("{} {index}", stem(&file))),
                );
            }
        }
        chats
    }

    /// XPersona: small talk in French, Japanese and Chinese.
    pub fn xpersona(&self) -> Vec<Chat> {
        let mut chats = Vec::new();
        for file in self.files("xpersona", ".json") {
            let language = stem(&file).split('_').next().unwrap_or_default().to_owned();
            let dialogues = self.json(&file);
            for (index, dialogue) in dialogues.as_array().expect("a list").iter().enumerate() {
                let pairs = dialogue["dialogue"].as_array().expect("a list");
                let texts = pairs
                    .iter()
                    .flat_map(|pair| pair.as_array().expect("a pair"));
                chats.push(dialogue_from_texts(texts).named(format!("{language} {index}")));
            }
        }
        chats
    }
}

fn locomo_dialogue(dialogue: &Value) -> Chat {
    let conversation = &dialogue["conversation"];
    let sessions = (1..)
        .map(|n| &conversation[format!("session_{n}").as_str()])
        .take_while(|session| session.is_array());
    let utterances = sessions.flat_map(|session| session.as_array().expect("a list"));
    let messages = utterances.map(|utterance| {
        let is_user = utterance["speaker"] == conversation["speaker_a"];
        text(
            if is_user {
                pb::Role::User
            } else {
                pb::Role::Assistant
            },
            utterance["text"].as_str().expect("a text"),
        )
    });
    Chat {
        name: dialogue["sample_id"].as_str().expect("a name").to_owned(),
        system_prompt: String::new(),
        messages: messages.collect(),
    }
}

/// A dialogue of two alternating speakers, from a list of objects with the text under `key`.
fn dialogue_from_objects(messages: &Value, key: &str) -> Chat {
    dialogue_from_texts(
        messages
            .as_array()
            .expect("a list")
            .iter()
            .map(|utterance| &utterance[key]),
    )
}

/// A dialogue of two alternating speakers. The first one is the user.
fn dialogue_from_texts<'a>(texts: impl Iterator<Item = &'a Value>) -> Chat {
    let roles = [pb::Role::User, pb::Role::Assistant].into_iter().cycle();
    let messages = texts
        .zip(roles)
        .map(|(content, role)| text(role, content.as_str().expect("a text")));
    Chat {
        messages: messages.collect(),
        ..Default::default()
    }
}
