//! TLS: certificates of servers and clients. A server beyond loopback starts only with credentials
//! and TLS.

use std::net::SocketAddr;

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ClientSettings, ServerSettings};
use anneal_testkit::{AnnealBinary, Folder, TestApp, eventually, pb, status_details};
use pb::conversation_service_client::ConversationServiceClient;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use tonic::{
    Code, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::isolation::BINARY;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("signs itself"),
        )
    }

    /// The issuer that signs this authority's certificates.
    pub(crate) const fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.0
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate with these names, and its key, in PEM.
    fn certificate(&self, names: &[SanType], purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signs");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes the certificate of a server on loopback into a folder. Returns settings that name it.
    pub(crate) fn write_server_certificate(&self, folder: &Folder) -> ServerSettings {
        let names = [SanType::IpAddress([127, 0, 0, 1].into()), dns("localhost")];
        let (certificate, key) = self.certificate(&names, ExtendedKeyUsagePurpose::ServerAuth);
        let path = |name: &str, text: &str| folder.file(name, text).display().to_string();
        ServerSettings {
            tls_certificate_file: path("server.pem", &certificate),
            tls_key_file: path("server.key", &key),
            tls_client_ca_file: path("ca.pem", &self.pem()),
            ..Default::default()
        }
    }

    /// Connects to a server whose certificate this authority has signed, with or without a client
    /// certificate.
    pub(crate) async fn channel(
        &self,
        address: SocketAddr,
        client: Option<(String, String)>,
    ) -> Result<Channel, tonic::transport::Error> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.pem()));
        let tls = match client {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        Endpoint::from_shared(format!("https://{address}"))
            .expect("an address")
            .tls_config(tls)?
            .connect()
            .await
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("a name"))
}

/// Lists conversations over this channel.
pub(crate) async fn list(channel: Channel) -> Result<(), Status> {
    let ask = pb::ListConversationsRequest::default();
    ConversationServiceClient::new(channel)
        .list_conversations(ask)
        .await
        .map(|_| ())
}

fn client(tenant: &str) -> ClientSettings {
    ClientSettings {
        tenant: tenant.into(),
        verbs: vec!["read".into()],
    }
}

#[tokio::test]
async fn a_client_certificate_needs_a_known_name_and_a_trusted_issuer() {
    let (authority, untrusted, folder) = (Authority::new(), Authority::new(), Folder::new());
    let clients = [
        ("spiffe://example/anna", client("anna")),
        ("bot.example", client("anna")),
        ("spiffe://example/nobody", client("nobody")),
    ];
    let clients = clients
        .map(|(name, client)| (name.to_owned(), client))
        .into();
    let auth = AuthSettings {
        api_keys: true,
        clients,
        ..Default::default()
    };
    let app = TestApp::with_auth(authority.write_server_certificate(&folder), auth).await;
    app.tenant("anna").await;
    let address = app.addresses.grpc;
    let of = |authority: &Authority, names: &[SanType]| {
        Some(authority.certificate(names, ExtendedKeyUsagePurpose::ClientAuth))
    };
    for names in [
        vec![uri("spiffe://example/anna")],
        vec![dns("bot.example")],
        vec![dns("x.example"), uri("spiffe://example/anna")],
    ] {
        let channel = authority
            .channel(address, of(&authority, &names))
            .await
            .expect("completes the handshake");
        list(channel).await.expect("is accepted");
    }
    for (names, problem) in [
        (
            vec![uri("spiffe://example/bert")],
            "names no configured client",
        ),
        (vec![dns("anna.example")], "names no configured client"),
        (vec![uri("bot.example")], "names no configured client"),
        // The client is configured, but its tenant does not exist.
        (
            vec![uri("spiffe://example/nobody")],
            "names no configured client",
        ),
    ] {
        let channel = authority
            .channel(address, of(&authority, &names))
            .await
            .expect("completes the handshake");
        let refused = list(channel).await.expect_err(problem);
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains(problem), "{refused:?}");
    }
    // An untrusted issuer: the handshake fails, at once or with the first call.
    let forged = authority
        .channel(address, of(&untrusted, &[uri("spiffe://example/anna")]))
        .await;
    let refused = match forged {
        Ok(channel) => Some(list(channel).await.expect_err("the issuer is not trusted")),
        Err(_) => None,
    };
    // The handshake failed. A refusal of the service would have a reason.
    assert!(
        refused
            .as_ref()
            .is_none_or(|status| status_details(status).reason.is_empty()),
        "{refused:?}"
    );
    // Without a certificate, an API key is accepted.
    let bare = authority
        .channel(address, None)
        .await
        .expect("completes the handshake");
    assert_eq!(
        list(bare.clone()).await.expect_err("no credential").code(),
        Code::Unauthenticated
    );
    let key = format!("Bearer {}", app.key("anna", &[Verb::Read]).await.text);
    let mut ask = tonic::Request::new(pb::ListConversationsRequest::default());
    ask.metadata_mut()
        .insert("authorization", key.parse().expect("a header"));
    ConversationServiceClient::new(bare)
        .list_conversations(ask)
        .await
        .expect("is accepted");
    // A client without TLS is not answered.
    let plain = Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect_lazy();
    assert!(list(plain).await.is_err());
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_restart() {
    let (old, new, folder) = (Authority::new(), Authority::new(), Folder::new());
    let app = TestApp::with_auth(
        old.write_server_certificate(&folder),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    let address = app.addresses.grpc;
    let open_connection = old
        .channel(address, None)
        .await
        .expect("completes the handshake");
    assert!(new.channel(address, None).await.is_err());
    let _ = new.write_server_certificate(&folder);
    eventually("the new certificate is served", async || {
        new.channel(address, None).await.is_ok()
    })
    .await;
    assert!(
        old.channel(address, None).await.is_err(),
        "the old one is not trusted"
    );
    assert_eq!(
        list(open_connection)
            .await
            .expect_err("no credential")
            .code(),
        Code::Unauthenticated,
        "the open connection stays"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_beyond_loopback_starts_only_with_credentials_and_tls() {
    let (app, folder, authority) = (TestApp::start().await, Folder::new(), Authority::new());
    let tls = authority.write_server_certificate(&folder);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let certificate = format!("server.tls_certificate_file={}", tls.tls_certificate_file);
    let key = format!("server.tls_key_file={}", tls.tls_key_file);
    let everywhere = "server.grpc_address=0.0.0.0:0";
    // The last four have no address beyond loopback: they are refused on loopback too.
    for (settings, problem) in [
        (vec![everywhere], "callers need no credential"),
        (vec![everywhere, "auth.api_keys=true"], "there is no TLS"),
        (
            vec![everywhere, &certificate, &key],
            "callers need no credential",
        ),
        (
            vec![&certificate, &key],
            "there is TLS, but callers need no credential",
        ),
        (vec![&*certificate], "set together or not at all"),
        (
            vec!["auth.jwks_file=/nowhere", "auth.audience=x"],
            "cannot read /nowhere",
        ),
        (vec!["auth.jwks_file=/nowhere"], "needs auth.audience"),
    ] {
        let mut arguments = vec!["server"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let ran = anneal.run(&arguments).await;
        assert!(
            ran.code == Some(1) && ran.err.contains(problem),
            "{settings:?}: {ran:?}"
        );
    }
}
