//! Converts policies to and from protobuf.

use anneal_core::{
    cache::CacheRetention,
    policy::{
        Cooling, IdleCheckpoints, KeepRecent, LargeSummaries, PolicyError, PolicyOverrides,
        Profile, SessionSettings, TokenThreshold,
    },
    tokens::Tokens,
};

use super::{FieldError, parse};
use crate::v1 as pb;

/// Parses the overrides that a request sets. Checks the policy that they and the server's settings
/// give, with a system prompt of this many tokens.
pub fn parse(
    policy: Option<pb::Policy>,
    session: &SessionSettings,
    system_prompt: Tokens,
) -> Result<PolicyOverrides, FieldError> {
    parse_with_base(policy, &PolicyOverrides::default(), session, system_prompt)
}

/// Parses the overrides that a request sets on top of the overrides in `base`. Both are checked
/// together; only the request's are returned. A request without a policy sets none, and nothing is
/// checked.
pub fn parse_with_base(
    policy: Option<pb::Policy>,
    base: &PolicyOverrides,
    session: &SessionSettings,
    system_prompt: Tokens,
) -> Result<PolicyOverrides, FieldError> {
    let Some(policy) = policy else {
        return Ok(PolicyOverrides::default());
    };
    let overrides = PolicyOverrides {
        profile: profile(&policy.profile)?,
        token_threshold: token_threshold(&policy)?,
        max_message_count: policy.max_message_count,
        keep_recent: keep_recent(&policy)?,
        large_message_threshold: policy.large_message_threshold.map(Tokens::new),
        hot_zone_radius: policy.hot_zone_radius,
        hot_zone_calls: policy.hot_zone_calls,
        cooling: match pb::Cooling::try_from(policy.cooling) {
            Ok(pb::Cooling::Unspecified) => None,
            Ok(pb::Cooling::Strict) => Some(Cooling::Strict),
            Ok(pb::Cooling::Stepped) => Some(Cooling::Stepped),
            Err(_) => return Err(unknown("policy.cooling", policy.cooling)),
        },
        large_summaries: match pb::LargeSummaries::try_from(policy.large_summaries) {
            Ok(pb::LargeSummaries::Unspecified) => None,
            Ok(pb::LargeSummaries::Eager) => Some(LargeSummaries::Eager),
            Ok(pb::LargeSummaries::Lazy) => Some(LargeSummaries::Lazy),
            Err(_) => return Err(unknown("policy.large_summaries", policy.large_summaries)),
        },
        store_tool_messages: policy.store_tool_messages,
        cache_ttl_seconds: policy.cache_ttl_seconds,
        model: parse::model("policy.model", &policy.model)?,
        window_tokens: policy.window_tokens.map(Tokens::new),
        cache_read_price: policy.cache_read_price,
        cache_write_price: policy.cache_write_price,
        cache_marks: policy.cache_marks,
        cache_retention: match pb::CacheRetention::try_from(policy.cache_retention) {
            Ok(pb::CacheRetention::Unspecified) => None,
            Ok(pb::CacheRetention::Short) => Some(CacheRetention::Short),
            Ok(pb::CacheRetention::LongHead) => Some(CacheRetention::LongHead),
            Ok(pb::CacheRetention::Long) => Some(CacheRetention::Long),
            Err(_) => return Err(unknown("policy.cache_retention", policy.cache_retention)),
        },
        idle_checkpoints: match pb::IdleCheckpoints::try_from(policy.idle_checkpoints) {
            Ok(pb::IdleCheckpoints::Unspecified) => None,
            Ok(pb::IdleCheckpoints::Off) => Some(IdleCheckpoints::Off),
            Ok(pb::IdleCheckpoints::Free) => Some(IdleCheckpoints::Free),
            Ok(pb::IdleCheckpoints::Prepared) => Some(IdleCheckpoints::Prepared),
            Err(_) => return Err(unknown("policy.idle_checkpoints", policy.idle_checkpoints)),
        },
        keep_partial: policy.keep_partial,
    };
    let combined = overrides.clone().over(base.clone());
    session
        .policy(&combined, None)
        .check(system_prompt)
        .map_err(|error| invalid(&error, &policy))?;
    Ok(overrides)
}

fn unknown(field: &str, number: i32) -> FieldError {
    FieldError::invalid(field, format!("{number} is not one of its values"))
}

/// The error for an invalid policy, with the path of the field that set the wrong value.
fn invalid(error: &PolicyError, policy: &pb::Policy) -> FieldError {
    let key = match error.key {
        "keep_recent" if policy.keep_recent_turns.is_some() => "keep_recent_turns",
        "keep_recent" if policy.keep_recent_tokens.is_some() => "keep_recent_tokens",
        "keep_recent" if policy.keep_recent_percent.is_some() => "keep_recent_percent",
        "token_threshold" if policy.token_threshold_below_window.is_some() => {
            "token_threshold_below_window"
        }
        key => key,
    };
    FieldError::invalid(
        format!("policy.{key}"),
        format!("must be {}", error.must_be),
    )
}

fn profile(name: &str) -> Result<Option<Profile>, FieldError> {
    if name.is_empty() {
        return Ok(None);
    }
    let known = || Profile::ALL.map(Profile::name).join(", ");
    let profile = Profile::from_name(name).ok_or_else(|| {
        FieldError::invalid("policy.profile", format!("must be one of {}", known()))
    })?;
    Ok(Some(profile))
}

