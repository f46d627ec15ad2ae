//! The parts of this crate that fuzz targets (`dev/fuzz/`) call: the gRPC and HTTP edges of a
//! server whose database cannot be reached, and the parsers of credentials, page tokens, watch
//! positions and event ids. Compiled only with the feature `fuzzing`.

use std::{net::SocketAddr, pin::Pin};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::MessageId,
    policy::SessionSettings,
    tokens::Tokens,
};
use anneal_store::{AppendSettings, ConversationHead, Micros, Store, StoreSettings};
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
    auth::{Authenticator, TokenVerifier},
    failure::Failure,
    grpc::{self, LayeredServices, health, paging, services::GrpcServices},
    http as api,
    limits::concurrency::TenantShare,
    settings::{
        AuthSettings, AuthSettingsError, CurrentSettings, LimitSettings, ServerSettings,
        WebSettings,
    },
    state::ServerState,
    traffic::TrafficLimits,
    usecases::watch::{self, Position},
};

/// A socket directory without a PostgreSQL socket: connecting fails at once.
const UNREACHABLE_URL: &str = "postgres://nobody@%2Fnowhere/nothing";

/// Most frames of an answer that are read: some streams never end.
const MAX_FRAMES: usize = 64;

/// The refusal of an RPC, a page token or a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable reason; empty where the status has none.
    pub reason: String,
    /// The fields named by the refusal's `BadRequest`.
    pub fields: Vec<String>,
    /// The status message.
    pub text: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let violations = details
            .bad_request()
            .map(|bad| bad.field_violations.as_slice())
            .unwrap_or_default();
        Self {
            reason: details
                .error_info()
                .map(|info| info.reason.clone())
                .unwrap_or_default(),
            fields: violations
                .iter()
                .map(|violation| violation.field.clone())
                .collect(),
            text: status.message().to_owned(),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Status::from(failure).into()
    }
}

/// The gRPC and HTTP edges of a server that cannot reach its database: a request that passes
/// validation fails when it needs the database. All callers are the default tenant.
pub struct ServerWithoutDatabase {
    grpc: LayeredServices,
    http: Router,
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// The body, at most its first 64 frames.
    pub body: Vec<u8>,
}

impl ServerWithoutDatabase {
    /// Builds both edges. Needs a Tokio runtime.
    pub fn open() -> Self {
        let settings = StoreSettings {
            url: UNREACHABLE_URL.into(),
            ..StoreSettings::default()
        };
        let store = Store::new(
            settings,
            AppendSettings::default(),
            SessionSettings::default(),
        )
        .expect("the URL can be read");
        let settings = ServerSettings::default();
        let auth = Authenticator::new(&AuthSettings::default(), &WebSettings::default(), &store)
            .expect("without credentials no file is read");
        let traffic = TrafficLimits::new(CurrentSettings::default(), auth.accepts_anyone());
        let state = ServerState::new(
            store,
            &settings,
            CurrentSettings::default(),
            traffic.clone(),
            TenantShare::Whole,
        );
        let health = health::service(tonic_health::server::HealthReporter::new());
        let services = grpc::build_services(state.clone(), settings.reflection, health)
            .expect("the descriptors can be read");
        let grpc = grpc::layer_services(services, auth.clone(), traffic.clone());
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        let http_state = api::HttpState::new(
            GrpcServices {
                state,
                encodes_answers: false,
            },
            auth,
            &LimitSettings::default(),
            api::WebState::new(&WebSettings::default(), true, (address, false), None),
            CancellationToken::new(),
        );
        Self {
            grpc,
            http: api::router(None, http_state, traffic, (address, &settings)),
        }
    }

    /// Calls the RPC at this path with these messages. Returns its refusal. None: the frames that
    /// were read hold no refusal, or `path` is not a valid path.
    pub async fn call(&self, path: &str, messages: &[&[u8]]) -> Option<Refusal> {
        let framed = messages.iter().flat_map(|message| {
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
            [&[0][..], &length.to_be_bytes(), message].concat()
        });
        let body = Body::new(axum::body::Body::from(framed.collect::<Vec<u8>>()));
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/grpc")
            .body(body);
        let answered = match self.grpc.clone().oneshot(request.ok()?).await {
            Ok(answered) => answered,
            Err(never) => match never {},
        };
        let (parts, body) = answered.into_parts();
        let status = match Status::from_header_map(&parts.headers) {
            None => {
                let (_, trailers) = read_body(body).await;
                trailers.and_then(|trailers| Status::from_header_map(&trailers))
            }
            status => status,
        };
        status
            .filter(|status| status.code() != tonic::Code::Ok)
            .map(Refusal::from)
    }

    /// Makes a request over HTTP.
    pub async fn request(&self, request: Request<Vec<u8>>) -> Answer {
        let answered = match self
            .http
            .clone()
            .oneshot(request.map(axum::body::Body::from))
            .await
        {
            Ok(answered) => answered,
            Err(never) => match never {},
        };
        let (parts, body) = answered.into_parts();
        let (data, _) = read_body(body).await;
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: data,
        }
    }
}

