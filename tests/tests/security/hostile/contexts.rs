//! Cases of contexts, checkpoints, usage, turns and jobs: numbers out of range, unknown enums,
//! texts that are too long.

use std::collections::HashMap;

use anneal_testkit::{pb, user};
use tonic::Code;

use crate::hostile::{
    ask, ask_about,
    case::{
        BUDGET_TOO_SMALL, CHECKPOINT_UNSOUND, Case, INVALID, LIMIT, NO_JOB, Refusal, answered,
        refused,
    },
};

const NO_MODEL: Refusal = (Code::FailedPrecondition, "MODEL_NOT_CONFIGURED");

/// Cases of `BuildContext` and `GetContextUsage`.
pub(crate) fn contexts(id: &str) -> Vec<Case> {
    macro_rules! build {
        ($($field:ident: $value:expr),*) => {
            ask_about!(id, BuildContextRequest { $($field: $value),* })
        };
    }
    let labels: HashMap<String, String> = (0..33).map(|n| (n.to_string(), String::new())).collect();
    let labeled = pb::NewMessage {
        metadata: labels,
        ..user("a")
    };
    let unknown_role = pb::NewMessage {
        role: 99,
        ..user("a")
    };
    vec![
        refused(
            "a budget of 0",
            build!(budget_tokens: 0_u64),
            INVALID,
            "budget_tokens",
        ),
        refused(
            "a budget of 1",
            build!(budget_tokens: 1_u64),
            BUDGET_TOO_SMALL,
            "",
        ),
        answered("a budget of u64::MAX", build!(budget_tokens: u64::MAX)),
        refused("format 99", build!(format: 99), INVALID, "format"),
        refused("format -1", build!(format: -1), INVALID, "format"),
        refused("pressure 99", build!(pressure: 99), INVALID, "pressure"),
        refused(
            "NUL in a prompt",
            build!(system_prompt: String::from("a\0")),
            INVALID,
            "system_prompt",
        ),
        refused(
            "a prompt above 256 KiB",
            build!(system_prompt: "a".repeat(256 * 1024 + 1)),
            LIMIT,
            "system_prompt",
        ),
        refused(
            "101 messages",
            build!(current_input: vec![user("a"); 101]),
            LIMIT,
            "current_input",
        ),
        refused(
            "10,000 messages",
            build!(current_input: vec![user("a"); 10_000]),
            LIMIT,
            "current_input",
        ),
        refused(
            "33 labels",
            build!(current_input: vec![user("a"), labeled]),
            LIMIT,
            "current_input[1].metadata",
        ),
        refused(
            "role 99",
            build!(current_input: vec![unknown_role]),
            INVALID,
            "current_input[0].role",
        ),
        refused(
            "an empty policy",
            build!(policy: pb::Policy::default()),
            INVALID,
            "policy",
        ),
        refused("a model with NUL", build!(model: "\0"), INVALID, "model"),
        refused(
            "a model of 129 bytes",
            build!(model: "m".repeat(129)),
            LIMIT,
            "model",
        ),
        answered(
            "a model with bidirectional marks",
            build!(model: "\u{202e}5-tpg", dry_run: true),
        ),
        refused(
            "invalid settings",
            build!(dry_run: true, policy: pb::Policy { token_threshold: Some(0), ..Default::default() }),
            INVALID,
            "policy.token_threshold",
        ),
        answered(
            "a window of u64::MAX",
            ask_about!(
                id,
                GetContextUsageRequest {
                    window_tokens: u64::MAX
                }
            ),
        ),
        answered(
            "a window of 1",
            ask_about!(
                id,
                GetContextUsageRequest {
                    window_tokens: 1_u64,
                    economics: true
                }
            ),
        ),
    ]
}

/// Cases of `Compact` and `ImportCheckpoint`.
pub(crate) fn compactions(id: &str) -> Vec<Case> {
    let wait = |seconds, nanos| {
        ask_about!(
            id,
            CompactRequest {
                dry_run: true,
                wait: prost_types::Duration { seconds, nanos }
            }
        )
    };
    let import = |last: i64, summary: &str| {
        ask_about!(
            id,
            ImportCheckpointRequest {
                last_message_id: last,
                summary: summary
            }
        )
    };
    vec![
        refused("a wait of -1 s", wait(-1, 0), INVALID, "wait"),
        refused("a wait of -1 ns", wait(0, -1), INVALID, "wait"),
        refused("the least wait", wait(i64::MIN, i32::MIN), INVALID, "wait"),
        refused("signs that differ", wait(1, -1), INVALID, "wait"),
        refused("60 s and 1 ns", wait(60, 1), LIMIT, "wait"),
        refused("the longest wait", wait(i64::MAX, i32::MAX), LIMIT, "wait"),
        answered("nanoseconds above a second", wait(0, i32::MAX)),
        refused(
            "NUL in a focus",
            ask_about!(id, CompactRequest { focus: "a\0" }),
            INVALID,
            "focus",
        ),
        refused(
            "a focus of 4,097 bytes",
            ask_about!(
                id,
                CompactRequest {
                    focus: "a".repeat(4_097)
                }
            ),
            LIMIT,
            "focus",
        ),
        refused(
            "an empty policy",
            ask_about!(
                id,
                CompactRequest {
                    policy: pb::Policy::default()
                }
            ),
            INVALID,
            "policy",
        ),
        refused(
            "up to message 0",
            import(0, "a"),
            INVALID,
            "last_message_id",
        ),
        refused(
            "up to message -1",
            import(-1, "a"),
            INVALID,
            "last_message_id",
        ),
        refused("no summary", import(1, ""), INVALID, "summary"),
        refused("NUL in a summary", import(1, "a\0"), INVALID, "summary"),
        refused(
            "a summary above 1 MiB",
            import(1, &"a".repeat((1 << 20) + 1)),
            LIMIT,
            "summary",
        ),
        refused(
            "up to the highest possible message id",
            import(i64::MAX, "a"),
            CHECKPOINT_UNSOUND,
            "",
        ),
        refused(
            "a summary that is longer than what it replaces",
            import(1, &"longer ".repeat(500)),
            CHECKPOINT_UNSOUND,
            "",
        ),
    ]
}