fn token_threshold(policy: &pb::Policy) -> Result<Option<TokenThreshold>, FieldError> {
    let ways = [
        policy
            .token_threshold
            .map(|tokens| TokenThreshold::Tokens(Tokens::new(tokens))),
        is_flag_set("policy.token_threshold_auto", policy.token_threshold_auto)?
            .then_some(TokenThreshold::Auto),
        policy
            .token_threshold_below_window
            .map(|tokens| TokenThreshold::BelowWindow(Tokens::new(tokens))),
    ];
    one_of("policy.token_threshold", ways)
}

fn keep_recent(policy: &pb::Policy) -> Result<Option<KeepRecent>, FieldError> {
    let is_from_last_user_message = is_flag_set(
        "policy.keep_recent_from_last_user_message",
        policy.keep_recent_from_last_user_message,
    )?;
    let ways = [
        policy.keep_recent_turns.map(KeepRecent::Turns),
        policy
            .keep_recent_tokens
            .map(|tokens| KeepRecent::Tokens(Tokens::new(tokens))),
        policy.keep_recent_percent.map(KeepRecent::Share),
        is_from_last_user_message.then_some(KeepRecent::LastUserMessage),
    ];
    one_of("policy.keep_recent", ways)
}

/// Whether a field is true that may only be true or absent. False is an error.
fn is_flag_set(field: &str, value: Option<bool>) -> Result<bool, FieldError> {
    match value {
        Some(true) => Ok(true),
        Some(false) => Err(FieldError::invalid(field, "must be true or absent")),
        None => Ok(false),
    }
}

/// The value that the request sets in one of several ways; None if it uses none of them. An error
/// if it uses two.
fn one_of<T, const N: usize>(field: &str, ways: [Option<T>; N]) -> Result<Option<T>, FieldError> {
    let mut values = ways.into_iter().flatten();
    let first = values.next();
    if values.next().is_some() {
        return Err(FieldError::invalid(field, "may be set in one way only"));
    }
    Ok(first)
}

impl From<PolicyOverrides> for pb::Policy {
    fn from(overrides: PolicyOverrides) -> Self {
        let mut policy = Self {
            profile: overrides
                .profile
                .map_or_else(String::new, |profile| profile.name().to_owned()),
            max_message_count: overrides.max_message_count,
            large_message_threshold: overrides.large_message_threshold.map(Tokens::get),
            hot_zone_radius: overrides.hot_zone_radius,
            hot_zone_calls: overrides.hot_zone_calls,
            cooling: match overrides.cooling {
                None => pb::Cooling::Unspecified,
                Some(Cooling::Strict) => pb::Cooling::Strict,
                Some(Cooling::Stepped) => pb::Cooling::Stepped,
            }
            .into(),
            large_summaries: match overrides.large_summaries {
                None => pb::LargeSummaries::Unspecified,
                Some(LargeSummaries::Eager) => pb::LargeSummaries::Eager,
                Some(LargeSummaries::Lazy) => pb::LargeSummaries::Lazy,
            }
            .into(),
            store_tool_messages: overrides.store_tool_messages,
            cache_ttl_seconds: overrides.cache_ttl_seconds,
            model: overrides.model.unwrap_or_default(),
            window_tokens: overrides.window_tokens.map(Tokens::get),
            cache_read_price: overrides.cache_read_price,
            cache_write_price: overrides.cache_write_price,
            cache_marks: overrides.cache_marks,
            cache_retention: match overrides.cache_retention {
                None => pb::CacheRetention::Unspecified,
                Some(CacheRetention::Short) => pb::CacheRetention::Short,
                Some(CacheRetention::LongHead) => pb::CacheRetention::LongHead,
                Some(CacheRetention::Long) => pb::CacheRetention::Long,
            }
            .into(),
            idle_checkpoints: match overrides.idle_checkpoints {
                None => pb::IdleCheckpoints::Unspecified,
                Some(IdleCheckpoints::Off) => pb::IdleCheckpoints::Off,
                Some(IdleCheckpoints::Free) => pb::IdleCheckpoints::Free,
                Some(IdleCheckpoints::Prepared) => pb::IdleCheckpoints::Prepared,
            }
            .into(),
            keep_partial: overrides.keep_partial,
            ..Self::default()
        };
        match overrides.token_threshold {
            None => {}
            Some(TokenThreshold::Tokens(tokens)) => policy.token_threshold = Some(tokens.get()),
            Some(TokenThreshold::Auto) => policy.token_threshold_auto = Some(true),
            Some(TokenThreshold::BelowWindow(tokens)) => {
                policy.token_threshold_below_window = Some(tokens.get());
            }
        }
        match overrides.keep_recent {
            None => {}
            Some(KeepRecent::Turns(turns)) => policy.keep_recent_turns = Some(turns),
            Some(KeepRecent::Tokens(tokens)) => policy.keep_recent_tokens = Some(tokens.get()),
            Some(KeepRecent::Share(percent)) => policy.keep_recent_percent = Some(percent),
            Some(KeepRecent::LastUserMessage) => {
                policy.keep_recent_from_last_user_message = Some(true);
            }
        }
        policy
    }
}