/// Reads the data and the trailers of a body, at most [`MAX_FRAMES`] frames.
async fn read_body<B>(mut body: B) -> (Vec<u8>, Option<HeaderMap>)
where
    B: http_body::Body<Data = axum::body::Bytes> + Unpin,
{
    let mut all_data = Vec::new();
    for _ in 0..MAX_FRAMES {
        match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => all_data.extend_from_slice(&data),
                Err(other) => return (all_data, other.into_trailers().ok()),
            },
            Some(Err(_)) | None => break,
        }
    }
    (all_data, None)
}

/// An RPC of the protobuf descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rpc {
    /// `/package.Service/Method`.
    pub path: String,
    /// Whether the client streams its request.
    pub client_streams: bool,
}

/// Every RPC, in the order of the descriptors.
pub fn rpcs() -> Vec<Rpc> {
    let set = prost_types::FileDescriptorSet::decode(anneal_proto::DESCRIPTORS)
        .expect("the build has written it");
    let services = set.file.iter().flat_map(|file| {
        file.service
            .iter()
            .map(move |service| (file.package(), service))
    });
    let methods = services.flat_map(|(package, service)| {
        service.method.iter().map(move |method| Rpc {
            path: format!("/{package}.{}/{}", service.name(), method.name()),
            client_streams: method.client_streaming(),
        })
    });
    methods.collect()
}

/// The page tokens of one list.
pub struct PageTokens(paging::TokenScope);

impl PageTokens {
    /// The tokens of the list that these fields identify, of this tenant.
    pub fn of(tenant: Uuid, fields: &[&str]) -> Self {
        Self(paging::TokenScope::of(Caller::of(TenantId(tenant)), fields))
    }

    /// The token for a position in the list.
    pub fn token(&self, position: &impl Serialize) -> String {
        self.0.token(position)
    }

    /// The position that a token holds; None for the first page (an empty token).
    pub fn position<T: DeserializeOwned>(&self, token: &str) -> Result<Option<T>, Refusal> {
        Ok(self.0.parse(token)?)
    }
}

/// The positions of watches of one conversation.
pub struct Positions {
    scope: watch::PositionScope,
    head: ConversationHead,
}

impl Positions {
    /// The positions of a conversation of this tenant, created at `created` (microseconds) and with
    /// these ids of the last message, the last counted message and the last change.
    pub fn of(
        tenant: Uuid,
        conversation: Uuid,
        created: i64,
        [last, counted, change]: [i64; 3],
    ) -> Self {
        let head = ConversationHead {
            created: Micros(created),
            last: MessageId(last),
            counted: MessageId(counted),
            token_total: Tokens::ZERO,
            change,
            dead: std::collections::BTreeMap::default(),
        };
        Self {
            scope: watch::PositionScope::of(
                Caller::of(TenantId(tenant)),
                ConversationId(conversation),
                &head,
            ),
            head,
        }
    }

    /// A position with an arbitrary payload and a valid seal. A client can make one, too: the seal
    /// is an unkeyed digest.
    pub fn sealed(&self, payload: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode([self.scope.seal(payload).as_slice(), payload].concat())
    }

    /// The position of the conversation's current head.
    pub fn now(&self) -> String {
        Position::now(&self.head).text(&self.scope)
    }

    /// Parses a position and encodes it again.
    pub fn read(&self, text: &str) -> Result<String, Refusal> {
        Ok(Position::parse(text, &self.scope, &self.head)?.text(&self.scope))
    }
}

/// Parses an SSE event id and encodes it again; None if it is invalid.
pub fn event_id(id: &[u8]) -> Option<String> {
    api::event_id(id)
}

/// The verifier of an identity provider's tokens.
pub struct TokenReader(TokenVerifier);

impl TokenReader {
    /// Builds the verifier. Fails if the settings name no readable key set.
    pub fn new(settings: &AuthSettings) -> Result<Self, AuthSettingsError> {
        TokenVerifier::new(settings).map(Self)
    }

    /// The tenant and the verbs of a valid token. The error says why the token is refused.
    pub fn read(&self, token: &str) -> Result<(String, Vec<&'static str>), String> {
        use anneal_core::caller::Verb;
        let claims = self.0.verify(token).map_err(|error| error.to_string())?;
        let all_verbs = [Verb::Read, Verb::Append, Verb::Admin, Verb::Operator];
        let caller = Caller::with(TenantId::DEFAULT, claims.verbs);
        Ok((
            claims.tenant.clone(),
            all_verbs
                .into_iter()
                .filter(|verb| caller.may(*verb))
                .map(Verb::name)
                .collect(),
        ))
    }
}

/// The bearer credential of the `authorization` header. None without the header, an error if it
/// does not hold exactly one bearer credential.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, String> {
    crate::auth::bearer(headers).map_err(|error| error.to_string())
}
