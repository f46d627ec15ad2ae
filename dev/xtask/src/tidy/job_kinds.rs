//! Every kind of job has its own folder in the worker.

use super::rust::variants;
use super::tree::{Tree, finding};
use super::{Finding, snake_case};

/// Finds variants of `enum JobKind` in core/src without a file `worker/src/jobs/<name>/mod.rs`.
pub(super) fn complete(tree: &Tree) -> Vec<Finding> {
    if !tree.has("worker") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (path, text) in tree.files("core/src", "rs") {
        for (kind, line) in variants(text, "JobKind").unwrap_or_default() {
            let file = format!("worker/src/jobs/{}/mod.rs", snake_case(&kind));
            if !tree.has(&file) {
                findings.push(finding(
                    path,
                    line,
                    "job",
                    format!("{kind} has no file {file}"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: (&str, &str) = (
        "core/src/job.rs",
        "pub enum JobKind {\n    CountTokens,\n    Checkpoint,\n}\n",
    );

    #[test]
    fn a_kind_without_a_file_is_found() {
        let printed: Vec<_> =
            complete(&Tree::of(&[JOB, ("worker/src/jobs/checkpoint/mod.rs", "")]))
                .iter()
                .map(ToString::to_string)
                .collect();
        assert_eq!(
            printed,
            ["core/src/job.rs:2: job: CountTokens has no file worker/src/jobs/count_tokens/mod.rs"]
        );
    }

    #[test]
    fn without_a_worker_nothing_is_checked() {
        assert_eq!(complete(&Tree::of(&[JOB])), []);
    }
}
