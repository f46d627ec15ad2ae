//! Says which of our crates may depend on which. A dependency that is not in the table is
//! forbidden.
//! `deny.toml` says which crates may use sqlx, tonic, prost and fail.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Tree, finding};

const PREFIX: &str = "anneal-";

/// The folder of crates that do not ship.
const DEV: &str = "dev/";

/// For each crate: its folder (without [`DEV`]), the crates that it may use, and the crates that
/// its tests may use in addition.
const CRATES: [(&str, &[&str], &[&str]); 22] = [
    ("core", &[], &["shapes", "test-data"]),
    ("formats", &["core"], &[]),
    ("shapes", &[], &[]),
    ("proto", &["core"], &[]),
    ("trace", &[], &[]),
    ("web", &[], &[]),
    ("process", &["trace"], &[]),
    ("local-postgres", &[], &[]),
    ("store", &["core", "trace"], &["local-postgres"]),
    ("llm", &["core", "trace"], &["test-data"]),
    ("gateway", &["core", "store", "llm", "trace"], &[]),
    (
        "server",
        &[
            "core", "store", "llm", "gateway", "proto", "process", "trace", "web",
        ],
        &["local-postgres"],
    ),
    (
        "worker",
        &["core", "store", "llm", "gateway", "process", "trace"],
        &["local-postgres"],
    ),
    (
        "cli",
        &[
            "core",
            "formats",
            "store",
            "llm",
            "proto",
            "process",
            "server",
            "worker",
            "local-postgres",
        ],
        &[],
    ),
    ("test-data", &[], &[]),
    (
        "transcripts",
        &["core", "formats", "proto", "test-data"],
        &[],
    ),
    (
        "bench",
        &["core", "proto", "local-postgres", "testkit", "transcripts"],
        &[],
    ),
    (
        "testkit",
        &[
            "core",
            "store",
            "llm",
            "proto",
            "process",
            "server",
            "worker",
            "local-postgres",
            "shapes",
            "test-data",
            "transcripts",
        ],
        &[],
    ),
    (
        "tests",
        &["cli"],
        &[
            "core",
            "store",
            "llm",
            "gateway",
            "proto",
            "process",
            "server",
            "worker",
            "local-postgres",
            "testkit",
        ],
    ),
    ("instructions", &["core", "store", "proto"], &[]),
    (
        "fuzz",
        &["core", "formats", "llm", "proto", "server", "shapes", "web"],
        &[],
    ),
    ("xtask", &["local-postgres"], &[]),
];

/// The core must have no async code and no I/O, so it may use neither this crate nor those whose
/// names begin with it and a dash (`tokio-util`).
const IMPURE: &str = "tokio";

struct Dependency {
    /// The package's own name, even if it is renamed.
    package: String,
    line: usize,
    is_dev: bool,
}

struct Manifest<'a> {
    path: &'a str,
    folder: &'a str,
    dependencies: Vec<Dependency>,
}

/// Finds dependencies between our crates that [`CRATES`] does not allow, and uses of [`IMPURE`] in
/// the core.
pub(super) fn crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let Some((_, normal, dev)) = CRATES
            .iter()
            .find(|(folder, ..)| *folder == manifest.folder)
        else {
            let sentence =
                "this crate has no line in the table of dev/xtask/src/tidy/dependencies.rs";
            findings.push(finding(manifest.path, 1, "dependency", sentence));
            continue;
        };
        for dependency in &manifest.dependencies {
            let is_allowed = match dependency.package.strip_prefix(PREFIX) {
                Some(ours) => normal.contains(&ours) || (dependency.is_dev && dev.contains(&ours)),
                None => manifest.folder != "core" || !is_impure(&dependency.package),
            };
            if !is_allowed {
                let (folder, package) = (manifest.folder, &dependency.package);
                let sentence = format!("{folder} may not depend on {package}");
                findings.push(finding(
                    manifest.path,
                    dependency.line,
                    "dependency",
                    sentence,
                ));
            }
        }
    }
    findings
}

