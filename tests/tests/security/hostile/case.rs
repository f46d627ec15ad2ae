//! A case of the catalogue over gRPC: a request and the expected answer. `docs/errors.md` explains
//! the reasons.

use std::collections::BTreeMap;

use anneal_testkit::{
    StatusDetails, TestApp, call_frames, call_to_the_end, every_rpc, status_details,
};
use prost::Message;
use tonic::{Code, Status};

/// Code and reason of a refusal.
pub(crate) type Refusal = (Code, &'static str);

pub(crate) const INVALID: Refusal = (Code::InvalidArgument, "INVALID_FIELD");
pub(crate) const LIMIT: Refusal = (Code::InvalidArgument, "LIMIT_EXCEEDED");
pub(crate) const MALFORMED: Refusal = (Code::InvalidArgument, "MALFORMED_REQUEST");
pub(crate) const NO_CONVERSATION: Refusal = (Code::NotFound, "CONVERSATION_NOT_FOUND");
pub(crate) const NO_MESSAGE: Refusal = (Code::NotFound, "MESSAGE_NOT_FOUND");
pub(crate) const NO_VERSION: Refusal = (Code::NotFound, "VERSION_NOT_FOUND");
pub(crate) const NO_SEPARATOR: Refusal = (Code::NotFound, "SEPARATOR_NOT_FOUND");
pub(crate) const NO_JOB: Refusal = (Code::NotFound, "JOB_NOT_FOUND");
pub(crate) const LAST_MESSAGE_MISMATCH: Refusal = (Code::Aborted, "LAST_MESSAGE_MISMATCH");
pub(crate) const ETAG_MISMATCH: Refusal = (Code::Aborted, "ETAG_MISMATCH");
pub(crate) const VERSION_MISMATCH: Refusal = (Code::Aborted, "VERSION_MISMATCH");
pub(crate) const CHECKPOINT_UNSOUND: Refusal = (Code::FailedPrecondition, "CHECKPOINT_UNSOUND");
pub(crate) const BUDGET_TOO_SMALL: Refusal = (Code::ResourceExhausted, "BUDGET_TOO_SMALL");

/// A request: the name of its RPC, and its encoded messages.
#[derive(Clone)]
pub(crate) struct GrpcRequest {
    pub(crate) rpc: String,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl GrpcRequest {
    /// A request of this type, for example `AppendMessagesRequest`.
    pub(crate) fn of(kind: &str, message: &impl Message) -> Self {
        Self::raw(kind.trim_end_matches("Request"), message.encode_to_vec())
    }

    /// A request to this RPC with these bytes.
    pub(crate) fn raw(rpc: &str, bytes: Vec<u8>) -> Self {
        Self {
            rpc: rpc.to_owned(),
            frames: vec![bytes],
        }
    }

    /// A request to `AppendLargeMessage` with these messages.
    pub(crate) fn stream(frames: &[anneal_testkit::pb::AppendLargeMessageRequest]) -> Self {
        let frames = frames.iter().map(Message::encode_to_vec).collect();
        Self {
            rpc: "AppendLargeMessage".into(),
            frames,
        }
    }

    /// Sends the request. Returns the first message of the answer. `Chat` is read to its end and
    /// returns None.
    pub(crate) async fn send(&self, app: &TestApp) -> Result<Option<Vec<u8>>, Status> {
        let rpc = every_rpc().into_iter().find(|rpc| rpc.name == self.rpc);
        let path = rpc
            .unwrap_or_else(|| panic!("there is no {}", self.rpc))
            .path;
        if self.rpc == "Chat" {
            return call_to_the_end(app.authorized_channel(""), &path, self.frames.clone())
                .await
                .map(|()| None);
        }
        call_frames(app.authorized_channel(""), &path, self.frames.clone()).await
    }
}

/// A request with these fields. The others have their defaults.
macro_rules! ask {
    ($ask:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        #[allow(clippy::needless_update, reason = "some requests have no other field")]
        let ask = anneal_testkit::pb::$ask { $($field: $value.into(),)* ..Default::default() };
        $crate::hostile::case::GrpcRequest::of(stringify!($ask), &ask)
    }};
}
pub(crate) use ask;

/// A request about this conversation.
macro_rules! ask_about {
    ($id:expr, $ask:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $crate::hostile::ask!($ask { conversation_id: $id, $($field: $value),* })
    };
}
pub(crate) use ask_about;

/// A case of the catalogue over gRPC.
pub(crate) struct Case {
    pub(crate) name: String,
    request: GrpcRequest,
    /// The refusal and its field (empty: no field). None: the request is answered.
    expected: Option<(Refusal, String)>,
}

/// A case whose request is refused.
pub(crate) fn refused(
    name: impl Into<String>,
    request: GrpcRequest,
    refusal: Refusal,
    field: impl Into<String>,
) -> Case {
    Case {
        name: name.into(),
        request,
        expected: Some((refusal, field.into())),
    }
}

/// A case whose request is answered.
pub(crate) fn answered(name: impl Into<String>, request: GrpcRequest) -> Case {
    Case {
        name: name.into(),
        request,
        expected: None,
    }
}

impl Case {
    /// Sends the request. Err: how the answer differs from the expected one.
    pub(crate) async fn run(&self, app: &TestApp) -> Result<(), String> {
        let answer = self.request.send(app).await;
        let (name, rpc) = (&self.name, &self.request.rpc);
        match (answer, &self.expected) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some((refusal, field))) => {
                Err(format!("{rpc}, {name}: answered, not {refusal:?} {field}"))
            }
            (Err(status), None) => Err(format!("{rpc}, {name}: {status}")),
            (Err(status), Some((refusal, field))) => {
                let details = status_details(&status);
                if (details.code, details.reason.as_str(), &details.field)
                    == (refusal.0, refusal.1, field)
                {
                    return Ok(());
                }
                Err(format!(
                    "{rpc}, {name}: not {refusal:?} {field}, but {details:?}: {}",
                    status.message()
                ))
            }
        }
    }
}

/// Every reason of `docs/errors.md` with its code.
pub(crate) fn documented_reasons() -> BTreeMap<String, String> {
    let page = include_str!("../../../../docs/errors.md");
    let sections = page.split("\n### `").skip(1);
    let reasons = sections.filter_map(|section| {
        let (reason, rest) = section.split_once('`')?;
        let code = rest.split_once("- Code: `")?.1.split_once('`')?.0;
        Some((reason.to_owned(), code.to_owned()))
    });
    reasons.collect()
}

/// Whether `docs/errors.md` documents this refusal and it is not an internal error.
pub(crate) fn is_documented(details: &StatusDetails, reasons: &BTreeMap<String, String>) -> bool {
    let code_name = format!("{:?}", details.code).to_uppercase();
    let code = reasons
        .get(&details.reason)
        .map(|code| code.replace('_', ""));
    code.is_some_and(|code| code == code_name)
        && !matches!(details.code, Code::Internal | Code::Unknown)
}

/// Records the panics of this process from now on. No request may cause one.
pub(crate) fn record_panics() -> std::sync::Arc<std::sync::Mutex<Vec<String>>> {
    let panics = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let recorded = std::sync::Arc::clone(&panics);
    let previous_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        recorded
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(panic.to_string());
        previous_hook(panic);
    }));
    panics
}
