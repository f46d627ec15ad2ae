//! Made-up API keys from one address, as fast as possible.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anneal_server::GeneratedKey;
use anneal_testkit::{authorized_channel, pb};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;
use tonic::{Code, transport::Channel};

use crate::limits::attacked_server::{AttackedServer, flood_duration};

/// Connections of the attacker.
const CONNECTIONS: usize = 4;
/// Calls that are under way on each connection.
const CALLS_PER_CONNECTION: usize = 16;
/// Maximum of the lookups during the attack: twice the default of `auth.unknown_keys_per_minute`.
/// The surplus covers the keys of the neighbor and of the operator, and the lookups that become
/// available during the attack.
const MAX_LOOKUPS: i64 = 120;

/// Counts the lookups of keys so far: PostgreSQL's count of scans of the table `api_key`.
async fn count_lookups(server: &AttackedServer) -> i64 {
    let scans = "select coalesce(idx_scan, 0) + coalesce(seq_scan, 0) from pg_stat_user_tables where relname = 'api_key'";
    sqlx::query_scalar(scans)
        .fetch_one(&mut server.app.db().await)
        .await
        .expect("PostgreSQL counts them")
}

/// Refusals of the attacker's calls, by reason.
#[derive(Default)]
struct Refusals {
    unknown: AtomicU64,
    rate_limited: AtomicU64,
}

/// Makes calls without end, each with a new key.
async fn call_with_made_up_keys(channel: Channel, refusals: &Refusals) {
    loop {
        let made_up = format!(
            "Bearer {}",
            GeneratedKey::make(None).expect("random bytes").text
        );
        let mut client =
            ConversationServiceClient::new(authorized_channel(channel.clone(), &made_up));
        let refused = client
            .list_conversations(pb::ListConversationsRequest::default())
            .await;
        match refused.expect_err("the key is unknown").code() {
            Code::Unauthenticated => refusals.unknown.fetch_add(1, Ordering::Relaxed),
            Code::ResourceExhausted => refusals.rate_limited.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_from_one_address_cause_few_database_lookups() {
    let server = AttackedServer::start(&[]).await;
    // The neighbor's and the operator's keys are looked up before the count begins. During the
    // attack they may be looked up again, however many made-up keys come from their address.
    let mut anna = ConversationServiceClient::new(server.channel(&server.anna));
    anna.list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("is accepted");
    server.metric_value("anneal_connections_open").await;
    let (before, refusals) = (count_lookups(&server).await, Refusals::default());
    let attack = async {
        let channel = || {
            Channel::from_shared(format!("http://{}", server.grpc))
                .expect("an address")
                .connect_lazy()
        };
        let channels: Vec<Channel> = (0..CONNECTIONS).map(|_| channel()).collect();
        let callers = channels
            .iter()
            .flat_map(|channel| std::iter::repeat_n(channel.clone(), CALLS_PER_CONNECTION));
        join_all(callers.map(|channel| call_with_made_up_keys(channel, &refusals))).await;
    };
    server
        .run_attack(
            "made-up keys from one address",
            flood_duration().max(Duration::from_secs(3)),
            attack,
        )
        .await;
    let (unknown, rate_limited) = (
        refusals.unknown.into_inner(),
        refusals.rate_limited.into_inner(),
    );
    let lookups = count_lookups(&server).await - before;
    println!(
        "{unknown} keys were looked up, {rate_limited} refused without a lookup; {lookups} lookups in the database"
    );
    assert!(lookups <= MAX_LOOKUPS, "{lookups} lookups");
    assert!(
        rate_limited > unknown,
        "{unknown} were looked up, {rate_limited} refused without a lookup"
    );
}
