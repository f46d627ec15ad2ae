//! A line of the catalogue: what is sent, and what is answered. `docs/errors.md` says what each reason means.

use std::collections::BTreeMap;

use anneal_tests::{House, Refusal, call_frames, call_to_the_end, every_rpc, refusal};
use prost::Message;
use tonic::{Code, Status};

/// A refusal's code and reason.
pub(crate) type Why = (Code, &'static str);

pub(crate) const INVALID: Why = (Code::InvalidArgument, "INVALID_FIELD");
pub(crate) const LIMIT: Why = (Code::InvalidArgument, "LIMIT_EXCEEDED");
pub(crate) const MALFORMED: Why = (Code::InvalidArgument, "MALFORMED_REQUEST");
pub(crate) const NO_CONVERSATION: Why = (Code::NotFound, "CONVERSATION_NOT_FOUND");
pub(crate) const NO_MESSAGE: Why = (Code::NotFound, "MESSAGE_NOT_FOUND");
pub(crate) const NO_SEPARATOR: Why = (Code::NotFound, "SEPARATOR_NOT_FOUND");
pub(crate) const NO_JOB: Why = (Code::NotFound, "JOB_NOT_FOUND");
pub(crate) const OTHER_NEWEST: Why = (Code::Aborted, "LAST_MESSAGE_MISMATCH");
pub(crate) const OTHER_ETAG: Why = (Code::Aborted, "ETAG_MISMATCH");
pub(crate) const UNSOUND: Why = (Code::FailedPrecondition, "CHECKPOINT_UNSOUND");
pub(crate) const NO_ROOM: Why = (Code::ResourceExhausted, "BUDGET_TOO_SMALL");

/// A request: of which RPC, and its messages as bytes.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) rpc: String,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Sent {
    /// The request of this type, `AppendMessagesRequest` for example.
    pub(crate) fn of(kind: &str, message: &impl Message) -> Self {
        Self::raw(kind.trim_end_matches("Request"), message.encode_to_vec())
    }

    /// These bytes to this RPC.
    pub(crate) fn raw(rpc: &str, bytes: Vec<u8>) -> Self {
        Self { rpc: rpc.to_owned(), frames: vec![bytes] }
    }

    /// These messages to `AppendLargeMessage`.
    pub(crate) fn stream(frames: &[anneal_tests::pb::AppendLargeMessageRequest]) -> Self {
        let frames = frames.iter().map(Message::encode_to_vec).collect();
        Self { rpc: "AppendLargeMessage".into(), frames }
    }

    /// Sends it; the first message of its answer.
    pub(crate) async fn send(&self, house: &House) -> Result<Option<Vec<u8>>, Status> {
        let rpc = every_rpc().into_iter().find(|rpc| rpc.name == self.rpc);
        let path = rpc.unwrap_or_else(|| panic!("there is no {}", self.rpc)).path;
        if self.rpc == "Chat" {
            return call_to_the_end(house.showing(""), &path, self.frames.clone()).await.map(|()| None);
        }
        call_frames(house.showing(""), &path, self.frames.clone()).await
    }
}

/// A request with these fields; the others as if they had not been given.
#[macro_export]
macro_rules! ask {
    ($ask:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        #[allow(clippy::needless_update, reason = "some requests have no other field")]
        let ask = anneal_tests::pb::$ask { $($field: $value.into(),)* ..Default::default() };
        $crate::case::Sent::of(stringify!($ask), &ask)
    }};
}

/// A request that names this conversation.
#[macro_export]
macro_rules! of {
    ($id:expr, $ask:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $crate::ask!($ask { conversation_id: $id, $($field: $value),* })
    };
}

/// A line of the catalogue.
pub(crate) struct Case {
    pub(crate) name: String,
    sent: Sent,
    /// Why it is refused, and which field is to blame (empty: none); None: it is answered.
    wanted: Option<(Why, String)>,
}

/// This is refused.
pub(crate) fn refused(name: impl Into<String>, sent: Sent, why: Why, field: impl Into<String>) -> Case {
    Case { name: name.into(), sent, wanted: Some((why, field.into())) }
}

/// This is answered.
pub(crate) fn answered(name: impl Into<String>, sent: Sent) -> Case {
    Case { name: name.into(), sent, wanted: None }
}

impl Case {
    /// Sends it; what is not as it should be.
    pub(crate) async fn play(&self, house: &House) -> Result<(), String> {
        let answer = self.sent.send(house).await;
        let (name, rpc) = (&self.name, &self.sent.rpc);
        match (answer, &self.wanted) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some((why, field))) => Err(format!("{rpc}, {name}: answered, not {why:?} {field}")),
            (Err(status), None) => Err(format!("{rpc}, {name}: {status}")),
            (Err(status), Some((why, field))) => {
                let said = refusal(&status);
                if (said.code, said.reason.as_str(), &said.field) == (why.0, why.1, field) {
                    return Ok(());
                }
                Err(format!("{rpc}, {name}: not {why:?} {field}, but {said:?}: {}", status.message()))
            }
        }
    }
}

/// Every reason of `docs/errors.md` with its code.
pub(crate) fn documented() -> BTreeMap<String, String> {
    let page = include_str!("../../../docs/errors.md");
    let sections = page.split("\n### `").skip(1);
    let reasons = sections.filter_map(|section| {
        let (reason, rest) = section.split_once('`')?;
        let code = rest.split_once("- Code: `")?.1.split_once('`')?.0;
        Some((reason.to_owned(), code.to_owned()))
    });
    reasons.collect()
}

/// Whether a refusal is one that `docs/errors.md` names and blames the caller for.
pub(crate) fn is_documented(said: &Refusal, documented: &BTreeMap<String, String>) -> bool {
    let named = format!("{:?}", said.code).to_uppercase();
    let code = documented.get(&said.reason).map(|code| code.replace('_', ""));
    code.is_some_and(|code| code == named) && !matches!(said.code, Code::Internal | Code::Unknown)
}

/// Panics of this process from now on: none may come of what anybody sends.
pub(crate) fn panics() -> std::sync::Arc<std::sync::Mutex<Vec<String>>> {
    let seen = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let noted = std::sync::Arc::clone(&seen);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        noted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(panic.to_string());
        before(panic);
    }));
    seen
}
