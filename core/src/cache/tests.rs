//! Which points are marked, for arbitrary points and with examples.

use proptest::prelude::*;

use super::*;

fn point(kind: CachePointKind, message: usize, tokens: u64) -> CachePoint {
    CachePoint {
        kind,
        message,
        part: 0,
        tokens: Tokens::new(tokens),
    }
}

fn ask(rules: CacheRules, retention: CacheRetention, tools_tokens: u64) -> CacheAsk {
    CacheAsk {
        rules,
        retention,
        marks: true,
        identity: RequestIdentity {
            tools_tokens: Tokens::new(tools_tokens),
            ..RequestIdentity::default()
        },
    }
}

fn anthropic() -> CacheRules {
    CacheRules::of(
        crate::provider_format::Format::AnthropicMessages,
        "claude-opus-5",
    )
}

fn kinds(points: &[CachePoint], ask: &CacheAsk) -> Vec<CachePointKind> {
    let marks = marks(points, ask, None);
    marks.into_iter().map(|mark| mark.point.kind).collect()
}

/// One point of each kind, in the order of a context.
fn all_points() -> [CachePoint; 5] {
    [
        point(CachePointKind::System, 0, 1_000),
        point(CachePointKind::Summary, 1, 2_000),
        point(CachePointKind::Stable, 4, 5_000),
        point(CachePointKind::LastEnd, 9, 8_000),
        point(CachePointKind::End, 60, 9_000),
    ]
}

#[test]
fn the_summary_goes_without_a_mark_if_there_are_more_than_four_points() {
    let short = ask(anthropic(), CacheRetention::Short, 0);
    let [system, summary, stable, last_end, end] = all_points();
    assert_eq!(
        kinds(&all_points(), &short),
        [
            CachePointKind::System,
            CachePointKind::Stable,
            CachePointKind::LastEnd,
            CachePointKind::End
        ]
    );
    assert_eq!(
        kinds(&[system, summary, stable, end], &short),
        [
            CachePointKind::System,
            CachePointKind::Summary,
            CachePointKind::Stable,
            CachePointKind::End
        ]
    );
    let tools = ask(anthropic(), CacheRetention::Short, 600);
    assert_eq!(
        kinds(&[summary, stable, last_end, end], &tools),
        [
            CachePointKind::Stable,
            CachePointKind::LastEnd,
            CachePointKind::End
        ],
        "the tools have the fourth mark"
    );
}

#[test]
fn a_prefix_below_the_minimum_in_the_models_tokens_is_not_marked() {
    let asked = ask(anthropic(), CacheRetention::Short, 0);
    let system = [point(CachePointKind::System, 0, 500)];
    assert!(marks(&system, &asked, None).is_empty());
    assert_eq!(marks(&system, &asked, Some(1.1)).len(), 1);
}

#[test]
fn an_hour_is_asked_for_the_head_or_for_everything_and_always_first() {
    use CacheTtl::{FiveMinutes, OneHour};

    let ttls = |retention| -> Vec<CacheTtl> {
        let [system, summary, stable, _, end] = all_points();
        let points = [system, summary, stable, end];
        marks(&points, &ask(anthropic(), retention, 0), None)
            .into_iter()
            .map(|mark| mark.ttl)
            .collect()
    };
    assert_eq!(ttls(CacheRetention::Short), [FiveMinutes; 4]);
    assert_eq!(
        ttls(CacheRetention::LongHead),
        [OneHour, OneHour, FiveMinutes, FiveMinutes]
    );
    assert_eq!(ttls(CacheRetention::Long), [OneHour; 4]);
}

#[test]
fn explicit_breakpoints_leave_out_the_end_and_other_caches_have_no_marks() {
    let format = crate::provider_format::Format::OpenAiChat;
    let of = |name| ask(CacheRules::of(format, name), CacheRetention::Short, 0);
    let [system, summary, stable, last_end, end] = all_points();
    let longer = CachePoint {
        tokens: Tokens::new(1_024),
        ..system
    };
    assert_eq!(
        kinds(&[longer, summary, stable, last_end, end], &of("gpt-5.6")),
        [CachePointKind::System, CachePointKind::Stable]
    );
    assert!(kinds(&all_points(), &of("gpt-5.5")).is_empty());
    let unmarked = CacheAsk {
        marks: false,
        ..ask(anthropic(), CacheRetention::Short, 0)
    };
    assert!(kinds(&all_points(), &unmarked).is_empty());
}

#[test]
fn what_is_not_known_of_a_request_equals_anything() {
    let identity = |model: Option<&str>, tools: Option<u8>, options: Option<u8>| RequestIdentity {
        model: model.map(str::to_owned),
        tools: tools.map(|byte| [byte; 32]),
        options: options.map(|byte| [byte; 32]),
        tools_tokens: Tokens::ZERO,
    };
    let before = identity(Some("a"), Some(1), None);
    let change = |now: RequestIdentity| now.change_since(&before);
    assert_eq!(change(identity(None, None, Some(7))), None);
    assert_eq!(
        change(identity(Some("b"), Some(2), None)),
        Some(BreakReason::Model)
    );
    assert_eq!(
        change(identity(Some("a"), Some(2), None)),
        Some(BreakReason::Tools)
    );
    assert_eq!(
        identity(None, Some(2), Some(3)).over(Some(&before)),
        identity(Some("a"), Some(2), Some(3))
    );
}

fn any_points() -> impl Strategy<Value = Vec<CachePoint>> {
    let steps = prop::array::uniform5((0..2_usize, 0..2_000_u64, any::<bool>()));
    let stable_first = any::<bool>();
    (steps, stable_first).prop_map(|(steps, stable_first)| {
        let (mut message, mut tokens) = (0, 0);
        let mut kinds = all_points().map(|point| point.kind);
        if !stable_first {
            kinds.swap(2, 3);
        }
        let points = kinds.into_iter().zip(steps);
        points
            .filter_map(|(kind, (messages, more_tokens, is_there))| {
                message += messages;
                tokens += more_tokens * messages as u64;
                is_there.then(|| point(kind, message, tokens))
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn at_most_four_places_are_marked_in_order_and_each_once(
        points in any_points(),
        retention in prop_oneof![Just(CacheRetention::Short), Just(CacheRetention::Long)],
        tools in prop_oneof![Just(0), Just(600_u64)],
        ratio in prop_oneof![Just(None), (0.5..2.0).prop_map(Some)],
    ) {
        let asked = ask(anthropic(), retention, tools);
        let marks = marks(&points, &asked, ratio);
        let has_system = points.iter().any(|point| point.kind == CachePointKind::System);
        let of_tools = usize::from(asked.tools_ttl(has_system, ratio).is_some());
        prop_assert!(marks.len() + of_tools <= 4);
        let places: Vec<_> = marks.iter().map(|mark| (mark.point.message, mark.point.part)).collect();
        prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        for mark in &marks {
            prop_assert!(points.contains(&mark.point));
            prop_assert!(mark.point.tokens.get() as f64 * ratio.unwrap_or(1.0) >= 512.0);
        }
    }
}
