//! Credentials of callers: channels that send an `authorization` header, tenants, API keys.

use anneal_core::caller::{Bound, TenantId, Verb};
use anneal_server::GeneratedKey;
use anneal_store::{NewKey, OwnerConnection, StoreSettings};
use tonic::{
    Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::TestApp;

/// A channel whose calls send an `authorization` header.
pub type AuthorizedChannel = InterceptedService<Channel, CredentialInterceptor>;

/// Adds the `authorization` header, if there is one.
#[derive(Clone)]
pub struct CredentialInterceptor(Option<AsciiMetadataValue>);

impl Interceptor for CredentialInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl TestApp {
    /// A channel whose calls send this `authorization`. Empty: no header.
    pub fn authorized_channel(&self, authorization: &str) -> AuthorizedChannel {
        self.authorized_channel_on(self.channel(), authorization)
    }

    /// A channel whose calls use `channel` and send this `authorization`. Empty: no header.
    pub fn authorized_channel_on(
        &self,
        channel: Channel,
        authorization: &str,
    ) -> AuthorizedChannel {
        authorized_channel(channel, authorization)
    }

    /// The id of the tenant with this name. Creates the tenant if it does not exist.
    pub async fn tenant(&self, name: &str) -> TenantId {
        let mut owner = OwnerConnection::connect(&StoreSettings::at(&self.url))
            .await
            .expect("the connection succeeds");
        owner
            .create_tenant(name)
            .await
            .expect("the tenant is created");
        self.store
            .find_tenant(name)
            .await
            .expect("the query succeeds")
            .expect("the tenant exists")
    }

    /// Creates an API key of a tenant, and the tenant if it does not exist.
    pub async fn key(&self, tenant: &str, verbs: &[Verb]) -> GeneratedKey {
        make_key(&self.url, tenant, verbs).await
    }

    /// Creates an API key of a tenant that is bound to a user, an agent or a conversation.
    pub async fn bound_key(&self, tenant: &str, verbs: &[Verb], bound: Bound) -> GeneratedKey {
        make_key_of(&self.url, tenant, verbs, Some(bound)).await
    }
}

/// Creates an API key of a tenant in the database of this URL, and the tenant if it does not exist.
pub async fn make_key(url: &str, tenant: &str, verbs: &[Verb]) -> GeneratedKey {
    make_key_of(url, tenant, verbs, None).await
}

async fn make_key_of(
    url: &str,
    tenant: &str,
    verbs: &[Verb],
    bound: Option<Bound>,
) -> GeneratedKey {
    let mut owner = OwnerConnection::connect(&StoreSettings::at(url))
        .await
        .expect("the connection succeeds");
    owner
        .create_tenant(tenant)
        .await
        .expect("the tenant is created");
    let generated = GeneratedKey::make(bound.as_ref()).expect("random bytes");
    let verbs = verbs.iter().copied().collect();
    let key = NewKey {
        id: generated.id,
        tenant,
        name: "a test",
        secret_digest: &generated.digest,
        verbs,
        bound,
        days: None,
    };
    assert!(owner.create_key(&key).await.expect("the key is stored"));
    generated
}

/// A channel whose calls send this `authorization`. Empty: no header.
pub fn authorized_channel(channel: Channel, authorization: &str) -> AuthorizedChannel {
    let value = (!authorization.is_empty()).then(|| {
        authorization
            .parse()
            .expect("the value is valid in a header")
    });
    InterceptedService::new(channel, CredentialInterceptor(value))
}