/// Cases of `ReportUsage` and `ClassifyError`.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn usage_and_errors(id: &str) -> Vec<Case> {
    macro_rules! report {
        ($($field:ident: $value:expr),*) => {
            ask_about!(id, ReportUsageRequest { $($field: $value),* })
        };
    }
    let headers = |count: usize, value: &str| -> HashMap<String, String> {
        (0..count)
            .map(|n| (format!("h{n}"), value.to_owned()))
            .collect()
    };
    vec![
        refused("no model", report!(input_tokens: 1_u64), INVALID, "model"),
        refused(
            "NUL in a model",
            report!(model: "m\0", input_tokens: 1_u64),
            INVALID,
            "model",
        ),
        refused("no token", report!(model: "m"), INVALID, "input_tokens"),
        refused(
            "u64::MAX tokens",
            report!(model: "m", input_tokens: u64::MAX),
            LIMIT,
            "input_tokens",
        ),
        refused(
            "2^63 tokens",
            report!(model: "m", input_tokens: 1_u64 << 63),
            LIMIT,
            "input_tokens",
        ),
        refused(
            "u64::MAX cached tokens",
            report!(model: "m", input_tokens: 1_u64, cached_tokens: u64::MAX),
            LIMIT,
            "cached_tokens",
        ),
        refused(
            "u64::MAX output tokens",
            report!(model: "m", input_tokens: 1_u64, output_tokens: u64::MAX),
            LIMIT,
            "output_tokens",
        ),
        refused(
            "more cached tokens than input tokens",
            report!(model: "m", input_tokens: 1_u64, cached_tokens: 2_u64),
            INVALID,
            "input_tokens",
        ),
        answered(
            "a billion tokens",
            report!(model: "m", input_tokens: 1_000_000_000_u64, context_tokens: 1_u64),
        ),
        refused(
            "no status",
            ask!(ClassifyErrorRequest {}),
            INVALID,
            "status",
        ),
        refused(
            "status 99",
            ask!(ClassifyErrorRequest { status: 99_u32 }),
            INVALID,
            "status",
        ),
        refused(
            "status 600",
            ask!(ClassifyErrorRequest { status: 600_u32 }),
            INVALID,
            "status",
        ),
        refused(
            "status u32::MAX",
            ask!(ClassifyErrorRequest { status: u32::MAX }),
            INVALID,
            "status",
        ),
        refused(
            "status 2^16 + 400",
            ask!(ClassifyErrorRequest { status: 65_936_u32 }),
            INVALID,
            "status",
        ),
        refused(
            "0 tokens sent",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                sent_tokens: 0_u64
            }),
            INVALID,
            "sent_tokens",
        ),
        refused(
            "65 headers",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                headers: headers(65, "")
            }),
            LIMIT,
            "headers",
        ),
        refused(
            "headers above 16 KiB",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                headers: headers(1, &"v".repeat(16_384))
            }),
            LIMIT,
            "headers",
        ),
        refused(
            "a body above 1 MiB",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                body: vec![b'['; (1 << 20) + 1]
            }),
            LIMIT,
            "body",
        ),
        answered(
            "a body of 1 MiB of brackets",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                body: vec![b'['; 1 << 20]
            }),
        ),
        answered(
            "a body that is not text",
            ask!(ClassifyErrorRequest {
                status: 500_u32,
                body: vec![0xff; 1_000]
            }),
        ),
        answered(
            "1e400 in a body",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                body: br#"{"error":{"code":1e400}}"#.to_vec()
            }),
        ),
        answered(
            "NUL in headers",
            ask!(ClassifyErrorRequest {
                status: 400_u32,
                headers: headers(2, "\0\r\n")
            }),
        ),
        answered(
            "u64::MAX tokens sent",
            ask!(ClassifyErrorRequest {
                status: 200_u32,
                sent_tokens: u64::MAX
            }),
        ),
    ]
}

