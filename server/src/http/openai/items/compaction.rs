//! Compactions: items whose summary stands for what was said before them. `encrypted_content` holds
//! the summary, and a code that says that this server has made it for this tenant. Whoever has the
//! item can read the summary.
//!
//! A compaction that comes in a request becomes a message of the user, which contexts have like any
//! other message. Its label holds what the message has no place for.

use anneal_core::digest;
use anneal_proto::{
    convert::message::text_message,
    v1::{self as pb, part::Part},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use super::labels::{self, Labels};
use crate::http::openai::errors::ApiError;

/// The beginning of an `encrypted_content` of a compaction.
const PREFIX: &str = "anneal-compaction-1.";
/// The beginning of the message that a compaction becomes.
const MARK: &str = "[Summary of the conversation before this message]\n";
/// The code of a summary: HMAC-SHA-256.
type Code = [u8; 32];

/// The key of a tenant's codes.
pub(in crate::http) struct SealKey(pub(in crate::http) [u8; 32]);

/// A summary with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct Compaction {
    summary: String,
    /// The model or the summarizer that has written the summary; empty: it is not known.
    created_by: String,
    code: Code,
}

impl Compaction {
    /// A summary of this server.
    pub(in crate::http) fn seal(summary: String, created_by: String, key: &SealKey) -> Self {
        let code = code(&content(&summary, &created_by), key).finalize();
        Self {
            code: code.into_bytes().into(),
            summary,
            created_by,
        }
    }

    /// Reads an `encrypted_content`. `param` is the parameter that it is. Fails if it was not made
    /// with this key.
    pub(in crate::http) fn open(
        encrypted: &str,
        key: &SealKey,
        param: &str,
    ) -> Result<Self, ApiError> {
        parse(encrypted, key).ok_or_else(|| {
            let message = "is not a compaction that this server has made for this tenant.";
            ApiError::invalid(
                param,
                Some("invalid_encrypted_content"),
                format!("{param}: {message}"),
            )
        })
    }

    /// The compaction that this message was made from. None: it was made from none, or was changed
    /// since.
    pub(in crate::http) fn of_message(parts: &[pb::Part], labels: &Labels) -> Option<Self> {
        let label: Label = serde_json::from_str(labels.get(labels::COMPACTION)?).ok()?;
        let [
            pb::Part {
                part: Some(Part::Text(part)),
            },
        ] = parts
        else {
            return None;
        };
        let summary = part.text.strip_prefix(MARK)?;
        (label.digest == short_digest(summary)).then(|| Self {
            summary: summary.to_owned(),
            created_by: label.by,
            code: label.code,
        })
    }

    /// The message that contexts have in place of the item.
    pub(in crate::http) fn message(&self) -> pb::NewMessage {
        let label = Label {
            by: self.created_by.clone(),
            code: self.code,
            digest: short_digest(&self.summary),
        };
        let label = serde_json::to_string(&label).expect("texts and numbers can be written");
        pb::NewMessage {
            metadata: Labels::from([(labels::COMPACTION.to_owned(), label)]),
            ..text_message(pb::Role::User, format!("{MARK}{}", self.summary))
        }
    }

    pub(in crate::http) fn summary(&self) -> &str {
        &self.summary
    }

    /// The item with this id.
    pub(in crate::http) fn item(&self, id: &str) -> Value {
        let mut item = json!({
            "id": id,
            "type": "compaction",
            "encrypted_content": self.encrypted_content(),
            "summary": [{"type": "summary_text", "text": self.summary}],
        });
        if !self.created_by.is_empty() {
            item["created_by"] = self.created_by.as_str().into();
        }
        item
    }

    fn encrypted_content(&self) -> String {
        let content = content(&self.summary, &self.created_by);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        format!("{PREFIX}{}.{}", encode(&content), encode(&self.code))
    }
}

/// What a message's label holds of a compaction.
#[derive(Serialize, Deserialize)]
struct Label {
    by: String,
    code: Code,
    /// Shows whether the message was changed since.
    digest: String,
}

fn short_digest(summary: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest::of_content(summary)[..12])
}

/// What the code is about.
fn content(summary: &str, created_by: &str) -> Vec<u8> {
    serde_json::to_vec(&(summary, created_by)).expect("texts can be written")
}

fn code(content: &[u8], SealKey(key): &SealKey) -> Hmac<Sha256> {
    let hmac = Hmac::<Sha256>::new_from_slice(key).expect("keys of every length are accepted");
    hmac.chain_update(PREFIX).chain_update(content)
}

/// Parses an `encrypted_content`. None: it was not made with this key.
fn parse(encrypted: &str, key: &SealKey) -> Option<Compaction> {
    let (content, given) = encrypted.strip_prefix(PREFIX)?.split_once('.')?;
    let content = URL_SAFE_NO_PAD.decode(content).ok()?;
    let given: Code = URL_SAFE_NO_PAD.decode(given).ok()?.try_into().ok()?;
    code(&content, key).verify_slice(&given).ok()?;
    let (summary, created_by) = serde_json::from_slice(&content).ok()?;
    Some(Compaction {
        summary,
        created_by,
        code: given,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SealKey = SealKey([7; 32]);

    fn sealed() -> Compaction {
        Compaction::seal("Ann wants tea; é\n\"now\".".into(), "small".into(), &KEY)
    }

    #[test]
    fn a_compaction_is_read_as_it_was_made() {
        let encrypted = sealed().encrypted_content();
        assert_eq!(Compaction::open(&encrypted, &KEY, "input[0]"), Ok(sealed()));
        let item = sealed().item("cmp_1");
        assert_eq!(item["summary"][0]["text"], sealed().summary());
        assert_eq!(
            (&item["created_by"], &item["encrypted_content"]),
            (&json!("small"), &json!(encrypted))
        );
        let unnamed = Compaction::seal("a".into(), String::new(), &KEY).item("cmp_1");
        assert!(unnamed.get("created_by").is_none(), "it must not be null");
    }

    #[test]
    fn a_foreign_or_damaged_one_is_refused_by_its_parameter() {
        let encrypted = sealed().encrypted_content();
        let (_, code) = encrypted.rsplit_once('.').expect("has a code");
        let other = URL_SAFE_NO_PAD.encode(content("Ann wants wine.", "small"));
        for damaged in [
            String::new(),
            "gAAAAABo".to_owned(),
            encrypted.replacen('1', "2", 1),
            encrypted[..encrypted.len() - 2].to_owned(),
            format!("{encrypted}A"),
            format!("{PREFIX}{other}.{code}"),
        ] {
            let refused = Compaction::open(&damaged, &KEY, "input[3]").expect_err("is refused");
            assert_eq!(refused.status(), 400, "{damaged}");
            assert_eq!(refused.object()["param"], "input[3]");
        }
        let of_other_tenant = Compaction::open(&encrypted, &SealKey([8; 32]), "input[0]");
        assert!(of_other_tenant.is_err());
    }

    #[test]
    fn a_message_keeps_the_compaction_unless_its_text_is_changed() {
        let mut message = sealed().message();
        assert_eq!(message.role(), pb::Role::User);
        let kept = Compaction::of_message(&message.parts, &message.metadata);
        assert_eq!(kept, Some(sealed()));
        let Some(Part::Text(part)) = &mut message.parts[0].part else {
            panic!("no text: {message:?}");
        };
        part.text.push('!');
        let changed = Compaction::of_message(&message.parts, &message.metadata);
        assert_eq!(changed, None);
        assert_eq!(Compaction::of_message(&[], &message.metadata), None);
    }
}
