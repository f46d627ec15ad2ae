//! Metrics: what the code records, the table of `anneal_process::metric_table`, the table of
//! docs/operations.md and the output of a running server and worker agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anneal_core::limits::CHAT_DEADLINE_SECONDS;
use anneal_process::metric_table::{HISTOGRAM_BUCKETS_SECONDS, METRICS, Metric, MetricKind};
use anneal_testkit::{
    AnnealBinary, Folder, HttpClient, HttpResponse, MODEL, ReportedUsage, Script, ScriptedModel,
    TestApp, eventually, text_of,
};
use serde_json::json;

use crate::BINARY;

/// The crates that record metrics.
const CRATES: [&str; 5] = ["gateway", "process", "server", "store", "worker"];

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The texts of all Rust files in a folder.
fn sources(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let texts = paths.map(|path| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => {
            vec![std::fs::read_to_string(&path).expect("the file is text")]
        }
        _ => Vec::new(),
    });
    texts.flatten().collect()
}

/// Name and kind of every metric that this text records.
fn recorded_metrics(text: &str) -> Vec<(String, MetricKind)> {
    let kinds = [
        MetricKind::Counter,
        MetricKind::Gauge,
        MetricKind::Histogram,
    ];
    let found = kinds.into_iter().flat_map(|kind| {
        let start = format!("metrics::{}!(", kind.name());
        let calls: Vec<String> = text
            .split(&start)
            .skip(1)
            .map(|rest| {
                let literal = rest.trim_start().strip_prefix('"');
                let name = literal.and_then(|rest| rest.split('"').next());
                name.unwrap_or_else(|| panic!("a metric without a literal name: {rest:.60}"))
                    .to_owned()
            })
            .collect();
        calls.into_iter().map(move |name| (name, kind))
    });
    found.collect()
}

fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[test]
fn every_recorded_metric_is_described_and_every_described_one_is_recorded() {
    let texts = CRATES.map(|name| sources(&root().join(name).join("src")));
    let recorded: Vec<(String, MetricKind)> = texts
        .iter()
        .flatten()
        .flat_map(|text| recorded_metrics(text))
        .collect();
    for (name, kind) in &recorded {
        let described = find(name).map(|metric| metric.kind);
        assert_eq!(described, Some(*kind), "{name}");
    }
    // Those of the process are written without a recorder.
    for metric in METRICS {
        assert!(
            metric.name.starts_with("process_")
                || recorded.iter().any(|(name, _)| name == metric.name),
            "nothing records {}",
            metric.name
        );
    }
}

/// A row of the table in docs/operations.md.
struct DocumentedMetric {
    name: String,
    kind: String,
    labels: String,
    unit: String,
}

/// The rows of the table in docs/operations.md.
fn documented_metrics() -> Vec<DocumentedMetric> {
    let page = std::fs::read_to_string(root().join("docs/operations.md")).expect("is there");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, unit, ..] = cells.as_slice() else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let is_metric = name.starts_with("anneal_") || name.starts_with("process_");
        is_metric.then(|| DocumentedMetric {
            name: name.to_owned(),
            kind: (*kind).to_owned(),
            labels: (*labels).to_owned(),
            unit: (*unit).to_owned(),
        })
    });
    rows.collect()
}

#[test]
fn the_documentation_lists_every_metric_with_its_type_and_unit() {
    let documented: Vec<[String; 3]> = documented_metrics()
        .into_iter()
        .map(|row| [row.name, row.kind, row.unit])
        .collect();
    let described: Vec<[String; 3]> = METRICS
        .iter()
        .map(|metric| [metric.name, metric.kind.name(), metric.unit.as_str()].map(str::to_owned))
        .collect();
    assert_eq!(documented, described);
}

#[test]
fn the_buckets_of_histograms_reach_the_longest_deadline_of_a_call() {
    let longest = HISTOGRAM_BUCKETS_SECONDS.last().copied();
    assert_eq!(longest, Some(CHAT_DEADLINE_SECONDS as f64));
}

