//! Summaries of real conversations hold the facts that a model needs to continue.
#![allow(clippy::unwrap_used, clippy::format_push_string, reason = "a test may")]

use crate::fixtures::{
    call, checked_summary, dialogue, digest, is_labeled, measure, range, result, source, text,
};
use anneal_core::{
    message::{Part, Role},
    tokens::Tokens,
};
use anneal_llm::{Purpose, Source};
use anneal_test_data::find_test_data;
use serde_json::Value;

/// The text of a file of real conversations.
fn real(path: &str) -> Option<String> {
    find_test_data(path).map(|file| std::fs::read_to_string(file).unwrap())
}

fn json(path: &str) -> Option<Value> {
    real(path).map(|text| serde_json::from_str(&text).unwrap())
}

/// The number of Chinese characters.
fn han(text: &str) -> usize {
    text.chars()
        .filter(|c| ('\u{4e00}'..='\u{9fff}').contains(c))
        .count()
}

#[test]
fn the_digest_of_a_real_log_holds_its_templates_and_warnings() {
    let Some(log) = real("loghub/OpenStack_2k.log") else {
        return;
    };
    let summary = digest(log, 600);
    let facts = [
        "[log ×2000, 2017-05-16 00:00:00.008 – 2017-05-16 00:14:47.687]",
        "\"GET /v2/#/servers/detail HTTP/#\" status: # len: # time: # ×698",
        "WARNING nova.virt.libvirt.imagecache",
        "a489c868f0c37da93b76227c91bb03908ac0e742 ×30",
        "found 1 instances in the database and 0 instances on the hypervisor",
        "VM Resumed (Lifecycle Event) ×44",
    ];
    for fact in facts {
        assert!(summary.contains(fact), "{fact}: {summary}");
    }
}

#[test]
fn the_digest_of_a_real_diff_of_868_167_characters_holds_the_important_edit() {
    let Some(run) = json("mini-swe-agent/psf__requests-1142.traj.json") else {
        return;
    };
    let content = run["messages"][143]["content"].as_str().unwrap();
    assert_eq!(content.chars().count(), 868_167);
    let summary = digest(content, 500);
    for fact in [
        "M requests/models.py +2 -1",
        "elif self.method not in ('GET', 'HEAD'):",
        "build/… ×65",
        "class RequestException(RuntimeError)",
    ] {
        assert!(summary.contains(fact), "{fact}: {summary}");
    }
}

#[test]
fn a_real_agent_run_keeps_its_task_and_its_paths() {
    let Some(run) = json("mini-swe-agent/sympy__sympy-13091.traj.json") else {
        return;
    };
    let role = |name: &str| {
        if name == "user" {
            Role::User
        } else {
            Role::Assistant
        }
    };
    let messages = run["messages"].as_array().unwrap().iter().enumerate();
    let sources: Vec<Source> = messages
        .map(|(i, m)| {
            source(
                i as i64 + 1,
                role(m["role"].as_str().unwrap()),
                vec![text(m["content"].as_str().unwrap())],
            )
        })
        .collect();
    let summary = range(&sources, 1_000);
    assert!(
        summary.contains("sympy/core/")
            && summary.contains("NotImplemented")
            && is_labeled(&summary),
        "{summary}"
    );
}

#[test]
fn chinese_conversations_give_chinese_summaries() {
    for file in ["film", "music", "travel"] {
        let Some(talks) = json(&format!("kdconv/{file}_dev.json")) else {
            return;
        };
        for talk in talks.as_array().unwrap().iter().take(20) {
            let lines: Vec<&str> = talk["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| m["message"].as_str().unwrap())
                .collect();
            let sources = dialogue(&lines);
            let summary = range(&sources, 200);
            let said: String = summary
                .lines()
                .filter_map(|line| Some(line.split_once(']')?.1))
                .collect();
            let letters = said.chars().filter(|c| c.is_alphabetic()).count();
            assert!(
                han(&said) * 2 > letters && is_labeled(&summary),
                "{summary}"
            );
        }
    }
}

#[test]
fn a_long_dialogue_keeps_both_speakers_and_its_topics() {
    let Some(talks) = json("locomo/locomo4.json") else {
        return;
    };
    let talk = &talks[0]["conversation"];
    let lines: Vec<String> = (1..=19)
        .filter_map(|n| talk[format!("session_{n}")].as_array())
        .flatten()
        .map(|m| {
            format!(
                "{}: {}",
                m["speaker"].as_str().unwrap(),
                m["text"].as_str().unwrap()
            )
        })
        .collect();
    let summary = range(
        &dialogue(&lines.iter().map(String::as_str).collect::<Vec<_>>()),
        1_500,
    );
    let lower = summary.to_lowercase();
    for fact in ["caroline", "melanie", "adoption", "transgender"] {
        assert!(lower.contains(fact), "{fact}: {summary}");
    }
}

#[test]
fn tool_runs_keep_the_user_the_flight_and_the_outcome() {
    let Some(runs) = json("tau-bench/airline-tasks-0-24.json") else {
        return;
    };
    for (at, run) in runs.as_array().unwrap().iter().enumerate() {
        let sources: Vec<Source> = run["traj"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(i, m)| message(i, m))
            .collect();
        let ask = crate::fixtures::ask(Purpose::Range, &sources, 600);
        let summary = checked_summary(&ask).unwrap().text;
        assert!(
            is_labeled(&summary) && summary.contains("user] "),
            "{summary}"
        );
        if at == 0 {
            for fact in [
                "mia_li_3668",
                "HAT136",
                "7447",
                "→ book_reservation",
                "successfully booked",
            ] {
                assert!(summary.contains(fact), "{fact}: {summary}");
            }
        }
        let second = checked_summary(&anneal_llm::SummaryAsk {
            previous: Some(&summary),
            target: Tokens::new(300),
            ..ask
        })
        .unwrap();
        assert!(measure(&second.text) <= Tokens::new(300));
    }
}

/// A message of a tool run in OpenAI's format.
fn message(i: usize, m: &Value) -> Source {
    let content = m["content"].as_str().unwrap_or_default();
    let (role, mut parts) = match m["role"].as_str().unwrap() {
        "tool" => (
            Role::Tool,
            vec![result(m["tool_call_id"].as_str().unwrap(), content)],
        ),
        "assistant" => (Role::Assistant, vec![text(content)]),
        "system" => (Role::System, vec![text(content)]),
        _ => (Role::User, vec![text(content)]),
    };
    let calls = m["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|c| {
        call(
            c["id"].as_str().unwrap(),
            c["function"]["name"].as_str().unwrap(),
            c["function"]["arguments"].as_str().unwrap(),
        )
    });
    parts.extend(calls.collect::<Vec<Part>>());
    source(i as i64 + 1, role, parts)
}
