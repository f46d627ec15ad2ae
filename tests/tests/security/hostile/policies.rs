//! Cases of the policies of conversations: settings out of range, and settings that contradict each
//! other.

use anneal_testkit::pb;

use crate::hostile::{
    ask,
    case::{Case, GrpcRequest, INVALID, answered, refused},
};

fn create_with(policy: pb::Policy) -> GrpcRequest {
    ask!(CreateConversationRequest { policy: policy })
}

/// Invalid settings, and extreme valid ones.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn policies() -> Vec<Case> {
    let none = pb::Policy::default;
    let refused = |name: &str, policy, field: &str| {
        refused(
            name,
            create_with(policy),
            INVALID,
            format!("policy.{field}"),
        )
    };
    let u64_max = Some(u64::MAX);
    vec![
        refused(
            "a threshold of 0",
            pb::Policy {
                token_threshold: Some(0),
                ..none()
            },
            "token_threshold",
        ),
        refused(
            "a threshold of u64::MAX",
            pb::Policy {
                token_threshold: u64_max,
                ..none()
            },
            "token_threshold",
        ),
        refused(
            "a threshold of 2^63",
            pb::Policy {
                token_threshold: Some(1 << 63),
                ..none()
            },
            "token_threshold",
        ),
        refused(
            "0 turns kept",
            pb::Policy {
                keep_recent_turns: Some(0),
                ..none()
            },
            "keep_recent_turns",
        ),
        refused(
            "0 tokens kept",
            pb::Policy {
                keep_recent_tokens: Some(0),
                ..none()
            },
            "keep_recent_tokens",
        ),
        refused(
            "0 percent kept",
            pb::Policy {
                keep_recent_percent: Some(0),
                ..none()
            },
            "keep_recent_percent",
        ),
        refused(
            "91 percent kept",
            pb::Policy {
                keep_recent_percent: Some(91),
                ..none()
            },
            "keep_recent_percent",
        ),
        refused(
            "a large message of u64::MAX tokens",
            pb::Policy {
                large_message_threshold: u64_max,
                ..none()
            },
            "large_message_threshold",
        ),
        refused(
            "a hot zone of u32::MAX",
            pb::Policy {
                hot_zone_radius: Some(u32::MAX),
                ..none()
            },
            "hot_zone_radius",
        ),
        refused(
            "token_threshold_auto = false",
            pb::Policy {
                token_threshold_auto: Some(false),
                ..none()
            },
            "token_threshold_auto",
        ),
        refused(
            "keep_recent_from_last_user_message = false",
            pb::Policy {
                keep_recent_from_last_user_message: Some(false),
                ..none()
            },
            "keep_recent_from_last_user_message",
        ),
        refused(
            "a threshold and an automatic one",
            pb::Policy {
                token_threshold: Some(9),
                token_threshold_auto: Some(true),
                ..none()
            },
            "token_threshold",
        ),
        refused(
            "two ways to keep",
            pb::Policy {
                keep_recent_turns: Some(1),
                keep_recent_percent: Some(50),
                ..none()
            },
            "keep_recent",
        ),
        refused(
            "a profile with NUL",
            pb::Policy {
                profile: "agents\0".into(),
                ..none()
            },
            "profile",
        ),
        refused(
            "a profile in capitals",
            pb::Policy {
                profile: "AGENTS".into(),
                ..none()
            },
            "profile",
        ),
        refused(
            "cooling 99",
            pb::Policy {
                cooling: 99,
                ..none()
            },
            "cooling",
        ),
        refused(
            "cooling -1",
            pb::Policy {
                cooling: -1,
                ..none()
            },
            "cooling",
        ),
        refused(
            "large_summaries 99",
            pb::Policy {
                large_summaries: 99,
                ..none()
            },
            "large_summaries",
        ),
        refused(
            "a window of 0",
            pb::Policy {
                window_tokens: Some(0),
                ..none()
            },
            "window_tokens",
        ),
        refused(
            "a window of u64::MAX",
            pb::Policy {
                window_tokens: u64_max,
                ..none()
            },
            "window_tokens",
        ),
        refused(
            "a read price of 0",
            pb::Policy {
                cache_read_price: Some(0),
                ..none()
            },
            "cache_read_price",
        ),
        refused(
            "a write price of 10,001",
            pb::Policy {
                cache_write_price: Some(10_001),
                ..none()
            },
            "cache_write_price",
        ),
        answered(
            "the largest numbers, and every message large",
            create_with(pb::Policy {
                token_threshold: Some(i64::MAX as u64),
                max_message_count: Some(u32::MAX),
                keep_recent_turns: Some(u32::MAX),
                large_message_threshold: Some(0),
                hot_zone_radius: Some(i32::MAX as u32),
                ..none()
            }),
        ),
    ]
}
