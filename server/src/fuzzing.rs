//! What fuzz targets (`fuzz/`) reach of this crate: both doors of a server whose database cannot be reached, and what is
//! read of tokens and positions that come back from outside. Behind a feature of its own, for nobody else.

use std::{net::SocketAddr, pin::Pin, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::MessageId,
    policy::Session,
    tokens::Tokens,
};
use anneal_store::{AppendSettings, Head, Micros, Store, StoreSettings};
use axum::Router;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Request, StatusCode, header};
use prost::Message as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::{
    auth::{Auth, AuthError, AuthSettings, Jwts},
    grpc::{self, Answering},
    health,
    house::House,
    http as api, page,
    room::Sharing,
    services::Services,
    settings::{ApplicationSettings, ServerSettings},
    status::Failure,
    traffic::{LimitSettings, Traffic},
    watch::{self, Position},
};

/// A folder in which no PostgreSQL has its socket: connecting fails at once.
const NOWHERE: &str = "postgres://nobody@%2Fnowhere/nothing";

/// Frames of an answer that are read; streams may go on for ever.
const FRAMES: usize = 64;

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable reason; empty where the status has none.
    pub reason: String,
    /// The fields that are to blame.
    pub fields: Vec<String>,
    /// In a sentence.
    pub text: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        Self {
            reason: details.error_info().map(|info| info.reason.clone()).unwrap_or_default(),
            fields: violations.iter().map(|violation| violation.field.clone()).collect(),
            text: status.message().to_owned(),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Status::from(failure).into()
    }
}

/// The doors of a server without its database: whatever is let in ends there. Everybody is the default tenant.
pub struct Doors {
    grpc: Answering,
    http: Router,
}

/// What came over HTTP.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// What was read of the body: all of it, or the beginning of a stream.
    pub body: Vec<u8>,
}

impl Doors {
    /// Opens them. To be called within a runtime.
    pub fn open() -> Self {
        let settings = StoreSettings { url: NOWHERE.into(), ..StoreSettings::default() };
        let store = Store::new(settings, AppendSettings::default(), Session::default()).expect("the URL can be read");
        let settings = ServerSettings::default();
        let auth = Auth::new(&AuthSettings::default(), &store).expect("nobody is known, so no file is read");
        let house = House::new(
            store,
            &settings,
            Arc::default(),
            ApplicationSettings::default(),
            (Sharing::Whole, &LimitSettings::default()),
        );
        let health = health::service(tonic_health::server::HealthReporter::new());
        let routes = grpc::routes(house.clone(), settings.reflection, health).expect("the descriptors can be read");
        let traffic = Traffic::new(&LimitSettings::default(), auth.is_open());
        let grpc = grpc::answering(routes, auth.clone(), traffic.clone());
        let door = api::Door::new(
            Services { house, encodes: false },
            auth,
            &LimitSettings::default(),
            CancellationToken::new(),
        );
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        Self { grpc, http: api::router(None, door, traffic, (address, &settings)) }
    }

    /// Calls the RPC of this path with these messages; None: nothing was refused, as far as the answer was read.
    pub async fn call(&self, path: &str, messages: &[&[u8]]) -> Option<Refusal> {
        let framed = messages.iter().flat_map(|message| {
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
            [&[0][..], &length.to_be_bytes(), message].concat()
        });
        let body = Body::new(axum::body::Body::from(framed.collect::<Vec<u8>>()));
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/grpc").body(body);
        let answered = match self.grpc.clone().oneshot(request.ok()?).await {
            Ok(answered) => answered,
            Err(never) => match never {},
        };
        let (parts, body) = answered.into_parts();
        let status = match Status::from_header_map(&parts.headers) {
            None => read(body).await.1.and_then(|trailers| Status::from_header_map(&trailers)),
            status => status,
        };
        status.filter(|status| status.code() != tonic::Code::Ok).map(Refusal::from)
    }

    /// Makes a request over HTTP.
    pub async fn request(&self, request: Request<Vec<u8>>) -> Answer {
        let answered = match self.http.clone().oneshot(request.map(axum::body::Body::from)).await {
            Ok(answered) => answered,
            Err(never) => match never {},
        };
        let (parts, body) = answered.into_parts();
        Answer { status: parts.status, headers: parts.headers, body: read(body).await.0 }
    }
}

