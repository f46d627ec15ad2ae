//! proto/service_config.json agrees with the interface, the limits and docs/errors.md.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anneal_core::limits::{
    CANCEL_WAIT_MAX_SECONDS, CHAT_DEADLINE_SECONDS, COMPACT_WAIT_SECONDS, DEADLINE_DEFAULT_SECONDS,
    DEADLINE_MAX_SECONDS,
};
use anneal_proto::DESCRIPTORS;
use anneal_testkit::{TestApp, eventually, every_rpc};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::Value;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

fn read_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn config() -> Value {
    serde_json::from_str(&read_file("proto/service_config.json")).expect("is JSON")
}

/// Configuration of each method, by its path.
fn method_configs(config: &Value) -> BTreeMap<String, Value> {
    let mut configs = BTreeMap::new();
    for group in config["methodConfig"]
        .as_array()
        .expect("groups of methods")
    {
        for name in group["name"].as_array().expect("names") {
            let path = format!(
                "/{}/{}",
                name["service"].as_str().expect("one"),
                name["method"].as_str().expect("one")
            );
            assert!(
                configs.insert(path.clone(), group.clone()).is_none(),
                "{path} is configured twice"
            );
        }
    }
    configs
}

/// Whether a request, or a message type that is nested in it, has a request id.
fn has_request_id(message: &DescriptorProto) -> bool {
    message
        .field
        .iter()
        .any(|field| field.name() == "request_id")
        || message.nested_type.iter().any(has_request_id)
}

#[test]
fn the_config_names_every_method_exactly_once() {
    let mut rpcs: Vec<String> = every_rpc().into_iter().map(|rpc| rpc.path).collect();
    rpcs.sort();
    assert_eq!(
        method_configs(&config()).into_keys().collect::<Vec<_>>(),
        rpcs
    );
}

#[test]
fn the_config_retries_only_reads_and_requests_with_a_request_id() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let files: Vec<_> = set
        .file
        .iter()
        .filter(|file| file.package() == "anneal.v1")
        .collect();
    let message = |name: &str| {
        let name = name.trim_start_matches(".anneal.v1.");
        files
            .iter()
            .flat_map(|file| &file.message_type)
            .find(|message| message.name() == name)
            .expect("is there")
    };
    let configs = method_configs(&config());
    for method in files
        .iter()
        .flat_map(|file| &file.service)
        .flat_map(|service| &service.method)
    {
        let (path, method_config) = configs
            .iter()
            .find(|(path, _)| path.ends_with(&format!("/{}", method.name())))
            .expect("is named");
        let reads = ["Get", "List", "Build", "Stream", "Classify", "Verify"];
        let reads = reads.iter().any(|verb| method.name().starts_with(verb));
        let has_id = has_request_id(message(method.input_type()));
        // A retry of these may get another answer than the first attempt.
        let answer_differs =
            ["DeleteConversation", "RequeueJob", "DiscardJob"].contains(&method.name());
        // A turn costs a model call, and a watch sends each event once. The caller decides where to
        // resume.
        let is_resumed_by_caller = ["Chat", "WatchConversation"].contains(&method.name());
        let may_retry = (reads || has_id) && !answer_differs && !is_resumed_by_caller;
        assert_eq!(
            method_config.get("retryPolicy").is_some(),
            may_retry,
            "{path}"
        );
    }
}

#[test]
fn the_config_retries_the_codes_whose_reasons_are_all_retryable() {
    let errors = read_file("docs/errors.md");
    let mut codes = BTreeMap::<&str, Vec<bool>>::new();
    for section in errors.split("\n### `").skip(1) {
        let code = section
            .split("- Code: `")
            .nth(1)
            .and_then(|rest| rest.split('`').next())
            .expect("a code");
        let retry = section.split("Retry").nth(1).unwrap_or_default();
        codes
            .entry(code)
            .or_default()
            .push(retry.starts_with(": yes"));
    }
    let retryable_codes = codes
        .iter()
        .filter(|(_, retryable)| retryable.iter().all(|yes| *yes))
        .map(|(code, _)| *code);
    let retryable_codes: Vec<&str> = retryable_codes.collect();
    for (path, method_config) in method_configs(&config()) {
        let Some(policy) = method_config.get("retryPolicy") else {
            continue;
        };
        let retried = policy["retryableStatusCodes"]
            .as_array()
            .expect("codes")
            .iter()
            .filter_map(Value::as_str);
        assert_eq!(retried.collect::<Vec<_>>(), retryable_codes, "{path}");
    }
}

#[test]
fn the_deadlines_of_the_config_are_those_of_the_server() {
    let configs = method_configs(&config());
    let timeout = |method_config: &Value| {
        let seconds = method_config
            .get("timeout")?
            .as_str()?
            .trim_end_matches('s')
            .parse()
            .ok()?;
        Some(Duration::from_secs(seconds))
    };
    for (path, method_config) in &configs {
        let seconds = match path.rsplit('/').next().expect("a name") {
            "WatchConversation" => None,
            "Chat" => Some(CHAT_DEADLINE_SECONDS),
            "CancelTurn" => Some(CANCEL_WAIT_MAX_SECONDS + DEADLINE_DEFAULT_SECONDS),
            "Compact" => Some(COMPACT_WAIT_SECONDS + DEADLINE_DEFAULT_SECONDS),
            "AppendLargeMessage" | "ForkConversation" | "VerifyConversation" => {
                Some(DEADLINE_MAX_SECONDS)
            }
            _ => Some(DEADLINE_DEFAULT_SECONDS),
        };
        assert_eq!(
            timeout(method_config),
            seconds.map(Duration::from_secs),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_health_check_of_the_config_names_a_known_service() {
    let service = config()["healthCheckConfig"]["serviceName"]
        .as_str()
        .expect("a name")
        .to_owned();
    let app = TestApp::start().await;
    let mut health = HealthClient::new(app.channel());
    eventually("the service serves", async || {
        let answer = health
            .check(HealthCheckRequest {
                service: service.clone(),
            })
            .await
            .expect("is known");
        answer.into_inner().status() == ServingStatus::Serving
    })
    .await;
}
