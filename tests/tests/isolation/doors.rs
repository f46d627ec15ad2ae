//! The ports: TLS, certificates of clients, and connections that only take room.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ClientSettings, ServerSettings};
use anneal_tests::{Anneal, Folder, House, eventually, pb, refusal, user};
use pb::conversation_service_client::ConversationServiceClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{
    Code, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::BINARY;

/// An authority of the test's own.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signs itself"))
    }

    /// What signs for it.
    pub(crate) const fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.0
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate with these names, and its key; PEM.
    fn certificate(&self, names: &[SanType], purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signs");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a certificate of a server on loopback into a folder, and settings that name it.
    pub(crate) fn server(&self, folder: &Folder) -> ServerSettings {
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

    /// A channel to a server that this authority vouches for, with a certificate of the client's or without.
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
        Endpoint::from_shared(format!("https://{address}")).expect("an address").tls_config(tls)?.connect().await
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("a name"))
}

pub(crate) async fn list(channel: Channel) -> Result<(), Status> {
    let ask = pb::ListConversationsRequest::default();
    ConversationServiceClient::new(channel).list_conversations(ask).await.map(|_| ())
}

fn client(tenant: &str) -> ClientSettings {
    ClientSettings { tenant: tenant.into(), verbs: vec!["read".into()] }
}