/// The families of a process's metrics, by name.
struct Exported(BTreeMap<String, Family>);

/// The lines of one metric.
#[derive(Default)]
struct Family {
    help: String,
    kind: String,
    /// Each line of a value.
    samples: Vec<String>,
}

impl Exported {
    async fn fetch(web: &HttpClient) -> Self {
        Self::read(&web.get("/metrics").await.text)
    }

    fn read(text: &str) -> Self {
        let mut families = BTreeMap::<String, Family>::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some((name, help)) = comment(line, "# HELP ") {
                name.clone_into(&mut current);
                let family = families.entry(current.clone()).or_default();
                assert!(family.help.is_empty(), "{name} comes twice");
                help.clone_into(&mut family.help);
            } else if let Some((name, kind)) = comment(line, "# TYPE ") {
                assert_eq!(name, current, "a HELP line comes before the TYPE line");
                let family = families.entry(current.clone()).or_default();
                kind.clone_into(&mut family.kind);
            } else {
                assert!(line.starts_with(&current), "{line}");
                let family = families.entry(current.clone()).or_default();
                family.samples.push(line.to_owned());
            }
        }
        Self(families)
    }

    /// The sum of the values whose lines begin so.
    fn sum(&self, name: &str, start: &str) -> f64 {
        let samples = self.0.get(name).into_iter().flat_map(|it| &it.samples);
        samples
            .filter(|line| line.starts_with(start))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    fn contains(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.0.contains_key(*name))
    }

    /// The names that are not in the table.
    fn unknown_names(&self) -> BTreeSet<&str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| find(name).is_none()).collect()
    }

    /// Asserts that each metric has the help and the type of the table and only labels of the
    /// documentation.
    fn assert_documented(&self) {
        let documented = documented_metrics();
        for (name, family) in &self.0 {
            let Some(metric) = find(name) else { continue };
            assert_eq!(family.help, metric.help, "{name}");
            assert_eq!(family.kind, metric.kind.name(), "{name}");
            let row = documented.iter().find(|row| row.name == *name);
            let labels = row.map(|row| row.labels.as_str()).unwrap_or_default();
            let documented: Vec<&str> = labels
                .split([',', ':', ' '])
                .filter(|word| !word.is_empty())
                .collect();
            for label in family.samples.iter().flat_map(|line| label_names(line)) {
                assert!(
                    label == "le" || documented.contains(&label),
                    "{name}: {label}"
                );
            }
        }
    }
}

/// The name and the rest of a comment line that begins so.
fn comment<'a>(line: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(start)?.split_once(' ')
}