/// Cases of `Chat`.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn turns(id: &str) -> Vec<Case> {
    macro_rules! chat {
        ($($field:ident: $value:expr),*) => {
            ask_about!(id, ChatRequest { $($field: $value),* })
        };
    }
    macro_rules! temperature {
        ($value:expr) => {
            chat!(messages: vec![user("a")], temperature: $value)
        };
    }
    let role = |role: i32| chat!(messages: vec![pb::NewMessage { role, ..user("a") }]);
    let tools = |tools: Vec<pb::Tool>| chat!(messages: vec![user("a")], tools: tools);
    let tool = |name: &str, schema: &str| pb::Tool {
        name: name.into(),
        input_schema: schema.into(),
        ..Default::default()
    };
    let long = pb::Tool {
        description: "d".repeat(256 * 1024),
        ..tool("t", "")
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let schema = |schema: &str| tools(vec![tool("t", schema)]);
    vec![
        refused("no message", chat!(), INVALID, "messages"),
        refused(
            "temperature NaN",
            temperature!(f32::NAN),
            INVALID,
            "temperature",
        ),
        refused(
            "temperature infinity",
            temperature!(f32::INFINITY),
            INVALID,
            "temperature",
        ),
        refused(
            "temperature -infinity",
            temperature!(f32::NEG_INFINITY),
            INVALID,
            "temperature",
        ),
        refused(
            "temperature just below 0",
            temperature!(-f32::MIN_POSITIVE),
            INVALID,
            "temperature",
        ),
        refused(
            "temperature f32::MAX",
            temperature!(f32::MAX),
            INVALID,
            "temperature",
        ),
        refused(
            "a message of the assistant",
            role(2),
            INVALID,
            "messages[0].role",
        ),
        refused(
            "a system message last",
            role(4),
            INVALID,
            "messages[0].role",
        ),
        refused("role 99", role(99), INVALID, "messages[0].role"),
        refused(
            "no output token",
            chat!(messages: vec![user("a")], max_output_tokens: 0_u64),
            INVALID,
            "max_output_tokens",
        ),
        refused(
            "an unknown model",
            chat!(messages: vec![user("a")], model: "../gpt"),
            NO_MODEL,
            "",
        ),
        refused(
            "a model with NUL",
            chat!(messages: vec![user("a")], model: "\0"),
            INVALID,
            "model",
        ),
        refused("129 tools", tools(vec![tool("t", ""); 129]), LIMIT, "tools"),
        refused("tools above 256 KiB", tools(vec![long]), LIMIT, "tools"),
        refused(
            "a tool without a name",
            tools(vec![tool("", "")]),
            INVALID,
            "tools[0].name",
        ),
        refused(
            "a tool with NUL",
            tools(vec![tool("t\0", "")]),
            INVALID,
            "tools[0].name",
        ),
        refused(
            "a tool with a Cyrillic letter",
            tools(vec![tool("еval", "")]),
            INVALID,
            "tools[0].name",
        ),
        refused(
            "two tools of one name",
            tools(vec![tool("t", ""), tool("t", "")]),
            INVALID,
            "tools[1].name",
        ),
        refused(
            "a schema that is a list",
            schema("[]"),
            INVALID,
            "tools[0].input_schema",
        ),
        refused(
            "a schema cut short",
            schema("{\"type\":"),
            INVALID,
            "tools[0].input_schema",
        ),
        refused(
            "a schema of 100,000 levels",
            schema(&deep),
            INVALID,
            "tools[0].input_schema",
        ),
        answered(
            "a limit of u64::MAX output tokens",
            chat!(messages: vec![user("a")], max_output_tokens: u64::MAX),
        ),
        answered("temperature -0", temperature!(-0.0_f32)),
    ]
}

/// Cases of the RPCs about jobs.
pub(crate) fn jobs(id: &str) -> Vec<Case> {
    vec![
        refused(
            "no kind",
            ask_about!(id, RequeueJobRequest {}),
            INVALID,
            "kind",
        ),
        refused(
            "kind 99",
            ask_about!(id, RequeueJobRequest { kind: 99 }),
            INVALID,
            "kind",
        ),
        refused(
            "kind -1",
            ask_about!(id, DiscardJobRequest { kind: -1 }),
            INVALID,
            "kind",
        ),
        refused(
            "kind 99 of all conversations",
            ask!(ListJobsRequest { kind: 99 }),
            INVALID,
            "kind",
        ),
        refused(
            "state 99",
            ask!(ListJobsRequest { state: 99 }),
            INVALID,
            "state",
        ),
        refused(
            "the least state",
            ask!(ListJobsRequest { state: i32::MIN }),
            INVALID,
            "state",
        ),
        refused(
            "jobs of a conversation id that is a number",
            ask_about!("7", ListJobsRequest {}),
            INVALID,
            "conversation_id",
        ),
        refused(
            "no dead job",
            ask_about!(id, DiscardJobRequest { kind: 2 }),
            NO_JOB,
            "",
        ),
        refused(
            "NUL in a request id",
            ask_about!(
                id,
                RequeueJobRequest {
                    kind: 1,
                    request_id: "\0"
                }
            ),
            INVALID,
            "request_id",
        ),
    ]
}
