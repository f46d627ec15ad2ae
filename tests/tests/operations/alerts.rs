//! The rules of docs/alerts.yml and the dashboard deploy/grafana/anneal.json: Prometheus reads
//! them, the metrics that they name are exported, each rule has a runbook and a test.

use std::{collections::BTreeSet, path::Path, process::Command};

use anneal_process::metric_table::{METRICS, MetricKind};
use anneal_testkit::{Folder, skip_outside_gate};
use serde_json::{Value, json};

/// A file of the repository.
fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).expect("is there")
}

fn alerts() -> String {
    file("docs/alerts.yml")
}

fn dashboard() -> Value {
    serde_json::from_str(&file("deploy/grafana/anneal.json")).expect("is JSON")
}

/// The expressions of the rules.
fn rule_expressions() -> Vec<String> {
    let alerts = alerts();
    let lines = alerts.lines();
    lines
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .map(str::to_owned)
        .collect()
}

/// The expressions of the dashboard's panels.
fn panel_expressions() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("a list");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| target["expr"].as_str().expect("an expression").to_owned())
        .collect()
}

/// The names of our metrics in an expression.
fn named_metrics(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.starts_with("anneal_") || word.starts_with("process_"))
        .collect()
}

/// Whether a process exports a series of this name.
fn is_exported(series: &str) -> bool {
    METRICS.iter().any(|metric| match metric.kind {
        MetricKind::Counter | MetricKind::Gauge => metric.name == series,
        MetricKind::Histogram => ["_bucket", "_count", "_sum"]
            .iter()
            .any(|suffix| series.strip_suffix(suffix) == Some(metric.name)),
    })
}

#[test]
fn every_metric_of_a_rule_or_of_the_dashboard_is_exported() {
    let (rules, panels) = (rule_expressions(), panel_expressions());
    assert!(rules.len() >= 20 && panels.len() >= 50, "{rules:?}");
    for expression in rules.iter().chain(&panels) {
        let named = named_metrics(expression);
        assert!(!named.is_empty(), "{expression}");
        for series in named {
            assert!(is_exported(series), "{series} in {expression}");
        }
    }
}

#[test]
fn every_alert_names_a_runbook_and_has_a_test() {
    let (alerts, runbooks) = (alerts(), file("docs/runbooks.md"));
    let tests = file("docs/alerts_test.yml");
    let headings = runbooks.lines().filter_map(|line| line.strip_prefix("## "));
    let anchors: Vec<String> = headings
        .map(|heading| heading.to_lowercase().replace(' ', "-").replace('\'', ""))
        .collect();
    for alert in alerts.split("- alert: ").skip(1) {
        let named = alert
            .split_once("runbook: \"docs/runbooks.md#")
            .and_then(|(_, rest)| rest.split_once('"'));
        assert!(
            named.is_some_and(|(anchor, _)| anchors.iter().any(|known| known == anchor)),
            "{alert}"
        );
        let name = alert.lines().next().unwrap_or_default();
        assert!(tests.contains(&format!("\"{name}\"")), "{name} has no test");
    }
}

#[test]
fn the_dashboard_has_its_rows_and_asks_the_chosen_data_source() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "anneal");
    assert!(dashboard["schemaVersion"].is_u64());
    let panels = dashboard["panels"].as_array().expect("a list");
    let rows: Vec<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .filter_map(|row| row["title"].as_str())
        .collect();
    assert_eq!(
        rows,
        [
            "Overview", "Calls", "Database", "Models", "Queue", "Jobs", "Storage"
        ]
    );
    let ids: BTreeSet<u64> = panels.iter().filter_map(|one| one["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "ids of panels are unique");
    let variables = dashboard["templating"]["list"].as_array().expect("a list");
    let source = variables.iter().find(|one| one["type"] == "datasource");
    assert!(source.is_some_and(|source| source["name"] == "datasource"));
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
    }
}

/// Runs Prometheus' checker. Panics with its output if it finds something. False: it is not
/// installed, and this is not the gate.
fn run_promtool(arguments: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ran = Command::new("promtool")
        .current_dir(root)
        .args(arguments)
        .output();
    let Ok(ran) = ran else {
        skip_outside_gate("there is no promtool (scripts/debian.sh prometheus)");
        return false;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ran.status.success(),
        "{arguments:?}: {}{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
    true
}

#[test]
fn prometheus_reads_the_rules_and_they_fire_on_recorded_series() {
    if run_promtool(&["check", "rules", "docs/alerts.yml"]) {
        run_promtool(&["test", "rules", "docs/alerts_test.yml"]);
    }
}

#[test]
fn prometheus_reads_the_expressions_of_the_dashboard() {
    let rules: Vec<Value> = panel_expressions()
        .into_iter()
        .enumerate()
        .map(|(number, expression)| {
            let expression = expression
                .replace("$__rate_interval", "5m")
                .replace("$job", "anneal")
                .replace("$instance", "server");
            json!({"record": format!("panel:{number}"), "expr": expression})
        })
        .collect();
    let folder = Folder::new();
    // YAML contains JSON.
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string();
    let path = folder.file("rules.yml", &rules);
    run_promtool(&["check", "rules", path.to_str().expect("a path of ASCII")]);
}
