//! How settings are written, which value of a setting wins, and which values are refused.

use super::*;
use crate::{cache::CacheKind, provider_format::Format};

fn overrides_from(json: &str) -> PolicyOverrides {
    serde_json::from_str(json).expect("valid settings")
}

#[test]
fn settings_are_written_in_the_form_in_which_they_are_read() {
    let json = r#"{"profile":"ai-panel","token_threshold":"window - 16384","keep_recent":"20000 tokens","cooling":"stepped"}"#;
    let set = overrides_from(json);
    assert_eq!(
        set.token_threshold,
        Some(TokenThreshold::BelowWindow(Tokens::new(16_384)))
    );
    assert_eq!(
        set.keep_recent,
        Some(KeepRecent::Tokens(Tokens::new(20_000)))
    );
    assert_eq!(
        serde_json::to_string(&set).expect("settings are JSON"),
        json
    );
    assert_eq!(
        overrides_from(r#"{"token_threshold":5}"#).token_threshold,
        Some(TokenThreshold::Tokens(Tokens::new(5)))
    );
    assert_eq!(
        overrides_from(r#"{"token_threshold":"auto"}"#).token_threshold,
        Some(TokenThreshold::Auto)
    );
    for wrong in [
        r#"{"keep_recent":"a few turns"}"#,
        r#"{"token_threshold":"window"}"#,
        r#"{"profile":"agent"}"#,
    ] {
        assert!(
            serde_json::from_str::<PolicyOverrides>(wrong).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn each_profile_sets_its_documented_values() {
    let policy_of = |profile: Profile| {
        let overrides = PolicyOverrides {
            profile: Some(profile),
            ..PolicyOverrides::default()
        };
        SessionSettings::default().policy(&overrides, None)
    };
    let default = policy_of(Profile::Default);
    assert_eq!(default, Policy::default());
    assert_eq!(
        default.token_threshold,
        TokenThreshold::Tokens(Tokens::new(2_000_000))
    );
    assert_eq!(
        (default.max_message_count, default.keep_recent),
        (50, KeepRecent::Turns(5))
    );
    assert_eq!(
        (
            default.large_message_threshold.get(),
            default.hot_zone_radius
        ),
        (1_000_000, 5)
    );
    assert_eq!(
        (default.cooling, default.large_summaries),
        (Cooling::Strict, LargeSummaries::Eager)
    );
    let agents = policy_of(Profile::Agents);
    assert_eq!(
        (agents.token_threshold, agents.max_message_count),
        (TokenThreshold::Auto, 0)
    );
    assert_eq!(
        (agents.large_message_threshold.get(), agents.hot_zone_calls),
        (1_000, 10)
    );
    assert_eq!(
        (agents.cooling, agents.large_summaries),
        (Cooling::Stepped, LargeSummaries::Lazy)
    );
    let zeroclaw = policy_of(Profile::Zeroclaw);
    assert_eq!(
        (zeroclaw.keep_recent, zeroclaw.store_tool_messages),
        (KeepRecent::LastUserMessage, false)
    );
    assert_eq!(policy_of(Profile::Claw0).keep_recent, KeepRecent::Share(50));
    assert_eq!(
        policy_of(Profile::AiPanel).keep_recent,
        KeepRecent::Turns(20)
    );
    assert_eq!(
        policy_of(Profile::Openclaw).token_threshold,
        TokenThreshold::BelowWindow(Tokens::new(16_384))
    );
}

#[test]
fn profiles_without_tool_messages_are_those_whose_settings_say_so() {
    let profiles_of = |server| {
        SessionSettings::new(overrides_from(server), crate::model::Models::default())
            .profiles_without_tool_messages()
    };
    assert_eq!(profiles_of("{}"), ["zeroclaw"]);
    assert_eq!(profiles_of(r#"{"profile":"zeroclaw"}"#), ["", "zeroclaw"]);
    // A profile of the conversation goes before the server's keys, and the server's keys before the
    // server's profile.
    assert_eq!(
        profiles_of(r#"{"store_tool_messages":false}"#),
        ["", "zeroclaw"]
    );
    assert_eq!(
        profiles_of(r#"{"profile":"zeroclaw","store_tool_messages":true}"#),
        ["zeroclaw"]
    );
}

#[test]
fn a_key_comes_from_the_conversation_then_its_profile_then_the_server() {
    let server = overrides_from(
        r#"{"profile":"claw0","large_message_threshold":7,"model":"gpt-4o","cache_ttl_seconds":60}"#,
    );
    let session = SessionSettings::new(server, crate::model::Models::default());
    let without_overrides = session.policy(&PolicyOverrides::default(), None);
    assert_eq!(
        (
            without_overrides.large_message_threshold.get(),
            without_overrides.keep_recent
        ),
        (7, KeepRecent::Share(50))
    );
    assert_eq!(
        (
            without_overrides.window.get(),
            without_overrides.cache_ttl_seconds
        ),
        (128_000, 60)
    );
    let with_profile = session.policy(
        &overrides_from(r#"{"profile":"agents","hot_zone_radius":2}"#),
        None,
    );
    assert_eq!(
        (
            with_profile.large_message_threshold.get(),
            with_profile.hot_zone_radius,
            with_profile.hot_zone_calls
        ),
        (1_000, 2, 10)
    );
    assert_eq!(
        (with_profile.prices.cached, with_profile.cache_ttl_seconds),
        (500, 60),
        "no profile sets prices and the lifetime of the cache"
    );
}

#[test]
fn a_threshold_close_to_what_a_checkpoint_leaves_is_refused() {
    let set = |threshold| PolicyOverrides {
        token_threshold: Some(TokenThreshold::Tokens(Tokens::new(threshold))),
        keep_recent: Some(KeepRecent::Tokens(Tokens::new(20_000))),
        ..PolicyOverrides::default()
    };
    let check = |threshold, prompt| {
        SessionSettings::default()
            .policy(&set(threshold), None)
            .check(Tokens::new(prompt))
    };
    assert!(
        check(33_000, 0).is_ok(),
        "150 % of the kept tokens and of a summary"
    );
    assert!(
        check(32_999, 0)
            .expect_err("refused")
            .must_be
            .contains("at least 33000")
    );
    assert!(
        check(33_000, 2_000).is_err(),
        "a checkpoint leaves the system prompt too"
    );
}

#[test]
fn a_threshold_in_tokens_grows_with_a_head_that_a_checkpoint_leaves() {
    let policy = Policy {
        token_threshold: TokenThreshold::Tokens(Tokens::new(33_000)),
        keep_recent: KeepRecent::Tokens(Tokens::new(20_000)),
        window: Tokens::new(1_000_000),
        ..Policy::default()
    };
    let threshold = |policy: Policy, head| policy.min_threshold(Tokens::new(head)).get();
    assert_eq!(threshold(policy, 2_000), 33_000);
    assert_eq!(
        threshold(policy, 60_000) + 60_000,
        (60_000 + 20_000) * 3 / 2,
        "1.5 times what a checkpoint leaves"
    );
    // With this head a checkpoint keeps half of 33,000 tokens and leaves 26,500.
    assert_eq!(threshold(policy, 10_000), 33_000);
    let small = Policy {
        window: Tokens::new(128_000),
        ..policy
    };
    assert_eq!(
        threshold(small, 70_000),
        128_000 - 16_384 - 70_000,
        "never beyond the window, less the answer's reserve"
    );
    assert_eq!(threshold(small, 120_000), 33_000);
    assert!(policy.depends_on_window());
    let turns = Policy {
        keep_recent: KeepRecent::Turns(5),
        ..policy
    };
    assert_eq!(threshold(turns, 60_000), 33_000);
    assert!(!turns.depends_on_window());
}

#[test]
fn the_automatic_threshold_is_where_cache_and_checkpoints_cost_least() {
    let overrides = PolicyOverrides {
        profile: Some(Profile::Agents),
        ..PolicyOverrides::default()
    };
    let policy = SessionSettings::default().policy(&overrides, None);
    let mut figures = TailFigures {
        head: Tokens::new(4_000),
        tail: Tokens::new(50_000),
        messages: 200,
        turns: 10,
        calls: 100,
    };
    // A checkpoint leaves the head (4,000) and 20,000 tokens of tail. rho is 11.5, and each call
    // adds 50,000 / 100 tokens.
    let left = 24_000.0_f64;
    let best = left + (2.0 * 11.5 * 500.0 * left).sqrt();
    let wanted = Tokens::new(best.max(1.5 * left) as u64 - 4_000);
    assert_eq!(policy.threshold(&figures), wanted);
    figures.calls = 1_000_000;
    assert_eq!(
        policy.threshold(&figures).get(),
        36_000 - 4_000,
        "never below 1.5 times what a checkpoint leaves"
    );
    let small = Policy {
        window: Tokens::new(20_000),
        ..policy
    };
    assert_eq!(
        small.threshold(&figures).get(),
        15_000 - 4_000,
        "never above the window less a quarter of it, which is reserved for the answer"
    );
}

#[test]
fn prices_and_lifetime_of_the_cache_follow_retention_and_model_unless_they_are_set() {
    let cache = |json: &str| {
        let policy = SessionSettings::default().policy(&overrides_from(json), None);
        let Prices { cached, write } = policy.prices;
        (cached, write, policy.cache_ttl_seconds)
    };
    assert_eq!(cache(r#"{"model":"claude-opus-5"}"#), (100, 1_250, 300));
    assert_eq!(
        cache(r#"{"model":"claude-opus-5","cache_retention":"long"}"#),
        (100, 2_000, 3_600)
    );
    assert_eq!(
        cache(r#"{"model":"claude-opus-5","cache_marks":false}"#),
        (1_000, 1_000, 300)
    );
    assert_eq!(
        cache(r#"{"model":"claude-opus-5","cache_marks":false,"cache_retention":"long"}"#),
        (1_000, 1_000, 300)
    );
    assert_eq!(cache(r#"{"model":"gpt-5.6"}"#), (100, 1_250, 1_800));
    assert_eq!(
        cache(
            r#"{"model":"claude-opus-5","cache_retention":"long","cache_write_price":1500,"cache_ttl_seconds":60}"#
        ),
        (100, 1_500, 60)
    );
}

#[test]
fn a_cache_is_kept_for_longer_only_if_requests_ask_for_that() {
    let ttl = |model: &str, marks: bool| {
        let overrides = PolicyOverrides {
            model: Some(model.into()),
            cache_retention: Some(CacheRetention::Long),
            cache_marks: Some(marks),
            ..PolicyOverrides::default()
        };
        let session = SessionSettings::default().with_unmarked(["gpt-5.4".to_owned()]);
        session.policy(&overrides, None).cache_ttl_seconds
    };
    assert_eq!(ttl("gpt-5.5", true), 3_600);
    assert_eq!(ttl("gpt-5.5", false), 300, "without marks");
    assert_eq!(ttl("gpt-5.4", true), 300, "at a host that is not asked");
    for model in [
        "gpt-5-mini",
        "gpt-4o",
        "deepseek-chat",
        "my-own",
        "gemini-3-pro",
    ] {
        assert_eq!(ttl(model, true), 300, "{model}");
    }
}

#[test]
fn a_model_whose_requests_do_not_ask_for_a_cache_has_the_prices_of_none() {
    let overrides = overrides_from(r#"{"model":"claude-opus-5"}"#);
    let session = SessionSettings::default();
    let unmarked = session.clone().with_unmarked(["claude-opus-5".to_owned()]);
    assert!(session.policy(&overrides, None).prices.rho() > 11.0);
    let prices = unmarked.policy(&overrides, None).prices;
    assert_eq!((prices.cached, prices.write), (1_000, 1_000));
    assert!(prices.rho() < 1e-9, "a swap pays back at once");
    assert_ne!(session.fingerprint(), unmarked.fingerprint());
}

#[test]
fn the_providers_name_of_a_model_decides_the_rules_of_its_cache() {
    let models = r#"{"fast":{"served_as":"claude-sonnet-4-5"},"writer":{"served_as":"gpt-5.6"}}"#;
    let models = serde_json::from_str(models).expect("valid models");
    let session = SessionSettings::new(PolicyOverrides::default(), models);
    let rules = |format, name| {
        let rules = session.cache_rules(format, name);
        (rules.kind, rules.min_tokens.get())
    };
    assert_eq!(
        rules(Format::AnthropicMessages, "fast"),
        (CacheKind::Marked, 1_024)
    );
    assert_eq!(
        rules(Format::OpenAiChat, "writer"),
        (CacheKind::Breakpoints, 1_024)
    );
    assert_eq!(
        rules(Format::AnthropicMessages, "claude-opus-5"),
        (CacheKind::Marked, 512)
    );
}
