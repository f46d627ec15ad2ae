//! The version of this program as `--version` prints it.

use std::sync::LazyLock;

use anneal_process::build;

/// Characters of a commit's hash that are printed.
const COMMIT_CHARACTERS: usize = 12;

/// The version with the commit and its date: `0.2.0 (1a2b3c4d5e6f 2026-11-26)`.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| describe(build::COMMIT, build::COMMIT_DATE));
    TEXT.as_str()
}

/// Both are `unknown` in a build that is no release. The date of a named commit may be unknown.
fn describe(commit: &str, date: &str) -> String {
    let commit = commit.get(..COMMIT_CHARACTERS).unwrap_or(commit);
    if date == "unknown" {
        format!("{} ({commit})", build::VERSION)
    } else {
        format!("{} ({commit} {date})", build::VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_a_short_commit_and_its_date_if_they_are_known() {
        let version = env!("CARGO_PKG_VERSION");
        let hash = "1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b";
        let released = describe(hash, "2026-11-26");
        assert_eq!(released, format!("{version} (1a2b3c4d5e6f 2026-11-26)"));
        assert_eq!(
            describe("nightly-7", "unknown"),
            format!("{version} (nightly-7)")
        );
        assert_eq!(
            describe("unknown", "unknown"),
            format!("{version} (unknown)")
        );
    }
}
