//! A request of ten times the bytes costs at most fifteen times as much processor time, whichever
//! field is the large one.

use anneal_testkit::{
    Rpc, call_frames, every_rpc,
    request_fields::{Field, FieldValue, every_field, field},
    valid_request,
};
use prost_types::field_descriptor_proto::Type;

use crate::limits::{
    attacked_server::{AttackedServer, UNLIMITED},
    cpu_cost::Costs,
};

/// Bytes of a small and of a large request. The limit of a request is 4 MiB.
const BYTES: [usize; 2] = [380_000, 3_800_000];
/// A field number that no request defines.
const UNKNOWN: u32 = 1_000;

/// A request in which this field has this number of bytes: in one value, or in many small values if
/// the field is repeated. None: the field is neither a text, nor bytes, nor a repeated message.
fn filled(large_field: &Field, bytes: usize, id: &str) -> Option<Vec<u8>> {
    // The server splits names at underscores.
    let text = |bytes: usize| FieldValue::Bytes(b"a_".repeat(bytes / 2));
    // Before each value come two bytes: the number of the field and the length of the value.
    match large_field.kind() {
        Type::String | Type::Bytes if large_field.is_repeated() => {
            Some(large_field.filled_with(&vec![text(8); bytes / 10], id, ""))
        }
        Type::Message if large_field.is_repeated() => {
            Some(large_field.filled_with(&vec![text(0); bytes / 2], id, ""))
        }
        Type::String | Type::Bytes => Some(large_field.filled(&text(bytes), id, "")),
        _ => None,
    }
}

/// A valid request followed by this number of bytes of unknown fields.
fn with_unknown(rpc: &str, bytes: usize, id: &str) -> Vec<u8> {
    let unknown = field(UNKNOWN, &FieldValue::Varint(1));
    [
        valid_request(rpc, id, ""),
        unknown.repeat(bytes / unknown.len()),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_ten_times_the_bytes_costs_at_most_fifteen_times_as_much() {
    let server = AttackedServer::start(&UNLIMITED).await;
    let (mut meter, mut costs, rpcs) = (server.cpu_meter().await, Costs::default(), every_rpc());
    let channel = server.channel(&server.eve);
    let path = |name: &str| {
        rpcs.iter()
            .find(|rpc: &&Rpc| rpc.name == name)
            .expect("is an RPC")
            .path
            .clone()
    };
    let send = async |name: &str, request: &[u8]| {
        // The answer may be a success or a refusal.
        let _ = call_frames(channel.clone(), &path(name), vec![request.to_vec()]).await;
    };
    for large_field in every_field() {
        // A new conversation for each pair, so that the messages that one pair stores do not add to
        // the cost of the next pair.
        let id = server.create_conversation().await;
        let [Some(small), Some(large)] = BYTES.map(|bytes| filled(&large_field, bytes, &id)) else {
            continue;
        };
        let what = format!("{} {}", large_field.rpc, large_field.path());
        let (small, large) = (
            async |_| send(&large_field.rpc, &small).await,
            async |_| send(&large_field.rpc, &large).await,
        );
        costs.compare(&mut meter, what, small, large).await;
    }
    for rpc in &rpcs {
        let id = server.create_conversation().await;
        let [small, large] = BYTES.map(|bytes| with_unknown(&rpc.name, bytes, &id));
        let what = format!("{} with unknown fields", rpc.name);
        let (small, large) = (
            async |_| send(&rpc.name, &small).await,
            async |_| send(&rpc.name, &large).await,
        );
        costs.compare(&mut meter, what, small, large).await;
    }
    costs.assert_linear("requests");
}
