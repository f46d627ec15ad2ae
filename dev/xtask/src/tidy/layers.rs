//! Says where a file belongs. One table names the folders of the repository, the other one the
//! modules of each crate that ships, layer by layer. A new folder or module needs a line here.

use std::collections::BTreeMap;

use super::Finding;
use super::imports::edges_by_parent;
use super::tree::{Tree, finding};

const RULE: &str = "layer";

/// This file, for findings about its own tables.
const TABLES: &str = "dev/xtask/src/tidy/layers.rs";

/// The folders of the repository. The first line has the crates that ship. Folders whose names
/// begin with a dot belong to tools, and are not listed.
const FOLDERS: &[&str] = &[
    // crates that ship
    "cli core formats gateway llm local-postgres process proto server store trace web worker",
    // the schema
    "migrations",
    // black-box tests
    "tests",
    // what does not ship: the tests' harness, benchmarks, fuzz targets, the gate
    "dev",
    // for readers
    "docs examples",
    // for builds and operators
    "deploy docker scripts",
];

/// A crate that ships, and its layers from the top down. A module imports modules of lower layers,
/// and modules of its own layer; the rule `circle` keeps these from importing each other. A module
/// is a file or folder in the crate's `src/`. `cut_tests.rs` belongs to `cut`, and may import
/// modules of any layer.
type CrateLayers = (&'static str, &'static [&'static str]);

const CRATES: &[CrateLayers] = &[
    (
        "core",
        &[
            "render checkpoint_import trigger",
            "context cut economics",
            "cooling",
            "policy",
            "model usage admission breaker cache chat_options",
            "boundary turn tokens digest title tool_pairs session_key provider_format",
            "message job caller limits media_access policy_error",
        ],
    ),
    (
        "store",
        &[
            // the schema, and checks of all rows
            "migrate legacy audit",
            // what is kept no longer
            "retention",
            // copies of conversations
            "forks",
            // what watchers read
            "watch",
            // what lets everything follow a change of messages
            "changes",
            // the entities; each owns its tables
            "checkpoints context erasures model_calls responses sessions tenants",
            "messages",
            "conversations",
            // what the transactions of the entities contain
            "idempotency partial_summaries queue triggers",
            "policy_defaults diagnosis durability",
            "connection",
            "summary_spec rows error failpoints",
        ],
    ),
    (
        "llm",
        &[
            "access model_summary",
            "extractive",
            "summarizer",
            "provider",
            "provider_error",
        ],
    ),
    (
        "formats",
        &[
            "read write",
            "added_parts detect",
            // one folder per format
            "anthropic claw0 openai pi sharegpt zeroclaw",
            "message_list",
            "emitter format_writer blocks conversation_extra",
            "storage_limits message_extra cursor read_error read_options",
            "event json json_scanner format time",
            "remark",
        ],
    ),
    (
        "gateway",
        &[
            "summary_calls",
            "gateway",
            "provider_calls",
            "call_metrics",
            "call_end",
        ],
    ),
    ("proto", &["codec convert"]),
    ("trace", &[]),
    (
        "web",
        &[
            // pages
            "conversation error operations sign_in what_if",
            "xray",
            "conversations",
            // what pages consist of
            "costs message",
            "layout",
            "assets format markdown render",
        ],
    ),
    (
        "process",
        &[
            "http metric_history telemetry",
            "exporter trace_export trace_id_format",
            "metric_table old_names process_figures build open_files panics shutdown",
        ],
    ),
    (
        "local-postgres",
        &[
            "start",
            "owners server download",
            "folder binaries postmaster wait",
            "account",
            "error",
            "durability version",
        ],
    ),
    (
        "server",
        &[
            // start and stop; what fuzz targets reach
            "run listeners fuzzing",
            // the APIs
            "http",
            "grpc",
            // what the APIs share
            "usecases",
            "reply",
            "rpc_call",
            // what an RPC uses
            "state auth",
            "watch_registry traffic turn_stops",
            "caches limits listen server_error call_metrics",
            "slow_calls",
            "verbs audit poll_watchdog",
            // values
            "failure reason identity settings cors_origins reloaded_files truncated_text",
        ],
    ),
    (
        "worker",
        &[
            "run",
            // the work: jobs, and what runs beside them
            "jobs auditor erasures maintenance retention",
            "worker",
            "summarize model_pauses clock_skew",
            "summary_calls retry_policy leases",
            "deadline settings retention_settings tenant_cursor job_span pause",
        ],
    ),
    (
        "cli",
        &[
            // one module per command
            "dev doctor",
            "chat completions erase export health jobs keys list migrate models retention tenants usage verify",
            "context import",
            "change compact",
            // what the commands share
            "processes message_pages conversation_ids",
            "reload",
            "client config",
            "command environment output implicit_config settings_error conversation_rows",
            "change_arguments erase_arguments",
            "server_arguments file_format session_index policy sanitize url_secrets terminal_style columns find_by_prefix broken_pipe version",
            "toml_settings",
            "text_format",
            "terminal_size",
        ],
    ),
];

/// Finds what contradicts the tables: folders of the root and modules of crates that the tables
/// lack, modules in the tables that do not exist, and imports of modules of a higher layer.
pub(super) fn respected(tree: &Tree) -> Vec<Finding> {
    let mut findings = find_unknown_folders(tree, FOLDERS);
    for (name, layers) in CRATES {
        findings.extend(check_crate(tree, name, layers));
    }
    findings
}

fn find_unknown_folders(tree: &Tree, folders: &[&str]) -> Vec<Finding> {
    let mut first_files = BTreeMap::new();
    for path in tree.paths() {
        if let Some((folder, _)) = path.split_once('/') {
            first_files.entry(folder).or_insert(path);
        }
    }
    first_files
        .into_iter()
        .filter(|(folder, _)| !folder.starts_with('.') && layer(folders, folder).is_none())
        .map(|(folder, path)| {
            let sentence = format!(
                "the folder `{folder}/` is unknown; what does not ship belongs in dev/, anything else in the table of {TABLES}"
            );
            finding(path, 1, RULE, sentence)
        })
        .collect()
}

fn check_crate(tree: &Tree, name: &str, layers: &[&str]) -> Vec<Finding> {
    let source = format!("{name}/src");
    let modules = modules(tree, &source);
    let mut findings: Vec<Finding> = modules
        .iter()
        .filter(|(module, _)| layer(layers, module).is_none())
        .map(|(module, path)| {
            let sentence = format!(
                "`{module}` has no layer in {name}; move it into a module, or give it a layer in {TABLES}"
            );
            finding(path, 1, RULE, sentence)
        })
        .collect();
    if !modules.is_empty() {
        let listed = layers.iter().flat_map(|layer| layer.split(' '));
        findings.extend(
            listed
                .filter(|module| !modules.contains_key(module))
                .map(|module| {
                    let sentence = format!("{name} has no module `{module}`; remove it here");
                    finding(TABLES, 1, RULE, sentence)
                }),
        );
    }
    let imports = edges_by_parent(tree, &source).remove(&Vec::new());
    for ((from, to), (path, line)) in imports.unwrap_or_default() {
        let (Some(from_layer), Some(to_layer)) = (layer(layers, &from), layer(layers, &to)) else {
            continue;
        };
        if to_layer < from_layer {
            let sentence = format!("`{from}` imports `{to}`, which is in a layer above it");
            findings.push(finding(path, line, RULE, sentence));
        }
    }
    findings
}

/// The modules directly below a crate's root, each with its first file.
fn modules<'a>(tree: &'a Tree, source: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut modules = BTreeMap::new();
    for (path, _) in tree.files(source, "rs") {
        let place = path[source.len()..].trim_start_matches('/');
        let name = place.split_once('/').map_or(place, |(folder, _)| folder);
        let name = name.trim_end_matches(".rs").trim_end_matches("_tests");
        if !["lib", "main"].contains(&name) {
            modules.entry(name).or_insert(path);
        }
    }
    modules
}

/// The position, from the top, of the layer that contains this name.
fn layer(layers: &[&str], name: &str) -> Option<usize> {
    layers
        .iter()
        .position(|layer| layer.split(' ').any(|listed| listed == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &[&str] = &["grpc", "usecases", "state limits"];

    const SERVER: [(&str, &str); 5] = [
        ("server/src/lib.rs", "pub use grpc::Server;"),
        (
            "server/src/grpc/mod.rs",
            "use crate::{state::State, usecases};",
        ),
        ("server/src/usecases/append.rs", "use crate::state::State;"),
        ("server/src/state.rs", "use crate::limits::Limit;"),
        ("server/src/limits.rs", ""),
    ];

    fn findings(more: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(&[&SERVER[..], more].concat());
        check_crate(&tree, "server", LAYERS)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn imports_of_lower_layers_of_the_same_layer_and_by_tests_are_allowed() {
        assert_eq!(findings(&[]), [""; 0]);
        assert_eq!(
            findings(&[("server/src/state_tests.rs", "use crate::usecases::append;")]),
            [""; 0]
        );
    }

    #[test]
    fn a_folder_of_the_root_that_the_table_does_not_name_is_found() {
        let tree = Tree::of(&[
            ("Makefile", ""),
            (".ci/run", ""),
            ("core/src/lib.rs", ""),
            ("tools/a.sh", ""),
            ("tools/b.sh", ""),
        ]);
        let found = find_unknown_folders(&tree, FOLDERS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].path, "tools/a.sh");
    }

    #[test]
    fn a_module_without_a_layer_is_found() {
        let found = findings(&[
            ("server/src/helpers_of_mine.rs", ""),
            ("server/src/extra/deep/mod.rs", ""),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("server/src/extra/deep/mod.rs:1: layer: `extra` has no layer")
        );
        assert!(found[1].starts_with("server/src/helpers_of_mine.rs:1: layer: "));
    }

    #[test]
    fn a_listed_module_that_does_not_exist_is_found() {
        let tree = Tree::of(&SERVER);
        let found = check_crate(&tree, "server", &["grpc http", "usecases", "state limits"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].sentence,
            "server has no module `http`; remove it here"
        );
    }

    #[test]
    fn an_import_of_a_higher_layer_is_found_also_through_a_re_export_of_the_root() {
        let import = |text| {
            let tree = [&SERVER[..4], &[("server/src/limits.rs", text)]].concat();
            check_crate(&Tree::of(&tree), "server", LAYERS)
        };
        for text in ["\nuse crate::grpc::Server;", "\nfn f(_: &crate::Server) {}"] {
            let found = import(text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                found[0].to_string(),
                "server/src/limits.rs:2: layer: `limits` imports `grpc`, which is in a layer above it"
            );
        }
    }

    #[test]
    fn every_crate_that_ships_has_its_layers() {
        let crates = FOLDERS[0].split(' ');
        let without_layers: Vec<_> = crates
            .filter(|name| !CRATES.iter().any(|(listed, _)| listed == name))
            .collect();
        assert_eq!(without_layers, [""; 0]);
        assert_eq!(FOLDERS[0].split(' ').count(), CRATES.len());
    }
}
