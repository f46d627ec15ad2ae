//! Credentials that somebody makes up, as fast as they go, from one address.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anneal_server::NewSecret;
use anneal_tests::{guest_on, pb};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;
use tonic::{Code, transport::Channel};

use crate::besieged::{Besieged, flood_lasts};

/// Connections of the attacker, and calls under way on each.
const CONNECTIONS: usize = 4;
const CALLERS: usize = 16;
/// Lookups that one address may cause: the default of `auth.unknown_keys_per_minute`, twice, for the keys of the neighbour and of the
/// operator, and what is forgiven meanwhile.
const LOOKUPS: i64 = 120;

/// Scans of the table of keys, one for each lookup, as PostgreSQL counts them.
async fn lookups(server: &Besieged) -> i64 {
    let scans =
        "select coalesce(idx_scan, 0) + coalesce(seq_scan, 0) from pg_stat_user_tables where relname = 'api_key'";
    sqlx::query_scalar(scans).fetch_one(&mut server.house.db().await).await.expect("PostgreSQL counts them")
}

/// How the calls of an attacker ended.
#[derive(Default)]
struct Ended {
    unknown: AtomicU64,
    braked: AtomicU64,
}

/// Calls with a new key each time, without end.
async fn make_up_keys(channel: Channel, ended: &Ended) {
    loop {
        let made_up = format!("Bearer {}", NewSecret::make().expect("random bytes").text);
        let mut client = ConversationServiceClient::new(guest_on(channel.clone(), &made_up));
        let refused = client.list_conversations(pb::ListConversationsRequest::default()).await;
        match refused.expect_err("nobody knows this key").code() {
            Code::Unauthenticated => ended.unknown.fetch_add(1, Ordering::Relaxed),
            Code::ResourceExhausted => ended.braked.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_from_one_address_are_refused_without_asking_the_database() {
    let server = Besieged::start(&[]).await;
    // Keys that the server has met are looked up again whatever else comes from their address.
    let mut anna = ConversationServiceClient::new(server.guest(&server.anna));
    anna.list_conversations(pb::ListConversationsRequest::default()).await.expect("is let in");
    server.figure("connections_open").await;
    let (before, ended) = (lookups(&server).await, Ended::default());
    let attack = async {
        let channel = || Channel::from_shared(format!("http://{}", server.grpc)).expect("an address").connect_lazy();
        let channels: Vec<Channel> = (0..CONNECTIONS).map(|_| channel()).collect();
        let callers = channels.iter().flat_map(|channel| std::iter::repeat_n(channel.clone(), CALLERS));
        join_all(callers.map(|channel| make_up_keys(channel, &ended))).await;
    };
    server.endures("made-up keys from one address", flood_lasts().max(Duration::from_secs(3)), attack).await;
    let (unknown, braked) = (ended.unknown.into_inner(), ended.braked.into_inner());
    let asked = lookups(&server).await - before;
    println!("{unknown} keys were looked for, {braked} refused unseen; {asked} lookups in the database");
    assert!(asked <= LOOKUPS, "{asked} lookups");
    assert!(braked > unknown, "{unknown} were looked for, {braked} refused unseen");
}