/// The names of the labels of a line `name{label="value",…} 1`, whose values have no quotes.
fn label_names(line: &str) -> Vec<&str> {
    let labels = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let labels = labels.map(|(labels, _)| labels).unwrap_or_default();
    let names = labels.split('"').step_by(2);
    names
        .map(|name| name.trim_matches([',', '=']))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Metrics of every process.
const OF_EACH_PROCESS: [&str; 8] = [
    "anneal_build_info",
    "anneal_ready",
    "anneal_db_pool_wait_seconds",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_a_worker_export_the_metrics_that_are_documented() {
    let model = ScriptedModel::start(|_| {
        let counted = ReportedUsage {
            input: 21,
            output: 9,
            ..ReportedUsage::default()
        };
        Script::openai(&["Yes", "."], counted)
    })
    .await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", &model.server_settings());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, _) = anneal.server().await;
    let web = server.http_client().await;
    let events = web.chat("a", &json!({"message": "Is it?"})).await;
    assert_eq!(text_of(&events), "Yes.");
    let session = events[0].data["sessionId"].as_str().expect("a session");
    let answer = format!("/api/agents/a/sessions/{session}/messages/2");
    for _ in 0..2 {
        // The second request finds nothing to withdraw, and is not counted.
        let withdrawn = HttpResponse::send(web.request("DELETE", &answer)).await;
        assert_eq!(withdrawn.status, 200, "{withdrawn:?}");
    }
    eventually("the server is ready", async || {
        Exported::fetch(&web)
            .await
            .sum("anneal_ready", "anneal_ready ")
            > 0.5
    })
    .await;

    let exported = Exported::fetch(&web).await;
    exported.assert_documented();
    assert!(exported.contains(&OF_EACH_PROCESS));
    assert!(exported.contains(&["anneal_rpc_server_duration_seconds", "anneal_db_pool_open"]));
    let of_model = |name: &str| exported.sum(name, &format!("{name}{{model=\"{MODEL}\"}} "));
    assert!((of_model("anneal_model_input_tokens_total") - 21.0).abs() < 0.5);
    assert!((of_model("anneal_model_output_tokens_total") - 9.0).abs() < 0.5);
    let name = "anneal_model_time_to_first_token_seconds";
    assert!((exported.sum(name, &format!("{name}_count")) - 1.0).abs() < 0.5);
    let name = "anneal_message_changes_total";
    let withdrawals = exported.sum(name, &format!("{name}{{kind=\"withdrawn\"}} "));
    assert!((withdrawals - 1.0).abs() < 0.5);
    let build = &exported.0["anneal_build_info"].samples;
    let version = format!("version=\"{}\"", anneal_process::build::VERSION);
    assert!(
        build.iter().any(|line| line.contains(&version)),
        "{build:?}"
    );
    // Deprecated names: those of the table without their prefix.
    assert!(exported.contains(&["chat_turns_total", "model_call_duration_seconds"]));
    for name in exported.unknown_names() {
        let new_name = format!("anneal_{name}");
        assert!(exported.contains(&[&new_name]), "{name}");
        let family = &exported.0[name];
        assert_eq!(family.kind, exported.0[&new_name].kind, "{name}");
        assert!(family.help.contains(&new_name), "{name}: {}", family.help);
    }

    let worker = anneal.worker().await;
    let web = worker.http_client().await;
    let figures = [
        "anneal_db_size_bytes",
        "anneal_db_table_bytes",
        "anneal_jobs_waiting",
        "anneal_model_breaker_state",
    ];
    eventually("the worker reports the figures of all", async || {
        Exported::fetch(&web).await.contains(&figures)
    })
    .await;
    let exported = Exported::fetch(&web).await;
    exported.assert_documented();
    assert!(exported.contains(&OF_EACH_PROCESS));
    let messages = "anneal_db_table_bytes{table=\"ai_message\"}";
    assert!(exported.sum("anneal_db_table_bytes", messages) > 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_after_which_another_is_tried_is_counted_also_if_none_answers() {
    let model = ScriptedModel::start(|_| Script::status(503, &[], "{}")).await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let settings = format!(
        "[providers.scripted]\napi = \"openai\"\nurl = \"{}\"\n\
         [models.a]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
         [models.b]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
         [chat]\nmodel = [\"a\", \"b\"]\n",
        model.url()
    );
    folder.file("anneal.toml", &settings);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let (server, _) = anneal.server().await;
    let web = server.http_client().await;
    web.chat("a", &json!({"message": "Anybody?"})).await;
    assert_eq!(model.requests().len(), 2, "both are called");
    let exported = Exported::fetch(&web).await;
    let name = "anneal_chat_fallbacks_total";
    let start = format!("{name}{{reason=\"MODEL_UNAVAILABLE\"}} ");
    assert!((exported.sum(name, &start) - 1.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_names_of_metrics_can_be_left_out() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let started = anneal.try_server(&["metrics.old_names=false"]).await;
    let (server, _) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
    let web = server.http_client().await;
    eventually("the pools are reported", async || {
        Exported::fetch(&web)
            .await
            .contains(&["anneal_db_pool_open"])
    })
    .await;
    let exported = Exported::fetch(&web).await;
    assert_eq!(exported.unknown_names(), BTreeSet::new());
}