#[tokio::test]
async fn a_client_is_known_by_the_name_in_its_certificate_and_by_whose_signature_it_is() {
    let (authority, stranger, folder) = (Authority::new(), Authority::new(), Folder::new());
    let clients = [
        ("spiffe://example/anna", client("anna")),
        ("bot.example", client("anna")),
        ("spiffe://example/nobody", client("nobody")),
    ];
    let clients = clients.map(|(name, client)| (name.to_owned(), client)).into();
    let auth = AuthSettings { api_keys: true, clients, ..Default::default() };
    let house = House::guarded(authority.server(&folder), auth).await;
    house.tenant("anna").await;
    let address = house.addresses.grpc;
    let of = |authority: &Authority, names: &[SanType]| {
        Some(authority.certificate(names, ExtendedKeyUsagePurpose::ClientAuth))
    };
    for names in [
        vec![uri("spiffe://example/anna")],
        vec![dns("bot.example")],
        vec![dns("x.example"), uri("spiffe://example/anna")],
    ] {
        let channel = authority.channel(address, of(&authority, &names)).await.expect("shakes hands");
        list(channel).await.expect("is let in");
    }
    for (names, said) in [
        (vec![uri("spiffe://example/bert")], "names nobody"),
        (vec![dns("anna.example")], "names nobody"),
        (vec![uri("bot.example")], "names nobody"),
        (vec![uri("spiffe://example/nobody")], "names nobody"),
    ] {
        let channel = authority.channel(address, of(&authority, &names)).await.expect("shakes hands");
        let refused = list(channel).await.expect_err(said);
        assert_eq!(refused.code(), Code::Unauthenticated);
        assert!(refused.message().contains(said), "{refused:?}");
    }
    // Nobody vouches for this one: the handshake fails, now or with the first call.
    let forged = authority.channel(address, of(&stranger, &[uri("spiffe://example/anna")])).await;
    let refused = match forged {
        Ok(channel) => Some(list(channel).await.expect_err("nobody vouches for it")),
        Err(_) => None,
    };
    // No refusal of the service's, which has a reason: nothing has come as far.
    assert!(refused.as_ref().is_none_or(|status| refusal(status).reason.is_empty()), "{refused:?}");
    // Without a certificate another credential will do.
    let bare = authority.channel(address, None).await.expect("shakes hands");
    assert_eq!(list(bare.clone()).await.expect_err("no credential").code(), Code::Unauthenticated);
    let key = format!("Bearer {}", house.key("anna", &[Verb::Read]).await.text);
    let mut ask = tonic::Request::new(pb::ListConversationsRequest::default());
    ask.metadata_mut().insert("authorization", key.parse().expect("a header"));
    ConversationServiceClient::new(bare).list_conversations(ask).await.expect("is let in");
    // Whoever does not speak TLS is not answered.
    let plain = Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy();
    assert!(list(plain).await.is_err());
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_restart() {
    let (old, new, folder) = (Authority::new(), Authority::new(), Folder::new());
    let house = House::guarded(old.server(&folder), AuthSettings { api_keys: true, ..Default::default() }).await;
    let address = house.addresses.grpc;
    let kept = old.channel(address, None).await.expect("shakes hands");
    assert!(new.channel(address, None).await.is_err());
    let _ = new.server(&folder);
    eventually("the new certificate is shown", async || new.channel(address, None).await.is_ok()).await;
    assert!(old.channel(address, None).await.is_err(), "the old one is not");
    assert_eq!(list(kept).await.expect_err("no credential").code(), Code::Unauthenticated, "who was there stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_others_could_reach_starts_only_with_credentials_and_tls() {
    let (house, folder, authority) = (House::start().await, Folder::new(), Authority::new());
    let tls = authority.server(&folder);
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let certificate = format!("server.tls_certificate_file={}", tls.tls_certificate_file);
    let key = format!("server.tls_key_file={}", tls.tls_key_file);
    let everywhere = "server.grpc_address=0.0.0.0:0";
    for (settings, said) in [
        (vec![everywhere], "callers need no credential"),
        (vec![everywhere, "auth.api_keys=true"], "there is no TLS"),
        (vec![everywhere, &certificate, &key], "callers need no credential"),
        (vec![&certificate, &key], "there is TLS, but callers need no credential"),
        (vec![&*certificate], "set together or not at all"),
        (vec!["auth.jwks_file=/nowhere", "auth.audience=x"], "cannot read /nowhere"),
        (vec!["auth.jwks_file=/nowhere"], "needs auth.audience"),
    ] {
        let mut arguments = vec!["server"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let ran = anneal.run(&arguments).await;
        assert!(ran.code == Some(1) && ran.err.contains(said), "{settings:?}: {ran:?}");
    }
}

/// Whether the other end has closed the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    matches!(tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await, Ok(Ok(_) | Err(_)))
}

#[tokio::test]
async fn who_connects_and_says_nothing_or_half_of_it_is_shown_out() {
    let house = House::start().await;
    let shown_out = [
        (house.addresses.grpc, &b""[..]),
        (house.addresses.grpc, b"PRI * HTTP/2.0"),
        (house.addresses.grpc, b"\x16\x03\x01\x02\x00garbage"),
        (house.addresses.http, b""),
        (house.addresses.http, b"GET /healthz HT"),
        (house.addresses.http, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "),
    ]
    .map(|(address, said)| async move {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(said).await.expect("is taken");
        assert!(is_closed(&mut stream).await, "{}", String::from_utf8_lossy(said));
    });
    futures::future::join_all(shown_out).await;
    list(house.channel()).await.expect("others are answered");
}

#[tokio::test]
async fn those_who_never_finish_a_handshake_keep_nobody_out() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let house = House::guarded(authority.server(&folder), AuthSettings { api_keys: true, ..Default::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(house.addresses.grpc).await.expect("connects"));
    }
    let channel = tokio::time::timeout(Duration::from_secs(4), authority.channel(house.addresses.grpc, None)).await;
    let channel = channel.expect("before the silent ones are shown out").expect("shakes hands");
    assert_eq!(list(channel).await.expect_err("no credential").code(), Code::Unauthenticated);
    assert!(is_closed(&mut silent[0]).await);
}

#[tokio::test]
async fn those_who_stop_in_the_middle_of_a_handshake_keep_nobody_out() {
    let (authority, folder) = (Authority::new(), Folder::new());
    let house = House::guarded(authority.server(&folder), AuthSettings { api_keys: true, ..Default::default() }).await;
    // What an honest client begins with, overheard.
    let ear = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let overheard = async {
        let (mut said, mut greeting) = (ear.accept().await.expect("comes").0, vec![0; 4_096]);
        let bytes = said.read(&mut greeting).await.expect("greets");
        greeting.truncate(bytes);
        greeting
    };
    let greeting = tokio::select! {
        greeting = overheard => greeting,
        _ = authority.channel(ear.local_addr().expect("an address"), None) => panic!("nobody has answered"),
    };
    let mut stalled = Vec::new();
    for _ in 0..400 {
        let mut stream = TcpStream::connect(house.addresses.grpc).await.expect("connects");
        stream.write_all(&greeting).await.expect("is taken");
        stalled.push(stream);
    }
    let answered = stalled[0].read(&mut [0; 64]).await.expect("is answered");
    assert!(answered > 0, "they have begun as honest ones do");
    let channel = tokio::time::timeout(Duration::from_secs(4), authority.channel(house.addresses.grpc, None)).await;
    let channel = channel.expect("before the stalled ones are shown out").expect("shakes hands");
    assert_eq!(list(channel).await.expect_err("no credential").code(), Code::Unauthenticated);
}

#[tokio::test]
async fn when_there_is_no_room_whoever_is_silent_longest_makes_it() {
    let connections = NonZeroU32::new(20).expect("not 0");
    let settings = ServerSettings { connections, ..Default::default() };
    let house = House::guarded(settings, AuthSettings::default()).await;
    list(house.channel()).await.expect("is answered");
    let mut idle = Vec::new();
    for _ in 0..19 {
        let mut stream = TcpStream::connect(house.addresses.grpc).await.expect("connects");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("is taken");
        idle.push(stream);
    }
    // They have spoken just now: who comes next waits until one of them was silent long enough.
    let endpoint = Endpoint::from_shared(format!("http://{}", house.addresses.grpc)).expect("an address");
    eventually("there is room", async || {
        list(house.channel()).await.expect("who is not silent stays");
        match endpoint.connect().await {
            Ok(channel) => list(channel).await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    let mut closed = 0;
    for stream in &mut idle {
        let mut rest = [0; 4096];
        loop {
            match tokio::time::timeout(Duration::from_millis(20), stream.read(&mut rest)).await {
                Ok(Ok(0) | Err(_)) => {
                    closed += 1;
                    break;
                }
                Ok(Ok(_)) => {}
                Err(_) => break,
            }
        }
    }
    assert!(closed >= 1, "somebody had to go");
}

/// Whether the server's end of this connection is still open, as the system says.
#[cfg(target_os = "linux")]
fn is_open(server: SocketAddr, client: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let end = |address: SocketAddr| format!(":{:04X}", address.port());
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.any(|row| {
        row.len() > 3 && row[1].ends_with(&end(server)) && row[2].ends_with(&end(client)) && row[3] == ESTABLISHED
    })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_shown_out() {
    const BYTES: usize = 24 * 1024 * 1024;
    let house = House::start().await;
    let ask = pb::CreateConversationRequest { agent_id: "a".into(), ..Default::default() };
    let talk = house.conversation_with(ask).await;
    for _ in 0..8 {
        talk.append_all(vec![user(&"x".repeat(BYTES / 8))]).await;
    }
    let path = format!("/api/agents/a/sessions/{}", talk.id);
    assert!(house.web().get(&path).await.text.len() > BYTES, "more than the system holds for who does not read");
    let mut stream = TcpStream::connect(house.addresses.http).await.expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let (server, client) = (house.addresses.http, stream.local_addr().expect("an address"));
    // Half a minute after it has taken the last of what the system holds for it, which takes as long as it takes.
    let mut looks = tokio::time::interval(Duration::from_millis(100));
    let given_up = async {
        while is_open(server, client) {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(3), given_up).await.expect("the connection is given up");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.is_empty() && rest.len() < BYTES, "{} bytes came", rest.len());
    list(house.channel()).await.expect("others are answered");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_that_only_stand_there_take_little_and_keep_nobody_out() {
    const STANDING: usize = 10_000;
    if anneal_process::files::allow_many().is_some_and(|most| most < STANDING as u64 + 500) {
        println!("skipped: this process may not have {STANDING} files open");
        return;
    }
    let (house, folder) = (House::start().await, Folder::new());
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let (server, port) = anneal.server().await;
    let mut standing = Vec::new();
    for _ in 0..STANDING {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connects");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("is taken");
        standing.push(stream);
    }
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    eventually("others are let in and answered", async || match endpoint.connect().await {
        Ok(channel) => list(channel).await.is_ok(),
        Err(_) => false,
    })
    .await;
    let taken = server.memory().expect("Linux says it");
    println!("{STANDING} connections that only stand there: {taken} MiB");
    assert!(taken <= 512, "{taken} MiB");
}