/// The data of a body, and its trailers; of one that goes on for ever, the beginning.
async fn read<B>(mut body: B) -> (Vec<u8>, Option<HeaderMap>)
where
    B: http_body::Body<Data = axum::body::Bytes> + Unpin,
{
    let mut read = Vec::new();
    for _ in 0..FRAMES {
        match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => read.extend_from_slice(&data),
                Err(other) => return (read, other.into_trailers().ok()),
            },
            Some(Err(_)) | None => break,
        }
    }
    (read, None)
}

/// An RPC of the descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rpc {
    /// `/package.Service/Method`.
    pub path: String,
    /// Whether callers send any number of messages.
    pub streams: bool,
}

/// Every RPC there is, in the order of the descriptors.
pub fn rpcs() -> Vec<Rpc> {
    let set = prost_types::FileDescriptorSet::decode(anneal_proto::DESCRIPTORS).expect("the build has written it");
    let services = set.file.iter().flat_map(|file| file.service.iter().map(move |service| (file.package(), service)));
    let methods = services.flat_map(|(package, service)| {
        service.method.iter().map(move |method| Rpc {
            path: format!("/{package}.{}/{}", service.name(), method.name()),
            streams: method.client_streaming(),
        })
    });
    methods.collect()
}

/// The page tokens of one list.
pub struct PageTokens(page::Scope);

impl PageTokens {
    /// Those of a tenant's list that these fields name.
    pub fn of(tenant: Uuid, fields: &[&str]) -> Self {
        Self(page::Scope::of(Caller::of(TenantId(tenant)), fields))
    }

    /// The token of a place.
    pub fn token(&self, place: &impl Serialize) -> String {
        self.0.token(place)
    }

    /// The place of a token; None for the first page.
    pub fn place<T: DeserializeOwned>(&self, token: &str) -> Result<Option<T>, Refusal> {
        Ok(self.0.place(token)?)
    }
}

/// The positions of watches of one conversation.
pub struct Positions {
    bound: watch::Scope,
    head: Head,
}

impl Positions {
    /// Those of a conversation of a tenant, which was made at `created` and has this many messages, counted ones and changes.
    pub fn of(tenant: Uuid, conversation: Uuid, created: i64, [last, counted, change]: [i64; 3]) -> Self {
        let head = Head {
            created: Micros(created),
            last: MessageId(last),
            counted: MessageId(counted),
            token_total: Tokens::ZERO,
            change,
            dead: std::collections::BTreeMap::default(),
        };
        Self { bound: watch::Scope::of(Caller::of(TenantId(tenant)), ConversationId(conversation), &head), head }
    }

    /// A position with this payload, whatever it says, and the seal that belongs to it: anybody can make it.
    pub fn sealed(&self, payload: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode([self.bound.seal(payload).as_slice(), payload].concat())
    }

    /// Where the conversation stands now.
    pub fn now(&self) -> String {
        Position::now(&self.head).text(&self.bound)
    }

    /// Reads a position; gives it as it would be told again.
    pub fn read(&self, text: &str) -> Result<String, Refusal> {
        Ok(Position::parse(text, &self.bound, &self.head)?.text(&self.bound))
    }
}

/// Reads the id of an event over HTTP; gives it as it would be told again.
pub fn event_id(id: &[u8]) -> Option<String> {
    api::event_id(id)
}

/// Who reads the tokens of an identity provider.
pub struct TokenReader(Jwts);

impl TokenReader {
    /// As the settings say.
    pub fn new(settings: &AuthSettings) -> Result<Self, AuthError> {
        Jwts::new(settings).map(Self)
    }

    /// The tenant that a token names, and the verbs that it allows; an error says what is wrong with it.
    pub fn read(&self, token: &str) -> Result<(String, Vec<&'static str>), String> {
        use anneal_core::caller::Verb;
        let holder = self.0.read(token).map_err(|stranger| stranger.to_string())?;
        let all = [Verb::Read, Verb::Append, Verb::Admin, Verb::Operator];
        let caller = Caller::with(TenantId::DEFAULT, holder.verbs);
        Ok((holder.tenant, all.into_iter().filter(|verb| caller.may(*verb)).map(Verb::name).collect()))
    }
}

/// The credential of an `authorization` header; None where there is none, an error where it is not one credential.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, String> {
    crate::auth::bearer(headers).map_err(|stranger| stranger.to_string())
}
