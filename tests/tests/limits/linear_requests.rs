//! A request that is ten times as large costs at most fifteen times as much, whichever of its fields is the large one.

use anneal_tests::{
    Rpc, call_frames, every_rpc,
    fields::{Field, Filling, every_field, field},
    sound_request,
};
use prost_types::field_descriptor_proto::Type;

use crate::{
    besieged::{Besieged, UNLIMITED},
    cost::Costs,
};

/// Bytes of a small request and of a large one, which is near the 4 MiB that a request may have.
const BYTES: [usize; 2] = [380_000, 3_800_000];
/// A field that no request has.
const UNKNOWN: u32 = 1_000;

/// The field filled with so many bytes: one value of them, or where it is repeated as many small ones as they make.
fn filled(of: &Field, bytes: usize, id: &str) -> Option<Vec<u8>> {
    // The underscore is what names are cut at.
    let text = |bytes: usize| Filling::Bytes(b"a_".repeat(bytes / 2));
    match of.kind() {
        Type::String | Type::Bytes if of.is_repeated() => Some(of.filled_with(&vec![text(8); bytes / 10], id, "")),
        Type::Message if of.is_repeated() => Some(of.filled_with(&vec![text(0); bytes / 2], id, "")),
        Type::String | Type::Bytes => Some(of.filled(&text(bytes), id, "")),
        _ => None,
    }
}

/// A sound request, and behind it so many bytes of fields that it does not have.
fn with_unknown(rpc: &str, bytes: usize, id: &str) -> Vec<u8> {
    let unknown = field(UNKNOWN, &Filling::Varint(1));
    [sound_request(rpc, id, ""), unknown.repeat(bytes / unknown.len())].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_ten_times_the_bytes_costs_at_most_fifteen_times_as_much() {
    let server = Besieged::start(&UNLIMITED).await;
    let (mut meter, mut costs, rpcs) = (server.meter().await, Costs::default(), every_rpc());
    let guest = server.guest(&server.eve);
    let path = |name: &str| rpcs.iter().find(|rpc: &&Rpc| rpc.name == name).expect("is an RPC").path.clone();
    let send = async |name: &str, request: &[u8]| {
        // Whether it is taken or refused, it is answered.
        let _ = call_frames(guest.clone(), &path(name), vec![request.to_vec()]).await;
    };
    for of in every_field() {
        // What is stored must not make the next request larger.
        let id = server.conversation().await;
        let [Some(small), Some(large)] = BYTES.map(|bytes| filled(&of, bytes, &id)) else { continue };
        let what = format!("{} {}", of.rpc, of.path());
        let (small, large) = (async |_| send(&of.rpc, &small).await, async |_| send(&of.rpc, &large).await);
        costs.compare(&mut meter, what, small, large).await;
    }
    for rpc in &rpcs {
        let id = server.conversation().await;
        let [small, large] = BYTES.map(|bytes| with_unknown(&rpc.name, bytes, &id));
        let what = format!("{} with unknown fields", rpc.name);
        let (small, large) = (async |_| send(&rpc.name, &small).await, async |_| send(&rpc.name, &large).await);
        costs.compare(&mut meter, what, small, large).await;
    }
    costs.assert_linear("requests");
}