fn is_impure(package: &str) -> bool {
    package
        .strip_prefix(IMPURE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Manifests of the workspace's crates: in folders of the root, and in folders of [`DEV`].
fn manifests(tree: &Tree) -> Vec<Manifest<'_>> {
    let workspace = table(tree.text("Cargo.toml").unwrap_or_default());
    let shared = workspace
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let mut manifests = Vec::new();
    for (path, text) in tree.files("", "toml") {
        let Some(folder) = path
            .strip_suffix("/Cargo.toml")
            .map(|folder| folder.strip_prefix(DEV).unwrap_or(folder))
            .filter(|folder| !folder.contains('/'))
        else {
            continue;
        };
        manifests.push(Manifest {
            path,
            folder,
            dependencies: dependencies(text, shared),
        });
    }
    manifests
}

/// Parses a manifest. An invalid manifest is ignored here, because cargo itself refuses it.
fn table(text: &str) -> Table {
    text.parse().unwrap_or_default()
}

/// All dependencies of a manifest, including those of specific targets.
fn dependencies(text: &str, shared: Option<&Value>) -> Vec<Dependency> {
    let manifest = table(text);
    let targets = manifest.get("target").and_then(Value::as_table);
    let scopes = targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    let mut found = Vec::new();
    for scope in std::iter::once(&manifest).chain(scopes) {
        for (kind, is_dev) in [
            ("dependencies", false),
            ("build-dependencies", false),
            ("dev-dependencies", true),
        ] {
            let Some(entries) = scope.get(kind).and_then(Value::as_table) else {
                continue;
            };
            for (name, entry) in entries {
                let renamed = entry
                    .get("package")
                    .or_else(|| shared?.get(name)?.get("package"));
                let package = renamed.and_then(Value::as_str).unwrap_or(name).to_owned();
                found.push(Dependency {
                    package,
                    line: line_of(text, name, kind),
                    is_dev,
                });
            }
        }
    }
    found
}

/// The first line, from the heading of this kind on, that starts with the dependency's name; 1 if
/// there is none.
fn line_of(text: &str, name: &str, kind: &str) -> usize {
    let lines = text.lines().map(str::trim).enumerate();
    let after = lines.skip_while(|(_, line)| !(line.starts_with('[') && line.contains(kind)));
    let is_entry = |line: &str| {
        let named = line.trim_start_matches(['[', '"']);
        let named = named
            .strip_prefix(kind)
            .map_or(named, |rest| rest.trim_start_matches('.'));
        named
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '=', '.', '"', ']']))
    };
    after
        .filter(|(_, line)| is_entry(line))
        .map(|(index, _)| index + 1)
        .next()
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_uses_only_what_the_table_allows() {
        let tree = Tree::of(&[
            (
                "core/Cargo.toml",
                "[dependencies]\nanneal-store.workspace = true\n",
            ),
            (
                "server/Cargo.toml",
                "[dependencies]\nanneal-store = { path = \"../store\" }\nanneal-worker = {}\n",
            ),
            (
                "worker/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nanneal-proto.workspace = true\n",
            ),
        ]);
        assert_eq!(
            texts(&crates(&tree)),
            [
                "core/Cargo.toml:2: dependency: core may not depend on anneal-store",
                "server/Cargo.toml:3: dependency: server may not depend on anneal-worker",
                "worker/Cargo.toml:2: dependency: worker may not depend on anneal-proto",
            ]
        );
    }

    #[test]
    fn test_dependencies_are_not_allowed_in_other_code() {
        let dev = Tree::of(&[(
            "store/Cargo.toml",
            "[dev-dependencies]\nanneal-local-postgres.workspace = true\n",
        )]);
        assert_eq!(crates(&dev), []);
        let normal = Tree::of(&[(
            "store/Cargo.toml",
            "[dependencies]\nanneal-local-postgres.workspace = true\n",
        )]);
        assert_eq!(crates(&normal).len(), 1);
    }

    #[test]
    fn a_crate_without_a_line_in_the_table_is_a_finding() {
        assert_eq!(
            crates(&Tree::of(&[("attic/Cargo.toml", "[package]\n")])).len(),
            1
        );
    }

    #[test]
    fn the_core_may_not_use_tokio_or_its_companions() {
        let tree = Tree::of(&[(
            "core/Cargo.toml",
            "[dependencies]\nserde = \"1\"\ntokio-util = \"0.7\"\n",
        )]);
        assert_eq!(
            texts(&crates(&tree)),
            ["core/Cargo.toml:3: dependency: core may not depend on tokio-util"]
        );
    }
}
