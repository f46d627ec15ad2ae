//! Finds what some tests need and the project does not have: real conversations, real errors of
//! providers, the script that starts a real model. A test without them prints that it is skipped.
//! Where they are required it fails instead.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Names the folder with real conversations. The errors and the script are in folders beside it.
const FOLDER: &str = "ANNEAL_TEST_DATA";

/// If this variable is set, a test without its data fails.
const REQUIRED: &str = "ANNEAL_TEST_DATA_REQUIRED";

/// The path of a file or folder below the folder with real conversations, which is the one in
/// `ANNEAL_TEST_DATA`, or `shared/data` next to the project; an empty name is that folder itself.
/// If it does not exist, does as [`skip_without_test_data`] and returns `None`.
#[track_caller]
pub fn find_test_data(name: &str) -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = env::var_os(FOLDER)
        .map_or_else(default, PathBuf::from)
        .join(name);
    if path.exists() {
        return Some(path);
    }
    let shown = path.display();
    skip_without_test_data(&format!("{shown} is missing (set {FOLDER})"));
    None
}

/// Prints that a test is skipped, and why. Panics with the same reason if
/// `ANNEAL_TEST_DATA_REQUIRED` is set.
#[track_caller]
pub fn skip_without_test_data(reason: &str) {
    assert!(
        env::var_os(REQUIRED).is_none(),
        "{REQUIRED} is set, so this test must not be skipped: {reason}"
    );
    println!("skipped: {reason}");
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    /// Runs `a_test_that_needs_data` in a process of its own, without data.
    fn run_without_data(required: Option<&str>) -> Output {
        let mut command = Command::new(env::current_exe().expect("this test's binary"));
        command.args([
            "tests::a_test_that_needs_data",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        command.env(FOLDER, "/nonexistent").env_remove(REQUIRED);
        command.envs(required.map(|value| (REQUIRED, value)));
        command.output().expect("the test runs")
    }

    #[test]
    #[ignore = "run by the other tests, with and without the variable"]
    fn a_test_that_needs_data() {
        assert_eq!(find_test_data("pi-sessions"), None);
    }

    #[test]
    fn a_test_without_its_data_is_skipped_with_a_line() {
        let output = run_without_data(None);
        let printed = String::from_utf8_lossy(&output.stdout);
        let line = "skipped: /nonexistent/pi-sessions is missing (set ANNEAL_TEST_DATA)";
        assert!(output.status.success(), "{output:?}");
        assert!(printed.contains(line), "{printed}");
    }

    #[test]
    fn where_data_is_required_a_test_without_it_fails_and_says_what_is_missing() {
        let output = run_without_data(Some("1"));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{output:?}");
        assert!(
            printed.contains("/nonexistent/pi-sessions is missing"),
            "{printed}"
        );
    }
}
