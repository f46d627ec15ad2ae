//! The files of deploy/: the Kubernetes manifests are valid, their check finds errors, and servers and
//! workers accept the settings files.

use std::path::{Path, PathBuf};

use anneal_testkit::{AnnealBinary, CommandOutput, Folder, skip_outside_gate};
use tokio::process::Command;

use crate::BINARY;

/// The URL of a database that cannot be reached. A process that tries to connect has accepted its
/// settings.
const UNREACHABLE: &str = "postgres://postgres@127.0.0.1:1/anneal";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs scripts/kubernetes_manifests.py on a folder. Returns None, and prints that the test is
/// skipped, if its tools are missing; panics in the gate.
async fn check_manifests(folder: &Path) -> Option<CommandOutput> {
    let tools = root().join(".tools/kubernetes");
    // The script writes this file last.
    if !tools.join("made_of").is_file() {
        skip_outside_gate(
            "the checkers of Kubernetes manifests are not installed \
             (scripts/kubernetes_tools.sh .tools/kubernetes installs them)",
        );
        return None;
    }
    let ran = Command::new("python3")
        .arg(root().join("scripts/kubernetes_manifests.py"))
        .arg(tools.join("kubectl"))
        .arg(folder)
        .env("PYTHONPATH", tools.join("packages"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .await
        .expect("python3 runs");
    Some(CommandOutput::from(ran))
}

#[tokio::test]
async fn kubernetes_manifests_agree_with_the_schemas_and_with_each_other() {
    let Some(checked) = check_manifests(&root().join("deploy/kubernetes")).await else {
        return;
    };
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (Some(0), ""),
        "{checked:?}"
    );
}

#[test]
fn the_example_runs_the_image_of_this_version() {
    let overlay = root().join("deploy/kubernetes/overlays/example/kustomization.yaml");
    let text = std::fs::read_to_string(overlay).expect("the overlay is there");
    let tag = format!("newTag: \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&tag), "{tag}: {text}");
}

#[tokio::test]
async fn the_check_of_kubernetes_manifests_finds_errors() {
    let folder = Folder::new();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(root().join("deploy/kubernetes"))
        .arg(folder.path())
        .status()
        .await
        .expect("cp runs");
    assert!(copied.success());
    let manifests = folder.path().join("kubernetes");
    // File, text in it, wrong text, what the check says.
    let errors = [
        (
            "base/server-deployment.yaml",
            "terminationGracePeriodSeconds:",
            "terminationGraceSeconds:",
            "Deployment anneal-server: Kubernetes 1.37: spec.template.spec: Additional properties",
        ),
        (
            "base/worker-deployment.yaml",
            "name: anneal-config",
            "name: anneal-settings",
            "Deployment anneal-worker: no ConfigMap anneal-settings",
        ),
        (
            "base/migrate-job.yaml",
            "readOnlyRootFilesystem: true",
            "readOnlyRootFilesystem: false",
            "Job anneal-migrate: the container migrate has capabilities or a writable file system",
        ),
        (
            "base/network-policies.yaml",
            "port: probes",
            "port: metrics",
            "NetworkPolicy anneal-worker: a selected pod has no port metrics",
        ),
        (
            "components/keda/worker-scaled-object.yaml",
            "scaleTargetRef:\n    name: anneal-worker",
            "scaleTargetRef:\n    name: anneal-workers",
            "ScaledObject anneal-worker: no Deployment anneal-workers",
        ),
        (
            "overlays/example/kustomization.yaml",
            "- path: server-resources.yaml",
            "- path: resources.yaml",
            "overlays/example/server-resources.yaml: not named by overlays/example/kustomization.yaml",
        ),
    ];
    for (file, text, wrong_text, _) in errors {
        let path = manifests.join(file);
        let manifest = std::fs::read_to_string(&path).expect("the manifest is there");
        assert!(manifest.contains(text), "{file}: {text}");
        std::fs::write(&path, manifest.replace(text, wrong_text)).expect("the copy is writable");
    }
    let Some(checked) = check_manifests(&manifests).await else {
        return;
    };
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for (_, _, _, message) in errors {
        assert!(checked.out.contains(message), "{message}: {checked:?}");
    }
}

#[tokio::test]
async fn servers_and_workers_accept_the_settings_files() {
    let (folder, deploy) = (Folder::new(), root().join("deploy"));
    let compose = deploy.join("compose/anneal.toml");
    // The example in its comments, without the signs of comments.
    let text = std::fs::read_to_string(&compose).expect("the file is there");
    let example: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("# ["))
        .map(|line| line.trim_start_matches(['#', ' ']))
        .collect();
    assert!(example.len() > 10, "{example:?}");
    let example = folder.file("example.toml", &example.join("\n"));
    let anneal = AnnealBinary::new(BINARY, &folder, UNREACHABLE)
        .with_variable("OPENAI_API_KEY", "sk-example");
    for file in [
        compose,
        example,
        deploy.join("kubernetes/base/anneal.toml"),
        deploy.join("kubernetes/overlays/example/anneal.toml"),
    ] {
        let file = file.to_str().expect("the path is text");
        for process in ["server", "worker"] {
            let started = anneal.run(&[process, "--config", file]).await;
            assert!(
                started.err.contains("cannot reach"),
                "{process} with {file}: {started:?}"
            );
        }
    }
}
